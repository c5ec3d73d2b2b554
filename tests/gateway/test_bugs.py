"""What other gateways get wrong, as whole runs in every pair of protocols; each test names its class of defect.

What one codec shows alone is proven beside that codec; here the loop, the journal and both protocols work together.
"""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from gateway.rounds import PAIRS, QUESTION, Canned, Rounds, Told, opened
from stream import gemini_shapes, messages_shapes, responses_shapes, shapes
from stream.answers import as_run, decode
from stream.pairs import Seen, function, seen_of
from treadle.core.events import (
    ArgumentsDelta,
    ItemAdded,
    ItemDone,
    Numbered,
    RunEnded,
    RunStarted,
    TextDelta,
    ToolFinished,
)
from treadle.core.ids import CountingIds
from treadle.core.items import CallItem, MessageItem, ResultItem, TextPart, text_message, text_of, text_result
from treadle.core.plan import Plan
from treadle.core.request import Request, Surface
from treadle.core.tool_definitions import ToolSpec
from treadle.core.usage import Usage
from treadle.protocols.protocol_registry import PROTOCOLS
from treadle.protocols.sse import SseReader
from treadle.providers.fakes.scripted_model import ScriptTurn
from treadle.providers.fakes.scripted_reply import ReplyCall
from treadle.providers.provider_model import open_call
from treadle.tools import ToolContext, tool

CLIENTS = pytest.mark.parametrize("client", PROTOCOLS)
USAGE = Usage(input_tokens=5, output_tokens=2)
THEIRS = (ToolSpec(name="theirs"),)
ANSWER = ScriptTurn(text="It is done.", usage=USAGE)


@tool(effect="read")
def count(n: int) -> str:
    """Count."""
    return f"counted {n}"


@tool(effect="destructive")
def erase(name: str) -> str:
    """Erase."""
    raise AssertionError(f"erased {name} without being asked")


@tool(effect="read", parallel=True)
async def whoami(context: ToolContext) -> str:
    """Tell which run asks."""
    await asyncio.sleep(0)
    return context.run_id


def calling(*calls: ReplyCall, **fields: Any) -> ScriptTurn:
    """Return a turn that calls tools."""
    return ScriptTurn(calls=calls, usage=USAGE, **fields)


def counting(n: int, call_id: str | None = None) -> ReplyCall:
    """Return a call of a server tool."""
    return ReplyCall(name="count", args={"n": n}, id=call_id)


async def tell_all(rounds: Rounds, **fields: Any) -> dict[tuple[str, str], Told]:
    """Run the script once in every pair, all at the same time."""
    told = await asyncio.gather(*(rounds.tell(client, upstream, **fields) for client, upstream in PAIRS))
    return dict(zip(PAIRS, told, strict=True))


ONCE: dict[str, tuple[bytes, ...]] = {
    "chat": (b'"role":"assistant"', b'"finish_reason":"', b"data: [DONE]"),
    "responses": (b"event: response.created\n", b"event: response.in_progress\n", b"event: response.completed\n"),
    "messages": (b"event: message_start\n", b"event: message_delta\n", b"event: message_stop\n"),
    "gemini": (b'"finishReason":',),
}
"""What stands in a stream exactly once."""


async def test_b01_one_lifecycle_whatever_the_rounds() -> None:
    """Three rounds are one response: opened once, ended once, under one id, with the usage of all of them."""
    turns = (calling(counting(1)), calling(counting(2), text="More. "), ANSWER)
    async with opened(*turns, tools=[count]) as rounds:
        for (client, _), told in (await tell_all(rounds)).items():
            assert [told.raw.count(mark) for mark in ONCE[client]] == [1] * len(ONCE[client])
            assert told.started.response_id.encode() in told.raw
            assert told.seen.usage == Usage(input_tokens=15, output_tokens=6)
            assert told.seen.stop == "done"
            assert told.seen.text.replace("\n", "").replace(" ", "") == "More.Itisdone."


