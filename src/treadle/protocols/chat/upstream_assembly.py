"""Assembles the pieces of a Chat answer into items.

One message or reasoning is open at a time; calls stay open beside it until the end, because providers interleave
their pieces. Chunks and frames are the business of `upstream_decoder`.
"""

from collections.abc import Hashable, Sequence
from typing import Any

from treadle.core.events import TextDelta
from treadle.core.items import AnyPart, Blob
from treadle.protocols.decoding.call_correlation import Correlator, Piece
from treadle.protocols.decoding.item_builder import ItemBuilder, Tail
from treadle.protocols.decoding.item_drafts import CallDraft, MessageDraft, PartDraft, ReasoningDraft
from treadle.protocols.decoding.json_values import Growth
from treadle.protocols.surrogates import write_halves

CALLS_MAX = 1024


class ChatAssembly(ItemBuilder):
    """The items of one Chat answer.

    Fields that Treadle does not read are stored as opaque state: those about the reasoning on the reasoning while it is
    open, all others on the item that ends the answer.
    """

    has_calls = False
    _calls: Sequence[CallDraft] = ()
    _correlator: Correlator | None = None
    _state: dict[str, Growth] | None = None

    @property
    def calls_are_complete(self) -> bool:
        """Whether every call has a name and arguments that are a complete object, or none at all."""
        return all(call.name and call.is_whole for call in self._calls)

    @property
    def calls_are_named(self) -> bool:
        """Whether every call has a name."""
        return all(call.name for call in self._calls)

    @property
    def size(self) -> tuple[int, ...]:
        """How much of the answer there is; a call that has no name yet counts too."""
        return (self.meter.bytes_held, len(self._order), len(self._calls))

    @property
    def has_open_message(self) -> bool:
        """Whether a message is open."""
        return type(self._content) is MessageDraft

    def add_text(self, text: str) -> None:
        """Add text that has no halves of surrogate pairs to the message: what nearly every chunk brings."""
        tail = self.tail or self._open_tail()
        if tail is None:
            self.add_message_text(text)
            return
        meter = self.meter
        meter.bytes_held += len(text) if text.isascii() else len(text.encode())
        if meter.bytes_held > meter.bytes_max:
            meter.is_over = True
            return
        index, part, texts = tail
        texts.append(text)
        self.events.append(TextDelta(index=index, text=text, part=part))

    def add_message_text(self, text: str, *, is_refusal: bool = False, tokens: list[Any] | None = None) -> None:
        """Add text or a refusal to the message, with the logprobs of its tokens."""
        self.tail = None
        message = self._open_message()
        if tokens and not self._has_room_for(len(write_halves(tokens))):
            return
        if not text:
            self._add_late_logprobs(message, tokens, is_refusal=is_refusal)
            return
        if message.joiner.half and message.is_refusing != is_refusal:
            self._append_text(message, message.joiner.finish(), is_refusal=message.is_refusing)
        if tokens:
            message.open_part(is_refusal=is_refusal).add_logprobs(tokens)
        self._append_text(message, text, is_refusal=is_refusal)

    def add_part(self, part: AnyPart, size: int) -> None:
        """Add a part of `size` characters that is not text to the message."""
        if self._has_room_for(size):
            self._open_message().attached.append(part)

    def annotate(self, annotations: list[Any]) -> None:
        """Add annotations to the message, which must be open."""
        assert isinstance(self._content, MessageDraft), "annotations belong to a message"
        if self._has_room_for(len(write_halves(annotations))):
            self._content.annotations += annotations

    def add_reasoning(self, text: str) -> None:
        """Add text to the reasoning."""
        self._append_reasoning(self._open_reasoning(), text)

    def add_reasoning_state(self, kind: str, value: Any) -> None:
        """Add to the opaque state of the reasoning; behind a message or a call it waits for the end."""
        if not self._has_room_for(len(write_halves(value))):
            return
        if self._content is None and not self._calls:
            self._open_reasoning()
        if isinstance(self._content, ReasoningDraft):
            self._content.state.setdefault(kind, Growth()).add(value)
        else:
            self._grow_state(kind, value)

    def add_state(self, kind: str, value: Any) -> None:
        """Add to the opaque state of the whole answer."""
        if self._has_room_for(len(write_halves(value))):
            self._grow_state(kind, value)

    def start_call_delta(self) -> None:
        """Start a delta of calls: two names in one are two calls."""
        if self._correlator is not None:
            self._correlator.start_delta()

    def continue_call(self, index: Hashable, text: str) -> bool:
        """Add to the arguments of the call at an index; return whether there is one that was announced."""
        call = None if self._correlator is None else self._correlator.by_index.get(index)
        if call is None or call.index < 0:
            return False
        self._append_arguments(call, text)
        return True

    def add_call(self, piece: Piece, state: tuple[str, Any] | None = None) -> None:
        """Add a piece to the call it belongs to; `state` is the kind and value of opaque state of that call."""
        if self._correlator is None:
            self._correlator = Correlator()
            self._calls = self._correlator.calls
            self.has_calls = True
        call, is_new = self._correlator.place(piece)
        if is_new and len(self._calls) > CALLS_MAX:
            self.meter.refuse(f"more than {CALLS_MAX} calls in one answer")
            return
        if state is not None and self._has_room_for(len(write_halves(state[1]))):
            call.blobs = (self.blobs.from_value(*state),)
        if call.index < 0 and call.name:
            self._open_named_calls()
        self._append_arguments(call, piece.text)

    def finish(self, *, is_cut: bool = False) -> None:
        """Close everything that is open; calls that a cut answer left incomplete are left out."""
        if is_cut:
            self._leave_out_cut_calls()
        if self._state is not None:
            self._attach_state(self.blobs.from_state(self._state))
        if self._content is not None:
            self._close_content()
        if self._calls:
            self._close_calls()
        if self._notes:
            self._note_rest()

    def _grow_state(self, kind: str, value: Any) -> None:
        self._state = {} if self._state is None else self._state
        self._state.setdefault(kind, Growth()).add(value)

    def _open_tail(self) -> Tail | None:
        """Open a text that pieces can be added to as they are; None while logprobs or half a character wait."""
        message = self._open_message()
        part = message.parts[-1] if message.parts else message.open_part()
        if isinstance(part, PartDraft) and not (part.is_refusal or part.waiting or message.joiner.half):
            self.tail = message.index, len(message.parts) - 1, part.pieces
        return self.tail

    def _add_late_logprobs(self, message: MessageDraft, tokens: list[Any] | None, *, is_refusal: bool) -> None:
        """Add logprobs of a token without text to the last part of its kind."""
        parts = [part for part in message.parts if isinstance(part, PartDraft) and part.is_refusal == is_refusal]
        part = parts[-1] if parts else message.open_part(is_refusal=is_refusal)
        part.add_logprobs(tokens or [])

    def _attach_state(self, blobs: tuple[Blob, ...]) -> None:
        """Give the state of the whole answer to an item that is still open: a call before a message."""
        call = next((call for call in self._calls if not call.is_left_out), None)
        if call is not None:
            call.blobs += blobs
        else:
            self._open_message().blobs = blobs

    def _open_named_calls(self) -> None:
        """Announce calls in the order in which they began: one without a name holds up those behind it."""
        for call in self._calls:
            if not call.name:
                return
            if call.index < 0:
                if self._content is not None:
                    self._close_content()
                self._open_call(call)

    def _leave_out_cut_calls(self) -> None:
        # A model writes one call after the other, so free text and no text at all are whole where another follows.
        for call in self._calls:
            arguments = call.arguments
            is_ended = arguments.is_closed or (call is not self._calls[-1] and not arguments.is_open)
            if not (is_ended and call.name):
                self._leave_out(call)

    def _close_calls(self) -> None:
        for call in self._calls:
            if call.is_left_out:
                continue
            if not self._has_name(call.name):
                return
            if call.index < 0:
                self._open_call(call)
            self._close_call(call)
        self._emit_done(is_final=True)
