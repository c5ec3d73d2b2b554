"""What one schema lost on its way: one note for each kind of loss, naming the places, however many there are."""

from treadle.core.request import NoteAction
from treadle.protocols.translation_notes import Notes

PLACES_MAX = 8
"""How many pointers a note names; the rest is counted."""

CUT: tuple[str, NoteAction, str] = ("schema_cut", "dropped", "what nests too deep or grows too large")
CYCLE: tuple[str, NoteAction, str] = ("schema_cycle", "coerced", "a schema that holds itself became any object")


class SchemaLog:
    """Collects the losses of the schema that stands at `path`."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._losses: dict[tuple[str, NoteAction, str], list[str]] = {}
        self._counts: dict[tuple[str, NoteAction, str], int] = {}

    def add(self, code: str, action: NoteAction, message: str, pointer: str) -> None:
        """Add a loss at a place."""
        key = (code, action, message)
        places = self._losses.setdefault(key, [])
        if len(places) < PLACES_MAX:
            places.append(f"#{pointer}")
        self._counts[key] = self._counts.get(key, 0) + 1

    def add_to(self, notes: Notes) -> None:
        """Write the losses as notes."""
        for key, places in self._losses.items():
            code, action, message = key
            count = self._counts[key]
            more = f" and {count - len(places)} more" if count > len(places) else ""
            notes.add(code, action, f"{message}: {', '.join(places)}{more}", f"{self._path}{places[0]}", count)
