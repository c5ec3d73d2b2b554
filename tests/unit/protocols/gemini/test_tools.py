import json
from typing import Any

import msgspec
import pytest

from treadle.core.errors import ProtocolError
from treadle.core.json import read_json
from treadle.core.tool_definitions import AUTO, EMPTY_SCHEMA, NONE, ToolChoice, ToolSpec
from treadle.protocols.gemini.field_spelling import CamelFields
from treadle.protocols.gemini.tools import json_schema, read_choice, read_tools, write_choice, write_tools
from treadle.protocols.translation_notes import Notes

RAW = msgspec.Raw


def _raws(*values: Any) -> list[msgspec.Raw]:
    return [RAW(json.dumps(value).encode()) for value in values]


def _schema(value: Any) -> Any:
    return read_json(bytes(json_schema(RAW(json.dumps(value).encode()))))


@pytest.mark.parametrize(
    ("declared", "schema"),
    [
        (
            {
                "type": "OBJECT",
                "properties": {
                    "type": {"type": "STRING", "enum": ["OBJECT"]},
                    "xs": {"type": "ARRAY", "items": {"type": "NUMBER"}, "min_items": "1", "maxItems": 3},
                },
                "required": ["type"],
                "propertyOrdering": ["xs", "type"],
            },
            {
                "type": "object",
                "properties": {
                    "type": {"type": "string", "enum": ["OBJECT"]},
                    "xs": {"type": "array", "items": {"type": "number"}, "minItems": 1, "maxItems": 3},
                },
                "required": ["type"],
            },
        ),
        (
            {"type": "STRING", "nullable": True, "enum": ["a"]},
            {"type": ["string", "null"], "enum": ["a", None]},
        ),
        (
            {"any_of": [{"type": "INTEGER"}, {"type": "BOOLEAN"}], "nullable": True},
            {"anyOf": [{"anyOf": [{"type": "integer"}, {"type": "boolean"}]}, {"type": "null"}]},
        ),
        (
            {"type": "TYPE_UNSPECIFIED", "defs": {"a_b": {"type": "NULL"}}, "ref": "#/$defs/a_b", "nullable": False},
            {"$defs": {"a_b": {"type": "null"}}, "$ref": "#/$defs/a_b"},
        ),
        (
            {"type": "Thing", "items": {"type": 5}, "not": {"type": ["STRING", "Thing"]}},
            {"type": "Thing", "items": {"type": 5}, "not": {"type": ["string", "Thing"]}},
        ),
        (
            {"type": ["OBJECT", "NULL"], "additionalProperties": {"type": "STRING"}, "default": {"type": "OBJECT"}},
            {"type": ["object", "null"], "additionalProperties": {"type": "string"}, "default": {"type": "OBJECT"}},
        ),
        (
            {
                "oneOf": [{"type": "STRING"}],
                "allOf": {"type": "STRING"},
                "properties": 5,
                "additionalProperties": False,
            },
            {
                "oneOf": [{"type": "string"}],
                "allOf": {"type": "string"},
                "properties": 5,
                "additionalProperties": False,
            },
        ),
    ],
    ids=["nested", "nullable", "nullable_any", "refs", "unknown", "lists", "odd"],
)
def test_a_declared_schema_becomes_json_schema(declared: Any, schema: Any) -> None:
    """Upper-case types, counts as strings, nullable and snake_case; names of properties and values stay."""
    assert _schema(declared) == schema


def test_a_schema_that_is_json_schema_stays_as_it_was_written() -> None:
    """Not even a space changes."""
    raw = RAW(b'{ "type": "object",  "properties": {"a": {"type": ["string", "null"]}} }')
    assert bytes(json_schema(raw)) == bytes(raw)


def test_functions_are_read_in_every_spelling() -> None:
    """Three clients, three spellings; the last schema is nobody's, so it is empty."""
    tools = read_tools(
        _raws(
            {"functionDeclarations": [{"name": "a", "description": "A", "parametersJsonSchema": {"type": "object"}}]},
            {"function_declarations": [{"name": "b", "parameters": {"type": "OBJECT"}, "behavior": "BLOCKING"}]},
            {"functionDeclarations": [{"name": "c"}, {"name": "a"}]},
        ),
        "tools",
        notes := Notes(),
    )
    assert [(tool.name, tool.description, read_json(bytes(tool.parameters))) for tool in tools.functions] == [
        ("a", "A", {"type": "object"}),
        ("b", "", {"type": "object"}),
        ("c", "", read_json(bytes(EMPTY_SCHEMA))),
    ]
    (written,) = write_tools(tools.functions[1:2])
    assert read_json(bytes(written))["functionDeclarations"][0]["behavior"] == "BLOCKING"
    assert [(note.code, note.field) for note in notes.all()] == [("duplicate_tool", "tools[2].functionDeclarations[1]")]


