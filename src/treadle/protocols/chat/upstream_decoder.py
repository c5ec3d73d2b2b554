"""Decodes a Chat provider's bytes into model events: an event stream, or one JSON document, in any chunking.

Exactly one Finished or Failed comes last, from `finish` at the latest. Nothing a provider sends raises.
"""

from types import NoneType
from typing import Any, cast

import msgspec

from treadle.core.errors import BrokenStream
from treadle.core.events import Finished, ModelEvent, Stop
from treadle.core.items import ImagePart, OpaquePart
from treadle.core.json import type_errors
from treadle.core.usage import Usage
from treadle.protocols.chat.content_parts import PROTOCOL, flat_annotation
from treadle.protocols.chat.provider_state import CALL_STATE, MESSAGE_STATE, THOUGHT_STATE
from treadle.protocols.chat.upstream_assembly import ChatAssembly
from treadle.protocols.chat.upstream_chunk import (
    CHECKED_CHARS,
    TEXT_CHUNK,
    ChoiceIn,
    ChunkIn,
    TextChoiceIn,
    as_arguments,
    as_id,
    as_index,
    hides_piece,
    holds_piece,
    read_chunk,
    read_error,
    read_usage,
    usage_of,
)
from treadle.protocols.chat.upstream_text_now import TextFlow
from treadle.protocols.decoding.answer_meter import CUTS
from treadle.protocols.decoding.call_correlation import Piece
from treadle.protocols.decoding.call_oddities import Oddities, Oddity
from treadle.protocols.decoding.json_values import LIST, OBJECT, as_list, as_object
from treadle.protocols.decoding.keepalive_frames import is_keep_alive
from treadle.protocols.decoding.stream_decoder import DONE, AnswerDecoder, Flow, Take
from treadle.protocols.surrogates import mend_text, write_halves

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
"""Finish reasons that mean that the provider did not finish."""

MISSES_MAX = 2
"""After so many texts in a row that had more beside them, text is no longer expected to come alone."""

NOTED_FIELDS_MAX = 32
"""How many unknown fields of an answer are named in notes."""

_PLAIN = frozenset(
    {"role", "content", "refusal", "reasoning_content", "reasoning", THOUGHT_STATE, "tool_calls", "function_call"}
)
_REASONING = frozenset({"reasoning_content", "reasoning", THOUGHT_STATE})
_TEXT_KINDS = ("text", "output_text", None)
_KNOWN = _PLAIN | {"images", "annotations"}
_FIRST = (0, None, "0")
_NAMED = frozenset({"error", "ping"})
"""Names of events that are no chunks."""

_UNNAMED = frozenset({"", "message", "data", "error", "ping"})
"""Event names used only for chunks, errors and keep-alives."""

_CALL_FIELDS = frozenset({"index", "id", "type", "function", "custom", CALL_STATE})
_ARGUMENTS = frozenset({"arguments", "input"})
_DONE_LINE = DONE.encode()
_NO_WORDS = (None, None)


