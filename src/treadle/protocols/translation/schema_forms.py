"""What schemas are made of, as data: keywords that hold schemas, subsets that some providers take, references.

A reference is looked up in its own schema and never fetched. Sources of the subsets: the `Schema` message and
`parametersJsonSchema` of the Gemini API, and its refusals ("Unknown name const", "other fields alongside any_of",
"only allowed for STRING type") as reported in public issues, 2025-12 to 2026-05.
"""

from collections.abc import Callable
from typing import Any, cast
from urllib.parse import unquote

import msgspec

from treadle.core.json import canonical_json

Node = dict[str, Any]

MAPS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
LISTS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
SINGLES = frozenset(
    {
        "items",
        "additionalItems",
        "additionalProperties",
        "unevaluatedItems",
        "unevaluatedProperties",
        "propertyNames",
        "contains",
        "not",
        "if",
        "then",
        "else",
    }
)
TYPES = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})

META = frozenset({"$schema", "$id", "$comment", "$anchor", "$vocabulary", "$dynamicAnchor", "$defs", "definitions"})
"""Keywords that say nothing of a value: without them a schema means the same."""

TYPE_OF_KEYWORD = {
    "properties": "object",
    "required": "object",
    "additionalProperties": "object",
    "minProperties": "object",
    "maxProperties": "object",
    "items": "array",
    "prefixItems": "array",
    "minItems": "array",
    "maxItems": "array",
    "pattern": "string",
    "minLength": "string",
    "maxLength": "string",
    "format": "string",
    "minimum": "number",
    "maximum": "number",
    "exclusiveMinimum": "number",
    "exclusiveMaximum": "number",
    "multipleOf": "number",
}
"""What type a keyword is about, for nodes that do not say theirs."""


SHAPES: dict[str, type | tuple[type, ...]] = {
    "title": str,
    "description": str,
    "format": str,
    "pattern": str,
    "enum": list,
    "required": list,
    "propertyOrdering": list,
    "properties": dict,
    "prefixItems": list,
    "minimum": (int, float),
    "maximum": (int, float),
    "minItems": int,
    "maxItems": int,
    "minLength": int,
    "maxLength": int,
    "minProperties": int,
    "maxProperties": int,
}
"""What a keyword's value must be to be understood."""


class Subset(msgspec.Struct, frozen=True, kw_only=True):
    """A form that knows only some keywords. In all of them references are written out and every node has a type.

    `has_nullable` says null by that keyword instead of a second type; `is_lone` lets nothing stand beside anyOf;
    `has_string_enums` takes only strings in enum.
    """

    keywords: frozenset[str]
    formats: frozenset[str] | None = None
    has_nullable: bool = False
    is_lone: bool = True
    has_string_enums: bool = False


_SHARED = frozenset(
    {
        "type",
        "title",
        "description",
        "format",
        "enum",
        "properties",
        "required",
        "items",
        "minItems",
        "maxItems",
        "minimum",
        "maximum",
        "anyOf",
    }
)

SUBSETS: dict[str, Subset] = {
    "gemini": Subset(keywords=_SHARED | {"additionalProperties", "prefixItems", "propertyOrdering"}),
    "openapi": Subset(
        keywords=_SHARED
        | {
            "nullable",
            "default",
            "example",
            "pattern",
            "minLength",
            "maxLength",
            "minProperties",
            "maxProperties",
            "propertyOrdering",
        },
        formats=frozenset({"enum", "date-time", "float", "double", "int32", "int64"}),
        has_nullable=True,
        has_string_enums=True,
    ),
}

_NARROWER: dict[str, Callable[[Any, Any], Any]] = {
    **dict.fromkeys(("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"), max),
    **dict.fromkeys(("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"), min),
}
_INNER = frozenset({"items", "additionalItems", "additionalProperties", "unevaluatedProperties", "propertyNames"})
"""Keywords that hold one schema of what is inside: two of them can be joined."""

_FREE = META | {"title", "description", "default", "example", "examples", "readOnly", "writeOnly", "deprecated"}
"""Keywords that demand nothing, so that one of two is enough."""

HOPS_MAX = 32
"""How many references may follow each other before a chain counts as a circle."""

KEY_CHARS_MAX = 64
"""How much of a key a pointer shows: pointers are for notes, and are made for every node."""

_INDEX_DIGITS_MAX = 9


