"""The events of a run as one message: events for a client that streams, one object for a client that waits.

The message has one lifecycle however many rounds the run has. One block is open at a time: what belongs to later
items waits in their lanes, which are bounded because the upstream's text and arguments are. A server call holds its
place from when the model says it until it has run. Nothing is sent before
there is something to say, so that a run that fails at once can still be answered with a status.
"""

from collections.abc import Callable
from typing import Any, ClassVar, assert_never

import msgspec

from treadle.core.events import (
    ArgumentsDelta,
    ItemAdded,
    ItemDone,
    KeptAlive,
    Noted,
    ReasoningDelta,
    RefusalDelta,
    RoundBroken,
    RoundStarted,
    RunEnded,
    RunEvent,
    RunStarted,
    TextDelta,
    ToolFinished,
    ToolStarted,
    is_server_call,
)
from treadle.core.ids import MESSAGE, IdSource
from treadle.core.items import AnyItem, CallItem, MessageItem, OpaqueItem, ReasoningItem, ReferenceItem, ResultItem
from treadle.core.json import write_json
from treadle.core.request import Request
from treadle.core.run_endings import failure_of
from treadle.core.usage import Usage
from treadle.protocols.decoding.answer_meter import STOPPED_BY
from treadle.protocols.error_envelopes import CUT_CALL, write_error
from treadle.protocols.messages.client_block_writers import (
    BlockOutput,
    BlockWriter,
    CallBlockWriter,
    Delta,
    OpaqueBlockWriter,
    ReasoningBlockWriter,
    ServerCallBlockWriter,
    TextBlockWriter,
)
from treadle.protocols.messages.provider_state import PROTOCOL
from treadle.protocols.messages.upstream_decoder import KEPT_REASONS, PAUSED
from treadle.protocols.protocol_registry import MESSAGES
from treadle.protocols.sse import write_frame
from treadle.protocols.translation.hosted_call_translation import HostedCallTranslation

_CUTS = {"length": "max_tokens", "filtered": "refusal"}
_OVERFLOW = "model_context_window_exceeded"
_COMPACTION = "compaction"

Opening = ItemAdded | ItemDone | ToolStarted | ToolFinished
_OWN = (ItemAdded, ItemDone)
_OPENINGS = (ItemAdded, ItemDone, ToolStarted, ToolFinished)
_RETOLD = frozenset({ItemAdded, ItemDone, RunEnded})


class _Lane:
    """One item: the events it still waits to write, and its writer once it is open.

    It `is_place` as long as it only keeps the place of a server call, of which nothing is shown before it runs.
    """

    __slots__ = ("is_place", "is_settled", "waiting", "writer")

    def __init__(self) -> None:
        self.is_place = False
        self.waiting: list[Opening | Delta] = []
        self.writer: BlockWriter | None = None
        self.is_settled = False


