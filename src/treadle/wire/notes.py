"""Notes in the making: what a translation dropped, coerced or emulated, said once and counted."""

import msgspec

from treadle.canon.request import Note, NoteAction


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
