"""An upstream's bytes as model events: an event stream, or one whole message as JSON, in any chunking.

Exactly one Finished or Failed comes last, from `finish` at the latest. Nothing an upstream sends raises.
"""

from typing import Any, cast

import msgspec

from treadle.canon.errors import BrokenStream, ErrorInfo, UpstreamError
from treadle.canon.events import Failed, Finished, ModelEvent, Stop
from treadle.canon.ids import IdSource
from treadle.canon.json import cut_text
from treadle.wire.messages.assemble import Assembly, Bounds, Owner
from treadle.wire.messages.event import (
    MESSAGE_BYTES_MAX,
    DeltaIn,
    EventIn,
    MessageIn,
    as_text,
    read_block,
    read_counts,
    read_error,
    read_event,
    usage_of,
)
from treadle.wire.sse import LINE_BYTES_MAX, Frame, SseReader
from treadle.wire.surrogates import mend_escapes

DONE = "[DONE]"
"""Not of this API; gateways that translate from another one send it all the same."""

PAUSED = "pause_turn"
"""The reason with which a provider asks to be called again to go on."""

KEPT_REASONS = {
    PAUSED: "the upstream paused its turn; sent back as it is, it goes on",
    "compaction": "the upstream compacted the conversation; sent back as it is, it goes on",
    "model_context_window_exceeded": "the conversation and its answer are longer than the model can see",
}
"""Reasons that no other protocol has: each is the code of a note, so that clients of this one are told it."""

STOPS: dict[str, Stop] = {
    "end_turn": "done",
    "compaction": "done",
    PAUSED: "done",
    "stop_sequence": "stop_sequence",
    "tool_use": "calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "filtered",
}

_BOM = b"\xef\xbb\xbf"
_BLANK = b" \t\r\n"


