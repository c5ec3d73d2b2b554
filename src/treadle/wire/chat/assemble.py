"""Pieces of an answer become item events.

Messages and reasoning are open one at a time; calls stay open beside them until the end, because upstreams
interleave their pieces. An item is done in the order in which it was added. Nothing here knows chunks or frames.
"""

import re

import msgspec

from treadle.canon import ids as prefixes
from treadle.canon.events import (
    ArgumentsDelta,
    ItemAdded,
    ItemDone,
    ModelEvent,
    Noted,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
)
from treadle.canon.ids import IdSource
from treadle.canon.items import AnyItem, Blob, CallItem, MessageItem, ReasoningItem, RefusalPart, TextPart
from treadle.canon.json import BadJson, read_json
from treadle.canon.request import Note, NoteAction
from treadle.wire.arguments import FinalArguments
from treadle.wire.chat.correlate import Correlator, Piece, Slot
from treadle.wire.surrogates import HalfJoiner

CALLS_MAX = 1024
NOTES_MAX = 64
UNNAMED = "unnamed"

_USABLE_ID = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
"""Kimi's `functions.get_time:0` is one; what is longer or stranger breaks clients."""

_REPAIRS = {
    "repeated_arguments": "the same arguments came twice",
    "quoted_arguments": "the arguments were a JSON object inside a JSON string",
}


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """How much one answer may hold."""

    text_bytes_max: int
    arguments_bytes_max: int


class _Message:
    def __init__(self, index: int, item_id: str) -> None:
        self.index = index
        self.is_closed = False
        self.joiner = HalfJoiner()
        self._id = item_id
        self._parts: list[tuple[bool, list[str]]] = []

    def add(self, text: str, *, is_refusal: bool) -> int:
        """Add text and return the part it belongs to: text and refusals are parts of their own."""
        if not self._parts or self._parts[-1][0] != is_refusal:
            self._parts.append((is_refusal, []))
        self._parts[-1][1].append(text)
        return len(self._parts) - 1

    @property
    def is_refusing(self) -> bool:
        """Tell whether the last part is a refusal."""
        return bool(self._parts) and self._parts[-1][0]

    def item(self) -> MessageItem:
        """Return the message so far."""
        texts = ((is_refusal, "".join(pieces)) for is_refusal, pieces in self._parts)
        content = tuple(RefusalPart(text=text) if is_refusal else TextPart(text=text) for is_refusal, text in texts)
        return MessageItem(id=self._id, role="assistant", content=content)


class _Reasoning:
    def __init__(self, index: int, item_id: str) -> None:
        self.index = index
        self.is_closed = False
        self.joiner = HalfJoiner()
        self.texts: list[str] = []
        self._id = item_id

    def item(self) -> ReasoningItem:
        """Return the reasoning so far."""
        return ReasoningItem(id=self._id, text=("".join(self.texts),))


class _Call:
    """A call on its way out: `index` is set once the call has been shown."""

    def __init__(self, slot: Slot) -> None:
        self.slot = slot
        self.index = -1
        self.is_closed = False
        self.joiner = HalfJoiner()
        self.waiting: list[str] = []
        self.blobs: tuple[Blob, ...] = ()
        self.final: FinalArguments | None = None
        self.item_id = ""
        self.call_id = ""

    def item(self) -> CallItem:
        """Return the call, with its arguments once they are complete."""
        slot, final = self.slot, self.final
        return CallItem(
            id=self.item_id,
            call_id=self.call_id,
            name=slot.name,
            arguments=final.text if final else "",
            kind=slot.kind,
            raw=final.raw if final else None,
            upstream_id=slot.id or None,
            blobs=self.blobs if final else (),
        )


