import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.protocols.surrogates import HalfJoiner, has_half_escapes, mend_escapes, mend_text, write_halves

HIGH, LOW = "\ud83d", "\ude00"


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["a", "b"], ["a", "b", ""]),
        ([f"a{HIGH}", f"{LOW}b"], ["a", "😀b", ""]),
        ([HIGH, LOW], ["", "😀", ""]),
        ([HIGH, "x"], ["", "\ufffdx", ""]),
        ([HIGH, HIGH, LOW], ["", "\ufffd", "😀", ""]),
        ([LOW], ["\ufffd", ""]),
        ([HIGH], ["", "\ufffd"]),
        ([f"{HIGH}{LOW}é"], ["😀é", ""]),
        ([HIGH, ""], ["", "", "\ufffd"]),
    ],
)
def test_halves_are_joined_over_pieces(texts: list[str], expected: list[str]) -> None:
    """A high half waits for its low half; a lone half becomes U+FFFD."""
    joiner = HalfJoiner()
    assert [*[joiner.feed(text) for text in texts], joiner.finish()] == expected


@given(st.lists(st.text(st.sampled_from(["a", "é", "😀", HIGH, LOW]), max_size=4)))
def test_what_comes_out_can_always_be_encoded(texts: list[str]) -> None:
    """No half ever gets past the joiner, and cutting changes nothing."""
    joiner, whole = HalfJoiner(), HalfJoiner()
    joined = "".join(joiner.feed(text) for text in texts) + joiner.finish()
    joined.encode()
    assert joined == whole.feed("".join(texts)) + whole.finish()


@pytest.mark.parametrize(
    ("raw", "mended", "count"),
    [
        (rb'"\ud83d\ude00"', rb'"\ud83d\ude00"', 0),
        (rb'"\ud83d"', rb'"\ufffd"', 1),
        (rb'"\uDE00\uD83D x"', rb'"\ufffd\ufffd x"', 2),
        (rb'"\\ud83d"', rb'"\\ud83d"', 0),
        (rb'"\\\ud83d"', rb'"\\\ufffd"', 1),
        (b'"plain"', b'"plain"', 0),
    ],
)
def test_lone_escapes_are_replaced_in_json(raw: bytes, mended: bytes, count: int) -> None:
    """Pairs and escaped backslashes stay; lone halves become U+FFFD and are counted."""
    assert mend_escapes(raw) == (mended, count)


def test_the_cheap_check_finds_both_spellings() -> None:
    """Escapes may be written in upper or lower case."""
    assert has_half_escapes(json.dumps(HIGH))
    assert has_half_escapes('"\\uDE00"')
    assert not has_half_escapes('"\\u00e9"')


@pytest.mark.parametrize(
    ("text", "mended"),
    [("a", "a"), ("é", "é"), (HIGH, "\ufffd"), (f"{HIGH}{LOW}", "😀"), (f"{LOW}{HIGH}", "\ufffd\ufffd")],
)
def test_texts_are_mended_and_written(text: str, mended: str) -> None:
    """On their own and inside any value."""
    assert mend_text(text) == mended
    assert json.loads(write_halves({"a": [text], text: 1})) == {"a": [mended], mended: 1}
