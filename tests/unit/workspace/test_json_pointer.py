"""JSON Pointers: the RFC's own examples, writes that share and never mutate, and errors that name the step."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from treadle.core.errors import ProtocolError
from treadle.workspace.json_pointer import (
    POINTER_CHARS_MAX,
    append_at,
    find_at,
    get_at,
    read_pointer,
    remove_at,
    set_at,
    write_pointer,
)

RFC_DOCUMENT: Any = {
    "foo": ["bar", "baz"],
    "": 0,
    "a/b": 1,
    "c%d": 2,
    "e^f": 3,
    "g|h": 4,
    "i\\j": 5,
    'k"l': 6,
    " ": 7,
    "m~n": 8,
}
RFC_EXAMPLES = [
    ("", RFC_DOCUMENT),
    ("/foo", ["bar", "baz"]),
    ("/foo/0", "bar"),
    ("/", 0),
    ("/a~1b", 1),
    ("/c%d", 2),
    ("/e^f", 3),
    ("/g|h", 4),
    ("/i\\j", 5),
    ('/k"l', 6),
    ("/ ", 7),
    ("/m~0n", 8),
]

scalars = st.none() | st.booleans() | st.integers(-1000, 1000) | st.text(max_size=4)
documents = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab~/0", max_size=3), inner, max_size=3),
)


def pointers_of(document: Any, at: tuple[str, ...] = ()) -> list[str]:
    """Return the pointer of every value in the document."""
    found = [write_pointer(at)]
    if isinstance(document, dict):
        for key, value in document.items():
            found += pointers_of(value, (*at, key))
    if isinstance(document, list):
        for index, value in enumerate(document):
            found += pointers_of(value, (*at, str(index)))
    return found


@pytest.mark.parametrize(("pointer", "value"), RFC_EXAMPLES)
def test_the_examples_of_the_rfc_resolve(pointer: str, value: Any) -> None:
    """RFC 6901 §5 gives a document and twelve pointers; each finds what the RFC says."""
    assert get_at(RFC_DOCUMENT, pointer) == value


@given(st.lists(st.text("ab~/01-é", max_size=5), max_size=6).map(tuple))
def test_tokens_survive_writing_and_reading(tokens: tuple[str, ...]) -> None:
    """Whatever the names contain, a pointer written of them reads back as them."""
    assert read_pointer(write_pointer(tokens)) == tokens


def test_escapes_are_undone_in_the_order_of_the_rfc() -> None:
    """`~01` is a tilde and a one, never a slash."""
    assert read_pointer("/~01/~10") == ("~1", "/0")


@given(documents, st.data())
def test_a_value_set_is_the_value_found_and_the_old_document_stays(document: Any, data: st.DataObject) -> None:
    """Setting any existing place changes that place in the new document, and the old document not at all."""
    pointer = data.draw(st.sampled_from(pointers_of(document)))
    before = copy.deepcopy(document)
    after = set_at(document, pointer, "new")
    assert get_at(after, pointer) == "new"
    assert document == before


@given(documents, st.data())
def test_setting_the_value_that_is_there_changes_nothing(document: Any, data: st.DataObject) -> None:
    """Get and set are inverse: writing back what was read gives an equal document."""
    pointer = data.draw(st.sampled_from(pointers_of(document)))
    assert set_at(document, pointer, get_at(document, pointer)) == document


@given(st.dictionaries(st.text("ab~/", max_size=3), documents, max_size=3), documents)
def test_a_member_added_and_removed_leaves_the_document_as_it_was(document: Any, value: Any) -> None:
    """Adding a new member and removing it again gives an equal document."""
    assert remove_at(set_at(document, "/new", value), "/new") == document


@given(st.lists(scalars, max_size=4), scalars)
def test_append_adds_one_element_at_the_end(elements: list[Any], value: Any) -> None:
    """Append grows the array by exactly the value, at its end."""
    assert append_at({"list": elements}, "/list", value) == {"list": [*elements, value]}


def test_a_removed_element_lets_the_later_ones_move_up() -> None:
    """Arrays stay dense."""
    assert remove_at({"list": [0, 1, 2]}, "/list/1") == {"list": [0, 2]}


def test_find_tells_a_missing_value_from_null() -> None:
    """Null is a value; what is not there is UNSET."""
    assert find_at({"a": None}, "/a") is None
    assert find_at({"a": None}, "/b") is UNSET
    assert find_at({"a": None}, "/a/b/c") is UNSET


@pytest.mark.parametrize("index", ["01", "+1", "-1", "1.0", "１", "1e0", "", "-", "2"])
def test_only_the_index_of_an_element_names_an_element(index: str) -> None:
    """RFC 6901 §4: digits without a leading zero, and within the array."""
    assert find_at(["a", "b"], f"/{index}") is UNSET


BAD = [
    (lambda: read_pointer("draft"), "cannot follow `draft`: a JSON Pointer is empty or starts with `/`"),
    (lambda: read_pointer("/a~2"), "cannot follow `/a~2`: `~` must be written `~0`, and `/` inside a name `~1`"),
    (lambda: read_pointer("/a~"), "cannot follow `/a~`: `~` must be written `~0`, and `/` inside a name `~1`"),
    (lambda: get_at({"a": {}}, "/a/b/c"), "cannot follow `/a/b/c`: there is nothing at `/a/b`"),
    (lambda: set_at({"a": {}}, "/b/c", 1), "cannot follow `/b/c`: there is nothing at `/b`"),
    (lambda: set_at({"a": 1}, "/a/b", 1), "cannot follow `/a/b`: its container is a number, not an object or array"),
    (lambda: set_at({"a": None}, "/a/b", 1), "cannot follow `/a/b`: its container is null, not an object or array"),
    (lambda: set_at([1], "/1", 2), "cannot follow `/1`: `1` is no element of an array of 1; append adds one"),
    (lambda: set_at([1], "/-", 2), "cannot follow `/-`: `-` is no element of an array of 1; append adds one"),
    (lambda: remove_at({}, "/a"), "cannot follow `/a`: there is nothing to remove"),
    (lambda: remove_at({}, ""), "cannot follow ``: the whole document cannot be removed"),
    (lambda: append_at({"a": "b"}, "/a", 1), "cannot follow `/a`: append needs an array, this is a string"),
    (lambda: append_at({"a": True}, "/a", 1), "cannot follow `/a`: append needs an array, this is a boolean"),
    (lambda: append_at({"a": {}}, "/a", 1), "cannot follow `/a`: append needs an array, this is an object"),
]


@pytest.mark.parametrize(("deed", "message"), BAD, ids=[message for _, message in BAD])
def test_an_error_says_which_step_fails_and_why(deed: Any, message: str) -> None:
    """Every refusal is a ProtocolError whose message a person can act on."""
    with pytest.raises(ProtocolError) as caught:
        deed()
    assert (caught.value.message, caught.value.info.code) == (message, "invalid_pointer")


@pytest.mark.parametrize("pointer", ["/" + "x" * POINTER_CHARS_MAX, "/a" * 65])
def test_a_pointer_is_bounded(pointer: str) -> None:
    """A pointer too long or too deep is refused, and its message does not repeat all of it."""
    with pytest.raises(ProtocolError) as caught:
        read_pointer(pointer)
    assert "1024 characters or 64 steps" in caught.value.message
    assert len(caught.value.message) < 200
