"""Differences: what is said to differ makes the second document of the first, and three sides are told apart."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from treadle.core.json import canonical_json
from treadle.workspace.json_pointer import Json, remove_at, set_at
from treadle.workspace.workspace_diff import Difference, Triple, compare, compare_three, equal

leaves = st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "a", "/", "~"])
names = st.sampled_from(["a", "b", "", "~/", "0"])
documents: Any = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3), max_leaves=8
)


def applied(document: Json, differences: tuple[Difference, ...]) -> Json:
    """Set every `after`, and delete what has none."""
    for each in differences:
        document = remove_at(document, each.path) if each.after is UNSET else set_at(document, each.path, each.after)
    return document


@given(documents, documents)
def test_differences_make_the_second_document_of_the_first(before: Json, after: Json) -> None:
    """In the order given and in the opposite one; equal documents have none."""
    differences = compare(before, after)
    for order in (differences, tuple(reversed(differences))):
        assert canonical_json(applied(before, order)) == canonical_json(after)
    assert (differences == ()) == equal(before, after)


@given(documents, documents)
def test_each_difference_says_what_was_and_what_is(before: Json, after: Json) -> None:
    """The way back is the same with both sides changed over."""
    backwards = {(each.path, repr(each.after), repr(each.before)) for each in compare(after, before)}
    assert backwards == {(each.path, repr(each.before), repr(each.after)) for each in compare(before, after)}


def test_a_type_is_a_difference() -> None:
    """Python's `True == 1` and `1 == 1.0` are not JSON's."""
    assert compare({"n": 1}, {"n": True}) == (Difference(path="/n", before=1, after=True),)


def test_three_sides_tell_a_clash_from_a_change() -> None:
    """Both changed it differently; only one changed it; both made the same of it. What is not proposed is not shown."""
    base: Json = {"a": 1, "b": 1, "c": 1, "d": 1, "e": {"x": 1}}
    current: Json = {"a": 2, "b": 2, "c": 1, "d": 2, "e": {"x": 1, "y": 1}}
    proposed: Json = {"a": 3, "b": 1, "c": 3, "d": 2}
    assert compare_three(base, current, proposed) == (
        Triple(path="/a", base=1, current=2, proposed=3, is_clash=True),
        Triple(path="/c", base=1, current=1, proposed=3),
        Triple(path="/d", base=1, current=2, proposed=2),
        Triple(path="/e", base={"x": 1}, current={"x": 1, "y": 1}, is_clash=True),
    )
