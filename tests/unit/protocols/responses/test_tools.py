"""Tools and tool_choice of a Responses request."""

import json
from typing import Any

import msgspec
import pytest

from treadle.core.errors import ProtocolError
from treadle.core.items import Extra
from treadle.core.tool_definitions import AUTO, EMPTY_SCHEMA, ToolChoice, ToolSpec
from treadle.protocols.responses.tools import ToolShelf, bare_name, flat_name, read_choice

HOSTED = (
    "web_search",
    "web_search_preview",
    "file_search",
    "code_interpreter",
    "image_generation",
    "computer",
    "computer_use_preview",
    "mcp",
    "tool_search",
    "shell",
    "local_shell",
    "apply_patch",
    "programmatic_tool_calling",
    "of_tomorrow",
)


def raw(value: Any) -> msgspec.Raw:
    """Return a value as JSON."""
    return msgspec.Raw(json.dumps(value).encode())


def shelf(*tools: Any) -> ToolShelf:
    """Read these tools."""
    kept = ToolShelf()
    kept.add([raw(tool) for tool in tools], "tools")
    return kept


def test_flat_and_nested_functions_are_the_same() -> None:
    """The official form and that of the older designs give the same spec."""
    fields = {"name": "f", "description": "d", "parameters": {"type": "object"}, "strict": True}
    spec = ToolSpec(name="f", description="d", parameters=raw({"type": "object"}), strict=True)
    assert shelf({"type": "function", **fields}).specs == (spec,)
    assert shelf({"type": "function", "function": fields}).specs == (spec,)
    assert shelf(fields).specs == (spec,)


def test_fields_left_out_or_null_have_defaults() -> None:
    """Without parameters a function takes none; `strict` stays unsaid, because null breaks some upstreams."""
    spec = ToolSpec(name="f", parameters=EMPTY_SCHEMA)
    empty = {"description": None, "parameters": None, "strict": None}
    assert shelf({"type": "function", "name": "f", **empty}).specs == (spec,)
    kept = Extra(protocol="responses", fields={"defer_loading": raw(True)})
    for form in ({"name": "f", "defer_loading": True}, {"function": {"name": "f", "defer_loading": True}}):
        assert shelf({"type": "function", **form}).specs == (msgspec.structs.replace(spec, extra=kept),)


def test_custom_tools_keep_their_format() -> None:
    """A custom tool is callable and keeps its grammar as written."""
    grammar = {"type": "grammar", "syntax": "regex", "definition": ".*"}
    specs = shelf({"type": "custom", "name": "a", "format": grammar}, {"type": "custom", "name": "b"}).specs
    assert specs == (ToolSpec(name="a", kind="custom", format=raw(grammar)), ToolSpec(name="b", kind="custom"))


@pytest.mark.parametrize("kind", HOSTED)
def test_hosted_tools_are_left_out_and_noted(kind: str) -> None:
    """A tool that only its provider can run is no tool of Treadle's; it is kept for such a provider and noted."""
    kept = shelf({"type": "function", "name": "f"}, {"type": kind})
    assert [spec.name for spec in kept.specs] == ["f"]
    assert kept.hosted == [raw({"type": kind})]
    assert [(note.code, note.action, note.field) for note in kept.notes] == [("hosted_tool", "kept", "tools[1]")]


def test_hosted_tool_inside_a_namespace_is_noted_with_its_path() -> None:
    """The path of a note goes into the namespace."""
    kept = shelf({"type": "namespace", "name": "ns", "tools": [{"type": "shell"}]})
    assert [note.field for note in kept.notes] == ["tools[0].tools[0]"]


@pytest.mark.parametrize(
    ("namespace", "flat"),
    [(None, "f"), ("", "f"), ("functions", "f"), ("ns", "ns__f")],
)
def test_namespaces_are_flattened_and_restored(namespace: str | None, flat: str) -> None:
    """A flat name carries its namespace, except for the plain one, and gives the bare name back."""
    assert flat_name("f", namespace) == flat
    assert bare_name(ToolSpec(name=flat, namespace=namespace)) == "f"


def test_plain_namespace_never_strips_a_name() -> None:
    """A tool of the plain namespace whose name looks flattened keeps its name."""
    assert bare_name(ToolSpec(name="functions__x", namespace="functions")) == "functions__x"


def test_tool_declared_again_replaces_the_earlier_one() -> None:
    """The newest definition holds, in the place of the first; only a real difference is noted."""
    tool = {"type": "function", "name": "f"}
    same = shelf(tool, {"type": "function", "name": "g"}, tool)
    assert ([spec.name for spec in same.specs], same.notes) == (["f", "g"], [])
    changed = shelf(tool, {**tool, "description": "new"})
    assert changed.specs == (ToolSpec(name="f", description="new"),)
    assert [(note.code, note.field) for note in changed.notes] == [("duplicate_tool", "tools[1]")]


