from typing import Any

import msgspec
import pytest

from treadle.canon.errors import ProtocolError
from treadle.canon.json import read_json, write_json
from treadle.canon.tools import AUTO, ToolChoice, ToolSpec
from treadle.wire.chat.tools import read_choice, read_legacy_choice, read_tools, write_choice, write_tool
from treadle.wire.notes import Notes

RAW = msgspec.Raw
SCHEMA = RAW(b'{"type":"object","properties":{"a":{}}}')


def _tools(*values: Any, legacy: bool = False) -> tuple[tuple[ToolSpec, ...], tuple[str, ...]]:
    notes = Notes()
    raws = [RAW(write_json(value)) for value in values]
    specs = read_tools(raws, "functions" if legacy else "tools", notes, legacy=legacy)
    return specs, tuple(note.code for note in notes.all())


def test_nested_flat_and_legacy_functions_are_the_same_tool() -> None:
    """S2's nested form, the flat one and a legacy function give one spec."""
    function = {"name": "f", "description": "d", "parameters": SCHEMA}
    spec = ToolSpec(name="f", description="d", parameters=SCHEMA)
    assert _tools({"type": "function", "function": function}) == ((spec,), ())
    assert _tools({"function": function}) == ((spec,), ())
    assert _tools({"type": "function", **function}) == ((spec,), ())
    assert _tools(function, legacy=True) == ((spec,), ())


@pytest.mark.parametrize(("given", "kept"), [(True, True), (False, False), (None, None)])
def test_strict_is_kept_only_when_set(given: bool | None, kept: bool | None) -> None:
    """null is the same as missing."""
    (spec,), _ = _tools({"type": "function", "function": {"name": "f", "strict": given, "parameters": None}})
    assert spec == ToolSpec(name="f", strict=kept)


def test_custom_tools_keep_their_format() -> None:
    """Both the nested and the flat form."""
    body = {"name": "patch", "description": "d", "format": {"type": "text"}}
    spec = ToolSpec(name="patch", description="d", kind="custom", format=RAW(b'{"type":"text"}'))
    assert _tools({"type": "custom", "custom": body}, {"type": "custom", **body, "name": "p2"})[0] == (
        spec,
        msgspec.structs.replace(spec, name="p2"),
    )


def test_hosted_tools_and_second_definitions_are_dropped_and_noted() -> None:
    """Neither is an error: stock clients send them."""
    specs, codes = _tools({"type": "web_search"}, {"type": "function", "name": "f"}, {"type": "function", "name": "f"})
    assert specs == (ToolSpec(name="f"),)
    assert codes == ("tool_dropped", "duplicate_tool")


@pytest.mark.parametrize(
    ("value", "param"),
    [
        (5, "tools[0]"),
        ({"type": "function", "function": {}}, "tools[0].function.name"),
        ({"type": "function", "function": {"name": ""}}, "tools[0].function.name"),
        ({"type": "function", "function": {"name": "f", "parameters": "x"}}, "tools[0].function.parameters"),
        ({"type": "function", "function": 5}, "tools[0].function"),
        ({"type": "function", "name": "f", "strict": "yes"}, "tools[0].strict"),
        ({"type": 5}, "tools[0].type"),
    ],
)
def test_wrong_tools_are_refused_by_their_path(value: Any, param: str) -> None:
    """The error names the tool and the field."""
    with pytest.raises(ProtocolError) as caught:
        _tools(value)
    assert caught.value.info.param == param


@pytest.mark.parametrize(
    ("value", "choice", "codes"),
    [
        ("auto", AUTO, ()),
        ("none", ToolChoice(mode="none"), ()),
        ("required", ToolChoice(mode="required"), ()),
        ({"type": "function", "function": {"name": "f"}}, ToolChoice(mode="named", name="f"), ()),
        ({"type": "function", "name": "f"}, ToolChoice(mode="named", name="f"), ()),
        ({"type": "custom", "custom": {"name": "f"}}, ToolChoice(mode="named", name="f"), ()),
        (
            {
                "type": "allowed_tools",
                "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "f"}}]},
            },
            ToolChoice(mode="required", allowed=("f",)),
            (),
        ),
        (
            {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}, {"type": "mcp"}]},
            ToolChoice(mode="auto", allowed=("f",)),
            (),
        ),
        ({"type": "web_search"}, AUTO, ("tool_choice_dropped",)),
    ],
)
def test_every_form_of_a_choice_is_read(value: Any, choice: ToolChoice, codes: tuple[str, ...]) -> None:
    """Strings, named tools and allowed tools, nested and flat."""
    notes = Notes()
    assert read_choice(RAW(write_json(value)), notes) == choice
    assert tuple(note.code for note in notes.all()) == codes


@pytest.mark.parametrize(
    ("value", "param"),
    [
        ("maybe", "tool_choice"),
        (5, "tool_choice"),
        ({"type": "function"}, "tool_choice.name"),
        ({"type": "function", "function": {}}, "tool_choice.function.name"),
        ({"type": "allowed_tools"}, "tool_choice.tools"),
        ({"type": "allowed_tools", "allowed_tools": {"tools": [], "mode": "x"}}, "tool_choice.allowed_tools.mode"),
        (
            {"type": "allowed_tools", "allowed_tools": {"tools": [{"type": "function"}]}},
            "tool_choice.allowed_tools.tools[0].name",
        ),
    ],
)
def test_a_wrong_choice_is_refused_by_its_path(value: Any, param: str) -> None:
    """The error names the field."""
    with pytest.raises(ProtocolError) as caught:
        read_choice(RAW(write_json(value)), Notes())
    assert caught.value.info.param == param


def test_a_legacy_choice_names_a_function_directly() -> None:
    """`function_call` of a request: a word, or an object with a name."""
    assert read_legacy_choice(RAW(b'"none"')) == ToolChoice(mode="none")
    assert read_legacy_choice(RAW(b'{"name":"f"}')) == ToolChoice(mode="named", name="f")


@pytest.mark.parametrize(
    ("spec", "function"),
    [
        (ToolSpec(name="f"), {"name": "f", "parameters": {"type": "object", "properties": {}}}),
        (
            ToolSpec(name="f", description="d", parameters=SCHEMA, strict=False),
            {"name": "f", "description": "d", "parameters": read_json(bytes(SCHEMA)), "strict": False},
        ),
        (
            ToolSpec(name="p", kind="custom", format=RAW(b'{"type":"grammar"}')),
            {
                "name": "p",
                "description": 'Format of `input`: {"type":"grammar"}',
                "parameters": {
                    "type": "object",
                    "properties": {"input": {"type": "string"}},
                    "required": ["input"],
                    "additionalProperties": False,
                },
            },
        ),
    ],
)
def test_tools_are_written_nested(spec: ToolSpec, function: Any) -> None:
    """strict only when set; a custom tool as a function of one string."""
    assert read_json(bytes(write_tool(spec))) == {"type": "function", "function": function}


def test_choices_are_written_only_where_they_say_something() -> None:
    """auto is the default and left out."""
    modes: list[Any] = [AUTO, ToolChoice(mode="none"), ToolChoice(mode="required"), ToolChoice(mode="named", name="f")]
    assert [write_choice(mode) for mode in modes] == [
        None,
        "none",
        "required",
        {"type": "function", "function": {"name": "f"}},
    ]