async def test_b02_every_round_sees_all_results_before_it() -> None:
    """The loop really loops, and what an upstream is sent holds every earlier call and result, in order."""
    turns = (calling(counting(1)), calling(counting(2), counting(3)), ANSWER)
    async with opened(*turns, tools=[count]) as rounds:
        for (_, upstream), told in (await tell_all(rounds)).items():
            sent = [_results_sent(upstream, plan) for plan in told.plans]
            assert sent == [[], ["counted 1"], ["counted 1", "counted 2", "counted 3"]]


def _sent(protocol: Any, plan: Plan, provider: str = "") -> bytes:
    """Return the request that a provider of this protocol is sent."""
    return open_call(protocol, plan, CountingIds(), provider).body


def _results_sent(upstream: str, plan: Plan) -> list[str]:
    """Return the results that an upstream reads in the request of a plan."""
    request = PROTOCOLS[upstream].codec.read_request(_sent(upstream, plan))
    return [text_of(item.output) for item in request.items if isinstance(item, ResultItem)]


async def test_b03_limits_are_absolute_and_unknown_names_count() -> None:
    """A model that calls nothing but unknown tools is stopped with an answer, and every call has its result."""
    turns = tuple(calling(ReplyCall(name="nope", args={"n": n})) for n in range(3))
    async with opened(*turns, ANSWER, tools=[count], max_iterations=3) as rounds:
        for told in (await tell_all(rounds)).values():
            assert (told.ended.status, told.ended.limit, told.ended.rounds) == ("completed", "max_iterations", 3)
            results = [event.result.rc for event in told.events if isinstance(event, ToolFinished)]
            assert results == ["unknown_tool"] * 3
            assert (told.seen.text, told.seen.calls, told.seen.stop) == ("It is done.", (), "done")


async def test_b04_and_b38_a_response_goes_on_after_a_server_tool() -> None:
    """The next request sees the call, its result and the answer; the instructions of the first do not leak into it."""
    async with opened(calling(counting(1)), ANSWER, tools=[count]) as rounds:
        for upstream in PROTOCOLS:
            first = await rounds.tell("responses", upstream, instructions="SECRET ORDERS")
            again = text_message("user", "and now?")
            second = await rounds.tell("responses", upstream, again, previous_response_id=first.started.response_id)
            body = _sent(upstream, second.plans[0])
            assert b"SECRET ORDERS" in _sent(upstream, first.plans[0])
            assert b"SECRET ORDERS" not in body
            assert all(word in body for word in (b"counted 1", b"It is done.", b"and now?"))


async def test_b06_places_are_dense_and_unique() -> None:
    """However many rounds and calls there were, a client's items are numbered from zero without gaps."""
    own = [ReplyCall(name="theirs", args={"n": n}) for n in range(3)]
    turns = (calling(counting(1)), calling(*own, text="Yours. "))
    async with opened(*turns, tools=[count]) as rounds:
        for (client, _), told in (await tell_all(rounds, tools=THEIRS)).items():
            places = PLACES[client](_frames(told.raw))
            assert places == list(range(len(places)))
            assert len(places) >= 3
            assert told.seen.calls == tuple(function("theirs", json.dumps({"n": n})) for n in range(3))
            assert told.seen.stop == "calls"


def _frames(raw: bytes) -> list[dict[str, Any]]:
    return [json.loads(frame.data) for frame in SseReader().feed(raw) if frame.data != "[DONE]"]


def _chat_places(frames: list[dict[str, Any]]) -> list[int]:
    deltas = [choice["delta"] for frame in frames for choice in frame["choices"]]
    return list(dict.fromkeys(call["index"] for delta in deltas for call in delta.get("tool_calls", ())))


def _gemini_places(frames: list[dict[str, Any]]) -> list[int]:
    """Gemini has no places; the ids of its calls must be as many as the calls."""
    parts = [part for frame in frames for part in frame["candidates"][0]["content"]["parts"]]
    calls = [part["functionCall"]["id"] for part in parts if "functionCall" in part]
    return [calls.index(call) for call in calls]


