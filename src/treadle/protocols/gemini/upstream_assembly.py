"""Assembles the parts of a Gemini answer into items.

Gemini sends whole parts, so one item is open at a time: consecutive texts are one message, consecutive thoughts one
reasoning, and every function call is a call of its own. Only a call whose arguments are streamed waits until they are
complete, and those behind it wait with it. Chunks and frames are the business of `upstream_decoder`.
"""

from typing import Any

import msgspec

from treadle.core.events import ArgumentsDelta, TextDelta
from treadle.core.ids import IdSource
from treadle.core.items import AnyPart, Blob, Extra, OpaquePart
from treadle.protocols.decoding.answer_meter import AnswerBounds
from treadle.protocols.decoding.call_arguments import Arguments, FinalArguments
from treadle.protocols.decoding.item_builder import ItemBuilder
from treadle.protocols.decoding.item_drafts import BlobFactory, CallDraft, MessageDraft, ReasoningDraft
from treadle.protocols.decoding.json_values import as_object, as_word, json_text
from treadle.protocols.gemini.content_parts import PART, RAW_ARGUMENTS, is_object
from treadle.protocols.gemini.field_spelling import PROTOCOL
from treadle.protocols.gemini.upstream_partial_arguments import PartialArguments

CALLS_MAX = 1024


