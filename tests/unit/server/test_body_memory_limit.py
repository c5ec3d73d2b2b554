"""Bodies are counted from their arrival until their requests are answered, and refused before memory is gone."""

import pytest

from treadle.config import ServerSection
from treadle.server.body_memory_limit import BodiesInFlight
from treadle.server.http_exchange import HttpError
from unit.server.conftest import OpenApp
from unit.server.visit import JSON_TYPE, LOCAL, Visit

PATHS = {
    "/v1/chat/completions": ("error", "code"),
    "/v1/responses": ("error", "code"),
    "/v1/messages": ("error", "type"),
    "/v1beta/models/demo:generateContent": ("error", "status"),
    "/treadle/v1/runs": ("error", "code"),
}
PIECES = [b'{"a":"', b"x" * 1_100, b"x" * 1_100, b'"}']


def test_what_would_be_too_much_is_refused_and_not_counted() -> None:
    """What is released can be taken by others."""
    bodies = BodiesInFlight(10)
    bodies.add(6)
    with pytest.raises(HttpError) as refused:
        bodies.add(5)
    assert (refused.value.http_status, refused.value.retry_after) == (503, 1.0)
    bodies.add(4)
    bodies.release(10)
    bodies.add(10)


@pytest.mark.parametrize("path", PATHS)
async def test_a_body_that_would_be_too_much_gets_503_and_when_to_come_back(open_app: OpenApp, path: str) -> None:
    """In the envelope of each API; another body that waits is what takes the room."""
    async with open_app(server=ServerSection(body_bytes_max=1_024 * 4, bodies_bytes_max=1_024 * 4)) as app:
        app.service.bodies.add(3_000)
        headers = [LOCAL, JSON_TYPE]
        refused = await Visit(app, "POST", path, headers=headers, body=PIECES).run()
        app.service.bodies.release(3_000)
        later = await Visit(app, "POST", path, headers=headers, body=PIECES).run()
    outer, inner = PATHS[path]
    said = refused.json()[outer][inner]
    assert (refused.status, refused.headers["retry-after"]) == (503, "1")
    assert said in ("too_many_bytes_in_flight", "overloaded_error", "UNAVAILABLE")
    assert later.status == 400


async def test_answered_requests_give_back_what_they_took(open_app: OpenApp) -> None:
    """Whether they were answered, refused or broken off."""
    async with open_app(server=ServerSection(body_bytes_max=2_000, bodies_bytes_max=2_000)) as app:
        for _ in range(5):
            for body in (PIECES[:2], [b"{", b"x" * 1_500, b"x" * 1_500], [b"{}", b""]):
                await Visit(app, "POST", "/v1/chat/completions", headers=[LOCAL, JSON_TYPE], body=body).run()
        app.service.bodies.add(2_000)


async def test_a_limit_below_that_of_one_body_is_raised_to_it(open_app: OpenApp) -> None:
    """A body that is allowed could never be read otherwise."""
    async with open_app(server=ServerSection(body_bytes_max=4_096, bodies_bytes_max=1_024)) as app:
        visit = await Visit(app, "POST", "/v1/chat/completions", headers=[LOCAL, JSON_TYPE], body=PIECES).run()
    assert visit.status == 400
