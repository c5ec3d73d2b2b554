"""Pieces of an answer become item events.

Messages and reasoning are open one at a time; calls stay open beside them until the end, because upstreams
interleave their pieces. An item is done in the order in which it was added. Nothing here knows chunks or frames.
"""

from collections.abc import Hashable
from typing import Any

from treadle.core import ids as prefixes
from treadle.core.events import (
    ArgumentsDelta,
    ItemAdded,
    ItemDone,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
)
from treadle.core.ids import IdSource
from treadle.core.items import AnyItem, AnyPart, MessageItem
from treadle.core.json import BadJson, read_json
from treadle.protocols.decoding.assembly_base import NOBODY, AnswerBounds, AnswerTotals, Maker
from treadle.protocols.decoding.call_correlation import Correlator, Piece, Slot
from treadle.protocols.decoding.item_builders import CallDraft, MessageDraft, ThoughtDraft
from treadle.protocols.decoding.json_growth import Growth
from treadle.protocols.surrogates import HalfJoiner, write_halves

CALLS_MAX = 1024


_Draft = MessageDraft | ThoughtDraft | CallDraft


class ItemAssembly(AnswerTotals):
    """The items of one answer in the making; it `has_calls` where the model called anything.

    Fields that nobody here reads are kept under their `kind` of state: those about the reasoning on the reasoning
    itself where it is still open, all others on the item that ends the answer. `tail` is where plain text goes on: the
    index of its message, the number of its part, and its pieces.
    """

    def __init__(
        self, ids: IdSource, bounds: AnswerBounds, taken_call_ids: frozenset[str] = frozenset(), maker: Maker = NOBODY
    ) -> None:
        super().__init__(ids, bounds, taken_call_ids)
        self.has_calls = False
        self._speaking: MessageDraft | ThoughtDraft | None = None
        self.tail: tuple[int, int, list[str]] | None = None
        self._correlator: Correlator | None = None
        self._done = 0
        self._maker = maker
        self._order: list[_Draft] = []
        self._calls: dict[int, CallDraft] = {}
        self._late: dict[str, Growth] = {}

    @property
    def calls_are_complete(self) -> bool:
        """Tell whether every call has a name and arguments that are a complete object, or none at all."""
        return all(call.slot.name and _is_whole(call.slot) for call in self._calls.values())

    @property
    def calls_are_named(self) -> bool:
        """Tell whether every call has a name."""
        return all(call.slot.name for call in self._calls.values())

    @property
    def extent(self) -> tuple[int, ...]:
        """Return how much of the answer there is: a call may begin without a byte of arguments."""
        return (self._meter.bytes_held, len(self._order), len(self._calls))

    @property
    def is_speaking(self) -> bool:
        """Tell whether a message is open."""
        return type(self._speaking) is MessageDraft

    def add_text(self, text: str) -> None:
        """Add a text without halves to the message, or begin one: what nearly every piece of an answer is."""
        tail = self.tail or self._begin_tail()
        if tail is None:
            self.add_said(text)
            return
        meter = self._meter
        meter.bytes_held += len(text) if text.isascii() else len(text.encode())
        if meter.bytes_held > meter.bytes_max:
            meter.is_over = True
            return
        index, part, texts = tail
        texts.append(text)
        self.events.append(TextDelta(index=index, text=text, part=part))

    def add_said(self, text: str, *, is_refusal: bool = False, tokens: list[Any] | None = None) -> None:
        """Add to the message, or begin one, also what it refuses; `tokens` are the logprobs of that text."""
        self.tail = None
        message = self._speaking
        if type(message) is not MessageDraft:
            message = self._begin_message()
        if tokens and not self._has_room_for(len(write_halves(tokens))):
            return
        if not text:
            message.add_late_tokens(tokens or [], is_refusal=is_refusal)
            return
        if message.is_refusing != is_refusal:
            self._say(message, message.joiner.finish(), is_refusal=message.is_refusing)
        if tokens:
            message.add_tokens(tokens, is_refusal=is_refusal)
        if message.joiner.half or not text.isascii():
            text = message.joiner.feed(text)
        self._say(message, text, is_refusal=is_refusal)

    def attach(self, part: AnyPart, size: int) -> None:
        """Add a part of `size` characters that is not text to the message, or begin one."""
        if self._has_room_for(size):
            message = self._speaking if type(self._speaking) is MessageDraft else self._begin_message()
            message.attached.append(part)

    def annotate(self, annotations: list[Any]) -> None:
        """Add annotations to the message, which must be open."""
        assert isinstance(self._speaking, MessageDraft), "annotations are of something said"
        if self._has_room_for(len(write_halves(annotations))):
            self._speaking.annotations += annotations

    def add_reasoning(self, text: str) -> None:
        """Add to the reasoning, or begin some."""
        thought = self._speaking
        if type(thought) is not ThoughtDraft:
            thought = self._begin_thought()
        self._think(thought, thought.joiner.feed(text))

    def add_thought_state(self, kind: str, value: Any) -> None:
        """Add to the opaque state of the reasoning; behind a message or a call it waits for the end."""
        if not self._has_room_for(len(write_halves(value))):
            return
        if self._speaking is None and not self._calls:
            self._begin_thought()
        if isinstance(self._speaking, ThoughtDraft):
            self._speaking.states.setdefault(kind, Growth()).add(value)
        else:
            self._late.setdefault(kind, Growth()).add(value)

    def add_state(self, kind: str, value: Any) -> None:
        """Add to the opaque state of the whole answer."""
        if self._has_room_for(len(write_halves(value))):
            self._late.setdefault(kind, Growth()).add(value)

    def begin_calls(self) -> None:
        """Say that the next pieces of calls come in one delta."""
        if self._correlator is not None:
            self._correlator.begin_delta()

    def go_on(self, index: Hashable, text: str) -> bool:
        """Add to the arguments of the call at an index; tell whether there is one that was shown."""
        slot = None if self._correlator is None else self._correlator.by_index.get(index)
        call = None if slot is None else self._calls.get(id(slot))
        if call is None or call.index < 0:
            return False
        self._argue(call, text)
        return True

    def add_call(self, piece: Piece, state: tuple[str, Any] | None = None) -> None:
        """Add a piece of a call to the call it belongs to; `state` is a kind and what only the maker can read."""
        if self._correlator is None:
            self._correlator = Correlator()
        slot, is_new = self._correlator.place(piece)
        if is_new:
            self._calls[id(slot)] = CallDraft(slot, HalfJoiner(is_json=piece.kind != "custom"))
            self.has_calls = True
            if len(self._calls) > CALLS_MAX:
                self._meter.refuse(f"more than {CALLS_MAX} calls in one answer")
                return
        call = self._calls[id(slot)]
        if state is not None and self._has_room_for(len(write_halves(state[1]))):
            call.blobs = (self._maker.blob(*state),)
        if call.index < 0 and slot.name:
            self._show_named()
        self._argue(call, piece.text)

    def finish(self, *, is_cut: bool = False) -> None:
        """Close everything that is open; of an answer that `is_cut` calls that are not whole are left out."""
        if is_cut:
            self._leave_cut_calls()
        if self._late:
            self._settle_late()
        if self._speaking is not None:
            self._fall_silent()
        if self._calls:
            self._close_calls()
        if self._notes:
            self._note_left()

    def _begin_message(self) -> MessageDraft:
        if self._speaking is not None:
            self._fall_silent()
        index, item_id = len(self._order), self._ids.new(prefixes.MESSAGE)
        message = self._speaking = MessageDraft(index, item_id, HalfJoiner())
        self._order.append(message)
        self.events.append(ItemAdded(index=index, item=MessageItem(id=item_id, role="assistant")))
        return message

    def _begin_tail(self) -> tuple[int, int, list[str]] | None:
        """Open a text that pieces can be added to as they are; None while something of the message waits for more."""
        message = self._speaking
        if type(message) is not MessageDraft:
            message = self._begin_message()
        if message.is_refusing or message.has_tokens or message.joiner.half:
            return None
        texts = message.begin(is_refusal=False) if message.texts is None else message.texts
        self.tail = message.index, message.part, texts
        return self.tail

    def _begin_thought(self) -> ThoughtDraft:
        if self._speaking is not None:
            self._fall_silent()
        thought = self._speaking = ThoughtDraft(len(self._order), self._ids.new(prefixes.REASONING))
        self._show(thought, thought.begun())
        return thought

    def _settle_late(self) -> None:
        """Give the state of the whole answer to the item that is still open, a call before a message."""
        blobs = tuple(self._maker.blob(kind, state.value()) for kind, state in self._late.items())
        call = next((call for call in self._calls.values() if not call.is_left_out), None)
        if call is not None:
            call.blobs += blobs
        else:
            message = self._speaking if isinstance(self._speaking, MessageDraft) else self._begin_message()
            message.blobs = blobs

    def _show(self, draft: _Draft, item: AnyItem) -> None:
        self._order.append(draft)
        self.events.append(ItemAdded(index=draft.index, item=item))

    def _say(self, message: MessageDraft, text: str, *, is_refusal: bool) -> None:
        if not text:
            return
        self._meter.add(text)
        if self._meter.is_over:
            return
        message.add(text, is_refusal=is_refusal)
        kind = RefusalDelta if is_refusal else TextDelta
        tokens = message.take_tokens() if message.has_tokens else None
        self.events.append(kind(index=message.index, text=text, part=message.part, logprobs=tokens))

    def _think(self, thought: ThoughtDraft, text: str) -> None:
        if text and self._has_room(text):
            thought.texts.append(text)
            self.events.append(ReasoningDelta(index=thought.index, text=text))

    def _fall_silent(self) -> None:
        """Close the open message or reasoning."""
        speaking, self._speaking, self.tail = self._speaking, None, None
        assert speaking is not None, "somebody speaks"
        if type(speaking) is MessageDraft:
            if speaking.joiner.half:
                self._say(speaking, speaking.joiner.finish(), is_refusal=speaking.is_refusing)
        else:
            self._think(speaking, speaking.joiner.finish())
            speaking.blobs = tuple(self._maker.blob(kind, state.value()) for kind, state in speaking.states.items())
        speaking.is_closed = True
        if self._done == len(self._order) - 1:
            # Who speaks came last, and all before it are told.
            self._done += 1
            self.events.append(ItemDone(index=speaking.index, item=speaking.item()))
        else:
            self._emit_done()

    def _show_named(self) -> None:
        """Show the calls that have names, in the order in which they were begun: one without holds up those behind."""
        for call in self._calls.values():
            if not call.slot.name:
                return
            if call.index < 0:
                self._show_call(call)

    def _show_call(self, call: CallDraft) -> None:
        if self._speaking is not None:
            self._fall_silent()
        call.index = len(self._order)
        call.item_id = self._ids.new(prefixes.CALL_ITEM)
        call.call_id = self._call_id(call.slot.id)
        self._show(call, call.item())
        if call.waiting:
            early = "".join(call.waiting)
            call.waiting.clear()
            size = len(early.encode())
            self.note("arguments_before_name", "buffered", f"{size} argument bytes came before the name")
            self.events.append(ArgumentsDelta(index=call.index, text=early))

    def _argue(self, call: CallDraft, text: str) -> None:
        if call.joiner.half or not text.isascii():
            text = call.joiner.feed(text)
        if not text:
            return
        self._meter.add(text)
        if self._meter.is_over:
            return
        arguments = call.slot.arguments
        ready = arguments.feed(text)
        if arguments.size > self._bounds.arguments_bytes_max:
            self._check_arguments(arguments.size)
        elif ready and call.index >= 0:
            self.events.append(ArgumentsDelta(index=call.index, text=ready))
        elif ready:
            call.waiting.append(ready)

    def _leave_cut_calls(self) -> None:
        """Leave out the calls that the end of the answer cut: a model writes one after the other, so that free text
        and no text at all are whole where another call follows."""
        last = next(reversed(self._calls.values()), None)
        for call in self._calls.values():
            slot = call.slot
            is_ended = slot.arguments.is_closed or (call is not last and not slot.arguments.is_open)
            call.is_left_out = not (is_ended and slot.name)
            if call.is_left_out:
                self._note_cut(slot.name, slot.arguments.size)

    def _close_calls(self) -> None:
        for call in self._calls.values():
            if call.is_left_out:
                call.is_closed = True
                continue
            if not self._has_name(call.slot.name):
                return
            if call.index < 0:
                self._show_call(call)
            self._close_call(call)
        self._emit_done()

    def _close_call(self, call: CallDraft) -> None:
        if call.joiner.half:
            self._argue(call, call.joiner.finish())
        call.final = call.slot.arguments.finish()
        if call.final.rest:
            self.events.append(ArgumentsDelta(index=call.index, text=call.final.rest))
        if call.final.repair:
            self._note_repair(call.final)
        call.is_closed = True

    def _emit_done(self) -> None:
        """Say of every closed item that it is done, up to the first one that is still open."""
        while self._done < len(self._order) and self._order[self._done].is_closed:
            draft = self._order[self._done]
            self._done += 1
            if type(draft) is not CallDraft or not draft.is_left_out:
                self.events.append(ItemDone(index=draft.index, item=draft.item()))


def _is_whole(slot: Slot) -> bool:
    if slot.kind == "custom":
        return True
    try:
        return isinstance(read_json(slot.arguments.finish().text), dict)
    except BadJson:
        return False
