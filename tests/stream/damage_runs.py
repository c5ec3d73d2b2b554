"""Damaged answers through the engine: what runs of them, and what a client of each protocol would run.

The loop, the stages before it and the encoders are the real ones. Each client is as eager as the most eager that is
known: it takes a call as soon as its protocol says that the call is whole.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from typing import Any

from stream.damage import Call, Damaged, Recorded, Said, misread
from treadle.core.events import RunStarted
from treadle.core.ids import CountingIds
from treadle.core.items import CallItem
from treadle.core.journal_entries import ITEM_KINDS, item_of_entry
from treadle.core.json import BadJson, read_json
from treadle.core.plan import Plan
from treadle.core.request import Request, Surface
from treadle.core.tool_definitions import CallContext, Offer, Outcome, ToolPolicy, ToolSpec, failure
from treadle.protocols.protocol_registry import PROTOCOLS
from treadle.protocols.sse import SseReader
from treadle.protocols.text_calls.text_call_recovery import RepairRules
from treadle.providers.provider_model import AnswerRules, decode, open_call
from unit.engine.fakes import Bench, say

_STARTED = RunStarted(run_id="run_1", response_id="resp_1", model="m", created_at=1.0)
POLICIES = {"send_mail": ToolPolicy(effect="write"), "get_weather": ToolPolicy(effect="read")}


class DamagedModel:
    """Answers the first call with damaged bytes, in pieces of a size, and any further one in words."""

    def __init__(self, protocol: Any, body: bytes, size: int) -> None:
        self._protocol, self._body, self._size = protocol, body, size
        self._is_asked = False

    def stream(self, plan: Plan, run_id: str) -> Any:
        """Return the events as an upstream's model gives them."""
        if self._is_asked:
            return self._again()
        self._is_asked = True
        call = open_call(self._protocol, plan, CountingIds(), "up", rules=AnswerRules(repair=RepairRules()))
        return decode(self._bytes(), call.decoder)

    async def _bytes(self) -> AsyncGenerator[bytes, None]:
        for start in range(0, len(self._body), self._size):
            yield self._body[start : start + self._size]

    async def _again(self) -> AsyncGenerator[Any, None]:
        for batch in say("Done."):
            yield batch


class Runner:
    """Runs whatever has an object for arguments, as the real runner does, and remembers it."""

    def __init__(self) -> None:
        self.ran: list[Call] = []

    async def run(self, call: CallItem, context: CallContext) -> Outcome:
        """Run a call."""
        try:
            is_object = isinstance(read_json(call.arguments), dict)
        except BadJson:
            is_object = False
        if not is_object:
            return failure("invalid_arguments", "The arguments are no object.")
        self.ran.append((call.name, call.arguments))
        return Outcome(text="ok")


def _bench(stream: Recorded, body: bytes, size: int, side: Any) -> tuple[Bench, Runner]:
    runner = Runner()
    offers = [
        Offer(spec=ToolSpec(name=name), side=side, policy=policy if side == "server" else None, source="python")
        for name, policy in POLICIES.items()
    ]
    return Bench(DamagedModel(stream.protocol, body, size), runner, *offers), runner  # type: ignore[arg-type]


def executed(stream: Recorded, damaged: Damaged, size: int) -> str:
    """Say what is wrong about what the engine ran of a damaged answer; nothing where all is as it must be."""
    bench, runner = _bench(stream, damaged.body, size, "server")
    asyncio.run(bench.run())
    return misread(stream, damaged, Said("", tuple(runner.ran), is_whole=False))


def delivered(stream: Recorded, damaged: Damaged, size: int, client: Any) -> str:
    """Say what is wrong about what a client of a protocol would run of a damaged answer, streamed and whole."""
    bench, _ = _bench(stream, damaged.body, size, "client")
    ended = asyncio.run(bench.run())
    for is_streamed in (True, False):
        request = Request(protocol=client, model="m", surface=Surface(stream=is_streamed))
        encoder = PROTOCOLS[client].codec.encoder(request, CountingIds())
        frames = [frame for each in (_STARTED, *(each.event for each in bench.events)) for frame in encoder.feed(each)]
        if is_streamed:
            data = [frame.data for frame in SseReader().feed(b"".join(frames)) if frame.data != "[DONE]"]
            calls = CLIENTS[client]([json.loads(each) for each in data])
        elif ended.status == "failed":
            continue
        else:
            calls = WHOLES[client](json.loads(encoder.body()))
        what = misread(stream, damaged, Said("", tuple(calls), is_whole=False))
        if what:
            return f"{client}, {'streamed' if is_streamed else 'whole'}: {what}"
    return _stored(stream, damaged, bench)


