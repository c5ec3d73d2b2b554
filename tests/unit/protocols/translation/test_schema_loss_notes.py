"""What one schema lost: one note for each kind of loss, with the first places by name and the rest by number."""

import pytest

from treadle.protocols.translation.schema_loss_notes import PLACES_MAX, SchemaLog
from treadle.protocols.translation_notes import Notes


@pytest.mark.parametrize(
    ("count", "more"), [(1, ""), (2, ""), (PLACES_MAX, ""), (PLACES_MAX + 1, " and 1 more"), (50, " and 42 more")]
)
def test_places_are_named_up_to_a_number_and_the_rest_is_counted(count: int, more: str) -> None:
    """Nothing is said of more where there are no more."""
    log, notes = SchemaLog("tools[0].parameters"), Notes()
    for number in range(count):
        log.add("keyword_dropped", "dropped", "pattern", f"/properties/p{number}")
    log.add_to(notes)
    (note,) = notes.all()
    places = ", ".join(f"#/properties/p{number}" for number in range(min(count, PLACES_MAX)))
    assert note.message == f"pattern: {places}{more}"
    assert (note.field, note.count) == ("tools[0].parameters#/properties/p0", count)