class Assembly:
    """The items of one answer in the making."""

    def __init__(self, ids: IdSource, bounds: Bounds, taken_call_ids: frozenset[str] = frozenset()) -> None:
        self.events: list[ModelEvent] = []
        self.overflow: str | None = None
        self._ids = ids
        self._bounds = bounds
        self._taken = set(taken_call_ids)
        self._bytes = 0
        self._notes = 0
        self._speaking: _Message | _Reasoning | None = None
        self._order: list[_Message | _Reasoning | _Call] = []
        self._done = 0
        self._correlator = Correlator()
        self._calls: dict[int, _Call] = {}

    @property
    def has_calls(self) -> bool:
        """Tell whether the model called anything."""
        return bool(self._calls)

    @property
    def has_begun(self) -> bool:
        """Tell whether anything was said or called."""
        return bool(self._order or self._calls)

    @property
    def calls_are_complete(self) -> bool:
        """Tell whether every call has a name and arguments that are a complete object, or none at all."""
        return all(call.slot.name and _is_whole(call.slot) for call in self._calls.values())

    def take(self) -> list[ModelEvent]:
        """Return the events since the last time."""
        events, self.events = self.events, []
        return events

    def note(self, code: str, action: NoteAction, message: str, field: str | None = None) -> None:
        """Say what was repaired or dropped; a stream that is all wrong is not echoed line by line."""
        self._notes += 1
        if self._notes <= NOTES_MAX:
            self.events.append(Noted(note=Note(code=code, action=action, message=message, field=field)))

    def add_text(self, text: str, *, is_refusal: bool = False) -> None:
        """Add to the message, or begin one."""
        message = self._speaking
        if not isinstance(message, _Message):
            self._fall_silent()
            message = self._speaking = _Message(len(self._order), self._ids.new(prefixes.MESSAGE))
            self._show(message, message.item())
        if message.is_refusing != is_refusal:
            self._say(message, message.joiner.finish(), is_refusal=message.is_refusing)
        self._say(message, message.joiner.feed(text), is_refusal=is_refusal)

    def add_reasoning(self, text: str) -> None:
        """Add to the reasoning, or begin some."""
        thought = self._speaking
        if not isinstance(thought, _Reasoning):
            self._fall_silent()
            thought = self._speaking = _Reasoning(len(self._order), self._ids.new(prefixes.REASONING))
            self._show(thought, ReasoningItem(id=thought.item().id))
        self._think(thought, thought.joiner.feed(text))

    def begin_calls(self) -> None:
        """Say that the next pieces of calls come in one delta."""
        self._correlator.begin_delta()

    def add_call(self, piece: Piece, blobs: tuple[Blob, ...] = ()) -> None:
        """Add a piece of a call to the call it belongs to."""
        slot, is_new = self._correlator.place(piece)
        if is_new:
            self._calls[id(slot)] = _Call(slot)
            if len(self._calls) > CALLS_MAX:
                self.overflow = f"more than {CALLS_MAX} calls in one answer"
                return
        call = self._calls[id(slot)]
        call.blobs = blobs or call.blobs
        if call.index < 0 and slot.name:
            self._show_call(call)
        self._argue(call, call.joiner.feed(piece.text))

    def finish(self) -> None:
        """Close everything that is open."""
        self._fall_silent()
        for call in self._calls.values():
            if call.index < 0:
                call.slot.name = UNNAMED
                self.note("call_without_name", "repaired", f"a call without a name is called {UNNAMED!r}")
                self._show_call(call)
            self._close_call(call)
        self._emit_done()
        if self._notes > NOTES_MAX:
            left = self._notes - NOTES_MAX
            note = Note(code="more_notes", action="dropped", message="further notes of this answer", count=left)
            self.events.append(Noted(note=note))

    def _show(self, draft: "_Message | _Reasoning | _Call", item: AnyItem) -> None:
        self._order.append(draft)
        self.events.append(ItemAdded(index=draft.index, item=item))

    def _say(self, message: _Message, text: str, *, is_refusal: bool) -> None:
        if not text or not self._has_room(text):
            return
        part = message.add(text, is_refusal=is_refusal)
        kind = RefusalDelta if is_refusal else TextDelta
        self.events.append(kind(index=message.index, text=text, part=part))

    def _think(self, thought: _Reasoning, text: str) -> None:
        if text and self._has_room(text):
            thought.texts.append(text)
            self.events.append(ReasoningDelta(index=thought.index, text=text))

    def _fall_silent(self) -> None:
        """Close the open message or reasoning."""
        speaking, self._speaking = self._speaking, None
        if speaking is None:
            return
        if isinstance(speaking, _Message):
            self._say(speaking, speaking.joiner.finish(), is_refusal=speaking.is_refusing)
        else:
            self._think(speaking, speaking.joiner.finish())
        speaking.is_closed = True
        self._emit_done()

    def _show_call(self, call: _Call) -> None:
        self._fall_silent()
        call.index = len(self._order)
        call.item_id = self._ids.new(prefixes.CALL_ITEM)
        call.call_id = self._call_id(call.slot.id)
        self._show(call, call.item())
        early = "".join(call.waiting)
        call.waiting.clear()
        if early:
            size = len(early.encode())
            self.note("arguments_before_name", "buffered", f"{size} argument bytes came before the name")
            self.events.append(ArgumentsDelta(index=call.index, text=early))

    def _call_id(self, upstream_id: str) -> str:
        call_id = upstream_id
        if not call_id:
            self.note("call_without_id", "repaired", "a call without an id got one")
        elif call_id in self._taken:
            self.note("duplicate_call_id", "repaired", "a call with the id of another one got its own")
            call_id = ""
        elif not _USABLE_ID.fullmatch(call_id):
            self.note("odd_call_id", "repaired", "a call whose id no client can carry got another one")
            call_id = ""
        call_id = call_id or self._ids.new(prefixes.CALL)
        self._taken.add(call_id)
        return call_id

    def _argue(self, call: _Call, text: str) -> None:
        if not text or not self._has_room(text):
            return
        arguments = call.slot.arguments
        ready = arguments.feed(text)
        if arguments.size > self._bounds.arguments_bytes_max:
            self.overflow = f"the arguments of a call are over {self._bounds.arguments_bytes_max} bytes"
        elif ready:
            self._pass_on(call, ready)

    def _pass_on(self, call: _Call, text: str) -> None:
        if call.index < 0:
            call.waiting.append(text)
        else:
            self.events.append(ArgumentsDelta(index=call.index, text=text))

    def _close_call(self, call: _Call) -> None:
        self._argue(call, call.joiner.finish())
        call.final = call.slot.arguments.finish()
        if call.final.rest:
            self._pass_on(call, call.final.rest)
        if call.final.repair:
            self.note(call.final.repair, "repaired", _REPAIRS[call.final.repair])
        call.is_closed = True

    def _emit_done(self) -> None:
        """Say of every closed item that it is done, up to the first one that is still open."""
        while self._done < len(self._order) and self._order[self._done].is_closed:
            draft = self._order[self._done]
            self._done += 1
            self.events.append(ItemDone(index=draft.index, item=draft.item()))

    def _has_room(self, text: str) -> bool:
        self._bytes += len(text) if text.isascii() else len(text.encode())
        if self._bytes > self._bounds.text_bytes_max:
            self.overflow = f"the answer is over {self._bounds.text_bytes_max} bytes"
        return self.overflow is None


def _is_whole(slot: Slot) -> bool:
    if slot.kind == "custom":
        return True
    try:
        return isinstance(read_json(slot.arguments.finish().text), dict)
    except BadJson:
        return False
