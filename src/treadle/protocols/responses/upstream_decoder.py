"""Decodes a Responses provider's bytes into model events: an event stream, or one response object, in any chunking.

Exactly one Finished or Failed comes last, from `finish` at the latest. Nothing a provider sends raises. Which event
does what is a table; what an item becomes is the business of `assemble`.
"""

from collections.abc import Callable

import msgspec

from treadle.core.errors import BrokenStream, UpstreamError
from treadle.core.events import Finished, Stop
from treadle.core.items import CallKind
from treadle.core.usage import Usage
from treadle.protocols.decoding.keepalive_frames import TYPES, is_keep_alive
from treadle.protocols.decoding.stream_decoder import AnswerDecoder
from treadle.protocols.responses.upstream_assembly import ResponsesAssembly
from treadle.protocols.responses.upstream_content_parts import PartKind, TextPiece
from treadle.protocols.responses.upstream_event import (
    NULL,
    PART,
    PIECE,
    RESPONSE,
    EventIn,
    ResponseIn,
    index_of,
    is_list,
    is_null,
    is_text,
    list_of,
    read,
    read_event,
    read_failure,
    read_reason,
    read_usage,
    text_of,
    word_of,
)
from treadle.protocols.responses.upstream_item_drafts import KINDS, ArgumentEvents, final_of, objects_of
from treadle.protocols.responses.upstream_item_index import ItemPosition
from treadle.protocols.surrogates import mend_escapes

REASONS: dict[str, Stop] = {"max_output_tokens": "length", "content_filter": "filtered"}
"""Why a response is incomplete. Any other reason is a cut too: no tool may run on what it left."""

_TERMINALS = {
    "response.completed": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
    "response.cancelled": "cancelled",
    "response.done": "completed",
}
_STATUSES = frozenset({"completed", "incomplete", "failed", "cancelled"})
_UNFINISHED = frozenset({"queued", "in_progress"})

_QUIET = frozenset({"response.created", "response.queued", "response.in_progress", *TYPES})
_PROGRESS = (
    "response.content_part.added",
    "response.reasoning_summary_part.added",
    "response.mcp_",
    "response.web_search_call.",
    "response.file_search_call.",
    "response.code_interpreter_call",
    "response.image_generation_call.",
    "response.shell_call_",
    "response.compaction.",
)
"""Prefixes of events whose content the whole item repeats at its end."""

_TEXTS: dict[str, PartKind] = {
    "response.output_text": "text",
    "response.refusal": "refusal",
    "response.reasoning_text": "raw",
    "response.reasoning": "raw",
    "response.reasoning_summary_text": "summary",
}
_CALLS: dict[str, tuple[CallKind, ArgumentEvents]] = {
    "response.function_call_arguments": ("function", "official"),
    "response.custom_tool_call_input": ("custom", "official"),
    "response.output_tool_call": ("function", "extended"),
}

_PIECES: dict[str, PartKind | None] = {
    **{f"{name}.delta": kind for name, kind in _TEXTS.items()},
    "response.function_call_arguments.delta": None,
}
"""Events of pieces by their names, with the kind of part for those of texts."""