PLACES: dict[str, Callable[[list[dict[str, Any]]], list[int]]] = {
    "chat": _chat_places,
    "responses": lambda frames: [
        frame["output_index"] for frame in frames if frame["type"] == "response.output_item.added"
    ],
    "messages": lambda frames: [frame["index"] for frame in frames if frame["type"] == "content_block_start"],
    "gemini": _gemini_places,
}


@CLIENTS
def test_b13_what_was_never_streamed_is_told_at_the_end(client: Any) -> None:
    """Text and arguments of which only a beginning came as deltas, or nothing at all, arrive whole."""
    message = MessageItem(id="msg_1", role="assistant", content=(TextPart(text="Hello."),))
    first = CallItem(id="fc_1", call_id="call_1", name="theirs", arguments='{"n":1}')
    second = CallItem(id="fc_2", call_id="call_2", name="theirs", arguments='{"n":2}')
    events = [
        RunStarted(run_id="run_1", response_id="resp_1", model="m", created_at=0),
        ItemAdded(index=0, item=msgspec.structs.replace(message, content=())),
        TextDelta(index=0, text="Hel"),
        ItemDone(index=0, item=message),
        ItemAdded(index=1, item=msgspec.structs.replace(first, arguments="")),
        ArgumentsDelta(index=1, text='{"n"'),
        ItemDone(index=1, item=first),
        ItemDone(index=2, item=second),
        RunEnded(status="requires_action", stop="calls", usage=USAGE),
    ]
    request = Request(protocol=client, model="m", surface=Surface(stream=True, include_usage=True))
    encoder = PROTOCOLS[client].codec.encoder(request, CountingIds())
    raw = b"".join(frame for event in events for frame in encoder.feed(event))
    calls = (function("theirs", '{"n":1}'), function("theirs", '{"n":2}'))
    for body in (raw, encoder.body()):
        seen = seen_of(decode(PROTOCOLS[client].codec.decoder(CountingIds()), body))
        assert seen == Seen(text="Hello.", calls=calls, stop="calls", usage=USAGE)


async def test_b17_ids_are_unique_in_the_conversation() -> None:
    """An upstream that begins to count again in every round confuses nobody: not itself, not the client."""
    again = ReplyCall(name="theirs", id="functions.count:0")
    turns = (calling(counting(1, "functions.count:0")), calling(counting(2, "functions.count:0"), again))
    async with opened(*turns, tools=[count]) as rounds:
        for (_, upstream), told in (await tell_all(rounds, tools=THEIRS)).items():
            calls = [event.item for event in told.events if isinstance(event, ItemDone)]
            ids = [item.call_id for item in calls if isinstance(item, CallItem)]
            assert len(set(ids)) == len(ids) == 3
            assert _results_sent(upstream, told.plans[1]) == ["counted 1"]
            assert told.seen.calls == (function("theirs"),)


SEALED: dict[str, tuple[bytes, bytes]] = {
    "chat": (
        shapes.stream(
            shapes.chunk({"reasoning": "hm", "reasoning_details": [{"type": "reasoning.encrypted", "data": "SEAL"}]}),
            shapes.calls(shapes.call(0, "call_a", "theirs", "{}")),
            shapes.finish("tool_calls"),
            "[DONE]",
        ),
        b"SEAL",
    ),
    "responses": (
        responses_shapes.frames(
            responses_shapes.done({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "SEAL"}),
            *responses_shapes.called(responses_shapes.call("{}", name="theirs"), 1),
            responses_shapes.completed(),
        ),
        b"SEAL",
    ),
    "messages": (
        messages_shapes.stream(
            messages_shapes.start(0, "thinking"),
            messages_shapes.delta(0, "signature_delta", signature="SEAL"),
            messages_shapes.stop(0),
            *messages_shapes.called(1, "call_a", "theirs", "{}"),
            *messages_shapes.end("tool_use"),
        ),
        b"SEAL",
    ),
    "gemini": (
        gemini_shapes.stream(
            gemini_shapes.chunk({"thoughtSignature": "U0VBTA==", **gemini_shapes.call("theirs", {}, "call_a")}),
            gemini_shapes.end(),
        ),
        b"U0VBTA==",
    ),
}
"""A call by each upstream that holds state only it can read, and that state."""