def test_hosted_tools_are_kept_and_noted() -> None:
    """They are no functions; only Gemini's own upstreams can be told of them."""
    tools = read_tools(
        _raws({"googleSearch": {}}, {"url_context": {}, "functionDeclarations": []}), "tools", notes := Notes()
    )
    assert tools.functions == ()
    assert tools.hosted == ({"googleSearch": RAW(b"{}")}, {"urlContext": RAW(b"{}")})
    assert [(note.code, note.action, note.field) for note in notes.all()] == [
        ("hosted_tool", "kept", "tools.googleSearch"),
        ("hosted_tool", "kept", "tools.urlContext"),
    ]


@pytest.mark.parametrize(
    ("tool", "param"),
    [
        ({"functionDeclarations": [{}]}, "tools[0].functionDeclarations[0].name"),
        ({"functionDeclarations": [{"name": ""}]}, "tools[0].functionDeclarations[0].name"),
        ({"functionDeclarations": [{"name": "a", "parameters": 5}]}, "tools[0].functionDeclarations[0].parameters"),
        ({"functionDeclarations": 5}, "tools[0].functionDeclarations"),
    ],
    ids=["missing", "empty", "schema", "list"],
)
def test_a_wrong_declaration_is_refused_by_path(tool: Any, param: str) -> None:
    """The error names the field."""
    with pytest.raises(ProtocolError) as caught:
        read_tools(_raws(tool), "tools", Notes())
    assert caught.value.param == param


def test_functions_are_written_as_one_tool() -> None:
    """A function of no arguments needs no schema."""
    specs = (ToolSpec(name="a", description="A", parameters=RAW(b'{"type":"object","x":1}')), ToolSpec(name="b"))
    assert read_json(msgspec.json.encode(write_tools(specs))) == [
        {
            "functionDeclarations": [
                {"name": "a", "description": "A", "parametersJsonSchema": {"type": "object", "x": 1}},
                {"name": "b"},
            ]
        }
    ]
    assert write_tools(()) == ()


CHOICES: list[tuple[dict[str, Any], ToolChoice]] = [
    ({}, AUTO),
    ({"mode": "NONE"}, NONE),
    ({"mode": "ANY"}, ToolChoice(mode="required")),
    ({"mode": "ANY", "allowedFunctionNames": ["a"]}, ToolChoice(mode="named", name="a")),
    ({"mode": "ANY", "allowedFunctionNames": ["a", "b"]}, ToolChoice(mode="required", allowed=("a", "b"))),
    ({"mode": "VALIDATED"}, AUTO),
    ({"mode": "VALIDATED", "allowedFunctionNames": ["a"]}, ToolChoice(allowed=("a",))),
    ({"mode": "ANY", "streamFunctionCallArguments": True}, ToolChoice(mode="required")),
]


@pytest.mark.parametrize(("config", "choice"), CHOICES, ids=lambda value: "")
def test_every_mode_is_read_and_written_back(config: dict[str, Any], choice: ToolChoice) -> None:
    """What only Gemini understands is kept beside the choice."""
    body = json.dumps({"functionCallingConfig": config}).encode()
    found, kept = read_choice(CamelFields(body, "toolConfig"))
    assert found == choice
    calling = read_json(bytes(kept.get("functionCallingConfig", RAW(b"{}"))))
    assert read_json(msgspec.json.encode(write_choice(found, calling))) == config


@pytest.mark.parametrize("mode", ["AUTO", "auto", "MODE_UNSPECIFIED", None])
def test_auto_is_what_nothing_says(mode: str | None) -> None:
    """It is not written."""
    body = json.dumps({"function_calling_config": {"mode": mode}, "retrievalConfig": {}}).encode()
    choice, kept = read_choice(CamelFields(body, "toolConfig"))
    assert (choice, kept, write_choice(choice, {})) == (AUTO, {"retrievalConfig": RAW(b"{}")}, {})
    assert read_choice(None) == (AUTO, {})
    assert read_choice(CamelFields(b'{"retrieval_config":{}}', "toolConfig")) == (AUTO, kept)


def test_an_unknown_mode_is_refused() -> None:
    """A guess could run a tool that the client did not want."""
    with pytest.raises(ProtocolError) as caught:
        read_choice(CamelFields(b'{"functionCallingConfig":{"mode":"SOME"}}', "toolConfig"))
    assert caught.value.param == "toolConfig.functionCallingConfig.mode"


def test_a_schema_larger_than_what_is_read_is_written() -> None:
    """Writing references out may make more values than a request may have, so it is not parsed again."""
    large = msgspec.Raw(b'{"type":"object","properties":{},"enum":[' + b"1," * 250_000 + b"1]}")
    (tool,) = write_tools((ToolSpec(name="f", parameters=large),))
    declared = b'{"functionDeclarations":[{"name":"f","parametersJsonSchema":' + bytes(large) + b"}]}"
    assert bytes(tool) == declared
    spaced = msgspec.Raw(b'{ "properties": {}, "type": "object" }')
    (written,) = write_tools((ToolSpec(name="f", parameters=spaced),))
    assert read_json(bytes(written)) == {"functionDeclarations": [{"name": "f"}]}
