"""Which tool the demo model calls, and with what."""

from typing import Any

import msgspec
import pytest

from treadle.core.json import write_json
from treadle.core.tool_definitions import AUTO, NONE, ToolChoice, ToolSpec
from treadle.providers.demo_model.tool_selection import choose, example


def tool(name: str, description: str = "", **properties: Any) -> ToolSpec:
    """Return a tool whose properties are all required."""
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return ToolSpec(name=name, description=description, parameters=msgspec.Raw(write_json(schema)))


TEXT = {"type": "string"}
NUMBER = {"type": "number"}
WEATHER = tool("get_weather", "Get the current weather in a city.", city=TEXT)
ADD = tool("add", "Add two numbers.", a=NUMBER, b=NUMBER)
CONVERT = tool(
    "convert",
    "Convert from one unit to another.",
    value=NUMBER,
    from_unit={"type": "string", "enum": ["metres", "kilometres", "miles"]},
    to_unit={"type": "string", "enum": ["metres", "kilometres", "miles"]},
)
GLOB = tool("glob", "List files whose path matches a pattern.", pattern=TEXT)
READ = tool("file_read", "Read a text file.", path=TEXT)
CALCULATE = tool("calculate", "Work out an arithmetic expression.", expression=TEXT)
SEARCH = tool("web_search", "Search the web.", query=TEXT)
PRICE = tool("get_price", "Look up the price of an article.", article=TEXT)
TOOLS = (WEATHER, ADD, CONVERT, GLOB, READ, CALCULATE, SEARCH, PRICE)


def calls(
    text: str, tools: tuple[ToolSpec, ...] = TOOLS, choice: ToolChoice = AUTO
) -> list[tuple[str, dict[str, Any]]]:
    """Return the calls that a text leads to."""
    return [(call.name, call.args) for call in choose(text, tools, choice).calls]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("What is the weather in Paris?", [("get_weather", {"city": "Paris"})]),
        ("weather in Paris and Rome", [("get_weather", {"city": "Paris"}), ("get_weather", {"city": "Rome"})]),
        ("How hot is it in oslo today?", [("get_weather", {"city": "Oslo"})]),
        ("add 2 and 3.5", [("add", {"a": 2, "b": 3.5})]),
        ("What is the price of article A7?", [("get_price", {"article": "A7"})]),
        ("what is the price of article number 7", [("get_price", {"article": "7"})]),
        ("the price of the article `x y`", [("get_price", {"article": "x y"})]),
        ("What is 2 + 3?", [("calculate", {"expression": "2 + 3"})]),
        (
            "convert 10 miles to kilometres",
            [("convert", {"value": 10, "from_unit": "miles", "to_unit": "kilometres"})],
        ),
        ("list *.toml files", [("glob", {"pattern": "*.toml"})]),
        ("which python files are there?", [("glob", {"pattern": "**/*.py"})]),
        ("list the files", [("glob", {"pattern": "**/*"})]),
        ("read README.md", [("file_read", {"path": "README.md"})]),
        ("open src/a.py", [("file_read", {"path": "src/a.py"})]),
        ("12*7?", [("calculate", {"expression": "12*7"})]),
        ("calculate 12 * (3 + 4)", [("calculate", {"expression": "12 * (3 + 4)"})]),
        ("search the web for red pandas", [("web_search", {"query": "red pandas"})]),
        ('web_search "green tea"', [("web_search", {"query": "green tea"})]),
    ],
)
def test_a_fitting_prompt_is_a_call_with_its_arguments(text, expected):
    """Name, description and what the prompt holds lead to one tool, filled from the text."""
    assert calls(text) == expected


@pytest.mark.parametrize(
    "text",
    ["hello", "Hi there!", "thanks", "What can you do?", "tell me a joke", "", "   ", "who are you?", "ok, good bye"],
)
def test_small_talk_calls_nothing(text):
    """A greeting fits no tool."""
    assert calls(text) == []


def test_what_the_prompt_does_not_say_is_asked_for():
    """A fitting tool without its city is not called with an invented one."""
    chosen = choose("what is the weather?", TOOLS, AUTO)
    assert (chosen.tool, chosen.calls, chosen.missing) == (WEATHER, (), ("city",))
    assert choose("add 2", TOOLS, AUTO).missing == ("b",)


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (NONE, []),
        (ToolChoice(mode="required"), [("get_weather", {"city": "Paris"})]),
        (ToolChoice(mode="named", name="add"), [("add", {"a": 1, "b": 1})]),
        (ToolChoice(mode="named", name="nothing"), []),
        (ToolChoice(mode="required", allowed=("glob",)), [("glob", {"pattern": "**/*"})]),
        (ToolChoice(allowed=("glob",)), []),
    ],
)
def test_tool_choice_is_obeyed(choice, expected):
    """None never calls, required and named always do, allowed narrows."""
    assert calls("hello", choice=choice) == expected


