"""Writes the events of a run as one message: as events for a client that streams, as one object for one that waits.

The message has one lifecycle however many rounds the run has, and one open block at a time. Nothing is sent before
there is content, so that a run that fails at once can still be answered with a status.
"""

from collections.abc import Callable
from typing import Any, ClassVar, assert_never

import msgspec

from treadle.core.events import (
    ApprovalRequested,
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
)
from treadle.core.ids import MESSAGE, IdSource
from treadle.core.items import CallItem, MessageItem, OpaqueItem, ReasoningItem, ReferenceItem, ResultItem
from treadle.core.json import write_json
from treadle.core.request import Request
from treadle.core.run_endings import failure_of
from treadle.core.usage import Usage
from treadle.protocols.decoding.answer_meter import STOPPED_BY
from treadle.protocols.error_envelopes import CUT_CALL, write_error
from treadle.protocols.item_lanes import Delta, ItemLanes, Opening, Source
from treadle.protocols.messages.client_block_writers import (
    BlockOutput,
    BlockWriter,
    CallBlockWriter,
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

_TRANSLATED = frozenset({ItemAdded, ItemDone, RunEnded})


class _Blocks(ItemLanes[BlockWriter]):
    """Writes one item after the other as blocks of the message."""

    def __init__(self, out: BlockOutput) -> None:
        super().__init__(PROTOCOL)
        self._out = out

    def open_item(self, index: int, source: Source) -> BlockWriter:
        """Return the writer of an item's blocks."""
        match source:
            case MessageItem():
                return TextBlockWriter(self._out)
            case ReasoningItem():
                return ReasoningBlockWriter(self._out)
            case CallItem():
                return CallBlockWriter(self._out, source)
            case ToolStarted() | ToolFinished():
                return ServerCallBlockWriter(self._out, source)
            case OpaqueItem():
                return OpaqueBlockWriter(self._out)
            case ResultItem() | ReferenceItem() | ApprovalRequested():
                raise AssertionError("not a part of an answer")
            case _:
                assert_never(source)

    def close_item(self, writer: BlockWriter) -> None:
        """End the block of a finished item."""
        writer.close()

    def end(self) -> None:
        """Close all items, whether or not they are finished."""
        while self.lanes:
            lane = self.lanes.pop(next(iter(self.lanes)))
            if lane.writer is not None:
                lane.writer.close()
            self.advance()


class Encoder:
    """Writes one run as one message."""

    def __init__(self, request: Request, ids: IdSource) -> None:
        self._request = request
        self._ids = ids
        betas = request.options.betas
        is_claude_code = bool(betas) and any(name.startswith("claude-code-") for name in betas)
        self._out = BlockOutput(streams=request.surface.stream, is_claude_code=is_claude_code)
        self._hosted = HostedCallTranslation(PROTOCOL)
        self._blocks = _Blocks(self._out)
        self._run_id = ""
        self._noted_reason = ""
        self._sequence = ""
        self._ended: RunEnded | None = None

    def feed(self, event: RunEvent) -> list[bytes]:
        """Return the frames to send; none when the client does not stream, or after the end."""
        if self._ended is not None:
            return []
        if type(event) is TextDelta:
            # The same as `grow`, inlined because nearly every event comes here.
            lane = self._blocks.lanes.get(event.index)
            if lane is not None and lane.writer is not None:
                lane.writer.feed(event)
            else:
                self._blocks.grow(event)
        else:
            for shown in self._hosted.feed(event) if type(event) in _TRANSLATED else (event,):
                read = self._readers.get(type(shown))
                if read is not None:
                    read(self, shown)
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
        self._blocks.grow(delta)

    def _write(self, event: Opening) -> None:
        self._blocks.feed(event)

    def _break(self, event: RoundBroken) -> None:
        """Give up the places of server calls that were never whole."""
        for index in event.indexes:
            self._blocks.leave(index)

    def _keep_alive(self, _: KeptAlive) -> None:
        self._out.send("ping", {})

    def _start_round(self, _: RoundStarted) -> None:
        self._noted_reason = self._sequence = ""

    def _note_end(self, event: Noted) -> None:
        """Store what an upstream notes about the end of its answer that core events have no field for."""
        note = event.note
        if note.code in KEPT_REASONS:
            self._noted_reason = note.code
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

    def _end(self, event: RunEnded) -> None:
        self._ended = event
        if (failure := failure_of(event)) is not None:
            self._out.send_frame(write_frame(write_error(MESSAGES, failure), "error"))
            return
        self._blocks.end()
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
        Noted: _note_end,
        RunEnded: _end,
    }
    """The method for each kind of event; others are not shown in a message."""

    def _ending(self, event: RunEnded) -> dict[str, Any]:
        reason = self._reason(event)
        stop = self._request.options.stop
        # Not every upstream names the sequence that stopped it; if there was only one, it is known.
        sequence = self._sequence or (stop[0] if len(stop) == 1 else None)
        return {"stop_reason": reason, "stop_sequence": sequence if reason == STOPPED_BY else None}

    def _reason(self, event: RunEnded) -> str:
        if event.status == "incomplete" and event.stop in _CUTS:
            return _OVERFLOW if event.stop == "length" and self._noted_reason == _OVERFLOW else _CUTS[event.stop]
        if self._out.has_calls:
            return "tool_use"
        if self._out.has_refusal:
            return "refusal"
        if event.stop == "stop_sequence":
            return "stop_sequence"
        return self._noted_reason if self._noted_reason in (PAUSED, _COMPACTION) else "end_turn"

    def _limit(self, event: RunEnded) -> dict[str, Any]:
        return {"treadle": {"run_id": self._run_id, "limit": event.limit}} if event.limit else {}


def _usage(usage: Usage | None) -> dict[str, Any]:
    """Write the tokens used: here cached input is not part of the input. Unknown is zero."""
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
