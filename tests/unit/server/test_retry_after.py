"""When to come back: an upstream that says so is passed on, whatever its status."""

from collections.abc import AsyncGenerator
from typing import Any

import msgspec
import pytest

from treadle.access.key_accounts import KeyAccounts
from treadle.core.errors import CROWDED, Exhausted, StoreError, TreadleError, UpstreamTimeout
from treadle.core.events import ModelEvent
from treadle.core.plan import Plan
from treadle.providers.fakes.scripted_model import ScriptTurn
from treadle.providers.fakes.scripted_reply import Faults
from treadle.runs.run_service import Runs
from unit.server.conftest import OpenApp, scripted
from unit.server.visit import JSON_TYPE, LOCAL, Visit

ASKED: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"model": "demo", "messages": [{"role": "user", "content": "hi"}]},
    "/v1/responses": {"model": "demo", "input": "hi"},
    "/v1/messages": {"model": "demo", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]},
    "/v1beta/models/demo:generateContent": {"contents": [{"parts": [{"text": "hi"}]}]},
}


@pytest.mark.parametrize("path", ASKED)
@pytest.mark.parametrize(
    ("status", "shown"), [(400, 400), (404, 404), (408, 504), (429, 429), (500, 502), (502, 502), (529, 503)]
)
async def test_what_the_upstream_says_is_passed_on(open_app: OpenApp, path: str, status: int, shown: int) -> None:
    """Rounded up to whole seconds, on every API."""
    model = scripted(ScriptTurn(faults=Faults(status=status, retry_after_s=6.2)))
    async with open_app(model) as app:
        body = msgspec.json.encode(ASKED[path])
        visit = await Visit(app, "POST", path, headers=[LOCAL, JSON_TYPE], body=body).run()
    assert (visit.status, visit.headers["retry-after"]) == (shown, "7")


class FullModel:
    """A model that is not asked: all its places are taken."""

    async def stream(self, plan: Plan, run_id: str) -> AsyncGenerator[list[ModelEvent], None]:
        """Refuse."""
        raise UpstreamTimeout("no place free", code=CROWDED)
        yield []


@pytest.mark.parametrize("path", ASKED)
async def test_who_found_no_place_is_told_to_come_back(open_app: OpenApp, path: str) -> None:
    """The upstream did not fail, so it is no gateway timeout."""
    async with open_app(FullModel()) as app:
        body = msgspec.json.encode(ASKED[path])
        visit = await Visit(app, "POST", path, headers=[LOCAL, JSON_TYPE], body=body).run()
    assert visit.status == 503
    assert int(visit.headers["retry-after"]) > 0
    assert "no place free" in visit.json()["error"]["message"]


async def test_gemini_says_it_where_its_clients_look(open_app: OpenApp) -> None:
    """They read no header: a refusal with a time has a detail that says it, one without has none."""
    path = "/v1beta/models/demo:generateContent"
    found = []
    for faults in (Faults(status=429, retry_after_s=6.2), Faults(status=400)):
        async with open_app(scripted(ScriptTurn(faults=faults))) as app:
            body = msgspec.json.encode(ASKED[path])
            visit = await Visit(app, "POST", path, headers=[LOCAL, JSON_TYPE], body=body).run()
        found.append(msgspec.json.decode(visit.body)["error"]["details"])
    assert found == [[{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7s"}], []]


async def test_a_status_that_is_not_worth_a_retry_says_nothing(open_app: OpenApp) -> None:
    """Nobody is told to wait for what will not change."""
    model = scripted(ScriptTurn(faults=Faults(status=400)))
    path = "/v1/chat/completions"
    async with open_app(model) as app:
        body = msgspec.json.encode(ASKED[path])
        visit = await Visit(app, "POST", path, headers=[LOCAL, JSON_TYPE], body=body).run()
    assert (visit.status, "retry-after" in visit.headers) == (400, False)


REFUSED: dict[str, tuple[TreadleError | None, int, str | None]] = {
    "draining": (None, 503, "1"),
    "the store is away": (StoreError("away"), 503, "1"),
    "the disk is full": (StoreError("full", code="store_full"), 503, "1"),
    "the journal is damaged": (StoreError("damaged", code="store_corrupt"), 503, None),
    "another secret": (StoreError("other", code="store_secret"), 503, "1"),
    "a rate": (Exhausted("too many", code="rate_limit_requests", retry_after_s=11.2), 429, "12"),
    "a budget that does not come back": (Exhausted("spent", code="budget_exceeded"), 429, None),
}
"""Why a request is refused before anything is asked, the status, and what the head of the answer says."""


@pytest.mark.parametrize("path", [*ASKED, "/treadle/v1/runs"])
@pytest.mark.parametrize("why", REFUSED)
async def test_who_is_refused_is_told_when_to_come_back(
    open_app: OpenApp, monkeypatch: pytest.MonkeyPatch, path: str, why: str
) -> None:
    """Wherever coming back helps, the same on every API; and where it does not, nothing."""
    error, status, shown = REFUSED[why]

    async def refuse(*args: object, **named: object) -> Any:
        assert error is not None
        raise error

    async with open_app() as app:
        if error is None:
            app.service.is_draining = True
        monkeypatch.setattr(Runs, "start", refuse)
        monkeypatch.setattr(KeyAccounts, "admit", refuse)
        body = msgspec.json.encode(ASKED.get(path, {"input": "hi"}))
        visit = await Visit(app, "POST", path, headers=[LOCAL, JSON_TYPE], body=body).run()
        app.service.is_draining = False
        monkeypatch.undo()
    assert (visit.status, visit.headers.get("retry-after")) == (status, shown)
