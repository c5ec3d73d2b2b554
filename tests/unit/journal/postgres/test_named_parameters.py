"""Statements with named arguments."""

import pytest

from treadle.journal.postgres.named_parameters import Statement


def test_names_become_places_in_the_order_of_their_first_use() -> None:
    """A name that comes again is the same place."""
    statement = Statement("SELECT {b}::text, {a} WHERE {b} = 1")
    assert statement.text == "SELECT $1::text, $2 WHERE $1 = 1"
    assert statement.bind({"a": 1, "b": 2, "c": 3}) == [2, 1]


def test_a_missing_argument_is_a_mistake() -> None:
    """It is not bound as NULL."""
    with pytest.raises(KeyError, match="a"):
        Statement("SELECT {a}").bind({})