class Encoder:
    """Writes one run as one message."""

    def __init__(self, request: Request, ids: IdSource) -> None:
        self._request = request
        self._ids = ids
        betas = request.options.betas
        is_claude_code = bool(betas) and any(name.startswith("claude-code-") for name in betas)
        self._out = BlockOutput(streams=request.surface.stream, is_claude_code=is_claude_code)
        self._retelling = HostedCallTranslation(PROTOCOL)
        self._lanes: dict[int, _Lane] = {}
        self._run_id = ""
        self._kept_reason = ""
        self._sequence = ""
        self._ended: RunEnded | None = None

    def feed(self, event: RunEvent) -> list[bytes]:
        """Return the frames to send; none when the client does not stream, or after the end."""
        if self._ended is not None:
            return []
        if type(event) is TextDelta:
            lane = self._lanes.get(event.index)
            if lane is not None and lane.writer is not None:
                lane.writer.feed(event)
            else:
                self._grow(event)
        else:
            for told in self._retelling.feed(event) if type(event) in _RETOLD else (event,):
                read = self._readers.get(type(told))
                if read is not None:
                    read(self, told)
        frames, self._out.frames = self._out.frames, []
        return frames

    def body(self) -> bytes:
        """Return the whole message, or the error envelope of a run that has none. The run must have ended."""
        ended = self._ended
        assert ended is not None, "the run has not ended"
        if (failure := failure_of(ended)) is not None:
            return write_error(MESSAGES, failure)
        message = {**self._out.message, "content": self._out.content, **self._ending(ended)}
        return write_json({**message, "usage": _usage(ended.usage), **self._limit(ended)})

    def _grow(self, delta: Delta) -> None:
        """Write more of an item, or let it wait until the items before it are done."""
        lane = self._lanes.get(delta.index)
        if lane is None or lane.is_place:
            return
        if lane.writer is not None:
            lane.writer.feed(delta)
        else:
            lane.waiting.append(delta)

    def _write(self, event: Opening) -> None:
        """Write an item's beginning or end, or let it wait until the items before it are done."""
        lane = self._lanes.get(event.index)
        is_place = is_server_call(event)
        if lane is None:
            if not is_place and not _is_shown(event):
                return
            lane = self._lanes[event.index] = _Lane()
            lane.is_place = is_place
        if not is_place:
            lane.is_place = False
            lane.waiting.append(event)
            self._advance()

    def _break(self, event: RoundBroken) -> None:
        """Give up the places of server calls that were never whole."""
        for index in event.indexes:
            lane = self._lanes.get(index)
            if lane is not None and lane.is_place:
                del self._lanes[index]
        self._advance()

    def _keep_alive(self, _: KeptAlive) -> None:
        self._out.send("ping", {})

    def _start_round(self, _: RoundStarted) -> None:
        self._kept_reason = self._sequence = ""

    def _hear(self, event: Noted) -> None:
        """Take what an upstream said of the end of its answer and the canonical events have no field for."""
        note = event.note
        if note.code in KEPT_REASONS:
            self._kept_reason = note.code
        elif note.code == STOPPED_BY:
            self._sequence = note.message

    def _start(self, event: RunStarted) -> None:
        self._run_id = event.run_id
        self._out.message = {
            "id": event.response_id or self._ids.new(MESSAGE),
            "type": "message",
            "role": "assistant",
            "model": event.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": _usage(None),
        }

    def _advance(self) -> None:
        """Write what the first lane holds, and go on with the next as long as the first is whole."""
        while self._lanes:
            index, lane = next(iter(self._lanes.items()))
            waiting, lane.waiting = lane.waiting, []
            for event in waiting:
                self._write_to(lane, event)
            if not lane.is_settled:
                return
            self._close(index)

    def _write_to(self, lane: _Lane, event: Opening | Delta) -> None:
        if lane.is_settled:
            return
        if not isinstance(event, _OPENINGS):
            assert lane.writer is not None, "an item begins before it goes on"
            lane.writer.feed(event)
            return
        source = event.item if isinstance(event, _OWN) else event
        if lane.writer is None:
            lane.writer = _writer(self._out, source)
        if type(event) is ItemDone or type(event) is ToolFinished:
            lane.writer.settle(source)
            lane.is_settled = True

    def _close(self, index: int) -> None:
        lane = self._lanes.pop(index)
        if lane.writer is not None:
            lane.writer.close()

    def _end(self, event: RunEnded) -> None:
        self._ended = event
        if (failure := failure_of(event)) is not None:
            self._out.send_frame(write_frame(write_error(MESSAGES, failure), "error"))
            return
        while self._lanes:
            index = next(iter(self._lanes))
            self._close(index)
            self._advance()
        if self._out.has_cut_call and event.status != "incomplete":
            self._ended = msgspec.structs.replace(event, status="failed", error=CUT_CALL)
            self._out.send_frame(write_frame(write_error(MESSAGES, CUT_CALL), "error"))
            return
        delta = {"delta": self._ending(event), "usage": _usage(event.usage), **self._limit(event)}
        self._out.send("message_delta", delta)
        self._out.send("message_stop", {})

    _readers: ClassVar[dict[type, Callable[[Any, Any], None]]] = {
        ArgumentsDelta: _grow,
        ReasoningDelta: _grow,
        RefusalDelta: _grow,
        ItemAdded: _write,
        ItemDone: _write,
        ToolStarted: _write,
        ToolFinished: _write,
        RunStarted: _start,
        RoundBroken: _break,
        RoundStarted: _start_round,
        KeptAlive: _keep_alive,
        Noted: _hear,
        RunEnded: _end,
    }
    """What is done with an event; of others a message shows nothing."""

    def _ending(self, event: RunEnded) -> dict[str, Any]:
        reason = self._reason(event)
        stop = self._request.options.stop
        # Which of several sequences it was, not every upstream says.
        sequence = self._sequence or (stop[0] if len(stop) == 1 else None)
        return {"stop_reason": reason, "stop_sequence": sequence if reason == STOPPED_BY else None}

    def _reason(self, event: RunEnded) -> str:
        if event.status == "incomplete" and event.stop in _CUTS:
            return _OVERFLOW if event.stop == "length" and self._kept_reason == _OVERFLOW else _CUTS[event.stop]
        if self._out.has_calls:
            return "tool_use"
        if self._out.has_refusal:
            return "refusal"
        if event.stop == "stop_sequence":
            return "stop_sequence"
        return self._kept_reason if self._kept_reason in (PAUSED, _COMPACTION) else "end_turn"

    def _limit(self, event: RunEnded) -> dict[str, Any]:
        return {"treadle": {"run_id": self._run_id, "limit": event.limit}} if event.limit else {}


def _writer(out: BlockOutput, source: AnyItem | ToolStarted | ToolFinished) -> BlockWriter:
    match source:
        case MessageItem():
            return TextBlockWriter(out)
        case ReasoningItem():
            return ReasoningBlockWriter(out)
        case CallItem():
            return CallBlockWriter(out, source)
        case ToolStarted() | ToolFinished():
            return ServerCallBlockWriter(out, source)
        case OpaqueItem():
            return OpaqueBlockWriter(out)
        case ResultItem() | ReferenceItem():
            raise AssertionError("not a part of an answer")
        case _:
            assert_never(source)


def _is_shown(event: Opening) -> bool:
    """Return whether an event begins a block: server calls are shown by their run, results inside the call."""
    if not isinstance(event, _OWN):
        return True
    item = event.item
    if type(item) is CallItem:
        return item.side == "client"
    if type(item) is OpaqueItem:
        return item.protocol == PROTOCOL
    return type(item) is MessageItem or type(item) is ReasoningItem


def _usage(usage: Usage | None) -> dict[str, Any]:
    """Write the tokens used; here the input is told apart from what a cache held of it. Unknown is zero."""
    used = usage or Usage()
    written: dict[str, Any] = {
        "input_tokens": max(0, used.input_tokens - used.cached_tokens - used.cache_write_tokens),
        "cache_creation_input_tokens": used.cache_write_tokens,
        "cache_read_input_tokens": used.cached_tokens,
        "output_tokens": used.output_tokens,
    }
    if used.reasoning_tokens:
        written["output_tokens_details"] = {"thinking_tokens": used.reasoning_tokens}
    return written
