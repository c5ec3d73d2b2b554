import msgspec

from treadle.core.items import (
    CallItem,
    ImagePart,
    MessageItem,
    OpaqueItem,
    ReasoningItem,
    ResultItem,
    TextPart,
    text_message,
    text_result,
)
from treadle.protocols.responses.upstream_call_pairs import paired
from treadle.protocols.translation_notes import Notes
from treadle.protocols.turn_grouping import INTERRUPTED
from unit.protocols.work import steps_run

A, B = CallItem(call_id="a", name="f"), CallItem(call_id="b", name="g")
RA, RB = text_result(A, "1"), text_result(B, "2")
USER = text_message("user", "u")
SAID = text_message("assistant", "wait")


def codes(notes: Notes) -> list[tuple[str, int]]:
    """Return what was noted, and how often."""
    return [(note.code, note.count) for note in notes.all()]


def test_results_come_behind_their_turn_in_call_order() -> None:
    """Whatever the order they came in, before their calls too."""
    for items in ([A, B, RB, RA], [RB, A, B, RA], [A, RA, B, RB], [A, B, USER, RA, RB]):
        notes = Notes()
        found = [item for item in paired(items, notes) if item is not USER]
        assert found in ([A, B, RA, RB], [A, RA, B, RB])
        assert codes(notes) == []


def test_what_the_model_says_beside_its_calls_is_of_the_same_turn() -> None:
    """Text, reasoning and unknown items between calls part no call from its siblings."""
    thought, odd = ReasoningItem(text=("hm",)), OpaqueItem(protocol="responses", raw=msgspec.Raw(b"{}"))
    assert paired([A, SAID, thought, odd, B, RA, RB], Notes()) == [A, SAID, thought, odd, B, RA, RB]


def test_a_call_without_a_result_is_closed() -> None:
    """The upstream gets a result that says the outcome is not known, before anybody else speaks."""
    notes = Notes()
    assert paired([A, USER], notes) == [A, text_result(A, INTERRUPTED, is_error=True, rc="interrupted"), USER]
    assert codes(notes) == [("orphan_call", 1)]
    assert paired([USER, A], Notes()) == [USER, A, text_result(A, INTERRUPTED, is_error=True, rc="interrupted")]


def test_a_result_without_its_call_becomes_a_users_text() -> None:
    """Its pictures stay with it."""
    image = ImagePart(url="https://x/y.png")
    notes = Notes()
    result = ResultItem(call_id="z", name="h", output=(TextPart(text="3"), image))
    expected = MessageItem(
        role="user", content=(TextPart(text="[result of h without its call] "), TextPart(text="3"), image)
    )
    assert paired([USER, result], notes) == [USER, expected]
    assert codes(notes) == [("orphan_result", 1)]


def test_a_second_result_is_left_out() -> None:
    """A call has one result, the first."""
    notes = Notes()
    assert paired([A, RA, RA], notes) == [A, RA]
    assert codes(notes) == [("extra_result", 1)]


def test_ids_that_count_from_zero_in_every_turn_are_made_unique() -> None:
    """Both halves of the later pair get the new id, and each result stays with its own call."""
    notes = Notes()
    again = text_result(A, "3")
    second = msgspec.structs.replace(A, call_id="a_2")
    assert paired([A, RA, USER, A, again], notes) == [
        A,
        RA,
        USER,
        second,
        msgspec.structs.replace(again, call_id="a_2"),
    ]
    assert codes(notes) == [("duplicate_call_id", 1)]


def test_many_calls_of_one_id_cost_in_proportion() -> None:
    """A new id goes on from the last number instead of trying all of them."""
    assert steps_run(lambda: paired([A] * 400, Notes())) < 3 * steps_run(lambda: paired([A] * 200, Notes()))
    taken = CallItem(call_id="a_3", name="f")
    found = [item.call_id for item in paired([A, taken, A, A], Notes()) if isinstance(item, CallItem)]
    assert found == ["a", "a_3", "a_2", "a_4"]
