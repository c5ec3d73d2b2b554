"""TOML as it is written: whatever it holds, the standard library reads the same."""

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.evals.toml_writer import write_toml, write_value

texts = st.text(st.characters(exclude_categories=("Cs",)))
values = st.recursive(
    st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(texts, values, max_size=6))
def test_a_document_is_read_back(document: dict[str, Any]) -> None:
    """Tables, arrays of tables, and everything inside them."""
    assert tomllib.loads(write_toml(document)) == document


def test_json_is_written_so_that_a_person_can_read_it() -> None:
    """Quotes are not escaped where they need not be."""
    assert write_value('{"a":1}') == "'{\"a\":1}'"
    assert write_value('it\'s "so"\n') == '"it\'s \\"so\\"\\n"'


@pytest.mark.parametrize("value", [None, [None], {"a": None}, float("nan"), float("inf"), object()])
def test_what_toml_has_no_word_for_is_refused(value: Any) -> None:
    """Nothing is left out in silence."""
    with pytest.raises(ValueError, match="TOML has no word for"):
        write_value(value)
