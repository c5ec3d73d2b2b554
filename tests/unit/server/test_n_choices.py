"""Chat's `n` and Gemini's `candidateCount`: several runs, one answer."""

import asyncio
from typing import Any

import msgspec
import pytest

from treadle.config import ServerSection
from treadle.core.events import (
    ItemAdded,
    ItemDone,
    RoundBroken,
    RoundStarted,
    RunEnded,
    RunEvent,
    RunStarted,
    TextDelta,
)
from treadle.core.items import MessageItem, TextPart
from treadle.core.request import Request, Surface
from treadle.core.usage import Usage
from treadle.protocols.chat import Choices
from treadle.providers.fakes.scripted_model import ScriptTurn
from treadle.providers.fakes.scripted_reply import Faults
from treadle.server.app import App
from treadle.server.delivery.replay_encoders import RunIds
from treadle.server.n_choices import ChoiceEvent, ChoicesWriter
from unit.server.conftest import OpenApp, scripted
from unit.server.held import HeldModel
from unit.server.visit import BOUND_S, JSON_TYPE, LOCAL, Visit

PATH = "/v1/chat/completions"
USAGE = Usage(input_tokens=10, output_tokens=5)


def _ask(app: App, **fields: Any) -> Visit:
    body = {"model": "demo", "n": 2, "messages": [{"role": "user", "content": "Say a word."}], **fields}
    return Visit(app, "POST", PATH, headers=[LOCAL, JSON_TYPE], body=msgspec.json.encode(body))


def _generate(app: App, action: str, **config: Any) -> Visit:
    body = {"contents": [{"parts": [{"text": "Say a word."}]}], "generationConfig": {"candidateCount": 2, **config}}
    path = f"/v1beta/models/demo:{action}"
    return Visit(app, "POST", path, headers=[LOCAL, JSON_TYPE], body=msgspec.json.encode(body))


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


async def test_each_candidate_is_a_run_and_usage_is_their_sum(open_app: OpenApp) -> None:
    """One response of Gemini, the candidates numbered from zero."""
    async with open_app(scripted(ScriptTurn(text="Ja.", usage=USAGE), ScriptTurn(text="Nein.", usage=USAGE))) as app:
        visit = await _generate(app, "generateContent").run()
        runs = (await Visit(app, "GET", "/treadle/v1/runs").run()).json()["runs"]
    answer = visit.json()
    assert (visit.status, len(runs)) == (200, 2)
    assert [candidate["index"] for candidate in answer["candidates"]] == [0, 1]
    texts = {candidate["content"]["parts"][0]["text"] for candidate in answer["candidates"]}
    assert texts == {"Ja.", "Nein."}
    assert answer["usageMetadata"]["totalTokenCount"] == 30


@pytest.mark.parametrize("query", ["?alt=sse", ""])
async def test_candidates_are_streamed_together(open_app: OpenApp, query: str) -> None:
    """As frames or as one array; each candidate has its own finish."""
    async with open_app(scripted(ScriptTurn(text="Ja."), ScriptTurn(text="Nein."))) as app:
        visit = await _generate(app, f"streamGenerateContent{query}").run()
    if query:
        frames = [msgspec.json.decode(line[6:]) for line in visit.body.decode().split("\n\n") if line]
    else:
        frames = visit.json()
    entries = [entry for frame in frames for entry in frame["candidates"]]
    texts = {0: "", 1: ""}
    for entry in entries:
        texts[entry["index"]] += "".join(part["text"] for part in entry["content"]["parts"])
    assert set(texts.values()) == {"Ja.", "Nein."}
    assert sorted(entry["index"] for entry in entries if "finishReason" in entry) == [0, 1]


async def test_a_candidate_that_fails_fails_them_all(open_app: OpenApp) -> None:
    """In Gemini's envelope, with the upstream's status."""
    refused = ScriptTurn(faults=Faults(status=429, retry_after_s=7.0))
    async with open_app(scripted(refused, refused)) as app:
        visit = await _generate(app, "generateContent").run()
    assert (visit.status, visit.json()["error"]["status"]) == (429, "RESOURCE_EXHAUSTED")


@pytest.mark.parametrize("count", [-1, 1_000, "two"])
async def test_a_number_of_candidates_that_cannot_be_is_refused(app: App, count: Any) -> None:
    """In Gemini's envelope, naming the field."""
    visit = await _generate(app, "generateContent", candidateCount=count).run()
    error = visit.json()["error"]
    assert (visit.status, error["status"]) == (400, "INVALID_ARGUMENT")
    assert "generationConfig.candidateCount" in error["message"]


STARTED = [RunStarted(run_id=f"run_{n}", response_id=f"chatcmpl-{n}", model="m", created_at=1.0) for n in range(2)]
ROUND = RoundStarted(round=1, fingerprint="f")
COMPLETED = RunEnded(status="completed")


def _said(index: int, text: str) -> list[RunEvent]:
    item = MessageItem(role="assistant", content=(TextPart(text=text),))
    begun = [ItemAdded(index=index, item=MessageItem(role="assistant")), TextDelta(index=index, text=text)]
    return [*begun, ItemDone(index=index, item=item)]


def _told(told: list[tuple[int, RunEvent]], *, streams: bool) -> tuple[ChoicesWriter, bytes]:
    request = Request(protocol="chat", model="m", surface=Surface(stream=streams, choices=2))
    telling = ChoicesWriter(lambda: Choices(request, RunIds("run_0"), 2), 2, streams=streams)
    frames = [frame for choice, event in told for frame in telling.feed(ChoiceEvent(event=event, choice=choice))]
    return telling, b"".join(frames)


def _both(first: list[RunEvent], second: list[RunEvent]) -> list[tuple[int, RunEvent]]:
    return [*((0, event) for event in first), *((1, event) for event in second)]


def test_the_answer_is_named_after_its_first_choice_whoever_is_heard_first() -> None:
    """So that it is the same answer whenever it is told."""
    first, second = [STARTED[0], *_said(0, "A"), COMPLETED], [STARTED[1], *_said(0, "B"), COMPLETED]
    told = _both(first, second)
    bodies = {_told(order, streams=False)[0].body() for order in (told, [*told[5:], *told[:5]])}
    assert len(bodies) == 1
    assert b'"chatcmpl-0"' in bodies.pop()


def test_a_choice_that_was_broken_off_is_told_once() -> None:
    """In one piece it leaves out what nobody saw; as a stream it goes on, or ends in an error."""
    broken: list[RunEvent] = [STARTED[1], ROUND, *_said(0, "Bro")[:2], RoundBroken(round=1), ROUND]
    first: list[RunEvent] = [STARTED[0], ROUND, *_said(0, "A"), COMPLETED]
    plain: list[RunEvent] = [STARTED[1], ROUND, *_said(1, "Brown"), COMPLETED]
    whole = _told(_both(first, [*broken, *plain[2:]]), streams=False)[0]
    assert whole.body() == _told(_both(first, plain), streams=False)[0].body()
    telling, stream = _told(_both(first, [*broken, *_said(1, "Brown"), COMPLETED]), streams=True)
    assert (stream.count(b'"Bro"'), stream.count(b'"wn"'), telling.ended) == (1, 1, COMPLETED)
    telling, stream = _told(_both(first, [*broken, *_said(1, "Green"), COMPLETED]), streams=True)
    assert (b"Green" in stream, b"stream_diverged" in stream) == (False, True)
    assert telling.ended is not None
    assert telling.ended.status == "failed"
