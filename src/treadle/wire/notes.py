"""Notes in the making: what a translation dropped, coerced or emulated, said once and counted."""

from collections.abc import Iterable

import msgspec

from treadle.canon.items import AnyItem, Extra, MessageItem, ResultItem
from treadle.canon.request import Note, NoteAction
from treadle.canon.tools import ToolSpec


class Notes:
    """One note for each code and field, however often the same thing happens."""

    def __init__(self) -> None:
        self._notes: dict[tuple[str, str | None], Note] = {}

    def add(self, code: str, action: NoteAction, message: str, field: str | None = None, count: int = 1) -> None:
        """Add a note, or count it."""
        seen = self._notes.get((code, field))
        if seen is not None:
            self._notes[code, field] = msgspec.structs.replace(seen, count=seen.count + count)
        else:
            self._notes[code, field] = Note(code=code, action=action, message=message, field=field, count=count)

    def all(self) -> tuple[Note, ...]:
        """Return the notes in the order of their first appearance."""
        return tuple(self._notes.values())


def note_foreign(items: Iterable[AnyItem], tools: Iterable[ToolSpec], protocol: str, notes: Notes) -> None:
    """Note the fields kept for another protocol than this one: they cannot be written."""
    for item in items:
        _note_extra(item.extra, protocol, notes)
        if isinstance(item, MessageItem):
            for part in item.content:
                _note_extra(part.extra, protocol, notes)
        elif isinstance(item, ResultItem):
            for part in item.output:
                _note_extra(part.extra, protocol, notes)
    for tool in tools:
        _note_extra(tool.extra, protocol, notes)


def _note_extra(extra: Extra | None, protocol: str, notes: Notes) -> None:
    if extra is not None and extra.protocol != protocol:
        for name in extra.fields:
            notes.add("field_dropped", "dropped", f"{name}: only {extra.protocol} knows it", name)