def _first(client: str) -> dict[str, Any]:
    """Return a client's first request, with its tool."""
    plan = Plan(items=(QUESTION,), model="m", tools=THEIRS)
    return json.loads(_sent(client, plan))


def _resent(client: str, answer: dict[str, Any]) -> dict[str, Any]:
    """Return the request in which a client sends the answer back as it got it, with the result of its tool."""
    body = _first(client)
    match client:
        case "chat":
            said = answer["choices"][0]["message"]
            result = {"role": "tool", "tool_call_id": said["tool_calls"][0]["id"], "content": "seven"}
            body["messages"] += [said, result]
        case "responses":
            called = answer["output"][-1]
            result = {"type": "function_call_output", "call_id": called["call_id"], "output": "seven"}
            body["input"] += [*answer["output"], result]
        case "messages":
            result = {"type": "tool_result", "tool_use_id": answer["content"][-1]["id"], "content": "seven"}
            said = {"role": "assistant", "content": answer["content"]}
            body["messages"] += [said, {"role": "user", "content": [result]}]
        case _:
            said = answer["candidates"][0]["content"]
            called = next(part["functionCall"] for part in said["parts"] if "functionCall" in part)
            result = {"id": called["id"], "name": "theirs", "response": {"output": "seven"}}
            body["contents"] += [said, {"role": "user", "parts": [{"functionResponse": result}]}]
    return body


def _read(client: str, upstream: str, body: dict[str, Any]) -> Request:
    request = PROTOCOLS[client].codec.read_request(json.dumps(body).encode())
    return msgspec.structs.replace(request, model=upstream, surface=Surface(), store=True)


@CLIENTS
async def test_b19_sealed_state_survives_every_client_and_goes_back_to_its_maker_only(client: Any) -> None:
    """A client that sends everything back returns the seal to its maker, even where its protocol cannot carry it."""
    voices = {name: Canned(name, body, MINIMAL[name], provider="maker") for name, (body, _) in SEALED.items()}
    async with opened(voices=voices) as rounds:
        for upstream, (_, seal) in SEALED.items():
            first = await rounds.run(_read(client, upstream, _first(client)))
            second = await rounds.run(_read(client, upstream, _resent(client, json.loads(first.raw))))
            (plan,) = second.plans
            sent = {name: _sent(name, plan, "other") for name in PROTOCOLS}
            assert _sent(upstream, plan, "maker").count(seal) == 1
            assert [name for name, body in sent.items() if seal in body] == []
            assert second.seen.text == "Hi"


@pytest.mark.parametrize("stop", ["length", "filtered"])
async def test_b21_no_tool_runs_after_an_answer_that_was_cut(stop: Any) -> None:
    """What a truncated or filtered answer calls is not run, and the client learns how it ended."""
    async with opened(calling(counting(1), finish=stop), tools=[count]) as rounds:
        for told in (await tell_all(rounds)).values():
            assert [event.result.rc for event in told.events if isinstance(event, ToolFinished)] == ["cancelled"]
            assert (told.ended.status, told.seen.stop, told.seen.calls) == ("incomplete", stop, ())


async def test_b32_an_unknown_tool_is_a_result_and_no_crash() -> None:
    """The model reads that there is no such tool, and goes on; its siblings ran."""
    async with opened(calling(ReplyCall(name="nope"), counting(1)), ANSWER, tools=[count]) as rounds:
        for (_, upstream), told in (await tell_all(rounds)).items():
            unknown, counted = _results_sent(upstream, told.plans[1])
            assert ('"unknown_tool"' in unknown, counted) == (True, "counted 1")
            assert (told.ended.status, told.seen.text) == ("completed", "It is done.")


