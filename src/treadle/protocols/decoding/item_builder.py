"""Builds the items of one answer and their events, for the decoders of all protocols.

Items are opened, appended to and closed; each is done in the order in which it was opened. Which item a piece of an
answer belongs to is decided by each protocol, in its `upstream_assembly`.
"""

import re

from treadle.core import ids as prefixes
from treadle.core.events import (
    ArgumentsDelta,
    ItemAdded,
    ItemDone,
    ModelEvent,
    Noted,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
)
from treadle.core.ids import IdSource
from treadle.core.json import cut_text
from treadle.core.request import Note, NoteAction
from treadle.protocols.decoding.answer_meter import (
    NOTES_MAX,
    SEQUENCE_BYTES_MAX,
    STOPPED_BY,
    AnswerBounds,
    AnswerMeter,
)
from treadle.protocols.decoding.item_drafts import BlobFactory, CallDraft, ItemDraft, MessageDraft, ReasoningDraft
from treadle.protocols.surrogates import mend_text

NAME_BYTES_MAX = 128

# Kimi's `functions.get_time:0` is one; longer or stranger ids break clients.
_USABLE_ID = re.compile(r"[A-Za-z0-9_.:-]{1,128}")

_REPAIRS = {
    "repeated_arguments": "the same arguments came twice",
    "quoted_arguments": "the arguments were a JSON object inside a JSON string",
}
_NO_PROVIDER = BlobFactory()

Tail = tuple[int, int, list[str]]
"""The index of a message, the number of a part of it, and the pieces of that part."""


