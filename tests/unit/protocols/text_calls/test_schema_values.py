"""Registered names, and text made into what a schema says."""

from typing import Any

import msgspec
import pytest

from treadle.core.json import write_json
from treadle.core.tool_definitions import ToolSpec
from treadle.protocols.text_calls.schema_values import TextTools, Typed, from_text, types_of, write_arguments

KEPT = "keeps"
TYPED: list[tuple[Any, str, Any]] = [
    ({"type": "string"}, "5", "5"),
    ({"type": "string"}, "null", "null"),
    ({"type": "string"}, " true ", " true "),
    ({"type": "integer"}, " 5\n", 5),
    ({"type": "integer"}, "+5", 5),
    ({"type": "integer"}, "five", "five"),
    ({"type": "integer"}, "1e999", "1e999"),
    ({"type": "number"}, "5", 5),
    ({"type": "number"}, "-2.50", -2.5),
    ({"type": "number"}, "NaN", "NaN"),
    ({"type": "boolean"}, "TRUE", True),
    ({"type": "boolean"}, "1", "1"),
    ({"type": "array"}, "['a', 'b']", ["a", "b"]),
    ({"type": "array"}, "(1, 2)", [1, 2]),
    ({"type": "array"}, '{"a": 1}', '{"a": 1}'),
    ({"type": "array"}, "[1, 2", "[1, 2"),
    ({"type": "object"}, "{'a': True}", {"a": True}),
    ({"type": ["integer", "string"]}, "12", 12),
    ({"type": ["string", "null"]}, "null", None),
    ({"anyOf": [{"type": "number"}, {"type": "null"}]}, "null", None),
    ({"enum": ["1", "2"]}, "1", "1"),
    ({"enum": [1, 2]}, "1", 1),
    ({"const": True}, "true", True),
    ({"type": "dict"}, '{"a": 1}', {"a": 1}),
    ({"type": "float"}, "1.5", 1.5),
    ({"items": {}}, "[1]", [1]),
    ({}, "[1, 2]", [1, 2]),
    ({}, "12", 12),
    ({}, "012", "012"),
    (None, "text", "text"),
    ({"$ref": "#/$defs/n"}, "7", 7),
    ({"$ref": "#/$defs/loop"}, "7", 7),
    ({"$ref": "#/nowhere"}, "x", "x"),
]
ROOT = {"$defs": {"n": {"type": "integer"}, "loop": {"$ref": "#/$defs/loop"}}}


@pytest.mark.parametrize(("schema", "text", "value"), TYPED)
def test_text_becomes_what_the_schema_says(schema: Any, text: str, value: Any) -> None:
    """And stays text where it fits no type."""
    made = from_text(text, schema, ROOT)
    assert made == value
    assert type(made) is type(value)


def test_a_dialect_that_says_the_type_is_believed() -> None:
    """A string is a string, anything else JSON."""
    assert from_text(Typed(text="5", is_string=True), {"type": "integer"}, {}) == "5"
    assert from_text(Typed(text="5", is_string=False), {"type": "string"}, {}) == 5
    assert from_text(Typed(text="{", is_string=False), {"type": "string"}, {}) == "{"


def spec(name: str, **properties: Any) -> ToolSpec:
    """Return a tool with these parameters."""
    return ToolSpec(name=name, parameters=msgspec.Raw(write_json({"type": "object", "properties": properties})))


def test_a_name_is_exact_but_for_namespace_and_counter() -> None:
    """Never by likeness: another case is another tool."""
    tools = TextTools([spec("look_up"), spec("functions.own"), spec("a:1")])
    for written in ("look_up", "functions.look_up", "functions.look_up:0", " look_up:41\n", "default_api.look_up"):
        found = tools.find(written)
        assert found is not None
        assert found.name == "look_up"
    for written in ("functions.own", "a:1"):
        found = tools.find(written)
        assert found is not None
        assert found.name == written
    for written in ("Look_up", "look", "look_ups", "", "other.look_up", "functions."):
        assert tools.find(written) is None


@pytest.mark.parametrize("written", ["look_up", "functions.look_up:0", "default_api.look_up", "a:1"])
def test_every_beginning_of_a_name_may_begin_one(written: str) -> None:
    """Early refusal never refuses what would have been found."""
    tools = TextTools([spec("look_up"), spec("a:1")])
    assert all(tools.may_begin(written[:size]) for size in range(1, len(written) + 1))
    assert not tools.may_begin("x")


def test_only_lists_and_objects_in_strings_are_undone_and_only_by_the_schema() -> None:
    """A string that looks like a list is a string where the schema says so, or says nothing."""
    tool = TextTools(
        [spec("f", ids={"type": "array"}, text={"type": "string"}, either={"type": ["array", "string"]})]
    ).find("f")
    assert tool is not None
    given = {"ids": "[1, 2]", "text": "[1]", "either": "[1]", "other": "[1]"}
    assert tool.from_json(given) == {**given, "ids": [1, 2]}
    assert tool.from_json({"ids": "[1, "}) == {"ids": "[1, "}


def test_a_schema_that_is_none_harms_nothing() -> None:
    """Tools come from clients."""
    tools = TextTools([ToolSpec(name="f", parameters=msgspec.Raw(b'{"properties": [], "required": 3, "type": {}}'))])
    tool = tools.find("f")
    assert tool is not None
    assert (tool.properties, tool.required) == ({}, frozenset())
    assert types_of({"type": {"x": 1}}, {}) == frozenset()
    assert types_of({"anyOf": "x", "type": None}, {}) == frozenset()


def test_halves_of_characters_are_put_together() -> None:
    """Arguments are text that every client can read; a lone half is no character, and is not made another one."""
    assert write_arguments({"a": ["\ud83c\udf0a"]}) == '{"a":["🌊"]}'
    assert write_arguments({"a": ["\ud83c\udf0a", "\ud800"]}) == r'{"a":["\ud83c\udf0a","\ud800"]}'