def resolve(root: Node, ref: object) -> Node | None:
    """Return the schema that a reference of the form `#/…` names; None if there is none, or it lies elsewhere."""
    if not isinstance(ref, str) or not ref.startswith("#"):
        return None
    found: Any = root
    for step in ref[1:].split("/")[1:]:
        name = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict):
            found = cast("Node", found).get(name)
        elif isinstance(found, list):
            found = _place(cast("list[Any]", found), name)
        else:
            return None
    return cast("Node", found) if isinstance(found, dict) else None


def _place(values: list[Any], name: str) -> Any:
    # Python refuses to read numbers of thousands of digits.
    if not name.isdecimal() or len(name) > _INDEX_DIGITS_MAX or int(name) >= len(values):
        return None
    return values[int(name)]


def merge(*nodes: Node, same: str = "allOf", clashes: set[str] | None = None) -> Node:
    """Return a schema that asks for all of them: the last word wins, of bounds the narrower one.

    Properties, requirements, references and allOf come together; properties of one name are joined by the keyword
    `same`. Keywords of which only one demand could be kept are added to `clashes`. The work is linear in `breadth`
    of the nodes, however many they are.
    """
    merged: Node = {}
    properties: dict[str, list[Any]] = {}
    inner: dict[str, list[Any]] = {}
    required: dict[str, None] = {}
    parts: list[Any] = []
    lost: set[str] = set() if clashes is None else clashes
    for node in nodes:
        for key, value in node.items():
            if key == "properties" and isinstance(value, dict):
                merged[key] = value
                for name, schema in cast("Node", value).items():
                    properties.setdefault(name, []).append(schema)
            elif key in _INNER and isinstance(value, dict):
                inner.setdefault(key, []).append(value)
            elif key == "required" and isinstance(value, list):
                names = cast("list[Any]", value)
                required |= dict.fromkeys(name for name in names if isinstance(name, str))
            elif key == "allOf" and isinstance(value, list):
                parts += cast("list[Any]", value)
            elif key == "$ref" and merged.get(key, value) != value:
                parts.append({key: value})
            else:
                merged[key] = _both(key, merged[key], value, lost) if key in merged else value
    # Nothing is allowed beside what `false` forbids.
    merged |= {key: _one(schemas, same) for key, schemas in inner.items() if merged.get(key) is not False}
    if properties:
        merged["properties"] = {name: _one(schemas, same) for name, schemas in properties.items()}
    if required:
        merged["required"] = list(required)
    if parts:
        merged["allOf"] = parts
    return merged


def _one(schemas: list[Any], same: str) -> Any:
    """Return one schema for a property that several name; only whole schemas can be joined."""
    schemas_left = [schema for place, schema in enumerate(schemas) if place == 0 or schema is not schemas[place - 1]]
    if len(schemas_left) == 1 or not all(isinstance(schema, dict) for schema in schemas_left):
        return schemas_left[-1]
    return {same: schemas_left}


def _both(key: str, before: Any, after: Any, clashes: set[str]) -> Any:
    """Return what two nodes say of one keyword; only small values are compared."""
    if before is after or key in _FREE:
        return after
    if key == "enum" and isinstance(before, list) and isinstance(after, list):
        return _common(cast("list[Any]", before), cast("list[Any]", after))
    if isinstance(before, dict | list) or isinstance(after, dict | list):
        clashes.add(key)
        return cast("Any", after)
    if key in _NARROWER and _is_number(before) and _is_number(after):
        return _NARROWER[key](before, after)
    if key == "type" and {before, after} == {"number", "integer"}:
        return "integer"
    if before != after:
        clashes.add(key)
    return after


def _common(before: list[Any], after: list[Any]) -> list[Any]:
    """Return the values that both lists have; the later list where they have none."""
    allowed = {canonical_json(value) for value in after}
    return [value for value in before if canonical_json(value) in allowed] or after


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def breadth(node: Node) -> int:
    """Return what it costs to look at a node without going into it: its keywords, what they list, texts by the line."""
    parts = sum(len(cast("Node | list[Any]", value)) for value in node.values() if isinstance(value, dict | list))
    return len(node) + parts + sum(len(value) // 64 for value in node.values() if isinstance(value, str))


def step(pointer: str, key: str | int) -> str:
    """Return the JSON pointer one level down."""
    name = str(key)
    shown = name if len(name) <= KEY_CHARS_MAX else f"{name[:KEY_CHARS_MAX]}…"
    return f"{pointer}/{shown.replace('~', '~0').replace('/', '~1')}"
