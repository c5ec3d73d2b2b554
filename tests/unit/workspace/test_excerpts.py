"""What a model sees of a large value: never more than allowed, nothing silently missing, all of it by the page."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.core.json import write_json
from treadle.workspace.excerpts import ExcerptRange, excerpt

values: Any = st.recursive(
    st.none() | st.integers() | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=5), inner, max_size=6),
    max_leaves=30,
)


@given(st.lists(st.integers(0, 9) | st.text("abc", max_size=20), max_size=40), st.integers(1, 7))
def test_pages_make_the_whole(value: list[Any], limit: int) -> None:
    """Page after page of an array is the array."""
    read: list[Any] = []
    offset: int | None = 0
    while offset is not None:
        page = excerpt(value, "/draft/list", ExcerptRange(offset=offset, limit=limit, bytes_max=64))
        assert isinstance(page.value, list)
        assert page.next_offset is None or page.next_offset > offset
        read += page.value
        offset = page.next_offset
    assert read == value


@given(values, st.integers(1, 4))
def test_a_page_keeps_to_its_size(value: Any, depth: int) -> None:
    """But for the one line that names what is too large."""
    page = excerpt(value, "", ExcerptRange(depth=depth, bytes_max=128))
    assert len(write_json(page.value)) <= 128 + 128


def test_what_is_deeper_is_named_with_its_size_and_place() -> None:
    """The model knows where to read on."""
    value: Any = {"cast": {"ada": {"age": 36}}, "empty": {}}
    page = excerpt(value, "/draft", ExcerptRange(depth=2))
    assert page.value == {"cast": {"ada": "(object of 1: read /draft/cast/ada)"}, "empty": {}}


def test_a_text_is_read_in_pieces() -> None:
    """Counted in characters, cut between them."""
    text = "ä" * 100
    first = excerpt(text, "/draft/text", ExcerptRange(bytes_max=51))
    assert (first.value, first.total, first.next_offset) == ("ä" * 25, 100, 25)
    last = excerpt(text, "/draft/text", ExcerptRange(bytes_max=51, offset=90))
    assert (last.value, last.next_offset) == ("ä" * 10, None)


@pytest.mark.parametrize("value", [None, True, 3, "x", [], {}])
def test_what_is_small_comes_as_it_is(value: Any) -> None:
    """Without a count."""
    page = excerpt(value, "", ExcerptRange())
    assert (page.value, page.total, page.next_offset) == (value, None, None)