class ItemBuilder:
    """The items, events and notes of one answer."""

    call_id_chars_max = 64
    is_streamed = False
    tail: Tail | None = None
    """Where plain text continues, while it can be added to the open message as it is."""

    _content: MessageDraft | ReasoningDraft | None = None
    """The message or reasoning that is open, where a protocol has one at a time."""

    def __init__(
        self,
        ids: IdSource,
        bounds: AnswerBounds,
        blobs: BlobFactory = _NO_PROVIDER,
        taken_call_ids: frozenset[str] = frozenset(),
    ) -> None:
        self.events: list[ModelEvent] = []
        self.meter = AnswerMeter(bounds.text_bytes_max)
        self._ids = ids
        self._bounds = bounds
        self.blobs = blobs
        self._taken_before = taken_call_ids
        self._taken: set[str] = set()
        self._notes = 0
        self._order: list[ItemDraft] = []
        self._done = 0

    @property
    def size(self) -> tuple[int, ...]:
        """How much of the answer there is, in numbers that grow with each piece of it."""
        # A call may begin without a byte of arguments.
        return (self.meter.bytes_held, len(self._order))

    def take(self) -> list[ModelEvent]:
        """Return the events since the last time."""
        events, self.events = self.events, []
        return events

    def note(self, code: str, action: NoteAction, message: str, field: str | None = None) -> None:
        """Note what was repaired or dropped, up to a number: a broken stream is not echoed line by line."""
        self._notes += 1
        if self._notes <= NOTES_MAX:
            self.events.append(Noted(note=Note(code=code, action=action, message=message, field=field)))

    def note_sequence(self, sequence: str) -> None:
        """Note which stop sequence ended the answer, for clients whose protocol has a field for it."""
        self.note(STOPPED_BY, "kept", cut_text(mend_text(sequence), SEQUENCE_BYTES_MAX), STOPPED_BY)

    def _note_rest(self) -> None:
        """Note at the end how many notes were left out."""
        if self._notes > NOTES_MAX:
            rest = self._notes - NOTES_MAX
            note = Note(code="more_notes", action="dropped", message="further notes of this answer", count=rest)
            self.events.append(Noted(note=note))

    def _note_repair(self, repair: str) -> None:
        self.note(repair, "repaired", _REPAIRS[repair])

    # Opening

    def _open(self, draft: ItemDraft) -> None:
        """Announce an item."""
        draft.index = len(self._order)
        self._order.append(draft)
        self.events.append(ItemAdded(index=draft.index, item=draft.item()))

    def _open_message(self) -> MessageDraft:
        """Return the open message, or open one instead of the reasoning."""
        message = self._content
        if not isinstance(message, MessageDraft):
            if message is not None:
                self._close_content()
            message = self._content = MessageDraft(self._ids.new(prefixes.MESSAGE))
            self._open(message)
        return message

    def _open_reasoning(self) -> ReasoningDraft:
        """Return the open reasoning, or open one instead of the message."""
        reasoning = self._content
        if not isinstance(reasoning, ReasoningDraft):
            if reasoning is not None:
                self._close_content()
            reasoning = self._content = ReasoningDraft(self._ids.new(prefixes.REASONING))
            self._open(reasoning)
        return reasoning

    def _open_call(self, call: CallDraft, *, needs_id: bool = True) -> None:
        """Announce a call, with an id that no other one has, and send the arguments that came before."""
        call.item_id = call.item_id or self._ids.new(prefixes.CALL_ITEM)
        call.call_id = self._call_id(call.upstream_id, is_needed=needs_id)
        self._open(call)
        if call.waiting:
            early = "".join(call.waiting)
            call.waiting.clear()
            size = len(early.encode())
            self.note("arguments_before_name", "buffered", f"{size} argument bytes came before the name")
            self.events.append(ArgumentsDelta(index=call.index, text=early))

    # Appending

    def _append_text(self, message: MessageDraft, text: str, *, is_refusal: bool = False) -> None:
        if message.joiner.half or not text.isascii():
            text = message.joiner.feed(text)
        if not text:
            return
        self.meter.add(text)
        if self.meter.is_over:
            return
        part = message.open_part(is_refusal=is_refusal)
        part.pieces.append(text)
        logprobs = part.take_logprobs() if part.waiting else None
        kind = RefusalDelta if is_refusal else TextDelta
        self.events.append(kind(index=message.index, text=text, part=len(message.parts) - 1, logprobs=logprobs))

    def _append_reasoning(self, reasoning: ReasoningDraft, text: str) -> None:
        if reasoning.joiner.half or not text.isascii():
            text = reasoning.joiner.feed(text)
        if text and self._has_room(text):
            reasoning.texts.append(text)
            self.events.append(ReasoningDelta(index=reasoning.index, text=text))

    def _append_arguments(self, call: CallDraft, text: str) -> None:
        if call.joiner.half or not text.isascii():
            text = call.joiner.feed(text)
        if not text:
            return
        self.meter.add(text)
        if self.meter.is_over:
            return
        arguments = call.arguments
        ready = arguments.feed(text)
        if arguments.size > self._bounds.arguments_bytes_max:
            self._check_arguments(arguments.size)
        elif ready and call.index >= 0:
            self.events.append(ArgumentsDelta(index=call.index, text=ready))
        elif ready:
            call.waiting.append(ready)

    # Closing

    def _close_content(self) -> None:
        """Close the open message or reasoning, if there is one."""
        content, self._content, self.tail = self._content, None, None
        if content is not None:
            self._close(content)
            self._emit_done(is_final=True)

    def _close(self, draft: ItemDraft) -> None:
        """Complete the content of an item; it is done once those before it are."""
        if isinstance(draft, CallDraft):
            self._close_call(draft)
        elif isinstance(draft, MessageDraft):
            if draft.joiner.half:
                self._append_text(draft, draft.joiner.finish(), is_refusal=draft.is_refusing)
        elif isinstance(draft, ReasoningDraft):
            if draft.joiner.half:
                self._append_reasoning(draft, draft.joiner.finish())
            if draft.state:
                draft.blobs = self.blobs.from_state(draft.state)
        draft.is_closed = True

    def _close_call(self, call: CallDraft) -> None:
        if call.joiner.half:
            self._append_arguments(call, call.joiner.finish())
        call.final = call.arguments.finish()
        if call.final.rest and not self.meter.is_over:
            self.events.append(ArgumentsDelta(index=call.index, text=call.final.rest))
        if call.final.repair:
            self._note_repair(call.final.repair)
        call.is_closed = True

    def _leave_out(self, call: CallDraft) -> None:
        """Never end a call that the end of the answer cut."""
        call.is_left_out = call.is_closed = True
        name = cut_text(mend_text(call.name), NAME_BYTES_MAX) or "unknown"
        self.note("call_cut", "dropped", f"a call of {name!r} was cut off after {call.size} bytes of its arguments")

    def _emit_done(self, *, is_final: bool = False) -> None:
        """Emit that closed items are done, up to the first one that is open; the last one may wait for the end."""
        order = self._order
        while self._done < len(order):
            draft = order[self._done]
            if not draft.is_closed or (draft is order[-1] and not is_final and self._may_change(draft)):
                return
            self._done += 1
            if not draft.is_left_out:
                self.events.append(ItemDone(index=draft.index, item=draft.item()))

    def _may_change(self, draft: ItemDraft) -> bool:
        """Whether what follows decides about the last item, though it is closed."""
        return False

    # Checks

    def _has_name(self, name: str) -> bool:
        """Check that a call has a name: where that was lost, so is the answer."""
        if not name:
            self.meter.mark_damaged("a call has no name")
        return bool(name)

    def _call_id(self, upstream_id: str, *, is_needed: bool = True) -> str:
        """Return an id that no other call has: the provider's, if it can be used; it may lack unless `is_needed`."""
        call_id = upstream_id
        if not call_id:
            if is_needed:
                self.note("call_without_id", "repaired", "a call without an id got one")
        elif call_id in self._taken or call_id in self._taken_before:
            self.note("duplicate_call_id", "repaired", "a call with the id of another one got its own")
            call_id = ""
        elif len(call_id) > self.call_id_chars_max or not _USABLE_ID.fullmatch(call_id):
            self.note("odd_call_id", "repaired", "a call whose id no client can carry got another one")
            call_id = ""
        call_id = call_id or self._ids.new(prefixes.CALL)
        self._taken.add(call_id)
        return call_id

    def _check_arguments(self, size: int) -> bool:
        """Whether arguments of so many bytes are within their bound."""
        most = self._bounds.arguments_bytes_max
        if size > most:
            self.meter.refuse(f"the arguments of a call are over {most} bytes")
        return size <= most

    def _has_room(self, text: str) -> bool:
        """Count a text, and return whether the answer is still within its bounds."""
        self.meter.add(text)
        return not self.meter.is_over

    def _has_room_for(self, size: int) -> bool:
        self.meter.add_bytes(size)
        return not self.meter.is_over
