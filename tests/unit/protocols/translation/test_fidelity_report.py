"""The short line on what was lost, and the strict check."""

import pytest

from treadle.core.errors import UnsupportedFeature
from treadle.core.request import Note, NoteAction
from treadle.protocols.translation.fidelity_report import check_fidelity, fidelity


def note(code: str, action: NoteAction, field: str | None = None, count: int = 1) -> Note:
    """Return a note."""
    return Note(code=code, action=action, message="it was", field=field, count=count)


@pytest.mark.parametrize(
    ("notes", "line"),
    [
        ([], "exact"),
        ([note("a", "repaired"), note("b", "kept"), note("c", "buffered")], "exact"),
        (
            [
                note("custom_tool", "emulated"),
                note("x", "dropped", "seed"),
                note("x", "dropped", "n"),
                note("r", "coerced"),
            ],
            "dropped=2; coerced=1; emulated=custom_tool",
        ),
        ([note("x", "dropped", "a", 3)], "dropped=3"),
        ([note("a", "repaired", "history", 2), note("b", "repaired")], "repaired=2"),
        ([note("x", "dropped", "a"), note("x", "dropped", "a")], "dropped=1"),
        ([note(f"c{number}", "emulated") for number in range(8)], "emulated=c0,c1,c2,c3,c4,c5,c6,c7"),
        ([note(f"c{number}", "emulated") for number in range(10)], "emulated=c0,c1,c2,c3,c4,c5,c6,c7+2"),
    ],
)
def test_the_line_counts_what_was_lost_and_names_what_was_emulated(notes, line):
    """Rounds repeat their notes: each counts once. The line is bounded."""
    assert fidelity(notes) == line


def test_strictness_refuses_the_first_thing_dropped():
    """What is coerced or emulated still arrives; what is dropped does not."""
    check_fidelity([note("a", "coerced", "x"), note("b", "emulated", "y"), note("c", "repaired")])
    with pytest.raises(UnsupportedFeature) as caught:
        check_fidelity([note("a", "coerced", "x"), note("b", "dropped", "seed"), note("c", "dropped", "n")])
    assert (caught.value.info.param, caught.value.info.status) == ("seed", 400)
    assert caught.value.info.message == "seed cannot be carried to the upstream: it was."


def test_a_note_without_a_field_is_named_by_its_code():
    """There is always something to look for."""
    with pytest.raises(UnsupportedFeature, match="item_dropped cannot be carried"):
        check_fidelity([note("item_dropped", "dropped")])


def test_strictness_refuses_a_history_that_has_to_be_repaired():
    """What the model reads would not be what the client sent."""
    with pytest.raises(UnsupportedFeature, match="The history has to be repaired: it was"):
        check_fidelity([note("a", "coerced", "x"), note("orphan_call", "repaired", "history")])
