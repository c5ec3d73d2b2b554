"""How a Chat upstream spells its calls otherwise than it should: each way has a code, told once."""

from typing import Any

import pytest

from treadle.protocols.decoding.call_oddities import PLACES_MAX, Oddities


def call(index: Any, call_id: str = "", name: str = "", arguments: Any = "") -> dict[str, Any]:
    """Return a piece of a call."""
    return {"index": index, "id": call_id, "function": {"name": name, "arguments": arguments}}


def told(*deltas: Any) -> list[str]:
    """Return the codes that deltas of calls lead to, in order."""
    oddities = Oddities()
    return [code for delta in deltas for code, _ in oddities.check(delta)]


@pytest.mark.parametrize(
    ("deltas", "codes"),
    [
        ([[call(0, "a", "f", "{")], [call(0, arguments="}")], [call(1, "b", "g")]], []),
        ([[call(0, "a", "f"), call(1, "b", "f")]], []),
        ([[call(0, "a", "f")], [call(0, "b", "f")]], ["index_shared"]),
        ([[call(0, "a", "f")], [call(0, "", "g")]], ["index_shared"]),
        ([[call(0, "a", "f")], [call(0, "b")]], []),
        ([[call(0, "a", "f")], [call(0, "a", "f")], [call(0, "a", "f")]], ["name_resent"]),
        ([[call(0, "a", "get")], [call(0, "a", "get_time")]], ["name_grown"]),
        ([[call(0, "a")], [call(0, "a", "f")]], []),
        ([[call(2, "a", "f")], [call(5, "b", "g")]], ["index_sparse"]),
        ([[call(None, "a", "f")]], ["index_missing"]),
        ([[{"id": "a", "function": {"name": "f"}}]], ["index_missing"]),
        ([[call(0, "a", "f", {"x": 1})]], ["arguments_not_text"]),
        ([[call(0, "a", "f", None)]], []),
        ([call(0, "a", "f")], ["calls_not_listed"]),
        ([[5, None, {"index": 0, "function": 7}]], []),
        ([None], ["calls_not_listed"]),
    ],
)
def test_each_odd_spelling_has_its_code(deltas: list[Any], codes: list[str]) -> None:
    """And a good one has none, whatever else is in the list."""
    assert told(*deltas) == codes


def test_a_legacy_call_is_told_once() -> None:
    """However many pieces it has."""
    oddities = Oddities()
    assert [code for _ in range(3) for code, _ in oddities.check_legacy()] == ["legacy_call"]


def test_no_more_is_remembered_than_an_answer_may_hold() -> None:
    """Indexes without end cost nothing more."""
    oddities = Oddities()
    for number in range(PLACES_MAX + 100):
        assert oddities.check([call(number, f"c{number}", "f")]) == []