class Decoder(AnswerDecoder[ChatAssembly]):
    """Turns the answer of one model call into events."""

    assembly_class = ChatAssembly
    _reason: str | None = None
    _sequence = ""
    _usage: Usage | None = None
    _has_deltas = False
    _expects_text = True
    _misses = 0
    _oddities: Oddities | None = None
    _has_reasoning = False
    _index = 0
    _noted_fields: frozenset[str] = frozenset()

    def feed(self, data: bytes) -> list[ModelEvent]:
        """Return the events that these bytes complete; whole frames of one line take a shorter way to the same ones."""
        lines = self._intake.lines(data) if self._terminal is None else None
        if lines is None:
            return super().feed(data)
        for line in lines:
            if line == _DONE_LINE:
                self._end(is_explicit=True)
                break
            if not self._read_text_chunk(line):
                self._read_line(line)
            if self._assembly.meter.is_over:
                self._check_bounds()
            if self._terminal is not None:
                break
        events, self._assembly.events = self._assembly.events, []
        return events

    def flow(self, take: Take | None) -> Flow | None:
        """Return the fast path for the next reads while a text continues; None where there is none."""
        tail, reader = self._assembly.tail, self._intake.reader
        is_text = self._expects_text and self._has_deltas and not self._misses and self._terminal is None
        if tail is None or reader is None or not is_text:
            return None
        return TextFlow(reader, tail, self._assembly.meter, take).feed

    def _read_document(self, data: str) -> None:
        chunk = read_chunk(data)
        if chunk is None:
            self._fail(BrokenStream("The upstream's answer is not a Chat completion.").info)
        else:
            self._read_chunk(chunk)

    def _read_frame(self, name: str, data: str) -> None:
        if name in _NAMED or not self._read_text_chunk(data):
            self._read_data(data, name)

    def _read_line(self, line: bytes) -> None:
        try:
            data = line.decode().strip()
        except UnicodeDecodeError:
            self._damage(f"a frame of {len(line)} bytes is not UTF-8")
            return
        if data == DONE:
            self._end(is_explicit=True)
        elif data:
            self._read_data(data)

    def _read_data(self, data: str, name: str = "") -> None:
        chunk = read_chunk(data)
        if chunk is not None and _is_bare(chunk) and hides_piece(data):
            self._damage("a chunk has its piece under a name that is not known")
            return
        if chunk is not None and (chunk.choices or chunk.choices == [] or chunk.error or chunk.object == "error"):
            self._read_chunk(chunk, is_error=name == "error")
        elif name == "error" or (chunk is not None and (chunk.detail or chunk.message)):
            message = data if chunk is None else chunk.message or chunk.detail
            self._fail(read_error({"message": message, "code": None if chunk is None else chunk.code}))
        elif chunk is not None and (chunk.choices is None or read_usage(chunk.usage) is not None):
            self._read_chunk(chunk)
        elif chunk is not None and name not in _UNNAMED and not is_keep_alive(name, data):
            self._assembly.note("unknown_event", "dropped", "an event of a kind that is not known")
        elif not is_keep_alive(name, data):
            self._damage(f"a frame of {len(data)} characters is no chunk of an answer")

    def _read_text_chunk(self, data: bytes | str) -> bool:
        """Read a chunk that holds nothing but text, as nearly every one does; return whether it was one."""
        if not self._expects_text or len(data) > CHECKED_CHARS:
            return False
        try:
            chunk = TEXT_CHUNK.decode(data)
        except type_errors:
            # Something else started: the next text is read the long way.
            self._expects_text = False
            self._misses += 1
            return False
        self._misses = 0
        self._has_deltas = True
        choice = chunk.choices[0]
        if choice.delta.content:
            self._assembly.add_text(choice.delta.content)
        if chunk.usage is not None:
            self._usage = usage_of(chunk.usage) or self._usage
        if choice.finish_reason is not None:
            self._read_reason(choice)
        return True

    def _read_chunk(self, chunk: ChunkIn, *, is_error: bool = False) -> None:
        if chunk.error or is_error or chunk.object == "error":
            self._fail(read_error(chunk.error or {"message": chunk.message, "code": chunk.code}))
            return
        if chunk.usage is not None:
            self._usage = read_usage(chunk.usage) or self._usage
        for choice in chunk.choices or ():
            if (choice.index not in _FIRST or self._index) and not self._is_ours(choice, chunk):
                # One choice was asked for: a piece under another number is not part of it.
                self._assembly.meter.mark_damaged("a piece belongs to a choice that was not asked for")
                return
            delta = choice.delta
            if delta is not None:
                self._has_deltas = True
                content = delta.get("content")
                # Where text never comes alone, it is not tried again and again.
                is_text = type(content) is str and content != "" and choice.logprobs is None
                self._expects_text = is_text and self._misses < MISSES_MAX and not self._index
                if delta or choice.logprobs is not None:
                    self._read_delta(delta, choice.logprobs)
            elif choice.message is not None and not self._has_deltas:
                self._read_delta(choice.message, choice.logprobs)
            if choice.usage is not None:
                self._usage = read_usage(choice.usage) or self._usage
            if choice.finish_reason is not None:
                self._read_reason(choice)

    def _is_ours(self, choice: ChoiceIn, chunk: ChunkIn) -> bool:
        """Whether a choice that may not be the first continues the answer: LiteLLM counts blocks in its index.

        Then it is alone in its chunk and only counts on; under the first index again comes nothing but the end.
        """
        index, delta = 0 if choice.index in _FIRST else choice.index, choice.delta
        if index == 0:
            return not delta or not any(value for name, value in delta.items() if name != "role")
        is_alone = delta is not None and len(as_list(chunk.choices)) == 1
        if index != self._index and delta and delta.get("role"):
            # So begins another answer.
            return False
        if not is_alone or type(index) is not int or index - self._index not in (0, 1) or self._reason is not None:
            return False
        self._index = index
        self._assembly.note("choice_counted", "repaired", "the index of the only choice counts on")
        return True

    def _read_reason(self, choice: ChoiceIn | TextChoiceIn) -> None:
        """Read why the answer ends; never let a second reason turn a cut answer into a good one."""
        reason = choice.finish_reason
        if isinstance(reason, str) and reason and (self._reason is None or STOPS.get(reason) in ("length", "filtered")):
            self._reason = reason if reason in STOPS else mend_text(reason)
            words = (choice.stop_reason, choice.matched_stop)
            found = () if words == _NO_WORDS else [word for word in words if isinstance(word, str) and word]
            self._sequence = found[0] if found else ""

    def _read_delta(self, delta: dict[str, Any], logprobs: Any) -> None:
        calls, meter = delta.get("tool_calls"), self._assembly.meter
        if calls is not None and len(delta) == 1 and logprobs is None:
            self._read_calls(calls)
            return
        if not _REASONING.isdisjoint(delta):
            self._read_reasoning(delta)
        tokens = as_object(logprobs) if logprobs else {}
        content, declined = delta.get("content"), delta.get("refusal")
        if content is not None and not isinstance(content, str):
            if self._has_deltas and not isinstance(content, LIST | OBJECT):
                meter.mark_damaged("the text of a delta is none")
            self._read_content(content)
        elif content or tokens:
            self._read_text(content or "", tokens.get("content"), is_refusal=False)
        if (declined or tokens) and (declined is None or isinstance(declined, str)):
            self._read_text(declined or "", tokens.get("refusal"), is_refusal=True)
        if not delta.keys() <= _PLAIN:
            self._read_others(delta)
        if calls is not None and not meter.is_over:
            self._read_calls(calls)
        legacy = [] if delta.get("function_call") is None or meter.is_over else [{"function": delta["function_call"]}]
        if legacy and self._has_deltas and _is_empty(legacy[0]):
            return
        if legacy and _is_garbled(legacy[0]):
            meter.mark_damaged("the arguments of a call are not where they should be")
        elif legacy and (self._has_deltas or self._readable(legacy)):
            self._note_odd(self._odd().check_legacy())
            self._assembly.start_call_delta()
            self._assembly.add_call(_piece({"index": LEGACY_INDEX, **legacy[0]}, 0, False))

    def _read_text(self, text: str, tokens: Any, *, is_refusal: bool) -> None:
        if text or (tokens and self._assembly.has_open_message):
            self._assembly.add_message_text(text, is_refusal=is_refusal, tokens=as_list(tokens))
        elif tokens:
            self._assembly.note("logprobs_dropped", "dropped", "logprobs of what is not text", "logprobs")

    def _read_reasoning(self, delta: dict[str, Any]) -> None:
        details = as_list(delta.get(THOUGHT_STATE))
        thought = delta.get("reasoning_content") or delta.get("reasoning")
        self._has_reasoning = self._has_reasoning or bool(thought)
        # Details repeat the plain text, in the same chunk or, as Treadle sends them, all at the end.
        if not self._has_reasoning:
            thought = "".join(_detail_text(as_object(detail)) for detail in details)
        if isinstance(thought, str) and thought:
            self._assembly.add_reasoning(thought)
        if details:
            self._assembly.add_reasoning_state(THOUGHT_STATE, details)

    def _read_others(self, delta: dict[str, Any]) -> None:
        """Read images and annotations, and store fields that Chat does not have as opaque state."""
        images = as_list(delta.get("images"))
        for image in images:
            self._read_image(as_object(image))
        unknown = {name: value for name, value in delta.items() if name not in _KNOWN and value not in (None, [], "")}
        annotations = as_list(delta.get("annotations"))
        if annotations and self._assembly.has_open_message:
            self._assembly.annotate([flat_annotation(as_object(entry)) for entry in annotations])
        elif annotations:
            unknown["annotations"] = annotations
        if self._has_deltas and any(isinstance(value, LIST) and holds_piece(value) for value in unknown.values()):
            self._assembly.meter.mark_damaged("pieces of calls come under a name that is not known")
        if unknown:
            self._assembly.add_state(MESSAGE_STATE, unknown)
            for name in unknown:
                self._note_field(name)

    def _note_field(self, name: str) -> None:
        if name not in self._noted_fields and len(self._noted_fields) < NOTED_FIELDS_MAX:
            self._noted_fields |= {name}
            self._assembly.note(
                "field_kept", "kept", "a field that only Chat clients can be shown", f"delta.{mend_text(name)}"
            )

    def _read_content(self, content: Any) -> None:
        """Read content that is an array of parts, as Mistral sends it."""
        for value in as_list(content) if isinstance(content, list) else [content]:
            part = as_object(value) or {"type": "text", "text": value}
            kind, text, declined, thought = (part.get(name) for name in ("type", "text", "refusal", "thinking"))
            if kind == "thinking" and isinstance(thought, list):
                self._read_reasoning_parts(cast("list[Any]", thought))
            elif kind in _TEXT_KINDS and isinstance(text, str):
                self._read_text(text, None, is_refusal=False)
            elif kind == "refusal" and isinstance(declined, str):
                self._read_text(declined, None, is_refusal=True)
            else:
                self._read_image(part)

    def _read_reasoning_parts(self, thoughts: list[Any]) -> None:
        for value in thoughts:
            text = as_object(value).get("text") if isinstance(value, dict) else value
            if isinstance(text, str) and text:
                self._assembly.add_reasoning(text)

    def _read_image(self, part: dict[str, Any]) -> None:
        """Attach an image to the message, or any other part as it is."""
        image = part.get("image_url")
        url = image if isinstance(image, str) else as_object(image).get("url")
        if isinstance(url, str) and url:
            self._assembly.add_part(ImagePart(url=mend_text(url)), len(url))
        elif part:
            raw = write_halves(part)
            self._assembly.add_part(OpaquePart(protocol=PROTOCOL, raw=msgspec.Raw(raw)), len(raw))
            self._note_field("content")

    def _read_calls(self, given: Any) -> None:
        if self._continue_call(given):
            return
        calls: list[Any] = given if isinstance(given, LIST) else [given]
        if self._has_deltas and all(map(_is_empty, calls)):
            return
        if self._has_deltas and not all(map(_is_call, calls)):
            self._assembly.meter.mark_damaged("what stands for a call is none")
            return
        if not self._has_deltas and not (calls := self._readable(calls)):
            return
        if not self._has_deltas and any(map(_is_garbled, calls)):
            self._assembly.meter.mark_damaged("the arguments of a call are not where they should be")
            return
        if odd := self._odd().check(given):
            self._note_odd(odd)
        self._assembly.start_call_delta()
        for position, value in enumerate(calls):
            call = as_object(value)
            state = call.get(CALL_STATE)
            piece = _piece(call, position, len(calls) > 1)
            if not (self._has_deltas or piece.name):
                # Only pieces of a stream continue the call that has their id.
                piece = msgspec.structs.replace(piece, id="")
            self._assembly.add_call(piece, None if state is None else (CALL_STATE, state))
            if self._assembly.meter.is_over:
                return

    def _readable(self, calls: list[Any]) -> list[Any]:
        """Return what are calls in a whole reply: the rest is no call of anything, and the text stands."""
        readable = [call for call in calls if _has_content(as_object(call))]
        if len(readable) < len(calls):
            message = f"{len(calls) - len(readable)} of {len(calls)} calls could not be read and are none"
            self._assembly.note("calls_unreadable", "dropped", message, "tool_calls")
        return readable

    def _continue_call(self, given: Any) -> bool:
        """Read more arguments of the call at an index, as nearly every piece is; return whether it was one."""
        if not isinstance(given, LIST) or len(given) != 1 or not isinstance(given[0], OBJECT):
            return False
        piece = given[0]
        index, function = piece.get("index"), piece.get("function")
        if len(piece) != 2 or type(index) is not int or not isinstance(function, OBJECT) or len(function) != 1:
            return False
        text = function.get("arguments")
        is_known = self._oddities is not None and index in self._oddities.seen
        return type(text) is str and is_known and self._assembly.continue_call(index, text)

    def _odd(self) -> Oddities:
        if self._oddities is None:
            self._oddities = Oddities()
        return self._oddities

    def _note_odd(self, oddities: list[Oddity]) -> None:
        """Note how a stream spells calls otherwise than it should; a whole answer has no indexes."""
        for code, message in oddities if self._has_deltas else ():
            self._assembly.note(code, "repaired", message)

    @property
    def _is_whole(self) -> bool:
        """Whether the answer is complete: its finish reason comes last, usage may follow."""
        is_cut, calls_stand = self._stop() in CUTS, self._assembly.calls_are_complete
        return self._reason is not None and (is_cut or calls_stand)

    def _end(self, *, is_explicit: bool) -> None:
        assembly = self._assembly
        if self._reason is None and not (is_explicit and assembly.has_calls and assembly.calls_are_complete):
            self._cut_off()
            return
        if self._has_deltas and self._stop() not in CUTS and not assembly.calls_are_named:
            self._fail(BrokenStream("The upstream's answer is damaged: a call has no name.").info)
            return
        if not is_explicit:
            assembly.note("done_missing", "kept", f"the stream ended without {DONE}")
        if self._reason in BROKEN_OFF:
            self._fail(BrokenStream(f"The upstream broke off: {self._reason}.").info)
            return
        if self._sequence and self._stop() == "stop_sequence":
            assembly.note_sequence(self._sequence)
        stop = self._stop()
        assembly.finish(is_cut=stop in CUTS)
        self._close(Finished(stop=stop, usage=self._usage, raw_stop=self._reason))

    def _stop(self) -> Stop:
        stop = STOPS.get(self._reason or "", "done")
        if stop in ("length", "filtered"):
            return stop
        if self._assembly.has_calls:
            return "calls"
        if self._reason == "stop" and self._sequence:
            return "stop_sequence"
        return "done" if stop == "calls" else stop


