from typing import Any

import msgspec
import pytest

from treadle.core.errors import ProtocolError
from treadle.core.items import text_message
from treadle.core.json import read_json, write_json
from treadle.core.plan import Plan
from treadle.core.request import Options
from treadle.core.tool_definitions import AUTO, ToolChoice, ToolSpec
from treadle.protocols.chat.tools import (
    ReadTools,
    read_choice,
    read_legacy_choice,
    read_tools,
    write_choice,
    write_tool,
)
from treadle.protocols.chat.upstream_request import write_request
from treadle.protocols.translation_notes import Notes

RAW = msgspec.Raw
SCHEMA = RAW(b'{"type":"object","properties":{"a":{}}}')


def _tools(*values: Any, legacy: bool = False) -> tuple[tuple[ToolSpec, ...], tuple[str, ...]]:
    notes = Notes()
    raws = [RAW(write_json(value)) for value in values]
    read = read_tools(raws, "functions" if legacy else "tools", notes, legacy=legacy)
    return read.specs, tuple(note.code for note in notes.all())


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


def test_a_grammar_is_flat_in_the_spec_and_nested_on_the_wire() -> None:
    """Responses and the canonical spec write one level less."""
    grammar = {"syntax": "lark", "definition": "start: /x/"}
    tool = {"type": "custom", "custom": {"name": "p", "format": {"type": "grammar", "grammar": grammar}}}
    (spec,), _ = _tools(tool)
    flat = RAW(b'{"type":"grammar","syntax":"lark","definition":"start: /x/"}')
    assert spec == ToolSpec(name="p", kind="custom", format=flat)
    assert read_json(bytes(write_tool(spec))) == tool


def test_built_in_tools_and_second_definitions_are_dropped_and_noted() -> None:
    """Neither is an error: stock clients send them."""
    specs, codes = _tools({"type": "web_search"}, {"type": "function", "name": "f"}, {"type": "function", "name": "f"})
    assert specs == (ToolSpec(name="f"),)
    assert codes == ("tool_kept", "duplicate_tool")
    options = Options(extra={"tools": RAW(b'[{"type":"web_search"}]')}, extra_protocol="chat")
    written = write_request(Plan(items=(text_message("user", "hi"),), model="m", options=options))
    assert "tools" not in read_json(written.body)
    assert [(note.code, note.action, note.field) for note in written.notes] == [("hosted_tool", "dropped", "tools")]


def test_a_providers_own_tool_of_a_built_in_name_is_passed_on() -> None:
    """What is nested under its type is Chat's spelling, not that of the Responses API."""
    tool = RAW(b'{"type":"web_search","web_search":{"enable":true}}')
    options = Options(extra={"tools": RAW(b"[" + bytes(tool) + b"]")}, extra_protocol="chat")
    written = write_request(Plan(items=(text_message("user", "hi"),), model="m", options=options))
    assert (read_json(written.body)["tools"], written.notes) == ([read_json(bytes(tool))], ())


def test_tools_of_unknown_types_are_kept_as_they_are() -> None:
    """An upstream of the same protocol may know them."""
    raw = RAW(b'{"type":"builtin_function","function":{"name":"$web_search"}}')
    notes = Notes()
    assert read_tools([raw], "tools", notes) == ReadTools(others=(raw,))
    assert [note.code for note in notes.all()] == ["tool_kept"]


def test_unknown_fields_of_a_tool_come_back_where_they_were() -> None:
    """Beside the function and inside it."""
    tool = {
        "cache_control": {"type": "ephemeral"},
        "type": "function",
        "function": {"vendor": 1, "name": "f", "parameters": read_json(bytes(SCHEMA))},
    }
    (spec,), _ = _tools(tool)
    assert spec.extra is not None
    assert read_json(bytes(write_tool(spec))) == tool
    foreign = msgspec.structs.replace(spec, extra=msgspec.structs.replace(spec.extra, protocol="messages"))
    assert read_json(bytes(write_tool(foreign))).keys() == {"type", "function"}


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
            ("tool_choice_dropped",),
        ),
        ({"type": "web_search"}, AUTO, ("tool_choice_dropped",)),
    ],
)
def test_every_form_of_a_choice_is_read(value: Any, choice: ToolChoice, codes: tuple[str, ...]) -> None:
    """Strings, named tools and allowed tools, nested and flat."""
    notes = Notes()
    assert read_choice(RAW(write_json(value)), (), notes) == choice
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
        read_choice(RAW(write_json(value)), (), Notes())
    assert caught.value.info.param == param


def test_a_choice_of_a_tool_that_the_upstream_runs_is_left_to_it() -> None:
    """Where such a tool is offered; else there is nothing to choose."""
    notes = Notes()
    assert read_choice(RAW(b'{"type":"browser_search"}'), (RAW(b'{"type":"browser_search"}'),), notes) is None
    assert notes.all() == ()


def test_a_legacy_choice_names_a_function_directly() -> None:
    """`function_call` of a request: a word, or an object with a name."""
    assert read_legacy_choice(RAW(b'"none"')) == ToolChoice(mode="none")
    assert read_legacy_choice(RAW(b'{"name":"f"}')) == ToolChoice(mode="named", name="f")


@pytest.mark.parametrize(
    ("spec", "body"),
    [
        (ToolSpec(name="f"), {"name": "f", "parameters": {"type": "object", "properties": {}}}),
        (
            ToolSpec(name="f", description="d", parameters=SCHEMA, strict=False),
            {"name": "f", "description": "d", "parameters": read_json(bytes(SCHEMA)), "strict": False},
        ),
        (ToolSpec(name="p", kind="custom"), {"name": "p"}),
        (
            ToolSpec(name="p", description="d", kind="custom", format=RAW(b'{"type":"text"}')),
            {"name": "p", "description": "d", "format": {"type": "text"}},
        ),
    ],
)
def test_tools_are_written_nested(spec: ToolSpec, body: Any) -> None:
    """strict only when set; a custom tool in its own form."""
    assert read_json(bytes(write_tool(spec))) == {"type": spec.kind, spec.kind: body}


def test_choices_are_written_only_where_they_say_something() -> None:
    """auto is the default and left out; a named tool is named by its kind."""
    modes: list[Any] = [AUTO, ToolChoice(mode="none"), ToolChoice(mode="required"), ToolChoice(mode="named", name="f")]
    assert [write_choice(mode, ()) for mode in modes] == [
        None,
        "none",
        "required",
        {"type": "function", "function": {"name": "f"}},
    ]
    custom = (ToolSpec(name="f", kind="custom"),)
    assert write_choice(modes[-1], custom) == {"type": "custom", "custom": {"name": "f"}}
