"""What schemas are made of, as data: keywords that hold schemas, subsets that some providers take, references.

A reference is looked up in its own schema and never fetched. Sources of the subsets: the `Schema` message and
`parametersJsonSchema` of the Gemini API, and its refusals ("Unknown name const", "other fields alongside any_of",
"only allowed for STRING type") as reported in public issues, 2025-12 to 2026-05.
"""

from typing import Any, cast
from urllib.parse import unquote

import msgspec

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


def merge(*nodes: Node) -> Node:
    """Return a schema that asks for all: properties and required together, the first description, else the last wins.

    The work is linear in `breadth` of the nodes, however many they are.
    """
    merged: Node = {}
    properties: Node = {}
    required: dict[str, None] = {}
    for node in nodes:
        said = merged.get("description")
        merged |= node
        if isinstance(said, str):
            merged["description"] = said
        if isinstance(node.get("properties"), dict):
            properties |= node["properties"]
        if isinstance(node.get("required"), list):
            names = cast("list[Any]", node["required"])
            required |= dict.fromkeys(name for name in names if isinstance(name, str))
    if properties:
        merged["properties"] = properties
    if required:
        merged["required"] = list(required)
    return merged


def breadth(node: Node) -> int:
    """Return what it costs to look at a node without going into it: its keywords, what they list, texts by the line."""
    parts = sum(len(cast("Node | list[Any]", value)) for value in node.values() if isinstance(value, dict | list))
    return len(node) + parts + sum(len(value) // 64 for value in node.values() if isinstance(value, str))


def step(pointer: str, key: str | int) -> str:
    """Return the JSON pointer one level down."""
    name = str(key)
    shown = name if len(name) <= KEY_CHARS_MAX else f"{name[:KEY_CHARS_MAX]}…"
    return f"{pointer}/{shown.replace('~', '~0').replace('/', '~1')}"
