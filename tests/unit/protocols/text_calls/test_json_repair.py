"""Nearly JSON made JSON, in one pass; what is cut or not finite is refused."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.protocols.text_calls.json_repair import DEPTH_MAX, RepairRefused, read_tolerant

MENDED: dict[str, tuple[str, Any]] = {
    "strict": ('{"a": [1, 2.5, true, null]}', {"a": [1, 2.5, True, None]}),
    "single-quotes": ("{'a': 'b'}", {"a": "b"}),
    "apostrophe": ("{'a': 'it\\'s'}", {"a": "it's"}),
    "double-in-single": ("{'a': 'say \"x\"'}", {"a": 'say "x"'}),
    "typographic": ("{“a”: “b”}", {"a": "b"}),
    "trailing-comma": ('{"a": [1, 2,], }', {"a": [1, 2]}),
    "raw-newline": ('{"a": "x\ny\tz"}', {"a": "x\ny\tz"}),
    "python-words": ("{'a': True, 'b': None, 'c': False}", {"a": True, "b": None, "c": False}),
    "bare-keys": ("{a: 1, b_c: 2}", {"a": 1, "b_c": 2}),
    "inner-quotes": ('{"a": "say "hi" now"}', {"a": 'say "hi" now'}),
    "unknown-escape": ('{"a": "\\d+ \\w"}', {"a": "\\d+ \\w"}),
    "extra-brackets": ('{"a": {"b": 1}}}}', {"a": {"b": 1}}),
    "plus": ("{'a': +3, 'b': .5}", {"a": 3, "b": 0.5}),
    "leading-zero": ("{'a': 07}", {"a": 7}),
    "surrogates": ("{'a': '\\ud83c\\udf0a'}", {"a": "🌊"}),
    "big": ('{"a": 123456789012345678901234567890}', {"a": 123456789012345678901234567890}),
}
REFUSED = {
    "cut-string": '{"a": "b',
    "cut-object": '{"a": 1',
    "cut-list": "[1, 2",
    "cut-after-key": '{"a"',
    "cut-single": "{'a': 'b",
    "no-value": '{"a": }',
    "nan": '{"a": NaN}',
    "infinite": '{"a": 1e999}',
    "infinite-single": "{'a': 1e999}",
    "word": '{"a": maybe}',
    "missing-comma": '{"a": 1 "b": 2}',
    "text-behind": '{"a": 1} and so on',
    "nothing": "",
    "deep": "[" * 5_000 + "]" * 5_000,
    "deep-single": "['x'," * 200 + "1" + "]" * 200,
    "long-number": "{'a': " + "9" * 5_000 + "}",
}


@pytest.mark.parametrize("name", MENDED)
def test_what_is_nearly_json_is_read(name: str) -> None:
    """One meaning, the one that was meant."""
    text, value = MENDED[name]
    assert read_tolerant(text) == value


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_have_to_be_invented_is_refused(name: str) -> None:
    """A value that was cut is never completed."""
    with pytest.raises(RepairRefused):
        read_tolerant(REFUSED[name])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)


@given(JSON)
def test_json_is_read_as_json(value: Any) -> None:
    """Whatever is right stays as it is."""
    assert read_tolerant(json.dumps(value)) == value


@given(st.dictionaries(st.text("ab'\"\\ né", max_size=5), st.text("ab'\" né\\\n", max_size=12), max_size=3))
def test_what_python_prints_is_read(value: dict[str, str]) -> None:
    """A dictionary as Python writes it, where no quote is followed by what ends a string."""
    assert read_tolerant(repr(value)) == value


@given(JSON, st.data())
def test_a_cut_object_is_never_read(value: Any, data: st.DataObject) -> None:
    """No beginning of an object is an object."""
    text = json.dumps({"key": value})
    with pytest.raises(RepairRefused):
        read_tolerant(text[: data.draw(st.integers(0, len(text) - 1))])


@given(st.text("{}[]\"':,\\ ntu019.-eE", max_size=60))
def test_no_text_makes_it_raise_anything_else(text: str) -> None:
    """It reads or it refuses."""
    try:
        read_tolerant(text)
    except RepairRefused:
        return


def test_depth_is_counted_where_it_is_and_not_where_it_was() -> None:
    """As deep as the bound is read; one deeper is not; many that stand beside each other are not deep."""
    assert read_tolerant("['x'," + "[" * (DEPTH_MAX - 1) + "]" * (DEPTH_MAX - 1) + "]")[0] == "x"
    with pytest.raises(RepairRefused, match="too deep"):
        read_tolerant("['x'," + "[" * DEPTH_MAX + "]" * DEPTH_MAX + "]")
    with pytest.raises(RepairRefused, match="too deep"):
        read_tolerant("['x'," + "[]," * DEPTH_MAX + "[" * DEPTH_MAX + "]" * DEPTH_MAX + "]")
    assert read_tolerant("['x'," + "[]," * (3 * DEPTH_MAX) + "{'a': []}]")[-1] == {"a": []}
