"""What a stream says when nothing happens: one harmless real event of its own protocol."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import msgspec
import pytest

from treadle.config import ServerSection
from treadle.core.events import ModelEvent
from treadle.core.plan import Plan
from unit.server.conftest import OpenApp
from unit.server.held import HeldModel
from unit.server.visit import JSON_TYPE, LOCAL, Silences, Visit

ASK: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]
CASES: dict[str, tuple[str, dict[str, Any], bytes]] = {
    "chat": ("/v1/chat/completions", {"stream": True, "messages": ASK}, b'"delta":{}'),
    "responses": ("/v1/responses", {"stream": True, "input": "hi"}, b"event: response.in_progress"),
    "messages": ("/v1/messages", {"stream": True, "max_tokens": 9, "messages": ASK}, b"event: ping"),
    "gemini": (
        "/v1beta/models/demo:streamGenerateContent?alt=sse",
        {"contents": [{"parts": [{"text": "hi"}]}]},
        b'"text":""',
    ),
}


class SilentModel(HeldModel):
    """Says nothing at all until it is released."""

    async def stream(self, plan: Plan, run_id: str) -> AsyncGenerator[list[ModelEvent], None]:
        """Wait, then play the answer."""
        self.asked.set()
        await self.released.wait()
        async for batch in super().stream(plan, run_id):
            yield batch


def _ask(app: Any, api: str) -> Visit:
    path, body, _ = CASES[api]
    return Visit(app, "POST", path, headers=[LOCAL, JSON_TYPE], body=msgspec.json.encode({"model": "m", **body}))


@pytest.mark.parametrize("api", CASES)
async def test_silence_is_broken_by_a_harmless_event_of_the_protocol(open_app: OpenApp, api: str) -> None:
    """No comment, which some clients cannot read, and the answer is whole afterwards."""
    model = HeldModel()
    async with open_app(model, ServerSection(keep_alive_s=0.01)) as app:
        visit = _ask(app, api).begin()
        await visit.until(b"Hello")
        await visit.until_after(len(visit.body), CASES[api][2])
        model.released.set()
        await visit.done()
    assert not any(line.startswith(b":") for line in visit.body.split(b"\n"))
    assert (visit.is_complete, b"there." in visit.body) == (True, True)


@pytest.mark.parametrize("api", CASES)
async def test_nothing_is_said_before_the_upstream_says_something(
    open_app: OpenApp, api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The status is still open: the refusal that may come is an HTTP error."""
    silences = Silences(monkeypatch)
    model = SilentModel()
    async with open_app(model, ServerSection(keep_alive_s=0.005)) as app:
        visit = _ask(app, api).begin()
        await silences.until(3)
        assert visit.status == 0
        model.released.set()
        async with asyncio.timeout(5):
            await visit.done()
    assert visit.status == 200
