import json
from typing import Any

import msgspec
import pytest

from treadle.core.errors import ProtocolError
from treadle.core.items import Extra
from treadle.core.json import read_json, write_json
from treadle.core.plan import Plan
from treadle.core.request import Options
from treadle.core.tool_definitions import AUTO, NONE, ToolChoice, ToolSpec
from treadle.protocols.messages.tools import ToolShelf, read_choice, write_tools
from treadle.protocols.translation_notes import Notes

SCHEMA = msgspec.Raw(b'{"type":"object","properties":{"a":{"type":"integer"}}}')
REQUIRED = ToolChoice(mode="required")
NAMED = ToolChoice(mode="named", name="f")


def _shelf(*tools: Any) -> tuple[ToolShelf, list[str]]:
    notes = Notes()
    shelf = ToolShelf()
    shelf.add([(f"tools.{place}", msgspec.Raw(json.dumps(tool).encode())) for place, tool in enumerate(tools)], notes)
    return shelf, [note.code for note in notes.all()]


def _written(*specs: ToolSpec, **fields: Any) -> tuple[dict[str, Any], list[str]]:
    notes = Notes()
    hosted = fields.pop("hosted", [])
    written = write_tools(Plan(items=(), model="m", tools=specs, **fields), hosted, notes)
    return read_json(write_json(written)), [note.code for note in notes.all()]


def test_a_tool_is_read_and_written_with_all_its_fields() -> None:
    """Those that Treadle does not act on go back to upstreams of this protocol."""
    tool = {
        "name": "f",
        "description": "d",
        "input_schema": {"type": "object", "properties": {"a": {"type": "integer"}}},
        "strict": True,
        "cache_control": {"type": "ephemeral"},
        "defer_loading": True,
        "input_examples": [{"a": 1}],
    }
    shelf, codes = _shelf(tool)
    (spec,) = shelf.specs
    assert (spec.name, spec.description, spec.strict) == ("f", "d", True)
    assert spec.extra is not None
    assert set(spec.extra.fields) == {"cache_control", "defer_loading", "input_examples"}
    assert codes == []
    assert _written(spec) == ({"tools": [tool]}, [])


@pytest.mark.parametrize("kind", [None, "custom"])
def test_the_smallest_tool_has_an_empty_schema(kind: str | None) -> None:
    """Strict is said only if it was."""
    shelf, _ = _shelf({"name": "f", "type": kind})
    assert shelf.specs == (ToolSpec(name="f"),)
    assert _written(*shelf.specs)[0] == {"tools": [{"name": "f", "input_schema": {"type": "object", "properties": {}}}]}


@pytest.mark.parametrize(
    ("kind", "name", "field"),
    [
        ("bash_20250124", "bash", "command"),
        ("text_editor_20250728", "str_replace_based_edit_tool", "path"),
        ("memory_20250818", "memory", "old_path"),
        ("computer_20251124", "computer", "action"),
    ],
)
def test_tools_that_the_client_runs_can_be_called_anywhere(kind: str, name: str, field: str) -> None:
    """Elsewhere with a schema, here as the client wrote them."""
    tool = {"type": kind, "name": name, "cache_control": {"type": "ephemeral"}}
    shelf, _ = _shelf(tool)
    (spec,) = shelf.specs
    assert spec.name == name
    assert spec.description
    assert field in read_json(bytes(spec.parameters))["properties"]
    assert _written(spec) == ({"tools": [tool]}, [])


def test_tools_that_the_provider_runs_are_kept_apart() -> None:
    """They are written behind the others."""
    search = {"type": "web_search_20250305", "name": "web_search", "max_uses": 3}
    toolset = {"type": "mcp_toolset", "mcp_server_name": "web"}
    shelf, codes = _shelf(search, {"name": "f"}, toolset)
    assert [read_json(bytes(raw)) for raw in shelf.hosted] == [search, toolset]
    assert codes == []
    written, _ = _written(*shelf.specs, hosted=shelf.hosted)
    assert [tool.get("name") for tool in written["tools"]] == ["f", "web_search", None]
    assert not shelf.can_choose(ToolChoice(mode="named", name="web_search"))
    assert shelf.can_choose(NAMED)
    assert shelf.can_choose(REQUIRED)
    assert not _shelf(search)[0].can_choose(REQUIRED)


