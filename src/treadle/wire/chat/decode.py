"""An upstream's bytes as model events: an event stream, or one whole JSON document, in any chunking.

Exactly one Finished or Failed comes last, from `finish` at the latest. Nothing an upstream sends raises.
"""

from typing import Any, cast

from treadle.canon.errors import BrokenStream, ErrorInfo, UpstreamError
from treadle.canon.events import Failed, Finished, ModelEvent, Stop
from treadle.canon.ids import IdSource
from treadle.canon.items import Blob
from treadle.canon.usage import Usage
from treadle.wire.chat.assemble import Assembly, Bounds
from treadle.wire.chat.chunk import (
    EXTRA_CONTENT,
    CallIn,
    ChoiceIn,
    ChunkIn,
    DeltaIn,
    FunctionIn,
    as_id,
    as_index,
    as_text,
    json_text,
    read_chunk,
    read_error,
    read_usage,
)
from treadle.wire.chat.correlate import Piece
from treadle.wire.sse import LINE_BYTES_MAX, Frame, SseReader

DONE = "[DONE]"
LEGACY_INDEX = "function_call"

STOPS: dict[str, Stop] = {
    "stop": "done",
    "eos": "done",
    "end_turn": "done",
    "stop_sequence": "stop_sequence",
    "tool_calls": "calls",
    "tool_use": "calls",
    "function_call": "calls",
    "length": "length",
    "max_tokens": "length",
    "content_filter": "filtered",
    "safety": "filtered",
}
BROKEN_OFF = frozenset({"error", "abort", "insufficient_system_resource", "network_error"})
"""Finish reasons with which a provider says that it did not finish."""

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
        self._provider = provider
        self._model = model
        self._assembly = Assembly(ids, bounds, taken_call_ids)
        self._reader: SseReader | None = None
        self._document: list[bytes] | None = None
        self._document_bytes = 0
        self._head = b""
        self._reason: str | None = None
        self._usage: Usage | None = None
        self._terminal: Finished | Failed | None = None
        self._has_deltas = False

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
        return self._take()

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
        return self._take()

    def _begin(self, data: bytes) -> bytes:
        """Tell from the first character what the bytes are, and return those to read."""
        head = (self._head + data).lstrip(_BLANK)
        self._head = b""
        if len(head) < len(_BOM) and _BOM.startswith(head):
            self._head = head
            return b""
        head = head.removeprefix(_BOM).lstrip(_BLANK)
        if head[:1] in (b"{", b"["):
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
        chunk = read_chunk(document.decode("utf-8", "replace"))
        if chunk is None:
            self._fail(BrokenStream("The upstream's answer is not a Chat completion.").info)
            return
        self._read_chunk(chunk)
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
        chunk = read_chunk(data) if data else None
        if chunk is not None:
            self._read_chunk(chunk, is_error=frame.event == "error")
        elif data:
            self._assembly.note("bad_frame", "dropped", f"{len(data)} characters that are not a chunk")

    def _read_chunk(self, chunk: ChunkIn, *, is_error: bool = False) -> None:
        if chunk.error or is_error or chunk.object == "error":
            self._fail(read_error(chunk.error or {"message": chunk.message, "code": chunk.code}))
            return
        self._usage = read_usage(chunk.usage) or self._usage
        for choice in chunk.choices or ():
            self._read_choice(choice)
        if self._assembly.overflow is not None:
            self._fail(_too_large(self._assembly.overflow))

    def _read_choice(self, choice: ChoiceIn) -> None:
        if choice.index not in (0, None, "0"):
            self._assembly.note("extra_choice", "dropped", "a piece of another choice than the first", "choices")
            return
        self._usage = read_usage(choice.usage) or self._usage
        if choice.delta is not None:
            self._has_deltas = True
            self._read_delta(choice.delta)
        elif choice.message is not None and not self._has_deltas:
            self._read_delta(choice.message)
        reason = choice.finish_reason
        # Never let a second reason turn a cut answer into a good one.
        if isinstance(reason, str) and reason and (self._reason is None or STOPS.get(reason) in ("length", "filtered")):
            self._reason = reason

    def _read_delta(self, delta: DeltaIn) -> None:
        assembly = self._assembly
        thought = delta.reasoning_content or delta.reasoning
        if isinstance(thought, str) and thought:
            assembly.add_reasoning(thought)
        if isinstance(delta.content, str):
            if delta.content:
                assembly.add_text(delta.content)
        elif delta.content is not None:
            self._read_content(delta.content)
        if isinstance(delta.refusal, str) and delta.refusal:
            assembly.add_text(delta.refusal, is_refusal=True)
        if delta.tool_calls:
            self._read_calls(delta.tool_calls)
        if delta.function_call is not None:
            assembly.begin_calls()
            assembly.add_call(_piece(CallIn(index=LEGACY_INDEX, function=delta.function_call), 0, False))

    def _read_content(self, content: Any) -> None:
        """Read content that is an array of parts, as Mistral sends it."""
        parts = cast("list[Any]", content) if isinstance(content, list) else [content]
        for value in parts:
            part = cast("dict[str, Any]", value if isinstance(value, dict) else {"type": "text", "text": value})
            text, thought = part.get("text"), part.get("thinking")
            if part.get("type") == "thinking" and isinstance(thought, list):
                self._read_thoughts(cast("list[Any]", thought))
            elif part.get("type") == "text" and isinstance(text, str):
                self._assembly.add_text(text)
            else:
                self._assembly.note("content_dropped", "dropped", "content that is not text", "delta.content")

    def _read_thoughts(self, thoughts: list[Any]) -> None:
        for value in thoughts:
            text = cast("dict[str, Any]", value).get("text") if isinstance(value, dict) else value
            if isinstance(text, str) and text:
                self._assembly.add_reasoning(text)

    def _read_calls(self, calls: list[CallIn]) -> None:
        self._assembly.begin_calls()
        for position, call in enumerate(calls):
            piece = _piece(call, position, len(calls) > 1)
            self._assembly.add_call(piece, self._blobs(call))
            if self._assembly.overflow is not None:
                return

    def _blobs(self, call: CallIn) -> tuple[Blob, ...]:
        if call.extra_content is None:
            return ()
        data = json_text(call.extra_content)
        return (Blob(provider=self._provider, kind=EXTRA_CONTENT, data=data, model=self._model),)

    def _end(self, *, is_said: bool) -> None:
        """Judge the answer at its end; `is_said` where the upstream itself said that this is the end."""
        assembly = self._assembly
        calls_stand = is_said and assembly.has_calls and assembly.calls_are_complete
        if self._reason is None and not calls_stand:
            self._fail(BrokenStream("The upstream's stream ended before the answer did.").info)
            return
        if self._reason in BROKEN_OFF:
            self._fail(BrokenStream(f"The upstream broke off: {self._reason}.").info)
            return
        assembly.finish()
        if assembly.overflow is not None:
            self._fail(_too_large(assembly.overflow))
            return
        self._terminal = Finished(stop=self._stop(), usage=self._usage, raw_stop=self._reason)
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

    def _take(self) -> list[ModelEvent]:
        return self._assembly.take()


def _piece(call: CallIn, position: int, has_siblings: bool) -> Piece:
    is_custom = call.custom is not None
    body = call.custom or call.function or FunctionIn()
    index = as_index(call.index)
    if index is None and has_siblings:
        # Siblings in one delta are different calls, even if nothing else tells them apart.
        index = position
    return Piece(
        id=as_id(call.id),
        name=as_id(body.name),
        text=as_text(body.input if is_custom else body.arguments),
        index=index,
        kind="custom" if is_custom else "function",
    )


def _too_large(what: str) -> ErrorInfo:
    return UpstreamError(f"The upstream sent too much: {what}.", code="upstream_too_large").info
