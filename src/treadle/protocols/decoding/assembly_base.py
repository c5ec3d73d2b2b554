"""What the assemblies of all protocols share: events on their way out, notes, ids of calls, and what is too much."""

import re
from typing import Any

import msgspec

from treadle.core import ids as prefixes
from treadle.core.events import ModelEvent, Noted, Stop
from treadle.core.ids import IdSource
from treadle.core.items import Blob
from treadle.core.json import cut_text
from treadle.core.request import Note, NoteAction
from treadle.protocols.decoding.call_arguments import FinalArguments
from treadle.protocols.surrogates import mend_text, write_halves

NOTES_MAX = 64
CUTS: frozenset[Stop] = frozenset({"length", "filtered"})
"""Ends before the model had said all: a call that was not whole by then never was one."""

UNNAMED = "unnamed"

STOPPED_BY = "stop_sequence"
"""The code of the note that says which of the stop sequences ended an answer: its message is that sequence."""

SEQUENCE_BYTES_MAX = 1_024
NAME_BYTES_MAX = 128

_USABLE_ID = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
"""Kimi's `functions.get_time:0` is one; what is longer or stranger breaks clients."""

_REPAIRS = {
    "repeated_arguments": "the same arguments came twice",
    "quoted_arguments": "the arguments were a JSON object inside a JSON string",
}


class AnswerBounds(msgspec.Struct, frozen=True, kw_only=True):
    """How much one answer may hold."""

    text_bytes_max: int
    arguments_bytes_max: int


class Maker(msgspec.Struct, frozen=True, kw_only=True):
    """Who answers: the only one that can read its own opaque state again."""

    provider: str = ""
    model: str = ""

    def seal(self, kind: str, data: str) -> Blob:
        """Return a text as this maker's state."""
        return Blob(provider=self.provider, kind=kind, data=data, model=self.model)

    def blob(self, kind: str, value: Any) -> Blob:
        """Return a value as this maker's state."""
        return self.seal(kind, write_halves(value).decode())


NOBODY = Maker()


class AnswerMeter(msgspec.Struct, gc=False):
    """Counts the bytes that one answer holds: it `is_over` when something is beyond its bound, `overflow` says what.

    It is over as well when the answer contradicts itself, which is its `damage`.
    """

    bytes_max: int
    bytes_held: int = 0
    is_over: bool = False
    refused: str | None = None
    damage: str | None = None

    @property
    def overflow(self) -> str | None:
        """Say what is over its bound."""
        return f"the answer is over {self.bytes_max} bytes" if self.bytes_held > self.bytes_max else self.refused

    def refuse(self, what: str) -> None:
        """Take note of another bound that was broken."""
        self.refused = what
        self.is_over = True

    def spoil(self, what: str) -> None:
        """Take note that the answer cannot be what its upstream meant; the first such thing is told."""
        self.damage = self.damage or what
        self.is_over = True

    def add(self, text: str) -> None:
        """Count a text."""
        self.bytes_held += len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
        if self.bytes_held > self.bytes_max:
            self.is_over = True

    def add_raw(self, raw: msgspec.Raw) -> None:
        """Count raw JSON."""
        self.add_bytes(len(memoryview(raw)))

    def add_bytes(self, size: int) -> None:
        """Count what was measured already."""
        self.bytes_held += size
        if self.bytes_held > self.bytes_max:
            self.is_over = True


class AnswerTotals:
    """The events of one answer, and what has to be said and counted beside them."""

    def __init__(
        self, ids: IdSource, bounds: AnswerBounds, taken_call_ids: frozenset[str] = frozenset(), id_chars_max: int = 64
    ) -> None:
        self.events: list[ModelEvent] = []
        self._notes = 0
        self._ids = ids
        self._bounds = bounds
        self.meter = self._meter = AnswerMeter(bounds.text_bytes_max)
        self._taken_before = taken_call_ids
        self._taken: set[str] = set()
        self._id_chars_max = id_chars_max

    @property
    def overflow(self) -> str | None:
        """Say what is over its bound, if anything is."""
        return self._meter.overflow

    @property
    def extent(self) -> tuple[int, ...]:
        """Return how much of the answer there is, in numbers that grow with each piece of it."""
        return (self._meter.bytes_held,)

    def take(self) -> list[ModelEvent]:
        """Return the events since the last time."""
        events, self.events = self.events, []
        return events

    def note(self, code: str, action: NoteAction, message: str, field: str | None = None) -> None:
        """Say what was repaired or dropped; a stream that is all wrong is not echoed line by line."""
        self._notes += 1
        if self._notes <= NOTES_MAX:
            self.events.append(Noted(note=Note(code=code, action=action, message=message, field=field)))

    def note_sequence(self, sequence: str) -> None:
        """Say which stop sequence ended the answer, for clients whose protocol has a place for it."""
        self.note(STOPPED_BY, "kept", cut_text(mend_text(sequence), SEQUENCE_BYTES_MAX), STOPPED_BY)

    def _note_left(self) -> None:
        """Say at the end how many notes were not made."""
        if self._notes > NOTES_MAX:
            left = self._notes - NOTES_MAX
            note = Note(code="more_notes", action="dropped", message="further notes of this answer", count=left)
            self.events.append(Noted(note=note))

    def _note_repair(self, final: FinalArguments | None) -> None:
        if final is not None and final.repair:
            self.note(final.repair, "repaired", _REPAIRS[final.repair])

    def _note_cut(self, name: str, size: int) -> None:
        """Say that a call is left out: the answer ended before it was whole."""
        said = cut_text(mend_text(name), NAME_BYTES_MAX) or "unknown"
        self.note("call_cut", "dropped", f"a call of {said!r} was cut off after {size} bytes of its arguments")

    def _has_name(self, name: str) -> bool:
        """Tell whether a call has a name; where it was lost, so is the answer, and the call is not shown."""
        if not name:
            self._meter.spoil("a call has no name")
        return bool(name)

    def _call_id(self, upstream_id: str, *, is_needed: bool = True) -> str:
        """Return an id that no other call has: the upstream's, if it can be used; without `is_needed` it may lack."""
        call_id = upstream_id
        if not call_id:
            if is_needed:
                self.note("call_without_id", "repaired", "a call without an id got one")
        elif call_id in self._taken or call_id in self._taken_before:
            self.note("duplicate_call_id", "repaired", "a call with the id of another one got its own")
            call_id = ""
        elif len(call_id) > self._id_chars_max or not _USABLE_ID.fullmatch(call_id):
            self.note("odd_call_id", "repaired", "a call whose id no client can carry got another one")
            call_id = ""
        call_id = call_id or self._ids.new(prefixes.CALL)
        self._taken.add(call_id)
        return call_id

    def _check_arguments(self, size: int) -> bool:
        """Tell whether arguments of so many bytes are within their bound."""
        most = self._bounds.arguments_bytes_max
        if size > most:
            self._meter.refuse(f"the arguments of a call are over {most} bytes")
        return size <= most

    def _has_room(self, text: str) -> bool:
        """Count a text, and tell whether the answer is still within its bounds."""
        self._meter.add(text)
        return not self._meter.is_over

    def _has_room_for(self, size: int) -> bool:
        self._meter.add_bytes(size)
        return not self._meter.is_over
