"""Decodes a Messages provider's bytes into model events: an event stream, or one JSON message, in any chunking.

Exactly one Finished or Failed comes last, from `finish` at the latest. Nothing a provider sends raises.
"""

import json
from typing import Any, cast

import msgspec

from treadle.core.errors import BrokenStream
from treadle.core.events import Finished, Stop
from treadle.core.json import cut_text
from treadle.protocols.decoding.answer_meter import CUTS
from treadle.protocols.decoding.json_values import as_text
from treadle.protocols.decoding.keepalive_frames import TYPES, is_keep_alive
from treadle.protocols.decoding.stream_decoder import AnswerDecoder
from treadle.protocols.messages.upstream_assembly import MessagesAssembly
from treadle.protocols.messages.upstream_event import (
    MESSAGE_BYTES_MAX,
    DeltaIn,
    EventIn,
    MessageIn,
    read_block,
    read_counts,
    read_error,
    read_event,
    usage_of,
)
from treadle.protocols.surrogates import mend_escapes

PAUSED = "pause_turn"
"""The reason with which a provider asks to be called again so that it can continue."""

KEPT_REASONS = {
    PAUSED: "the upstream paused its turn; sent back as it is, it goes on",
    "compaction": "the upstream compacted the conversation; sent back as it is, it goes on",
    "model_context_window_exceeded": "the conversation and its answer are longer than the model can see",
}
"""Reasons that no other protocol has: each is the code of a note, from which clients of this protocol get it."""

_EVENTS = frozenset(
    {
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
        "error",
    }
)
"""The events of a stream; others may come, and are noted."""

_PAYLOADS = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}

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


