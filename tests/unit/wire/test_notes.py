from treadle.canon.request import Note
from treadle.wire.notes import Notes


def test_the_same_note_is_counted() -> None:
    """Notes are one for each code and field, in the order of their first appearance."""
    notes = Notes()
    notes.add("a", "dropped", "first")
    notes.add("b", "kept", "other", "x")
    notes.add("a", "dropped", "again", count=2)
    assert notes.all() == (
        Note(code="a", action="dropped", message="first", count=3),
        Note(code="b", action="kept", message="other", field="x"),
    )
