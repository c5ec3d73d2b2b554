"""Names of calls that come in pieces: `get` and then `get_time`, or `get_` and then `time`.

Which pieces belong to one call, only the offered tools can prove: a first piece that is no tool's name but the
beginning of one is held until the next call begins, and is joined with it where the two make a tool's name. In any
other case the calls stay as they are.
"""

import msgspec

from treadle.canon.events import ArgumentsDelta, ItemAdded, ItemDone, ModelEvent, Noted
from treadle.canon.items import CallItem
from treadle.canon.request import Note

JOINED = Note(code="name_joined", action="repaired", message="the name of a call came in pieces and was joined")

_ABOUT_IDS = ("duplicate_call_id", "call_without_id")
"""Codes of what is said of a call before it begins, and does not hold of one that is none."""


class NamePieces:
    """Joins the names of one answer's calls; `names` are those of the tools as the upstream was told them."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names
        self._held: tuple[int, CallItem] | None = None
        self._joined: dict[int, tuple[int, CallItem]] = {}
        self._empty: set[int] = set()
        self._notes: list[Noted] = []

    def feed(self, event: ModelEvent) -> list[ModelEvent]:
        """Return the events with the calls that are whole; none while a name may still go on."""
        match event:
            case ItemAdded(item=CallItem() as call):
                return self._begin(event.index, call)
            case ArgumentsDelta() | ItemDone() if event.index in self._empty:
                return []
            case ArgumentsDelta() if event.index in self._joined:
                return [ArgumentsDelta(index=self._joined[event.index][0], text=event.text)]
            case ItemDone(item=CallItem() as call) if event.index in self._joined:
                index, first = self._joined[event.index]
                return [ItemDone(index=index, item=_as(first, call))]
            case Noted() if self._held is not None and event.note.code in _ABOUT_IDS:
                self._notes.append(event)
                return []
            case Noted():
                return [event]
            case _:
                return [*self._release(), event]

    def _begin(self, index: int, call: CallItem) -> list[ModelEvent]:
        held = self._held
        name = None if held is None else self._name_of_both(held[1], call)
        if held is None or name is None:
            released = self._release()
            if self._may_go_on(call.name):
                self._held = (index, call)
                return released
            return [*released, ItemAdded(index=index, item=call)]
        self._notes = []
        first, begun = held
        whole = msgspec.structs.replace(begun, name=name)
        self._joined[index] = (first, whole)
        self._empty |= {place for place, joined in self._joined.items() if joined[0] == first and place != index}
        self._empty.add(first)
        if name in self._names:
            self._held = None
            return [Noted(note=JOINED), ItemAdded(index=first, item=whole)]
        self._held = (first, whole)
        return []

    def _name_of_both(self, begun: CallItem, call: CallItem) -> str | None:
        """Return the name that two pieces make, if they make one or the beginning of one."""
        is_other = bool(call.upstream_id) and call.upstream_id != begun.upstream_id
        name = call.name if call.name.startswith(begun.name) else begun.name + call.name
        return None if is_other or not (name in self._names or self._may_go_on(name)) else name

    def _may_go_on(self, name: str) -> bool:
        """Tell whether a name is no tool's, but the beginning of one."""
        return name not in self._names and any(known.startswith(name) for known in self._names)

    def _release(self) -> list[ModelEvent]:
        held, self._held = self._held, None
        notes, self._notes = self._notes, []
        return [] if held is None else [ItemAdded(index=held[0], item=held[1]), *notes]


def _as(first: CallItem, call: CallItem) -> CallItem:
    """Return a call under the ids and the name with which it began."""
    return msgspec.structs.replace(
        call, id=first.id, call_id=first.call_id, name=first.name, upstream_id=first.upstream_id
    )