class Decoder:
    """Turns the answer of one model call into events."""

    def __init__(
        self,
        ids: IdSource,
        *,
        provider: str = "",
        model: str = "",
        arguments_bytes_max: int = 262_144,
        text_bytes_max: int = 16 * 1024 * 1024,
        taken_call_ids: frozenset[str] = frozenset(),
    ) -> None:
        bounds = Bounds(text_bytes_max=text_bytes_max, arguments_bytes_max=arguments_bytes_max)
        owner = Owner(provider=provider, model=model)
        self._assembly = Assembly(ids, bounds, owner, taken_call_ids)
        self._reader: SseReader | None = None
        self._document: list[bytes] | None = None
        self._document_bytes = 0
        self._head = b""
        self._reason: str | None = None
        self._counts: dict[str, int] = {}
        self._terminal: Finished | Failed | None = None

    def feed(self, data: bytes) -> list[ModelEvent]:
        """Return the events that these bytes complete."""
        if self._terminal is not None:
            return []
        if self._reader is None and self._document is None:
            data = self._begin(data)
        if self._document is not None:
            self._hold(data)
        elif self._reader is not None:
            self._read_frames(self._reader.feed(data))
            if self._terminal is None and self._reader.overflowed:
                self._fail(_too_large("a line of the stream is over the bound"))
        return self._assembly.take()

    def finish(self) -> list[ModelEvent]:
        """Return what the end of the bytes makes of them."""
        if self._terminal is not None:
            return []
        if self._document is not None:
            self._read_document(b"".join(self._document))
        elif self._reader is not None:
            self._read_frames(self._reader.finish())
        if self._terminal is None:
            self._end(is_said=False)
        return self._assembly.take()

    def _begin(self, data: bytes) -> bytes:
        """Tell from the first character what the bytes are, and return those to read."""
        head = (self._head + data).lstrip(_BLANK)
        self._head = b""
        if len(head) < len(_BOM) and _BOM.startswith(head):
            self._head = head
            return b""
        head = head.removeprefix(_BOM).lstrip(_BLANK)
        if head[:1] == b"{":
            self._document = []
        elif head[:1] == b"<":
            self._fail(BrokenStream("The upstream answered with a page of HTML instead of a stream.").info)
        elif head:
            self._reader = SseReader()
        return head

    def _hold(self, data: bytes) -> None:
        assert self._document is not None
        self._document_bytes += len(data)
        self._document.append(data)
        if self._document_bytes > LINE_BYTES_MAX:
            self._fail(_too_large("the answer is over the bound"))

    def _read_document(self, document: bytes) -> None:
        """Read a whole message: each block begins and ends with all it has."""
        mended, _ = mend_escapes(document)
        event = read_event(mended.decode("utf-8", "replace"))
        if event is None:
            self._fail(BrokenStream("The upstream's answer is not a message.").info)
            return
        if event.error is not None or event.type == "error":
            self._read_error(event)
            return
        self._read_usage(event.usage)
        self._read_reason(event.stop_reason)
        self._read_whole(event.content or [])
        if self._terminal is None:
            self._end(is_said=True)

    def _read_frames(self, frames: list[Frame]) -> None:
        for frame in frames:
            if self._terminal is not None:
                return
            self._read_frame(frame)

    def _read_frame(self, frame: Frame) -> None:
        data = frame.data.strip()
        if data == DONE:
            self._end(is_said=True)
            return
        event = read_event(data) if data else None
        if event is not None:
            self._read_event(event, event.type if isinstance(event.type, str) else frame.event)
        elif data:
            self._assembly.note("bad_frame", "dropped", f"{len(data)} characters that are not an event")

    def _read_event(self, event: EventIn, kind: str) -> None:
        assembly = self._assembly
        if event.error is not None or kind == "error":
            self._read_error(event)
        elif kind == "content_block_start":
            self._start(_key(event.index), event.content_block)
        elif kind == "content_block_delta":
            if event.delta is not None:
                assembly.add(_key(event.index), event.delta)
        elif kind == "content_block_stop":
            assembly.stop(_key(event.index))
        elif kind == "message_start":
            self._read_start(event)
        elif kind == "message_delta":
            self._read_usage(event.usage)
            self._read_ending(event.delta or DeltaIn())
        elif kind == "message_stop":
            self._end(is_said=True)
        elif kind != "ping":
            assembly.note("unknown_event", "dropped", "an event of a type that is not known")
        if assembly.overflow is not None and self._terminal is None:
            self._fail(_too_large(assembly.overflow))

    def _read_start(self, event: EventIn) -> None:
        if isinstance(event.message, MessageIn):
            self._read_usage(event.message.usage)
            self._read_reason(event.message.stop_reason)
            self._read_whole(event.message.content or [])

    def _read_whole(self, blocks: list[msgspec.Raw]) -> None:
        """Read blocks that came with their message, not as events of their own."""
        for position, raw in enumerate(blocks):
            key = ("whole", position)
            self._start(key, raw)
            self._assembly.stop(key)
            if self._assembly.overflow is not None:
                self._fail(_too_large(self._assembly.overflow))
                return

    def _start(self, key: Any, raw: msgspec.Raw) -> None:
        block = read_block(raw)
        if block is None:
            self._assembly.note("bad_block", "dropped", "a block that cannot be read")
        else:
            self._assembly.start(key, block, raw)

    def _read_usage(self, usage: Any) -> None:
        """Take the counts: those of a later event are sums, and replace the ones before."""
        self._counts |= read_counts(usage)

    def _read_reason(self, reason: Any) -> None:
        # Never let a second reason turn a cut answer into a good one.
        is_new = self._reason is None or STOPS.get(reason if isinstance(reason, str) else "") in ("length", "filtered")
        if isinstance(reason, str) and reason and is_new:
            self._reason = reason

    def _read_ending(self, delta: DeltaIn) -> None:
        """Read how the message ends; what is said about it beside the reason is told."""
        self._read_reason(delta.stop_reason)
        details = cast("dict[str, Any]", delta.stop_details) if isinstance(delta.stop_details, dict) else {}
        said = as_text(details.get("explanation")) or as_text(details.get("category"))
        if said:
            self._assembly.note("stop_details", "kept", cut_text(said, MESSAGE_BYTES_MAX))
        if delta.container is not None:
            self._assembly.note("container_dropped", "dropped", "the container of the provider's own tools")

    def _read_error(self, event: EventIn) -> None:
        self._fail(read_error(event.error if event.error is not None else event.message))

    def _end(self, *, is_said: bool) -> None:
        """Judge the answer at its end; `is_said` where the upstream itself said that this is the end."""
        assembly = self._assembly
        calls_stand = is_said and assembly.has_calls and assembly.calls_are_complete
        if self._reason is None and not calls_stand:
            self._fail(BrokenStream("The upstream's stream ended before the answer did.").info)
            return
        if self._reason in KEPT_REASONS:
            assembly.note(self._reason, "kept", KEPT_REASONS[self._reason])
        assembly.finish()
        if assembly.overflow is not None:
            self._fail(_too_large(assembly.overflow))
            return
        self._terminal = Finished(stop=self._stop(), usage=usage_of(self._counts), raw_stop=self._reason)
        assembly.events.append(self._terminal)

    def _stop(self) -> Stop:
        stop = STOPS.get(self._reason or "", "done")
        if stop in ("length", "filtered"):
            return stop
        if self._assembly.has_calls:
            return "calls"
        return "done" if stop == "calls" else stop

    def _fail(self, error: ErrorInfo) -> None:
        self._terminal = Failed(error=error)
        self._assembly.events.append(self._terminal)


def _key(index: Any) -> Any:
    """Return an index as something to look up; anything but text and numbers is none."""
    return index if isinstance(index, int | str | float) else None


def _too_large(what: str) -> ErrorInfo:
    return UpstreamError(f"The upstream sent too much: {what}.", code="upstream_too_large").info
