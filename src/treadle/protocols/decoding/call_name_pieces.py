"""Joins names of calls that come in pieces: `get` and then `get_time`, or `get_` and then `time`.

Which pieces belong to one call, only the offered tools can prove: a first piece that is no tool's name but the
beginning of one is held until the next call begins, and is joined with it where the two make a tool's name. In any
other case the calls stay as they are.
"""

import msgspec

from treadle.core.events import ArgumentsDelta, ItemAdded, ItemDone, ModelEvent, Noted
from treadle.core.items import CallItem
from treadle.core.request import Note

JOINED = Note(code="name_joined", action="repaired", message="the name of a call came in pieces and was joined")

NONE = "{}"
_ABOUT_IDS = ("duplicate_call_id", "call_without_id")
"""Codes of notes about a call that is not open yet; they are dropped where it turns out to be part of another."""


class NamePieces:
    """Joins the names of one answer's calls; `names` are the tools as the provider knows them."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names
        self._held: tuple[int, CallItem] | None = None
        self._joined: dict[int, tuple[int, CallItem]] = {}
        self._pieces: dict[int, int] = {}
        self._texts: dict[int, str] = {}
        self._has_text: set[int] = set()
        self._notes: list[Noted] = []

    @property
    def is_holding(self) -> bool:
        """Whether a name waits for its next piece."""
        return self._held is not None

    def feed(self, event: ModelEvent) -> list[ModelEvent]:
        """Return the events with the calls that are whole; none while a name may continue."""
        match event:
            case ItemAdded(item=CallItem() as call):
                return self._begin(event.index, call)
            case ArgumentsDelta() if event.index in self._pieces:
                return self._append(event.index, event.text)
            case ItemDone() if event.index in self._pieces and event.index not in self._joined:
                return []
            case ItemDone(item=CallItem() as call) if event.index in self._joined:
                index, first = self._joined[event.index]
                text = self._texts.get(index)
                missing = [] if text else [ArgumentsDelta(index=index, text=call.arguments)]
                return [*missing, ItemDone(index=index, item=_as(first, call, text))]
            case Noted() if self._held is not None and event.note.code in _ABOUT_IDS:
                self._notes.append(event)
                return []
            case Noted():
                return [event]
            case _:
                return [*self._release(), event]

    def _append(self, piece: int, text: str) -> list[ModelEvent]:
        """Append arguments of any piece to the call's; the `{}` of a piece without arguments is skipped."""
        if text == NONE and piece not in self._has_text:
            return []
        self._has_text.add(piece)
        index = self._pieces[piece]
        self._texts[index] = self._texts.get(index, "") + text
        return [ArgumentsDelta(index=index, text=text)]

    def _begin(self, index: int, call: CallItem) -> list[ModelEvent]:
        held = self._held
        name = None if held is None else self._name_of_both(held[1], call)
        if held is None or name is None:
            released = self._release()
            if self._may_continue(call.name):
                self._held = (index, call)
                return released
            return [*released, ItemAdded(index=index, item=call)]
        self._notes = []
        first, before = held
        whole = msgspec.structs.replace(before, name=name)
        self._joined = {place: joined for place, joined in self._joined.items() if joined[0] != first}
        self._joined[index] = (first, whole)
        self._pieces |= {first: first, index: first}
        if name in self._names:
            self._held = None
            return [Noted(note=JOINED), ItemAdded(index=first, item=whole)]
        self._held = (first, whole)
        return []

    def _name_of_both(self, before: CallItem, call: CallItem) -> str | None:
        """Return the name that two pieces make, if they make one or the beginning of one."""
        is_other = bool(call.upstream_id) and call.upstream_id != before.upstream_id
        name = call.name if call.name.startswith(before.name) else before.name + call.name
        return None if is_other or not (name in self._names or self._may_continue(name)) else name

    def _may_continue(self, name: str) -> bool:
        """Whether a name is only the beginning of a tool's."""
        return name not in self._names and any(known.startswith(name) for known in self._names)

    def _release(self) -> list[ModelEvent]:
        held, self._held = self._held, None
        notes, self._notes = self._notes, []
        return [] if held is None else [ItemAdded(index=held[0], item=held[1]), *notes]


def _as(first: CallItem, call: CallItem, text: str | None) -> CallItem:
    """Return a call under the ids and name it was opened with; `text` are the arguments of all its pieces."""
    return msgspec.structs.replace(
        call,
        id=first.id,
        call_id=first.call_id,
        name=first.name,
        upstream_id=first.upstream_id,
        arguments=call.arguments if text is None else text,
    )