def test_required_without_tools_calls_nothing():
    """Where there is nothing to call, nothing is called."""
    assert calls("hello", (), ToolChoice(mode="required")) == []


@pytest.mark.parametrize("spec", TOOLS)
def test_the_example_of_a_tool_calls_that_tool(spec):
    """What the demo model suggests works, with nothing missing, also beside other tools."""
    assert [name for name, _ in calls(example(spec))] == [spec.name]


def test_a_custom_tool_gets_free_text():
    """Custom tools take text, not JSON."""
    custom = ToolSpec(name="shell", description="Run a script.", kind="custom")
    (call,) = choose('use shell with "ls -l"', (custom,), AUTO).calls
    assert call.arguments == "ls -l"
    assert [one.name for one in choose(example(custom), (custom,), AUTO).calls] == ["shell"]


def test_places_beyond_a_bound_are_left_out():
    """A list of a hundred cities is not a hundred calls."""
    names = ", ".join(f"City{number}" for number in range(30))
    assert len(calls(f"weather in {names}")) == 8


def test_only_required_properties_are_filled():
    """What may be left out is left out."""
    schema = {"type": "object", "properties": {"city": TEXT, "unit": {"enum": ["c", "f"]}}, "required": ["city"]}
    spec = ToolSpec(name="weather", parameters=msgspec.Raw(write_json(schema)))
    assert calls("weather in Rome", (spec,)) == [("weather", {"city": "Rome"})]


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"const": 7}, "use it", 7),
        ({"enum": ["low", "high"]}, "use it high", "high"),
        ({"enum": [1, 2]}, "use it", 1),
        ({"type": "boolean"}, "use it", True),
        ({"type": "boolean"}, "use it without x", False),
        ({"type": "integer"}, "use it 3", 3),
        ({"type": "integer", "minimum": 5}, "use it", 5),
        ({"type": "number", "default": 2.5}, "use it", 2.5),
        ({"type": "null"}, "use it", None),
        ({"type": ["null", "integer"]}, "use it 4", 4),
        ({"anyOf": [{"type": "null"}, {"type": "integer"}]}, "use it 4", 4),
        ({"$ref": "#/$defs/Deep"}, "use it 4", {"n": 4}),
        ({"$ref": "#/$defs/Loop"}, "use it", "Ada"),
        ({"$ref": "http://elsewhere"}, "use it", "Ada"),
        ({"type": "array", "items": {"type": "integer"}}, "use it 4", [4]),
        ({"type": "array"}, 'use it "x"', ["x"]),
        ({"type": "string", "default": "d"}, "use it", "d"),
        ({}, "use it", "Ada"),
        (True, "use it", "Ada"),
        (None, "use it", "Ada"),
        ({"type": 7, "enum": "x", "anyOf": {}}, "use it", "Ada"),
    ],
)
def test_every_kind_of_schema_is_filled_with_something_it_allows(schema, text, value):
    """Types, choices, references and alternatives; nonsense in a schema is survived."""
    whole = {
        "type": "object",
        "properties": {"x": schema},
        "required": ["x"],
        "$defs": {
            "Deep": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
            "Loop": {"$ref": "#/$defs/Loop"},
        },
    }
    spec = ToolSpec(name="it", parameters=msgspec.Raw(write_json(whole)))
    assert calls(text, (spec,), ToolChoice(mode="required")) == [("it", {"x": value})]


@pytest.mark.parametrize("raw", [b"7", b"[]", b'{"properties":7}', b'{"properties":{},"required":7}', b"nonsense"])
def test_a_schema_that_is_none_means_no_arguments(raw):
    """A tool of a client may have any schema; it is called with an empty object."""
    spec = ToolSpec(name="it", parameters=msgspec.Raw(raw))
    assert calls("use it", (spec,)) == [("it", {})]


def test_a_schema_that_nests_in_itself_ends():
    """Recursion stops at a bound."""
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}, "required": ["next"]}
    whole = {
        "type": "object",
        "properties": {"x": {"$ref": "#/$defs/Node"}},
        "required": ["x"],
        "$defs": {"Node": node},
    }
    spec = ToolSpec(name="it", parameters=msgspec.Raw(write_json(whole)))
    assert calls("use it", (spec,)) == [("it", {"x": {"next": {"next": {"next": {"next": {}}}}}})]