F = {"type": "function", "name": "f"}
G = {"type": "function", "function": {"name": "g"}}
NS = {"type": "namespace", "name": "ns", "tools": [{"type": "function", "name": "g"}]}


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (None, AUTO),
        ("required", ToolChoice(mode="required")),
        ({"type": "function", "name": "f"}, ToolChoice(mode="named", name="f")),
        ({"type": "function", "function": {"name": "f"}}, ToolChoice(mode="named", name="f")),
        ({"type": "custom", "name": "f"}, ToolChoice(mode="named", name="f")),
        ({"type": "custom", "custom": {"name": "f"}}, ToolChoice(mode="named", name="f")),
        ({"type": "function", "name": "g", "namespace": "ns"}, ToolChoice(mode="named", name="ns__g")),
        ({"type": "function", "name": "g"}, ToolChoice(mode="named", name="ns__g")),
        ({"type": "function", "name": "server_tool"}, ToolChoice(mode="named", name="server_tool")),
        ({"type": "mcp", "server_label": "python", "name": "w"}, ToolChoice(mode="named", name="w")),
        (
            {
                "type": "allowed_tools",
                "mode": "required",
                "tools": [F, {"type": "function", "function": {"name": "g"}}],
            },
            ToolChoice(mode="required", allowed=("f", "ns__g")),
        ),
        ({"type": "allowed_tools", "tools": [F]}, ToolChoice(allowed=("f",))),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [F]}}, ToolChoice(allowed=("f",))),
        ({"type": "allowed_tools", "mode": "auto", "tools": []}, ToolChoice(allowed=())),
    ],
)
def test_tool_choice_in_all_its_forms(choice: Any, expected: ToolChoice) -> None:
    """Each form, flat or nested, means the same tool by its flat name."""
    kept = shelf(F, NS)
    assert read_choice(raw(choice), kept) == expected
    assert kept.notes == []


@pytest.mark.parametrize("choice", [{"type": "web_search"}, {"type": "mcp", "server_label": "x"}, {"type": "shell"}])
def test_hosted_choice_is_noted_and_left_to_the_model(choice: Any) -> None:
    """A tool that is not offered cannot be forced."""
    kept = shelf(F)
    assert read_choice(raw(choice), kept) == AUTO
    assert [(note.code, note.action) for note in kept.notes] == [("tool_choice_dropped", "dropped")]


@pytest.mark.parametrize(
    ("choice", "tool"),
    [
        ({"type": "web_search"}, {"type": "web_search"}),
        ({"type": "web_search_preview"}, {"type": "web_search_preview_2025_03_11"}),
        ({"type": "mcp", "server_label": "docs"}, {"type": "mcp", "server_label": "docs"}),
        ({"type": "mcp", "server_label": "docs", "name": "read"}, {"type": "mcp", "server_label": "docs"}),
        ({"type": "apply_patch"}, {"type": "apply_patch"}),
    ],
)
def test_a_choice_of_a_tool_that_the_upstream_runs_is_left_to_it(choice: Any, tool: Any) -> None:
    """It is offered, so it can be forced; only the upstream knows how."""
    kept = shelf(F, tool)
    assert read_choice(raw(choice), kept) is None
    assert [note.code for note in kept.notes] == ["hosted_tool"]


def test_allowed_tools_narrow_those_that_the_upstream_runs() -> None:
    """What is named stays, be it called or hosted; a server's tool is named by its label."""
    search, docs, other = {"type": "web_search"}, *({"type": "mcp", "server_label": name} for name in ("docs", "x"))
    kept = shelf(F, NS, search, docs, other, {"type": "shell"})
    choice = {"type": "allowed_tools", "mode": "required", "tools": [F, {"type": "web_search"}, docs]}
    assert read_choice(raw(choice), kept) == ToolChoice(mode="required", allowed=("f",))
    assert kept.hosted == [raw(search), raw(docs)]
    assert {note.action for note in kept.notes} == {"kept"}


def test_hosted_tools_among_the_allowed_are_noted() -> None:
    """Of the allowed tools those that are offered remain."""
    kept = shelf(F)
    choice = {"type": "allowed_tools", "mode": "auto", "tools": [F, {"type": "web_search"}]}
    assert read_choice(raw(choice), kept) == ToolChoice(allowed=("f",))
    assert [note.code for note in kept.notes] == ["tool_choice_dropped"]


@pytest.mark.parametrize(
    ("choice", "param"),
    [
        ("sometimes", "tool_choice"),
        (3, "tool_choice"),
        ({}, "tool_choice.type"),
        ({"type": "function"}, "tool_choice.name"),
        ({"type": "function", "name": 3}, "tool_choice.name"),
        ({"type": "allowed_tools", "mode": "none", "tools": []}, "tool_choice.mode"),
        ({"type": "allowed_tools"}, "tool_choice.tools"),
        ({"type": "allowed_tools", "allowed_tools": {}}, "tool_choice.allowed_tools.tools"),
        ({"type": "allowed_tools", "tools": [{"name": "f"}]}, "tool_choice.tools[0].type"),
    ],
)
def test_bad_choices_name_their_field(choice: Any, param: str) -> None:
    """A choice that says nothing is refused by name."""
    with pytest.raises(ProtocolError) as caught:
        read_choice(raw(choice), shelf(F))
    assert caught.value.info.param == param


@pytest.mark.parametrize(
    ("tool", "param"),
    [
        ({"type": "function"}, "tools[0].name"),
        ({"type": "function", "function": {}}, "tools[0].function.name"),
        ({"type": "custom", "name": None}, "tools[0].name"),
        ({"type": "namespace", "name": "n"}, "tools[0].tools"),
        ({"type": "namespace", "name": "n", "tools": [{"type": "function"}]}, "tools[0].tools[0].name"),
        ({"type": "function", "name": "f", "strict": "yes"}, "tools[0].strict"),
        ("f", "tools[0]"),
    ],
)
def test_bad_tools_name_their_field(tool: Any, param: str) -> None:
    """A tool that cannot be called is refused by name."""
    with pytest.raises(ProtocolError) as caught:
        shelf(tool)
    assert caught.value.info.param == param
