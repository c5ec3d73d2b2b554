"""What is made of a history item by item, and gone on with."""

from collections.abc import Sequence

import pytest

from treadle.core.incremental_folds import Folds
from treadle.core.items import AnyItem, text_message
from treadle.core.plan import Planner
from treadle.core.request import Options
from treadle.core.tool_definitions import AUTO

ONE, TWO, THREE = (text_message("user", text) for text in ("one", "two", "three"))


class Seen:
    """Remembers in which portions items came."""

    def __init__(self) -> None:
        self.portions: list[list[AnyItem]] = []

    def add(self, items: Sequence[AnyItem], /) -> None:
        """Take a portion."""
        self.portions.append([*items])


class Failing(Seen):
    """Fails at the third item, when it has taken it."""

    def add(self, items: Sequence[AnyItem], /) -> None:
        """Take a portion, or fail."""
        super().add(items)
        if THREE in items:
            raise ValueError("three")


def test_a_history_that_has_grown_is_looked_at_where_it_is_new():
    """And not at all where it has not grown."""
    folds = Folds()
    for items in ((), (ONE,), (ONE, TWO), (ONE, TWO), (ONE, TWO, THREE)):
        seen = folds.of(Seen, items)
    assert seen.portions == [[ONE], [TWO], [THREE]]


@pytest.mark.parametrize("other", [(TWO, TWO), (ONE,), (TWO, ONE, THREE), ()])
def test_another_history_is_begun_anew(other):
    """Also one that is shorter: nothing can be taken back."""
    folds = Folds()
    folds.of(Seen, (ONE, TWO))
    assert folds.of(Seen, other).portions == ([[*other]] if other else [])


def test_equal_items_need_not_be_the_same_objects():
    """What was made of equal items is the same."""
    folds = Folds()
    folds.of(Seen, (text_message("user", "one"),))
    assert folds.of(Seen, (ONE, TWO)).portions == [[ONE], [TWO]]


def test_each_kind_of_fold_goes_its_own_way():
    """One that was asked later sees all of it."""
    folds = Folds()
    folds.of(Seen, (ONE,))
    assert folds.of(Failing, (ONE, TWO)).portions == [[ONE, TWO]]
    assert folds.of(Seen, (ONE, TWO)).portions == [[ONE], [TWO]]


def test_a_fold_that_failed_is_not_gone_on_with():
    """It may have taken some of what it was given."""
    folds = Folds()
    folds.of(Failing, (ONE,))
    with pytest.raises(ValueError, match="three"):
        folds.of(Failing, (ONE, TWO, THREE))
    assert folds.of(Failing, (ONE, TWO)).portions == [[ONE, TWO]]


def test_a_run_that_is_asked_once_keeps_nothing():
    """Its only plan has no folds; those that follow share theirs."""
    planner = Planner("m", (), Options())
    planner.add([ONE])
    only = planner.plan(AUTO)
    assert only.folds is None
    assert only.fold(Seen).portions == [[ONE]]
    planner.add([TWO])
    assert planner.plan(AUTO).fold(Seen).portions == [[ONE, TWO]]
    planner.add([THREE])
    assert planner.plan(AUTO).fold(Seen).portions == [[ONE, TWO], [THREE]]


def test_what_was_made_of_a_plan_does_not_make_it_another():
    """Plans that say the same are equal and have one hash."""
    planner, other = (Planner("m", (), Options()) for _ in range(2))
    for each in (planner, other):
        each.add([ONE])
        each.add([TWO])
    plan, same = planner.plan(AUTO), other.plan(AUTO)
    plan.fold(Seen)
    assert plan == same
    assert hash(plan.folds) == hash(same.folds)
    assert plan.folds != Seen()