def _stored(stream: Recorded, damaged: Damaged, bench: Bench) -> str:
    """Say what is wrong about the calls that the journal has as said."""
    items = [item_of_entry(entry) for entry in bench.journal.entries if entry.kind in ITEM_KINDS]
    stored = tuple((item.name, item.arguments) for item in items if isinstance(item, CallItem))
    what = misread(stream, damaged, Said("", stored, is_whole=False))
    return what and f"stored: {what}"


def _chat(frames: list[dict[str, Any]]) -> list[Call]:
    """Take the calls of a stream that did not end in an error."""
    if any("error" in frame for frame in frames):
        return []
    calls: dict[int, list[str]] = {}
    for choice in [choice for frame in frames for choice in frame.get("choices") or ()]:
        for piece in choice["delta"].get("tool_calls") or ():
            call = calls.setdefault(piece["index"], ["", ""])
            call[0] += piece["function"].get("name") or ""
            call[1] += piece["function"].get("arguments") or ""
    return [(name, arguments) for name, arguments in calls.values()]


def _responses(frames: list[dict[str, Any]]) -> list[Call]:
    """Take a call at its `output_item.done`, as codex does, whatever comes of the response."""
    done = [frame["item"] for frame in frames if frame["type"] == "response.output_item.done"]
    return [(item["name"], item["arguments"]) for item in done if item["type"] == "function_call"]


def _messages(frames: list[dict[str, Any]]) -> list[Call]:
    """Take a call at the end of its block."""
    calls: list[Call] = []
    begun: dict[int, list[str]] = {}
    for frame in frames:
        if frame["type"] == "content_block_start" and frame["content_block"]["type"] == "tool_use":
            begun[frame["index"]] = [frame["content_block"]["name"], ""]
        elif frame["type"] == "content_block_delta" and frame["index"] in begun:
            begun[frame["index"]][1] += frame["delta"].get("partial_json") or ""
        elif frame["type"] == "content_block_stop" and frame["index"] in begun:
            name, arguments = begun[frame["index"]]
            calls.append((name, _unsealed(arguments or "{}")))
    return calls


def _gemini(frames: list[dict[str, Any]]) -> list[Call]:
    """Take a call with its part."""
    candidates = [candidate for frame in frames for candidate in frame.get("candidates") or ()]
    return [call for each in candidates for call in _called(each)]


def _called(candidate: dict[str, Any]) -> list[Call]:
    parts = (candidate.get("content") or {}).get("parts") or ()
    calls = [part["functionCall"] for part in parts if "functionCall" in part]
    return [(call["name"], _spelt(call.get("args") or {})) for call in calls]


def _unsealed(arguments: str) -> str:
    """Return arguments as they were meant: what is no object travels under one key."""
    try:
        return _spelt(json.loads(arguments)) if arguments.startswith('{"INVALID_JSON"') else arguments
    except ValueError:
        return arguments


def _spelt(arguments: dict[str, Any]) -> str:
    """Write arguments as the streams here do; what is no object travels under one key."""
    for key in ("__raw", "INVALID_JSON"):
        if arguments.keys() == {key}:
            return str(arguments[key])
    return json.dumps(arguments, separators=(",", ":"), ensure_ascii=False)


def _chat_whole(document: dict[str, Any]) -> list[Call]:
    calls = document["choices"][0]["message"].get("tool_calls") or ()
    return [(call["function"]["name"], call["function"]["arguments"]) for call in calls]


def _responses_whole(document: dict[str, Any]) -> list[Call]:
    return [
        (item["name"], item["arguments"])
        for item in document["output"]
        if item["type"] == "function_call" and item.get("status") == "completed"
    ]


def _messages_whole(document: dict[str, Any]) -> list[Call]:
    uses = [block for block in document["content"] if block["type"] == "tool_use"]
    return [(block["name"], _spelt(block["input"])) for block in uses]


CLIENTS: dict[str, Callable[[list[dict[str, Any]]], list[Call]]] = {
    "chat": _chat,
    "responses": _responses,
    "messages": _messages,
    "gemini": _gemini,
}
WHOLES: dict[str, Callable[[dict[str, Any]], list[Call]]] = {
    "chat": _chat_whole,
    "responses": _responses_whole,
    "messages": _messages_whole,
    "gemini": lambda document: _gemini([document]),
}
