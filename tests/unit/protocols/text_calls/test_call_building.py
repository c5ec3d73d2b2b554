"""JSON of every shape that names a tool and its arguments, read as calls; anything else is none."""

import json
from typing import Any

import pytest

from treadle.protocols.text_calls import read_tools
from treadle.protocols.text_calls.call_building import (
    TextCall,
    calls_of,
    looks_like_call,
    object_of,
    read_name,
    unwrapped,
)
from treadle.protocols.text_calls.resumable_reader import ResumableReader

TOOLS = read_tools(
    [
        {"name": "ring", "parameters": {"type": "object", "properties": {"times": {"type": "integer"}}}},
        {"name": "write", "parameters": {"type": "object", "properties": {"input": {"type": "string"}}}},
    ]
)
RING = TextCall(name="ring", arguments='{"times":2}')
BARE = TextCall(name="ring", arguments="{}")
ONE = {"name": "ring", "arguments": {"times": 2}}


def wrapped(value: Any, times: int) -> Any:
    """Return a call inside so many objects that only say `function`."""
    return {"function": wrapped(value, times - 1)} if times else value


def parallel(value: Any, times: int) -> Any:
    """Return a call inside so many calls of several tools at once."""
    inner = {"tool_uses": [parallel(value, times - 1)]} if times else None
    return {"recipient_name": "multi_tool_use.parallel", "parameters": inner} if times else value


@pytest.mark.parametrize(
    ("value", "calls"),
    [
        (ONE, [RING]),
        ([ONE, ONE], [RING, RING]),
        ({"tool_calls": [ONE]}, [RING]),
        ({"tool_uses": [{"recipient_name": "functions.ring", "parameters": {"times": 2}}]}, [RING]),
        ({"type": "function", "id": "x", "function": ONE}, [RING]),
        ({"tool": "ring", "args": '{"times": 2}'}, [RING]),
        ({"function": "ring", "input": {"times": 2}}, [RING]),
        ({"tool_name": "ring", "tool_input": {"times": 2}}, [RING]),
        ({"name": "ring", "arguments": None}, [BARE]),
        ({"name": "ring", "arguments": ""}, [BARE]),
        ({"name": "ring", "id": "x"}, [BARE]),
        ({"name": "ring", "times": 2}, []),
        ({"name": "ring", "arguments": [2]}, []),
        ({"name": "ring", "arguments": "no object"}, []),
        ({"name": "fly", "arguments": {}}, []),
        ([ONE, {"name": "fly", "arguments": {}}], []),
        ([ONE, 3], []),
        ([], []),
        (3, []),
        (parallel(ONE, 1), [RING]),
        (wrapped(ONE, 4), [RING]),
        (wrapped(ONE, 5), []),
        (parallel(ONE, 2), [RING]),
        (parallel(ONE, 3), []),
        ([[[[ONE]]]], [RING]),
        ([[[[[ONE]]]]], []),
    ],
)
def test_a_call_is_read_in_every_shape(value: Any, calls: list[TextCall]) -> None:
    """All that stand there or none, and none that is wrapped without end."""
    assert calls_of(json.dumps(value), TOOLS) == calls


def test_what_has_no_marker_must_look_like_a_call_and_like_nothing_else() -> None:
    """Arguments must be there, and no word that calls do not have."""
    for value, calls in (
        (ONE, [RING]),
        ({"name": "ring"}, []),
        ({**ONE, "comment": "x"}, []),
        ({**ONE, "id": "x", "type": "function"}, [RING]),
    ):
        assert calls_of(json.dumps(value), TOOLS, is_markerless=True) == calls
    assert calls_of(json.dumps({**ONE, "comment": "x"}), TOOLS) == [RING]


def test_keys_that_are_names_are_read_where_that_is_the_shape() -> None:
    """Each key a tool, each value its arguments."""
    assert calls_of('{"ring": {"times": 2}, "write": {"input": "a"}}', TOOLS, is_keyed=True) == [
        RING,
        TextCall(name="write", arguments='{"input":"a"}'),
    ]
    assert calls_of('{"ring": {"times": 2}, "fly": {}}', TOOLS, is_keyed=True) == []
    assert calls_of('{"ring": 3}', TOOLS, is_keyed=True) == []


