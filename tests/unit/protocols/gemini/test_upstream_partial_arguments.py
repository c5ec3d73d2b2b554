from typing import Any

import pytest

from treadle.protocols.gemini.upstream_partial_arguments import LIST_GAP_MAX, PartialArguments


def _value(*pieces: tuple[str, Any]) -> dict[str, Any]:
    arguments = PartialArguments()
    for path, value in pieces:
        name = {str: "stringValue", bool: "boolValue", type(None): "nullValue"}.get(type(value), "numberValue")
        arguments.add([{"jsonPath": path, name: "NULL_VALUE" if value is None else value}])
    return arguments.value()


@pytest.mark.parametrize(
    ("pieces", "value"),
    [
        ([("$.a", "x"), ("$.a", "y")], {"a": "xy"}),
        ([("$.a.b", 1.0), ("$.a.c", 0.5)], {"a": {"b": 1, "c": 0.5}}),
        ([("$.a[0]", True), ("$.a[1]", None)], {"a": [True, None]}),
        ([("$.a[1]", "y"), ("$.a[0]", "x")], {"a": ["x", "y"]}),
        ([("$['a.b']", "x"), ('$["c"]', "y"), ("d", "z")], {"a.b": "x", "c": "y", "d": "z"}),
        ([("$['it\\'s']", "x")], {"it's": "x"}),
        ([("$.a", 1), ("$.a", 2)], {"a": 2}),
        ([("$.a", 1), ("$.a", "x")], {"a": "x"}),
        ([("$.a", "\ud83d"), ("$.a", "\ude00")], {"a": "😀"}),
    ],
    ids=lambda value: "",
)
def test_values_are_put_where_their_paths_lead(pieces: list[tuple[str, Any]], value: dict[str, Any]) -> None:
    """Objects and lists are made on the way; texts of one path are one text."""
    assert _value(*pieces) == value


@pytest.mark.parametrize(
    "path",
    [
        "",
        "$",
        "$..a",
        "$.a[*]",
        "$[0]",
        "$.x.y",
        "$.xs.y",
        f"$.xs[{LIST_GAP_MAX + 1}]",
        "$.xs[999999999]",
        "$" + ".a" * 99,
    ],
)
def test_what_fits_nowhere_is_left_out(path: str) -> None:
    """No path makes it raise, or hold more than a little of nothing."""
    assert _value(("$.x", 1), ("$.xs[0]", 1), (path, 2)) == {"x": 1, "xs": [1]}


def test_odd_pieces_are_nothing() -> None:
    """A piece that is no object, and one without a value."""
    arguments = PartialArguments()
    arguments.add([5, {}, {"jsonPath": 7}, {"jsonPath": "$.a"}])
    assert arguments.value() == {"a": None}


def test_the_size_grows_with_what_is_held() -> None:
    """So that it can be bounded."""
    arguments = PartialArguments()
    arguments.add([{"jsonPath": "$.a", "stringValue": "é" * 10}])
    assert arguments.size == 23
    arguments.add([{"jsonPath": "$.b", "numberValue": 1}, {"jsonPath": "$.c", "boolValue": True}])
    assert arguments.size == 23 + 2 * (3 + 8)
