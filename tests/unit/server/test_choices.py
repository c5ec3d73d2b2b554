"""Chat's `n`: several runs, one completion."""

import asyncio
from typing import Any

import msgspec
import pytest

from treadle.canon.usage import Usage
from treadle.config import ServerSection
from treadle.server.app import App
from treadle.upstream.reply import Faults
from treadle.upstream.script import ScriptTurn
from unit.server.conftest import OpenApp, scripted
from unit.server.held import HeldModel
from unit.server.visit import BOUND_S, JSON_TYPE, LOCAL, Visit

PATH = "/v1/chat/completions"
USAGE = Usage(input_tokens=10, output_tokens=5)


def _ask(app: App, **fields: Any) -> Visit:
    body = {"model": "demo", "n": 2, "messages": [{"role": "user", "content": "Say a word."}], **fields}
    return Visit(app, "POST", PATH, headers=[LOCAL, JSON_TYPE], body=msgspec.json.encode(body))


def _chunks(visit: Visit) -> list[Any]:
    frames = [line.removeprefix("data: ") for line in visit.body.decode().split("\n\n") if line]
    assert frames[-1] == "[DONE]"
    assert frames.count("[DONE]") == 1
    return [msgspec.json.decode(frame) for frame in frames[:-1]]


async def test_each_choice_is_a_run_and_usage_is_their_sum(open_app: OpenApp) -> None:
    """One completion with an id of its own, the choices numbered from zero."""
    async with open_app(scripted(ScriptTurn(text="Ja.", usage=USAGE), ScriptTurn(text="Nein.", usage=USAGE))) as app:
        visit = await _ask(app).run()
        runs = (await Visit(app, "GET", "/treadle/v1/runs").run()).json()["runs"]
    answer = visit.json()
    assert (visit.status, answer["object"], len(runs)) == (200, "chat.completion", 2)
    assert [choice["index"] for choice in answer["choices"]] == [0, 1]
    assert {choice["message"]["content"] for choice in answer["choices"]} == {"Ja.", "Nein."}
    assert (answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"]) == (20, 10)
    assert visit.headers["x-treadle-run"] in {run["id"] for run in runs}


async def test_choices_are_streamed_together(open_app: OpenApp) -> None:
    """Every chunk has the same id, each choice its own finish, and the stream one end."""
    async with open_app(scripted(ScriptTurn(text="Ja."), ScriptTurn(text="Nein."))) as app:
        chunks = _chunks(await _ask(app, stream=True).run())
    texts = {0: "", 1: ""}
    for chunk in chunks:
        for choice in chunk["choices"]:
            texts[choice["index"]] += choice["delta"].get("content") or ""
    finishes = [choice["index"] for chunk in chunks for choice in chunk["choices"] if choice["finish_reason"]]
    assert set(texts.values()) == {"Ja.", "Nein."}
    assert (len({chunk["id"] for chunk in chunks}), sorted(finishes)) == (1, [0, 1])


async def test_a_choice_that_fails_fails_them_all(open_app: OpenApp) -> None:
    """A completion is whole or an error; the upstream's refusal keeps its status."""
    refused = ScriptTurn(faults=Faults(status=429, retry_after_s=7.0))
    async with open_app(scripted(refused, refused)) as app:
        visit = await _ask(app).run()
    assert (visit.status, visit.headers["retry-after"]) == (429, "7")


async def test_a_client_that_goes_away_ends_every_run(open_app: OpenApp) -> None:
    """Nobody is left to read any of them."""
    model = HeldModel()
    async with open_app(model) as app:
        visit = _ask(app, stream=True).begin()
        await visit.until(b"Hello")
        visit.leave()
        await visit.done()
        async with asyncio.timeout(BOUND_S):
            await model.closed.wait()
        runs = (await Visit(app, "GET", "/treadle/v1/runs").run()).json()["runs"]
    assert [run["status"] for run in runs] == ["cancelled", "cancelled"]


async def test_a_silent_stream_of_choices_is_kept_alive(open_app: OpenApp) -> None:
    """The empty chunk belongs to a choice that goes on."""
    model = HeldModel()
    async with open_app(model, ServerSection(keep_alive_s=0.01)) as app:
        visit = _ask(app, stream=True).begin()
        await visit.until(b'"delta":{}')
        model.released.set()
        await visit.done()
    assert [chunk["choices"][0]["delta"] for chunk in _chunks(visit)].count({}) >= 1


async def test_a_run_that_cannot_start_ends_those_that_did(open_app: OpenApp, monkeypatch: pytest.MonkeyPatch) -> None:
    """The request is refused as a whole."""
    model = HeldModel()
    async with open_app(model) as app:
        started: list[Any] = []
        start = app.service.start

        async def once(*given: Any, **named: Any) -> Any:
            if started:
                app.service.is_draining = True
            started.append(await start(*given, **named))
            return started[-1]

        monkeypatch.setattr(app.service, "start", once)
        visit = await _ask(app).run()
        assert (visit.status, len(started)) == (503, 1)
        assert (await started[0].wait()).status == "cancelled"


@pytest.mark.parametrize("n", [0, -1, 1_000, "two"])
async def test_a_number_that_cannot_be_is_refused(app: App, n: Any) -> None:
    """The field is named."""
    visit = await _ask(app, n=n).run()
    assert (visit.status, visit.json()["error"]["param"]) == (400, "n")
