"""Which calls belong to a turn that was left open, and how its conversation is parted."""

from treadle.core.items import AnyItem, CallItem, ReasoningItem, ResultItem, text_message
from treadle.runs.approvals.pending_turn import has_new_message, order_of, split


def made(*call_ids: str) -> list[AnyItem]:
    """Calls of the model."""
    return [CallItem(call_id=each, name="f", side="server") for each in call_ids]


def gave(*call_ids: str) -> list[AnyItem]:
    """Results."""
    return [ResultItem(call_id=each, name="f") for each in call_ids]


USER, SAID, THOUGHT = text_message("user", "go"), text_message("assistant", "so"), ReasoningItem(text=("hm",))


def test_a_turn_is_what_the_model_said_at_once() -> None:
    """Earlier rounds and earlier answers do not belong to it; thoughts and words between the calls do."""
    items = [USER, *made("x"), *gave("x"), SAID, *made("a"), THOUGHT, *made("b"), SAID, *gave("a"), USER]
    assert order_of(items, {"b"}) == ("a", "b")
    assert order_of([SAID, USER, *made("a", "b", "c")], {"b"}) == ("a", "b", "c")


def test_a_conversation_is_parted_at_the_calls_of_the_turn() -> None:
    """Up to the turn without its results, the results wherever they came, and the rest; no item is lost."""
    items = [USER, *made("x"), *gave("x"), *made("a", "b"), SAID, *gave("a"), *gave("c"), USER, *gave("b")]
    head, results, tail = split(items, ("a", "b"))
    assert head == [USER, *made("x"), *gave("x"), *made("a", "b"), SAID]
    assert results == [*gave("a"), *gave("b")]
    assert tail == [*gave("c"), USER]


def test_only_somebody_who_speaks_goes_on() -> None:
    """Results and the model's own words do not."""
    assert has_new_message([*gave("c"), USER])
    assert not has_new_message([*gave("c"), SAID, THOUGHT])
