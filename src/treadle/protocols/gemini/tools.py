"""Function declarations and how to choose among them, in both directions, and Gemini's schemas as JSON Schema.

Declared schemas come as a subset of OpenAPI with upper-case types, or as JSON Schema; inside Treadle they are JSON
Schema. Tools that Google runs itself are no functions: they are kept for upstreams of Gemini and for no other.
"""

from collections.abc import Callable
from typing import Any, cast

import msgspec

from treadle.core.json import read_json, write_json
from treadle.core.tool_definitions import AUTO, EMPTY_SCHEMA, ToolChoice, ToolSpec
from treadle.protocols.field_reader import LIST, TEXT, refusal
from treadle.protocols.gemini.content_parts import extra, own_fields
from treadle.protocols.gemini.field_spelling import CamelFields, camel
from treadle.protocols.translation_notes import Notes

VALIDATED = "VALIDATED"
EMPTY_BYTES_MAX = 256
"""How long an object without properties may be, white space and all, to be left out."""

_NAMES: msgspec.json.Decoder[list[str]] = msgspec.json.Decoder(list[str])
_TYPES = frozenset({"STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT", "NULL"})
_COUNTS = frozenset({"minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"})
_MODES = frozenset({"AUTO", "ANY", "NONE", VALIDATED})
_RENAMED = {"defs": "$defs", "ref": "$ref"}


class Toolset(msgspec.Struct, frozen=True, kw_only=True):
    """The tools of a request: functions, and the objects of those that Google would run."""

    functions: tuple[ToolSpec, ...] = ()
    hosted: tuple[dict[str, msgspec.Raw], ...] = ()


def read_tools(raws: list[msgspec.Raw], path: str, notes: Notes) -> Toolset:
    """Read the client's tools.

    Raises: ProtocolError.
    """
    specs: dict[str, ToolSpec] = {}
    hosted: list[dict[str, msgspec.Raw]] = []
    for position, raw in enumerate(raws):
        tool = CamelFields(raw, f"{path}[{position}]")
        for place, declared in enumerate(tool.get("functionDeclarations", LIST) or ()):
            fields = CamelFields(declared, f"{tool.at('functionDeclarations')}[{place}]")
            spec = _read_function(fields)
            if specs.setdefault(spec.name, spec) is not spec:
                notes.add("duplicate_tool", "dropped", f"a second tool named {spec.name!r}", fields.path)
        rest = tool.rest()
        for name in rest:
            notes.add("hosted_tool", "kept", f"{name} is only offered to upstreams of Gemini", f"{path}.{name}")
        if rest:
            hosted.append(rest)
    return Toolset(functions=tuple(specs.values()), hosted=tuple(hosted))


def read_choice(config: CamelFields | None) -> tuple[ToolChoice, dict[str, msgspec.Raw]]:
    """Read `toolConfig`: the choice, and what of it only Gemini understands.

    Raises: ProtocolError.
    """
    if config is None:
        return AUTO, {}
    calling = config.object("functionCallingConfig")
    rest = config.rest()
    if calling is None:
        return AUTO, rest
    mode = (calling.get("mode", TEXT) or "AUTO").upper().removeprefix("MODE_")
    names = tuple(calling.get("allowedFunctionNames", _NAMES) or ()) or None
    given = calling.rest()
    if mode not in _MODES and mode != "UNSPECIFIED":
        raise refusal(calling.at("mode"), f"{mode!r} is not one of 'AUTO', 'ANY', 'NONE', 'VALIDATED'")
    if mode == VALIDATED:
        given["mode"] = msgspec.Raw(b'"VALIDATED"')
    if given:
        rest["functionCallingConfig"] = msgspec.Raw(write_json(given))
    return _choice(mode, names), rest


def write_tools(specs: tuple[ToolSpec, ...]) -> tuple[msgspec.Raw, ...]:
    """Write the functions as one tool."""
    if not specs:
        return ()
    return (msgspec.Raw(write_json({"functionDeclarations": [_write_function(spec) for spec in specs]})),)


