import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.canon.json import BadJson, canonical_json, check_bounds, check_fields, cut_text, fingerprint, read_json

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def test_equal_values_have_equal_canonical_bytes():
    """Key order does not matter to the canonical spelling."""
    assert canonical_json({"b": 1, "a": [1, {"d": 2, "c": 3}]}) == b'{"a":[1,{"c":3,"d":2}],"b":1}'


def test_fingerprint_is_the_sha256_of_the_canonical_bytes():
    """The fingerprint of an empty object is the well-known digest of its two bytes."""
    assert fingerprint({}) == "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"[" * 65 + b"]" * 65, "deeper than 64"),
        (b"[" * 1_000_000, "more than 200000"),
        (b"[" + b"0," * 200_001 + b"0]", "more than 200000"),
        (b'{"a":', "truncated"),
        (b"NaN", "malformed"),
        (b"1e999", "out of range"),
        (b"", "truncated"),
        (b'{"a":1} x', "malformed"),
        (b'"\xff"', "utf-8"),
    ],
)
def test_hostile_json_is_refused_in_words(text: bytes, words: str):
    """Depth, width, broken and out-of-range JSON are refused with a reason, and never by another exception."""
    with pytest.raises(BadJson) as caught:
        read_json(text)
    assert words in str(caught.value).lower()


def test_brackets_inside_strings_do_not_count_as_depth():
    """Structure inside a string is text."""
    assert read_json('["' + "[" * 500 + '\\""]') == ["[" * 500 + '"']


def _depth(value: object) -> int:
    if isinstance(value, dict):
        return 1 + max(map(_depth, value.values()), default=0)
    return 1 + max(map(_depth, value), default=0) if isinstance(value, list) else 0


@given(
    st.recursive(
        st.text(alphabet='[]{},"\\a', max_size=4) | st.integers(0, 9),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(alphabet='[{"\\', max_size=2), inner, max_size=3)
        ),
        max_leaves=12,
    )
)
def test_depth_is_counted_exactly(value):
    """Whatever stands in strings and keys, a value passes at its own depth and fails below it."""
    raw, depth = canonical_json(value), _depth(value)
    check_bounds(raw, depth_max=depth)
    if depth:
        with pytest.raises(BadJson):
            check_bounds(raw, depth_max=depth - 1)


@given(st.text(), st.integers(0, 60))
def test_a_cut_is_a_prefix_within_the_bound_and_valid_utf8(text: str, bytes_max: int):
    """Whatever the text and the bound, the cut fits, is a prefix, and can be encoded."""
    cleaned = text.encode("utf-8", "replace").decode()
    cut = cut_text(cleaned, bytes_max)
    assert cleaned.startswith(cut)
    assert len(cut.encode()) <= bytes_max


@pytest.mark.parametrize(
    ("text", "bytes_max", "kept"),
    [("abc", 3, "abc"), ("aé", 2, "a"), ("ae\u0301", 2, "a"), ("👩‍🚀!", 8, ""), ("👍🏽", 4, "")],
)
def test_a_cut_never_parts_what_is_one_character_to_a_person(text: str, bytes_max: int, kept: str):
    """Accents, joiners and skin tones stay with the character they belong to."""
    assert cut_text(text, bytes_max) == kept


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (b'{"a":1,"a":1}', "a"),
        (b'{"a":1,"b":{"a":2},"a":[3]}', "a"),
        (b'{ "a" : 1 ,\n "a": 2 }', "a"),
        (b'{"a":1,"\\u0061":2}', "a"),
        (b'{"a":"\\"}:{","b":1,"a":1}', "a"),
        (b'{"big":' + b"1" * 5_000 + b',"x":NaN1,"big":1}', None),
        (b'{"big":' + b"1" * 5_000 + b',"big":1}', "big"),
    ],
)
def test_a_field_that_stands_there_twice_is_named(text: bytes, name: str | None):
    """However it is spelled and whatever its values; what is no JSON at all is for others to refuse."""
    if name is None:
        check_fields(text)
        return
    with pytest.raises(BadJson) as caught:
        check_fields(text)
    assert (caught.value.code, caught.value.field) == ("duplicate_field", name)


@given(JSON_VALUES)
def test_an_object_that_says_each_field_once_passes(value: object):
    """In whatever spacing, with whatever inside its values."""
    for text in (json.dumps(value), json.dumps(value, indent=2), json.dumps(value, ensure_ascii=False)):
        check_fields(text.encode("utf-8", "replace"), fields_max=10**6)


def test_an_object_has_so_many_fields_and_no_more():
    """Exactly as many as the bound."""
    check_fields(json.dumps({f"k{n}": 1 for n in range(3)}).encode(), fields_max=3)
    with pytest.raises(BadJson, match="more than 3 fields"):
        check_fields(json.dumps({f"k{n}": 1 for n in range(4)}).encode(), fields_max=3)
