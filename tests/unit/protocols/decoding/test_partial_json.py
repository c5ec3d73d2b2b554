import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jiter import from_json

from treadle.protocols.decoding.partial_json import PartialObject

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


def _passed(text: str, size: int = 1) -> tuple[str, PartialObject]:
    """Feed a text in pieces of one size, checking each beginning with a reader of partial JSON."""
    partial, told = PartialObject(), ""
    for place in range(0, len(text), size):
        told += partial.feed(text[place : place + size])
        if told:
            from_json(told.encode(), partial_mode=True)
    return told + partial.finish(), partial


@given(value=st.dictionaries(st.text(), values, min_size=1), ascii_only=st.booleans(), size=st.integers(1, 9))
def test_a_valid_object_is_passed_on_whole(value: object, ascii_only: bool, size: int) -> None:
    """However it is cut, what is passed on adds up to the text."""
    text = json.dumps(value, ensure_ascii=ascii_only)
    told, partial = _passed(text, size)
    assert told == text
    assert partial.is_closed


@given(text=st.text(alphabet='{}[]":,\\u0d8 1-.e+truefalsnul\n', max_size=40), size=st.integers(1, 5))
def test_any_text_is_passed_on_only_as_far_as_it_is_valid(text: str, size: int) -> None:
    """The reader never breaks, and the cut changes nothing."""
    told, partial = _passed(text, size)
    if told:
        from_json(told.encode(), partial_mode=True)
    assert told == _passed(text, 100)[0]
    if partial.is_closed:
        json.loads(told or "{}")


@pytest.mark.parametrize("text", ["{}", " { } ", "{\n}\n"])
def test_an_empty_object_passes_nothing(text: str) -> None:
    """Nobody needs to be told of arguments that are none."""
    told, partial = _passed(text)
    assert told == ""
    assert partial.is_closed
    assert not partial.has_passed


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a":1}{"b":2}', '{"a":1'),
        ('{"a":1}x', '{"a":1'),
        ('{"a":01}', '{"a":'),
        ('{"a":NaN}', '{"a":'),
        ('{"a":1,}', '{"a":1,'),
        ('{"a":[1,]}', '{"a":[1,'),
        ('{"a":[1}', '{"a":[1'),
        ('{"a":"x\n"}', '{"a":"x'),
        (r'{"a":"\x"}', '{"a":"'),
        ('{"a" 1}', '{"a" '),
        ("{city:1}", ""),
        ("[1]", ""),
        ("not", ""),
        ('{"a":' + "1" * 5000, '{"a":'),
        ('{"a":' + "[" * 70, '{"a":' + "[" * 63),
    ],
)
def test_what_is_not_valid_stays_unfinished(text: str, expected: str) -> None:
    """Nothing is passed on from the first token that cannot be."""
    told, partial = _passed(text)
    assert told == expected
    assert partial.is_broken
    assert not partial.is_closed


@pytest.mark.parametrize(("text", "expected"), [("{", "{"), ('{"a":tr', '{"a":'), (r'{"a":"\u12', '{"a":"'), ("", "")])
def test_what_is_cut_stays_cut(text: str, expected: str) -> None:
    """Nothing is ever completed."""
    told, partial = _passed(text)
    assert told == expected
    assert not partial.is_closed
    assert not partial.is_broken


def test_lone_halves_are_mended() -> None:
    """A reader of partial JSON refuses them; pairs are left alone."""
    assert _passed(r'{"a":"\ud83d\ud83d\ude00x\udc00"}')[0] == r'{"a":"\ufffd\ud83d\ude00x\ufffd"}'


def test_a_number_may_be_cut_far_behind_the_start() -> None:
    """Its own length is bounded, not its place."""
    partial = PartialObject()
    text = '{"a":"' + "x" * 5_000 + '","b":12'
    assert partial.feed(text) == text[:-2]
    assert partial.feed("3}") == "123"
    assert (partial.finish(), partial.is_closed) == ("}", True)


@pytest.mark.parametrize(("digits", "is_broken"), [(4_096, False), (4_097, True)])
def test_a_number_has_so_many_digits_and_no_more(digits: int, is_broken: bool) -> None:
    """While it is held back it takes room."""
    partial = PartialObject()
    partial.feed('{"a":' + "1" * digits)
    assert partial.is_broken is is_broken