def write_choice(choice: ToolChoice, given: dict[str, Any]) -> dict[str, Any]:
    """Write the functionCallingConfig, or nothing where the default says the same."""
    names = [choice.name] if choice.mode == "named" else list(choice.allowed or ())
    if choice.mode == "auto":
        # Names may only be given where a call is forced or checked.
        return {**given, "mode": VALIDATED, "allowedFunctionNames": names} if names else given
    mode = "NONE" if choice.mode == "none" else "ANY"
    config = {**given, "mode": mode}
    return {**config, "allowedFunctionNames": names} if names and mode == "ANY" else config


def json_schema(raw: msgspec.Raw) -> msgspec.Raw:
    """Return a schema as JSON Schema; one that is that already stays as it was written."""
    schema = read_json(bytes(raw))
    converted = _convert(schema)
    return raw.copy() if converted == schema else msgspec.Raw(write_json(converted))


def _choice(mode: str, names: tuple[str, ...] | None) -> ToolChoice:
    if mode == "NONE":
        return ToolChoice(mode="none")
    if mode != "ANY":
        return ToolChoice(allowed=names) if names else AUTO
    if names is not None and len(names) == 1:
        return ToolChoice(mode="named", name=names[0])
    return ToolChoice(mode="required", allowed=names)


def _read_function(fields: CamelFields) -> ToolSpec:
    name = fields.need("name", TEXT)
    if not name:
        raise refusal(fields.at("name"), "a name must not be empty")
    described = fields.json_object("parametersJsonSchema")
    declared = fields.json_object("parameters")
    schema = described or declared
    return ToolSpec(
        name=name,
        description=fields.get("description", TEXT) or "",
        parameters=EMPTY_SCHEMA if schema is None else json_schema(schema),
        extra=extra(fields.rest()),
    )


def _write_function(spec: ToolSpec) -> dict[str, Any]:
    function: dict[str, Any] = {"name": spec.name}
    if spec.description:
        function["description"] = spec.description
    # An object without properties is refused by some models; no schema at all says the same.
    if not _is_empty(spec.parameters):
        function["parametersJsonSchema"] = spec.parameters
    return {**function, **own_fields(spec.extra)}


def _is_empty(schema: msgspec.Raw) -> bool:
    # What is written may be larger than what is read, so only a schema short enough to say nothing is looked into.
    raw = bytes(schema)
    return len(raw) <= EMPTY_BYTES_MAX and read_json(raw) == read_json(bytes(EMPTY_SCHEMA))


def _convert(schema: Any) -> Any:
    """Convert one schema and those in it; anything else is returned as it is."""
    if not isinstance(schema, dict):
        return schema
    fields = cast("dict[str, Any]", schema)
    converted: dict[str, Any] = {}
    for name, value in fields.items():
        key = camel(name)
        key = _RENAMED.get(key, key)
        if key == "propertyOrdering" or (key == "type" and value == "TYPE_UNSPECIFIED"):
            continue
        converted[key] = _CONVERTERS.get(key, _same)(value)
    return _nullable(converted) if converted.pop("nullable", False) is True else converted


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    kind = schema.get("type")
    if isinstance(kind, str):
        schema["type"] = [kind, "null"]
        values = schema.get("enum")
        if isinstance(values, list) and None not in values:
            schema["enum"] = [*cast("list[Any]", values), None]
        return schema
    return {"anyOf": [schema, {"type": "null"}]} if schema else schema


def _same(value: Any) -> Any:
    return value


def _convert_type(value: Any) -> Any:
    if isinstance(value, list):
        return [_convert_type(each) for each in cast("list[Any]", value)]
    return value.lower() if isinstance(value, str) and value in _TYPES else value


def _convert_count(value: Any) -> Any:
    # Protocol buffers write 64-bit integers as strings.
    return int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 10 else value


def _convert_list(value: Any) -> Any:
    return [_convert(each) for each in cast("list[Any]", value)] if isinstance(value, list) else _convert(value)


def _convert_map(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {name: _convert(each) for name, each in cast("dict[str, Any]", value).items()}


_CONVERTERS: dict[str, Callable[[Any], Any]] = {
    "type": _convert_type,
    **dict.fromkeys(sorted(_COUNTS), _convert_count),
    **dict.fromkeys(("items", "prefixItems", "anyOf", "oneOf", "allOf"), _convert_list),
    **dict.fromkeys(("not", "additionalProperties", "if", "then", "else", "contains"), _convert),
    **dict.fromkeys(("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"), _convert_map),
}