def test_what_is_no_json_calls_nothing() -> None:
    """Nothing is completed."""
    assert [calls_of(text, TOOLS) for text in (None, "", "{", '{"name": "ring", "arguments": {')] == [[]] * 4


def test_an_object_may_stand_in_a_string() -> None:
    """Once; other values are none."""
    texts = ('{"a": 1}', '"{\\"a\\": 1}"', "[1]", '"x"', "{", None)
    assert [object_of(text) for text in texts] == [{"a": 1}, {"a": 1}, None, None, None, None]


@pytest.mark.parametrize(
    ("name", "given", "arguments"),
    [
        ("ring", {"arguments": {"times": 2}}, {"times": 2}),
        ("ring", {"parameters": '{"times": 2}'}, {"times": 2}),
        ("ring", {"arguments": {}}, {}),
        ("ring", {"arguments": {"other": 2}}, {"arguments": {"other": 2}}),
        ("ring", {"arguments": 2}, {"arguments": 2}),
        ("ring", {"arguments": {"times": 2}, "x": 1}, {"arguments": {"times": 2}, "x": 1}),
        ("ring", {"times": 2}, {"times": 2}),
        ("write", {"input": {"input": "a"}}, {"input": {"input": "a"}}),
        ("ring", {}, {}),
    ],
)
def test_arguments_are_taken_out_of_what_only_wraps_them(
    name: str, given: dict[str, Any], arguments: dict[str, Any]
) -> None:
    """Unless the tool has a parameter of that name, or they would not fit."""
    tool = TOOLS.find(name)
    assert tool is not None
    assert unwrapped(tool, given) == arguments


@pytest.mark.parametrize("is_cut", [False, True])
@pytest.mark.parametrize(
    ("text", "is_keyed", "is_markerless", "fits"),
    [
        ('{"name": "ring"', False, True, True),
        ('[ {"name": "ring"', False, True, True),
        ("{'tool': 'ring'", False, True, True),
        ('{"name": "fly"', False, False, False),
        ('{"name" "ring"', False, False, False),
        ('{"function": {"', False, True, True),
        ('{"name": {"', False, True, False),
        ('{"recipient_name": "multi_tool_use.parallel"', False, True, True),
        ('{"id": "x"', False, True, True),
        ('{"colour": "x"', False, True, False),
        ('{"colour": "x"', False, False, True),
        ("{name: ", False, True, False),
        ("{name: ", False, False, True),
        ('{"ring": {', True, False, True),
        ('{"fly": {', True, False, False),
        ('"name"', False, False, False),
        ('{"' + "k" * 201 + '"', False, False, False),
    ],
)
def test_the_first_key_tells_early_that_it_is_no_call(
    text: str, is_keyed: bool, is_markerless: bool, fits: bool, is_cut: bool
) -> None:
    """And leaves the text as it was."""
    reader = ResumableReader("")
    looking = looks_like_call(reader, TOOLS, is_keyed=is_keyed, is_markerless=is_markerless)
    verdict = None
    try:
        for piece in [*(text if is_cut else [text]), None]:
            next(looking)
            reader.is_ended = piece is None
            reader.add(piece or "")
        next(looking)
    except StopIteration as done:
        verdict = done.value
    assert verdict is fits
    assert reader.mark == 0


NAMED = [("ring(", "ring"), (" ring (", "ring"), ("rings(", None), ("ri", None), ("ring", "ring")]


@pytest.mark.parametrize(("text", "name"), NAMED)
def test_a_name_is_read_up_to_its_stop(text: str, name: str | None) -> None:
    """A registered one, whole; at the end of the text, too."""
    with pytest.raises(StopIteration) as done:
        next(read_name(ResumableReader(text, is_ended=True), "(", TOOLS))
    assert (done.value.value and done.value.value.name) == name