async def test_b33_a_call_that_nobody_approved_is_denied_and_its_siblings_run() -> None:
    """The denial is the result of that one call."""
    turns = (calling(ReplyCall(name="erase", args={"name": "all"}), counting(1)), ANSWER)
    async with opened(*turns, tools=[count, erase]) as rounds:
        for told in (await tell_all(rounds)).values():
            results = [(event.call.name, event.result.rc) for event in told.events if isinstance(event, ToolFinished)]
            assert results == [("erase", "denied"), ("count", "ok")]
            assert told.seen.text == "It is done."


async def test_b36_requests_at_the_same_time_share_nothing() -> None:
    """Each of many streamed requests has its own run, its own context in the tool, its own answer."""
    async with opened(calling(ReplyCall(name="whoami")), ANSWER, tools=[whoami]) as rounds:
        told = await tell_all(rounds)
        assert len({each.started.run_id for each in told.values()}) == len(PAIRS)
        for each in told.values():
            (finished,) = [event for event in each.events if isinstance(event, ToolFinished)]
            assert text_of(finished.result.output) == each.started.run_id


class Durable(Rounds):
    """Looks, whenever a client is told of an end, whether the journal has it already."""

    looked = 0

    async def look(self, numbered: Numbered, run_id: str) -> None:
        """Read the run again as another client would."""
        if isinstance(numbered.event, RunEnded):
            row = await self.runtime.store.find_run(run_id)
            assert row is not None
            assert row.status == numbered.event.status
            assert (await self.runtime.store.entries(run_id))[-1].seq == numbered.seq
            self.looked += 1


async def test_b37_the_end_is_durable_before_anybody_is_told() -> None:
    """A client that closes at once, or another one that asks at once, finds the response ended."""
    async with opened(calling(counting(1)), ANSWER, tools=[count], kind=Durable) as rounds:
        await tell_all(rounds)
        assert isinstance(rounds, Durable)
        assert rounds.looked == len(PAIRS)


MINIMAL: dict[str, bytes] = {
    "chat": b'data: {"choices":[{"delta":{"content":"Hi"},"finish_reason":"stop"}]}\n\n',
    "responses": b'data: {"type":"response.output_text.delta","delta":"Hi"}\n\ndata: {"type":"response.completed"}\n\n',
    "messages": b'data: {"type":"content_block_delta","delta":{"type":"text_delta","text":"Hi"}}\n\n'
    b'data: {"type":"message_delta","delta":{"stop_reason":"end_turn"}}\n\ndata: {"type":"message_stop"}\n\n',
    "gemini": b'data: {"candidates":[{"content":{"parts":[{"text":"Hi"}]},"finishReason":"STOP"}]}\n\n',
}
"""The least that an upstream may say: no ids, no indexes, no models, no openings, no usage."""


@pytest.mark.parametrize("upstream", MINIMAL)
def test_b39_events_without_their_required_fields_are_read(upstream: str) -> None:
    """They crash nothing and are a whole answer to every client."""
    events = decode(PROTOCOLS[upstream].codec.decoder(CountingIds()), MINIMAL[upstream])
    assert seen_of(events) == Seen(text="Hi", stop="done", usage=seen_of(events).usage)
    client: Any
    for client in PROTOCOLS:
        request = Request(protocol=client, model="m", surface=Surface(stream=True, include_usage=True))
        encoder = PROTOCOLS[client].codec.encoder(request, CountingIds())
        raw = b"".join(frame for event in as_run(events) for frame in encoder.feed(event))
        seen = seen_of(decode(PROTOCOLS[client].codec.decoder(CountingIds()), raw))
        assert (seen.text, seen.stop) == ("Hi", "done")


async def test_b27_a_failed_client_call_is_told_as_failed() -> None:
    """The flag survives the history that the loop goes on with."""
    call = CallItem(call_id="call_1", name="theirs", arguments="{}")
    items = (QUESTION, call, text_result(call, "no table", is_error=True))
    async with opened(ANSWER) as rounds:
        for client, upstream in PAIRS:
            if client == "chat":
                continue
            told = await rounds.tell(client, upstream, *items, tools=THEIRS)
            (result,) = [item for item in told.plans[0].items if isinstance(item, ResultItem)]
            assert result.is_error
