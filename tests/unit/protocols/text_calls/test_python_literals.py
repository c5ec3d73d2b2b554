"""Calls as Python writes them, read without Python."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.protocols.text_calls.json_repair import RepairRefused
from treadle.protocols.text_calls.python_literals import PythonReader

READ: dict[str, tuple[str, dict[str, Any]]] = {
    "nothing": ("f()", {}),
    "literals": (
        "f(a=1, b=-2.5, c=True, d=None, e='x', g=\"y\")",
        {"a": 1, "b": -2.5, "c": True, "d": None, "e": "x", "g": "y"},
    ),
    "json-words": ("f(a=true, b=null)", {"a": True, "b": None}),
    "containers": ("f(a=[1, (2, 3)], b={'k': [4]})", {"a": [1, [2, 3]], "b": {"k": [4]}}),
    "reserved": ("f(class='x', from='y')", {"class": "x", "from": "y"}),
    "leading-zero": ("f(month=07)", {"month": 7}),
    "escapes": (r"f(a='\n\x41\u00e9\'\\')", {"a": "\nAé'\\"}),
    "raw": (r"f(a=r'\d')", {"a": r"\d"}),
    "triple": ('f(a="""x "y" z""")', {"a": 'x "y" z'}),
    "same-quotes": ("f(a='it's so', b='x')", {"a": "it's so", "b": "x"}),
    "trailing-comma": ("f(a=1,)", {"a": 1}),
    "hex": ("f(a=0x1F, b=1_000)", {"a": 31, "b": 1000}),
    "printed": ("print(f(a=1))", {"a": 1}),
}
REFUSED = (
    "f(1)", "f(a=g())", "f(a=b)", "f(a=1", "f(a='x", "f(a=1, a=2)", "f(a=1) + 1", "f(a=f'x')", "f(a=b'x')",
    "f(a=1e999)", "f(a=" + "9" * 5_000 + ")", "f(a=" + "[" * 100 + "]" * 100 + ")", "f", "", "f(a={[1]: 2})",
    "f(a 1)",
)  # fmt: skip


@pytest.mark.parametrize("name", READ)
def test_a_call_is_read(name: str) -> None:
    """Its name, and its arguments as values."""
    text, arguments = READ[name]
    call = PythonReader(text).one()
    assert (call.name, call.arguments) == ("f", arguments)


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_no_literal_call_is_refused(text: str) -> None:
    """Nothing is evaluated, and nothing guessed."""
    with pytest.raises(RepairRefused):
        PythonReader(text).one()


def test_a_list_of_calls_is_read_in_order() -> None:
    """One after the other."""
    calls = PythonReader("[f(a=1), g.h(b='x')]").calls()
    assert [(call.name, call.arguments) for call in calls] == [("f", {"a": 1}), ("g.h", {"b": "x"})]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text("ab \n\\é🌊", max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(VALUES)
def test_what_python_prints_comes_back(value: Any) -> None:
    """Every literal that has a place in JSON."""
    assert PythonReader(f"f(a={value!r})").one().arguments == {"a": value}


@given(st.text("f()[]{}=,'\"\\ na1.x", max_size=40))
def test_no_text_makes_it_raise_anything_else(text: str) -> None:
    """It reads or it refuses."""
    try:
        PythonReader(text).one()
    except RepairRefused:
        return