class Decoder(AnswerDecoder[ResponsesAssembly]):
    """Turns the answer of one model call into events."""

    assembly_class = ResponsesAssembly
    _unknown_types: frozenset[str] = frozenset()
    _number: int | None = None
    _idle = -1
    _has_restarted = False
    _is_counting = False

    def _read_frame(self, name: str, data: str) -> None:
        if name in _PIECES and self._add_piece(name, data):
            return
        event = read_event(data)
        if event is not None and event.type and event.type != name and (name in _HANDLERS or name in _TERMINALS):
            self._damage(f"an event is called {name}, and is another one")
        elif name == "error" and event is not None and event.type and event.type not in _KNOWN:
            code = msgspec.Raw(msgspec.json.encode(event.type)) if is_null(event.code) else event.code
            self._fail(read_failure(event.error, code, event.message))
        elif event is not None and (event.type or name or not is_null(event.error)):
            self._read_event(event.type or name, event)
        elif name == "error":
            self._fail(read_failure(NULL, message=msgspec.Raw(msgspec.json.encode(data))))
        elif event is not None and not is_null(event.detail):
            self._fail(read_failure(event.detail))
        elif not is_keep_alive(name, data):
            self._damage(f"a frame of {len(data)} characters is no event")

    def _count(self, number: int | None, kind: str) -> bool:
        """Check the number of an event; return whether none was left out, where the upstream counts at all.

        Upstreams leave the numbers out, give all events the same one or begin again, so that only one that was seen to
        count, and never to go back, can be seen to leave a gap. An event without content may come under the last number
        again, as Treadle itself sends it.
        """
        last = self._number
        if number is None or self._has_restarted:
            return True
        if kind in TYPES:
            # Gateways put them in between: some take a number, some take one that comes again.
            self._idle += number == self._idle + 1
            return True
        if number == last and (kind in _QUIET or not self._is_counting):
            return True
        is_next = last is not None and number in (last + 1, self._idle + 1)
        if last is not None and number <= last and not is_next:
            self._has_restarted = True
            return True
        self._number = self._idle = number
        if self._is_counting and not is_next:
            self._damage(f"the event {number} came behind the event {last}")
            return False
        self._is_counting = is_next
        return True

    def _read_event(self, kind: str, event: EventIn) -> None:
        if event.sequence_number is not NULL and not self._count(index_of(event.sequence_number), kind):
            return
        handler = _HANDLERS.get(kind)
        if handler is not None:
            handler(self, event)
        elif kind in _TERMINALS:
            self._end_response(event.response, _TERMINALS[kind])
        elif kind == "error" or not is_null(event.error):
            self._fail(read_failure(event.error, event.code, event.message))
        elif kind not in _QUIET and not kind.startswith(_PROGRESS):
            self._note_unknown(kind)

    def _add_piece(self, name: str, data: str) -> bool:
        """Add a piece of text or arguments, as nearly every event is; return whether it was one."""
        piece = read(PIECE, data)
        if piece is None or piece.type != name or not piece.item_id:
            return False
        if piece.sequence_number is not None and not self._count(piece.sequence_number, name):
            return True
        place = ItemPosition(item_id=piece.item_id, output_index=piece.output_index)
        kind = _PIECES[name]
        if kind is None:
            self._assembly.add_arguments(place, "function", "official", piece.delta)
        else:
            key = piece.summary_index if kind == "summary" else piece.content_index
            self._assembly.add_text(place, key, TextPiece(kind=kind, text=piece.delta))
        return True

    def _note_unknown(self, kind: str) -> None:
        shown = kind[:64].encode("utf-8", "replace").decode()
        if shown not in self._unknown_types and len(self._unknown_types) < 64:
            self._unknown_types |= {shown}
            self._assembly.note("unknown_event", "dropped", f"events of the type {shown!r}")

    def _read_document(self, data: str) -> None:
        """Read a whole response object, or an error, which some gateways wrap in a list of one."""
        self._assembly.is_streamed = False
        raw = msgspec.Raw(mend_escapes(data.encode())[0])
        if data.startswith("["):
            raw = next(iter(list_of(raw)), NULL)
        response = read(RESPONSE, raw)
        if response is None:
            self._fail(BrokenStream("The upstream's answer is not a response object.").info)
        elif is_null(response.output) and not is_null(response.error):
            self._fail(read_failure(response.error))
        elif is_null(response.output) and is_null(response.status):
            self._fail(BrokenStream("The upstream's answer is not a response object.").info)
        elif word_of(response.status) in _UNFINISHED:
            self._fail(BrokenStream("The upstream answered with a response that is not finished.").info)
        else:
            self._end_response(raw, "completed")

    def _is_text(self, delta: msgspec.Raw) -> bool:
        """Whether a piece of a text or of arguments is one."""
        if not is_text(delta):
            self._damage("a piece of an item is no text")
        return is_text(delta)

    def _add_text(self, event: EventIn, kind: PartKind) -> None:
        if not self._is_text(event.delta):
            return
        piece = TextPiece(kind=kind, text=text_of(event.delta), logprobs=objects_of(event.logprobs))
        self._assembly.add_text(_place(event), _key(event, kind), piece)

    def _end_text(self, event: EventIn, kind: PartKind) -> None:
        text = text_of(event.refusal if kind == "refusal" else event.text)
        whole = TextPiece(kind=kind, text=text, logprobs=objects_of(event.logprobs))
        self._assembly.end_text(_place(event), _key(event, kind), whole)

    def _end_part(self, event: EventIn) -> None:
        part = read(PART, event.part)
        if part is None and not is_null(event.part):
            self._damage("a part of an item cannot be read")
        elif part is not None and part.type in KINDS:
            final = final_of(part)
            self._assembly.end_text(_place(event), _key(event, final.kind), final)

    def _annotate(self, event: EventIn) -> None:
        self._assembly.annotate(_place(event), _key(event, "text"), event.annotation)

    def _add_arguments(self, event: EventIn, kind: CallKind, source: ArgumentEvents) -> None:
        if self._is_text(event.delta):
            self._assembly.add_arguments(_place(event), kind, source, text_of(event.delta))

    def _end_arguments(self, event: EventIn, kind: CallKind) -> None:
        whole = text_of(event.input if is_null(event.arguments) else event.arguments)
        self._assembly.end_arguments(_place(event), kind, whole, word_of(event.name))

    def _start_call(self, event: EventIn) -> None:
        self._assembly.start_call(_place(event), event.name, event.call_id)

    def _add_item(self, event: EventIn) -> None:
        self._assembly.add_item(_place(event), event.item)

    def _end_item(self, event: EventIn) -> None:
        self._assembly.end_item(_place(event), event.item)

    def _end_response(self, raw: msgspec.Raw, status: str) -> None:
        """End with the status of the response object, which is more reliable than the name of its event."""
        response = read(RESPONSE, raw)
        if (response is None and not is_null(raw)) or (response is not None and not is_list(response.output)):
            self._damage("the response cannot be read")
            return
        response = response or ResponseIn()
        own_status = word_of(response.status)
        status = own_status if own_status in _STATUSES else status
        if status == "failed":
            self._fail(read_failure(response.error))
        elif status == "cancelled":
            self._fail(UpstreamError("The upstream cancelled its response.", code="upstream_cancelled").info)
        else:
            reason = read_reason(response.incomplete_details) if status == "incomplete" else ""
            self._assembly.end_output(list_of(response.output), is_cut=status == "incomplete")
            cut: Stop | None = REASONS.get(reason, "length") if status == "incomplete" else None
            self._finish(cut, read_usage(response.usage), reason or status)

    def _end(self, *, is_explicit: bool) -> None:
        """Judge a stream that ends without a final event: complete calls stand where it announced its end."""
        if is_explicit and self._assembly.has_calls and self._assembly.calls_are_complete:
            self._finish(None, None, None)
        else:
            self._cut_off()

    def _finish(self, cut: Stop | None, usage: Usage | None, reason: str | None) -> None:
        self._assembly.finish(is_cut=cut is not None)
        stop: Stop = cut or ("calls" if self._assembly.has_calls else "done")
        self._close(Finished(stop=stop, usage=usage, raw_stop=reason))

    @staticmethod
    def handlers() -> "dict[str, Callable[[Decoder, EventIn], None]]":
        """Return what is done with each type of event that carries a piece of the answer."""
        table: dict[str, Callable[[Decoder, EventIn], None]] = {
            "response.output_item.added": Decoder._add_item,
            "response.output_item.done": Decoder._end_item,
            "response.content_part.done": Decoder._end_part,
            "response.reasoning_summary_part.done": Decoder._end_part,
            "response.output_text.annotation.added": Decoder._annotate,
            "response.output_tool_call.begin": Decoder._start_call,
        }
        for name, kind in _TEXTS.items():
            table[f"{name}.delta"] = lambda decoder, event, kind=kind: decoder._add_text(event, kind)
            table[f"{name}.done"] = lambda decoder, event, kind=kind: decoder._end_text(event, kind)
        for name, (kind, source) in _CALLS.items():
            end = "end" if source == "extended" else "done"
            table[f"{name}.delta"] = lambda decoder, event, kind=kind, source=source: decoder._add_arguments(
                event, kind, source
            )
            table[f"{name}.{end}"] = lambda decoder, event, kind=kind: decoder._end_arguments(event, kind)
        return table


_HANDLERS = Decoder.handlers()
_KNOWN = {"error", *_HANDLERS, *_TERMINALS}


def _place(event: EventIn) -> ItemPosition:
    return ItemPosition(item_id=word_of(event.item_id), output_index=index_of(event.output_index))


def _key(event: EventIn, kind: PartKind) -> int:
    return index_of(event.summary_index if kind == "summary" else event.content_index) or 0