def test_a_second_tool_of_one_name_is_dropped() -> None:
    """The first stands."""
    shelf, codes = _shelf({"name": "f"}, {"name": "f", "description": "again"})
    assert shelf.specs == (ToolSpec(name="f"),)
    assert codes == ["duplicate_tool"]


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"type": "auto"}, (AUTO, None)),
        ({"type": "auto", "disable_parallel_tool_use": True}, (AUTO, False)),
        ({"type": "any", "disable_parallel_tool_use": False}, (REQUIRED, True)),
        ({"type": "tool", "name": "f", "disable_parallel_tool_use": True}, (NAMED, False)),
        ({"type": "none"}, (NONE, None)),
        ("any", (REQUIRED, None)),
    ],
)
def test_every_form_of_a_choice_is_read(choice: Any, expected: tuple[ToolChoice, bool | None]) -> None:
    """With the flag that it carries."""
    assert read_choice(msgspec.Raw(json.dumps(choice).encode()), Notes()) == expected


def test_a_choice_of_tomorrow_is_no_error() -> None:
    """It is said that it was not made."""
    notes = Notes()
    assert read_choice(msgspec.Raw(b'{"type":"mood"}'), notes) == (AUTO, None)
    assert [note.code for note in notes.all()] == ["tool_choice_dropped"]


@pytest.mark.parametrize("parallel", [None, True, False])
@pytest.mark.parametrize(
    ("choice", "written"),
    [
        (AUTO, {"type": "auto"}),
        (REQUIRED, {"type": "any"}),
        (NAMED, {"type": "tool", "name": "f"}),
        (NONE, {"type": "none"}),
    ],
)
def test_the_matrix_of_choice_and_flag(choice: ToolChoice, written: dict[str, Any], parallel: bool | None) -> None:
    """The default is not said; the flag needs a carrier, and none carries it not."""
    fields, _ = _written(ToolSpec(name="f"), tool_choice=choice, options=Options(parallel_tool_calls=parallel))
    expected = dict(written)
    if parallel is False and choice != NONE:
        expected["disable_parallel_tool_use"] = True
    assert fields.get("tool_choice", {"type": "auto"}) == expected


def test_without_tools_nothing_is_said() -> None:
    """Not even a choice."""
    assert _written(tool_choice=NONE, options=Options(parallel_tool_calls=False)) == ({}, [])


def test_allowed_names_narrow_the_list() -> None:
    """The API has no other form for them."""
    fields, _ = _written(ToolSpec(name="f"), ToolSpec(name="g"), tool_choice=ToolChoice(allowed=("g",)))
    assert [tool["name"] for tool in fields["tools"]] == ["g"]


@pytest.mark.parametrize(
    ("schema", "expected", "codes"),
    [
        (b"{}", {"type": "object"}, []),
        (b'{"type":"object","x":1}', {"type": "object", "x": 1}, []),
        (b'{"anyOf":[]}', {"anyOf": [], "type": "object"}, ["schema_type"]),
        (b'{"type":"string"}', {"type": "object"}, ["schema_type"]),
    ],
)
def test_a_schema_is_of_type_object(schema: bytes, expected: dict[str, Any], codes: list[str]) -> None:
    """The API refuses any other."""
    fields, noted = _written(ToolSpec(name="f", parameters=msgspec.Raw(schema)))
    assert fields["tools"][0]["input_schema"] == expected
    assert noted == codes


def test_a_custom_tool_becomes_one_of_a_string() -> None:
    """And foreign fields of a tool are noted."""
    foreign = Extra(protocol="chat", fields={"x": msgspec.Raw(b"1")})
    fields, codes = _written(ToolSpec(name="f", kind="custom", extra=foreign))
    assert fields["tools"][0]["input_schema"]["required"] == ["input"]
    assert codes == ["fields_dropped", "custom_tool"]


@pytest.mark.parametrize(
    ("tool", "param"),
    [
        (5, "tools.0"),
        ({}, "tools.0.name"),
        ({"name": ""}, "tools.0.name"),
        ({"name": "f", "input_schema": "x"}, "tools.0.input_schema"),
        ({"name": "f", "strict": "yes"}, "tools.0.strict"),
        ({"type": "bash_20250124"}, "tools.0.name"),
    ],
)
def test_what_contradicts_the_types_is_refused_by_its_path(tool: Any, param: str) -> None:
    """As the API itself writes a path."""
    with pytest.raises(ProtocolError) as caught:
        _shelf(tool)
    assert caught.value.param == param