class Decoder(AnswerDecoder[MessagesAssembly]):
    """Turns the answer of one model call into events."""

    assembly_class = MessagesAssembly
    _reason: str | None = None
    _sequence = ""
    _is_ending = False
    _counts: dict[str, int] | None = None

    def _read_document(self, data: str) -> None:
        """Read a whole message: each block begins and ends with all it has."""
        mended, _ = mend_escapes(data.encode())
        event = read_event(mended.decode("utf-8", "replace"))
        if event is None:
            self._fail(BrokenStream("The upstream's answer is not a message.").info)
            return
        if event.error is not None or event.type == "error":
            self._read_error(event)
            return
        self._read_usage(event.usage)
        self._read_reason(event.stop_reason)
        self._sequence = as_text(event.stop_sequence)
        self._assembly.is_cut = STOPS.get(self._reason or "") in CUTS
        self._read_whole(event.content or [])

    def _read_frame(self, name: str, data: str) -> None:
        event = read_event(data)
        if event is None:
            self._read_other(name, data)
            return
        kind = event.type if isinstance(event.type, str) else name
        if name == "error" and kind not in _EVENTS:
            self._fail(read_error(event.error or {"type": kind, "message": as_text(event.message)}))
        elif name != kind and name in _EVENTS:
            self._damage(f"an event is called {name}, and is another one")
        elif kind == "content_block_delta" and event.error is None:
            # What nearly every event of a stream is.
            if event.delta is None:
                self._damage("a piece of a block holds nothing")
            elif not _is_empty(event.delta, data):
                self._assembly.add(_key(event.index), event.delta)
        elif kind:
            self._read_event(event, kind)
        elif event.error is not None or event.detail is not None:
            self._fail(read_error(event.error or event.detail))
        else:
            self._read_other(name, data)

    def _read_other(self, name: str, data: str) -> None:
        """Read what is no event of this protocol: an error in another format, a keep-alive, or damage."""
        if name == "error":
            self._fail(read_error(data))
        elif not is_keep_alive(name, data):
            self._damage(f"a frame of {len(data)} characters is no event")

    def _read_event(self, event: EventIn, kind: str) -> None:
        assembly = self._assembly
        if event.error is not None or kind == "error":
            self._read_error(event)
        elif kind == "content_block_start":
            self._assembly.is_streamed = True
            self._start(_key(event.index), event.content_block)
        elif kind == "content_block_stop":
            assembly.stop(_key(event.index))
        elif kind == "message_start":
            self._read_start(event)
        elif kind == "message_delta":
            self._read_usage(event.usage)
            self._read_ending(event.delta or DeltaIn())
        elif kind == "message_stop":
            self._end(is_explicit=True)
        elif kind not in TYPES:
            assembly.note("unknown_event", "dropped", "an event of a type that is not known")

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
            if self._terminal is None:
                self._assembly.stop(key)
                self._check_bounds()
            if self._terminal is not None:
                return

    def _start(self, key: Any, raw: msgspec.Raw) -> None:
        block = read_block(raw)
        if block is None:
            self._damage("a block cannot be read")
        else:
            self._assembly.start(key, block, raw)

    def _read_usage(self, usage: Any) -> None:
        """Take the counts: those of a later event are sums, and replace the ones before."""
        self._counts = (self._counts or {}) | read_counts(usage)

    def _read_reason(self, reason: Any) -> None:
        # Never let a second reason turn a cut answer into a good one.
        is_new = self._reason is None or STOPS.get(reason if isinstance(reason, str) else "") in ("length", "filtered")
        if isinstance(reason, str) and reason and is_new:
            self._reason = reason

    def _read_ending(self, delta: DeltaIn) -> None:
        """Read how the message ends; details beside the reason are noted."""
        self._read_reason(delta.stop_reason)
        self._is_ending = self._reason is not None
        self._sequence = as_text(delta.stop_sequence) or self._sequence
        details = cast("dict[str, Any]", delta.stop_details) if isinstance(delta.stop_details, dict) else {}
        text = as_text(details.get("explanation")) or as_text(details.get("category"))
        if text:
            self._assembly.note("stop_details", "kept", cut_text(text, MESSAGE_BYTES_MAX))
        if delta.container is not None:
            self._assembly.note("container_dropped", "dropped", "the container of the provider's own tools")

    def _read_error(self, event: EventIn) -> None:
        self._fail(read_error(event.error if event.error is not None else event.message))

    @property
    def _is_whole(self) -> bool:
        """Whether the answer is complete: its reason stands behind the last block.

        A reason that comes with the start of a message does not mean that it ends there.
        """
        return self._is_ending and not self._assembly.has_open_blocks

    def _end(self, *, is_explicit: bool) -> None:
        assembly = self._assembly
        calls_stand = is_explicit and assembly.has_calls and assembly.calls_are_complete
        if self._reason is None and not calls_stand:
            self._cut_off()
            return
        stop = self._stop()
        if assembly.is_streamed and stop not in CUTS:
            assembly.check_ends()
            if assembly.meter.is_over:
                self._check_bounds()
                return
        if self._reason in KEPT_REASONS:
            assembly.note(self._reason, "kept", KEPT_REASONS[self._reason])
        if self._sequence and stop == "stop_sequence":
            assembly.note_sequence(self._sequence)
        assembly.finish(is_cut=stop in CUTS)
        self._close(Finished(stop=stop, usage=usage_of(self._counts or {}), raw_stop=self._reason))

    def _stop(self) -> Stop:
        stop = STOPS.get(self._reason or "", "done")
        if stop in ("length", "filtered"):
            return stop
        if self._assembly.has_calls:
            return "calls"
        return "done" if stop == "calls" else stop


def _is_empty(delta: DeltaIn, data: str) -> bool:
    """Whether a piece is empty: relays leave out a text that is empty.

    One with a field that is not known is another one: its text may stand there.
    """
    if delta.text is not None or delta.partial_json is not None or delta.thinking is not None:
        return False
    payload = _PAYLOADS.get(delta.type if isinstance(delta.type, str) else "")
    return payload is not None and json.loads(data)["delta"].keys() <= {"type", payload}


def _key(index: Any) -> Any:
    """Return an index as a lookup key; anything but text and numbers is None."""
    return index if isinstance(index, int | str | float) else None