def _piece(call: dict[str, Any], position: int, has_siblings: bool) -> Piece:
    is_custom = call.get("custom") is not None
    body = as_object(call.get("custom" if is_custom else "function"))
    index, text = call.get("index"), body.get("input" if is_custom else "arguments")
    if type(index) is not int:
        index = as_index(index)
    if index is None and has_siblings:
        # Siblings in one delta are different calls, even if nothing else distinguishes them.
        index = position
    return Piece(
        id=as_id(call.get("id")),
        name=as_id(body.get("name")),
        text=text if type(text) is str else as_arguments(text),
        index=index,
        kind="custom" if is_custom else "function",
    )


def _is_call(value: Any) -> bool:
    """Whether a piece of a call is valid, whatever it leaves out; its content must not be under an unknown name."""
    if not isinstance(value, OBJECT):
        return False
    call: dict[str, Any] = value
    body: Any = call.get("custom") if call.get("custom") is not None else call.get("function")
    if body is None:
        return call.keys() <= _CALL_FIELDS
    if not isinstance(body, OBJECT) or ("arguments" not in body and _is_garbled(call)):
        return False
    return isinstance(body.get("arguments"), str | dict | NoneType)


def _is_empty(value: Any) -> bool:
    """Whether a piece of a call is empty; one with an unknown field may have its content there."""
    call: Any = {} if value is None else value
    if not isinstance(call, OBJECT) or not call.keys() <= {"index", "id", "type", "function"} or call.get("id"):
        return False
    body: Any = call.get("function") or {}
    is_plain = isinstance(body, OBJECT) and body.keys() <= {"name", "arguments"}
    return is_plain and all(word in (None, "") for word in body.values())


def _is_garbled(value: Any) -> bool:
    """Whether a call has no arguments and an unknown field: they may stand there."""
    call = as_object(value)
    body = call.get("custom") if call.get("custom") is not None else call.get("function")
    if body is None:
        return not call.keys() <= _CALL_FIELDS
    fields = as_object(body)
    return _ARGUMENTS.isdisjoint(fields) and not fields.keys() <= {"name"}


def _is_bare(chunk: ChunkIn) -> bool:
    """Whether a chunk has no choice, or one that is empty."""
    if not chunk.choices:
        return chunk.choices is msgspec.UNSET and not chunk.error
    # Any more were not asked for, and break the answer.
    first = chunk.choices[0]
    return first.delta is None and first.message is None and first.finish_reason is None


def _has_content(call: dict[str, Any]) -> bool:
    """Whether there is a name or there are arguments in what stands for a whole call."""
    body = as_object(call.get("function") or call.get("custom"))
    return any(body.get(name) not in (None, "") for name in ("name", "arguments", "input"))


def _detail_text(detail: dict[str, Any]) -> str:
    text = detail.get("text") or detail.get("summary")
    return text if isinstance(text, str) else ""
