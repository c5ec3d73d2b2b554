"""How true a translation was, from the notes that were made on the way: one short line, and the strict check."""

from collections.abc import Iterable

from treadle.core.errors import UnsupportedFeature
from treadle.core.request import Note
from treadle.protocols.translation_notes import HISTORY

EXACT = "exact"
CODES_MAX = 8

_COUNTED = ("dropped", "coerced", "repaired")


def fidelity(notes: Iterable[Note]) -> str:
    """Return the value of `x-treadle-fidelity`: what was dropped and coerced by number, what was emulated by name.

    What was repaired counts where it is of the history: what a model reads is then not what its client sent. The same
    note in every round of a run counts once.
    """
    unique = {(note.action, note.code, note.field): note for note in notes if _is_counted(note)}
    if not unique:
        return EXACT
    parts: list[str] = []
    for action in _COUNTED:
        total = sum(note.count for note in unique.values() if note.action == action)
        if total:
            parts.append(f"{action}={total}")
    codes = list(dict.fromkeys(note.code for note in unique.values() if note.action == "emulated"))
    if codes:
        more = f"+{len(codes) - CODES_MAX}" if len(codes) > CODES_MAX else ""
        parts.append(f"emulated={','.join(codes[:CODES_MAX])}{more}")
    return "; ".join(parts) or EXACT


def check_fidelity(notes: Iterable[Note]) -> None:
    """Refuse a request of which something was dropped, or whose history was repaired.

    Raises: UnsupportedFeature, naming the first field that was dropped.
    """
    for note in notes:
        if note.action == "repaired" and _is_counted(note):
            raise UnsupportedFeature(
                f"The history has to be repaired: {note.message.removesuffix('.')}.",
                hint="Turn strict_fidelity off to have it repaired with a note.",
            )
        if note.action == "dropped":
            raise UnsupportedFeature(
                f"{note.field or note.code} cannot be carried to the upstream: {note.message}.",
                param=note.field,
                hint="Turn strict_fidelity off to let it be dropped with a note.",
            )


def _is_counted(note: Note) -> bool:
    return note.action != "repaired" or note.field == HISTORY