class CallPiece(msgspec.Struct, frozen=True, kw_only=True):
    """A call, or a piece of one whose arguments are streamed: `args` whole, or `partial` ones."""

    id: str = ""
    name: str = ""
    args: Any = None
    partial: list[Any] = []
    will_continue: bool = False
    blobs: tuple[Blob, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether it only marks a streamed call as complete."""
        return not (self.id or self.name or self.partial or self.will_continue) and self.args is None


class _Call(CallDraft):
    is_open = True
    _args: Any = None
    _partial: PartialArguments | None = None

    def add(self, piece: CallPiece) -> int:
        """Add a piece and return how many bytes of streamed arguments are held."""
        self.upstream_id = self.upstream_id or piece.id
        self.name = self.name or piece.name
        self.blobs = self.blobs or piece.blobs
        self.is_open = piece.will_continue
        if piece.args is not None:
            self._args = piece.args
        if piece.partial and self._partial is None:
            self._partial = PartialArguments()
        if self._partial is not None:
            self._partial.add(piece.partial)
        return self.size

    @property
    def is_sound(self) -> bool:
        """Whether the arguments came as an object, which only one that was not cut can be."""
        is_object = isinstance(self._args, dict) and RAW_ARGUMENTS not in self._args
        return self._partial is not None or self._args is None or is_object

    @property
    def size(self) -> int:
        """How many bytes of streamed arguments are held."""
        return 0 if self._partial is None else self._partial.size

    def repeats(self, other: "_Call", final: FinalArguments) -> bool:
        """Whether this is another call sent again; `final` are its arguments."""
        is_same = (self.upstream_id, self.name) == (other.upstream_id, other.name)
        return is_same and other.final is not None and final.text == other.final.text

    def final_arguments(self) -> FinalArguments:
        """Return the arguments as text."""
        if self._partial is not None:
            text = json_text({**as_object(self._args), **self._partial.value()})
            return FinalArguments(text=text, rest="")
        args = as_object(self._args)
        if args.keys() == {RAW_ARGUMENTS} and isinstance(args[RAW_ARGUMENTS], str):
            return FinalArguments(text=as_word(args[RAW_ARGUMENTS]) or "{}", rest="")
        if isinstance(self._args, dict):
            return FinalArguments(text=json_text(self._args), rest="")
        machine = Arguments()
        machine.feed(as_word(self._args) if isinstance(self._args, str | None) else json_text(self._args))
        return machine.finish()


class GeminiAssembly(ItemBuilder):
    """The items of one Gemini answer."""

    def __init__(
        self,
        ids: IdSource,
        bounds: AnswerBounds,
        blobs: BlobFactory,
        taken_call_ids: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__(ids, bounds, blobs, taken_call_ids)
        self._calls: list[_Call] = []
        self._waiting: list[_Call] = []

    @property
    def has_calls(self) -> bool:
        """Whether the model called anything."""
        return bool(self._calls)

    @property
    def has_open_calls(self) -> bool:
        """Whether the arguments of a call are still streamed."""
        return any(call.is_open for call in self._waiting)

    @property
    def calls_are_complete(self) -> bool:
        """Whether every call has arguments that are an object and none is still streamed."""
        return not self.has_open_calls and all(call.final and is_object(call.final.text) for call in self._calls)

    def add_text(self, text: str) -> None:
        """Add to the message."""
        if text:
            message = self._content
            self._append_text(message if type(message) is MessageDraft else self._open_message(), text)

    def add_part(self, part: AnyPart, size: int) -> None:
        """Add a part that is not text to the message."""
        if self._has_room_for(size):
            message = self._open_message()
            self._append_text(message, message.joiner.finish())
            message.parts.append(part)
            if isinstance(part, OpaquePart):
                # A client that is sent it now need not wait for the end of the message to keep the order.
                extra = Extra(protocol=PROTOCOL, fields={PART: part.raw})
                number = len(message.parts) - 1
                self.events.append(TextDelta(index=message.index, text="", part=number, extra=extra))

    def set_message_field(self, name: str, raw: msgspec.Raw) -> bool:
        """Store a field about the message, of which the last value counts; return whether a message is open."""
        message = self._content
        if not isinstance(message, MessageDraft) or not self._has_room_for(len(bytes(raw))):
            return False
        fields = {} if message.extra is None else message.extra.fields
        message.extra = Extra(protocol=PROTOCOL, fields={**fields, name: raw})
        return True

    def add_reasoning(self, text: str, blobs: tuple[Blob, ...] = ()) -> None:
        """Add to the reasoning; a signature ends it."""
        if not text and not blobs:
            return
        reasoning = self._content
        if type(reasoning) is not ReasoningDraft:
            reasoning = self._open_reasoning()
        self._append_reasoning(reasoning, text)
        if blobs:
            reasoning.blobs = blobs
            self._close_content()

    def sign(self, blobs: tuple[Blob, ...]) -> None:
        """Add a signature to the open message."""
        if isinstance(self._content, MessageDraft):
            self._content.blobs += blobs
        elif blobs:
            self.note("signature_dropped", "dropped", "a signature of nothing that was said")

    def add_call(self, piece: CallPiece) -> None:
        """Add a call, or a piece of one."""
        call = self._continued_call(piece)
        if call is None:
            if piece.is_empty:
                return
            call = _Call(piece.id)
            self._waiting.append(call)
            if len(self._calls) + len(self._waiting) > CALLS_MAX:
                self.meter.refuse(f"more than {CALLS_MAX} calls in one answer")
                return
        if self._check_arguments(call.add(piece)):
            self._emit_complete_calls()

    def finish(self, *, is_cut: bool = False) -> None:
        """Close everything that is open; a call that a cut answer left incomplete is left out."""
        for call in [call for call in self._waiting if call.is_open or not call.is_sound]:
            if is_cut:
                self._leave_out(call)
                self._waiting.remove(call)
            elif call.is_open:
                self.note("call_left_open", "repaired", "a call was said to go on and the answer ended well")
            call.is_open = False
        self._emit_complete_calls(is_followed=True)
        self._close_content()
        self._note_rest()

    def _open_message(self) -> MessageDraft:
        if type(self._content) is not MessageDraft:
            self._emit_complete_calls(is_followed=True)
        return super()._open_message()

    def _open_reasoning(self) -> ReasoningDraft:
        if type(self._content) is not ReasoningDraft:
            self._emit_complete_calls(is_followed=True)
        return super()._open_reasoning()

    def _continued_call(self, piece: CallPiece) -> _Call | None:
        """Return the streamed call that a piece continues: by id, else the last one unless another one starts."""
        still_open = [call for call in self._waiting if call.is_open]
        if not still_open:
            return None
        by_id = next((call for call in still_open if piece.id and call.upstream_id == piece.id), None)
        last = still_open[-1]
        if by_id is not None or (piece.id and last.upstream_id):
            return by_id
        continues = piece.args is None and piece.name == last.name
        return last if not piece.name or not last.name or continues else None

    def _emit_complete_calls(self, *, is_followed: bool = False) -> None:
        """Emit the calls that are complete; one at the end whose arguments are no object may turn out to be cut."""
        while self._waiting and not self._waiting[0].is_open:
            if len(self._waiting) == 1 and not is_followed and not self._waiting[0].is_sound:
                return
            self._emit_call(self._waiting.pop(0))

    def _emit_call(self, call: _Call) -> None:
        """Open a call and close it at once."""
        if self._content is not None:
            self._close_content()
        if not self._has_name(call.name):
            return
        final = call.final_arguments()
        if call.upstream_id and any(call.repeats(other, final) for other in self._calls):
            self.note("call_repeated", "dropped", "a call came twice, with its id")
            return
        self._check_arguments(len(final.text.encode("utf-8", "replace")))
        if self.meter.is_over or not self._has_room(final.text):
            return
        self._calls.append(call)
        if final.repair:
            self._note_repair(final.repair)
        self._open_call(call, needs_id=False)
        self.events.append(ArgumentsDelta(index=call.index, text=final.text))
        call.final, call.is_closed = final, True
        self._emit_done(is_final=True)
