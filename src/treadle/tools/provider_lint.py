"""Warns a tool's author about names and schemas that some providers refuse. Treadle itself runs such tools anyway."""

import re
from typing import Any, cast

from treadle.core.json import read_json
from treadle.core.tool_definitions import ToolSpec
from treadle.tools.json_schema import BadSchema, Schema, Validator, every

NAME_CHARS_COMMON = 64
DESCRIPTION_CHARS_COMMON = 1024
PROPERTIES_COMMON = 100
DEPTH_COMMON = 5
ENUM_COMMON = 500

_NAME = re.compile(r"^[a-zA-Z0-9_-]+$")
_PROPERTY = re.compile(r"^[a-zA-Z0-9_.-]{1,64}$")
_ROOT_REFUSED = ("anyOf", "oneOf", "allOf", "not", "enum")
_LOOK_AROUND = re.compile(r"\(\?(?:[=!]|<[=!])")
_PARTLY = {
    "allOf": "OpenAI's strict mode and Gemini do not take it",
    "dependentSchemas": "OpenAI's strict mode and Gemini do not take it",
    "if": "OpenAI's strict mode and Gemini do not take it",
    "not": "OpenAI's strict mode and Gemini do not take it",
    "oneOf": "OpenAI's strict mode does not take it; anyOf is understood everywhere",
    "patternProperties": "OpenAI's strict mode and Gemini do not take it",
    "prefixItems": "OpenAI's strict mode does not take it; use an object with named fields",
    "propertyNames": "OpenAI's strict mode and Gemini do not take it",
}


def lint(spec: ToolSpec) -> list[str]:
    """List what some providers refuse of this tool, as messages for its author; empty without findings."""
    found = [*_name(spec.name), *_description(spec.description)]
    try:
        validator = Validator(spec.parameters)
    except BadSchema as error:
        return [*found, f"parameters: {error}"]
    if validator.is_recursive:
        found.append(
            "parameters: the schema is recursive; Gemini takes no recursion, and small models do badly with it"
        )
    return [*found, *_parameters(cast("Schema", read_json(bytes(spec.parameters))))]


def _name(name: str) -> list[str]:
    found: list[str] = []
    if not _NAME.match(name):
        found.append(f'name: "{name}" has characters outside a-z A-Z 0-9 _ -; it is sent under a mapped name')
    if len(name) > NAME_CHARS_COMMON:
        found.append(f"name: {len(name)} characters; OpenAI takes {NAME_CHARS_COMMON}, it is sent shortened")
    return found


def _description(description: str) -> list[str]:
    if not description.strip():
        return ["description: empty; the model can only guess from the name when to call it"]
    if len(description) > DESCRIPTION_CHARS_COMMON:
        return [f"description: {len(description)} characters; some providers take {DESCRIPTION_CHARS_COMMON}"]
    return []


def _parameters(root: Schema) -> list[str]:
    found: list[str] = []
    if root.get("type") != "object":
        found.append('parameters: the root must have "type": "object"')
    found.extend(f'parameters: "{key}" at the root is refused by OpenAI' for key in _ROOT_REFUSED if key in root)
    nodes = list(every(root))
    count = sum(len(_properties(node)) for node in nodes)
    if count > PROPERTIES_COMMON:
        found.append(f"parameters: {count} fields in all; OpenAI's strict mode takes {PROPERTIES_COMMON}")
    depth = _depth(root)
    if depth > DEPTH_COMMON:
        found.append(f"parameters: nests {depth} levels; OpenAI's strict mode takes {DEPTH_COMMON}")
    for node in nodes:
        found.extend(line for line in _node(node) if line not in found)
    return found


def _node(node: Schema) -> list[str]:
    found = [f'parameters: "{key}": {why}' for key, why in _PARTLY.items() if key in node]
    found.extend(
        f'parameters: the field name "{name}" is refused by Anthropic (letters, digits, _ . - up to 64)'
        for name in _properties(node)
        if not _PROPERTY.match(name)
    )
    if isinstance(node.get("type"), list):
        found.append('parameters: a list of types is refused by Gemini; use "anyOf"')
    values: Any = node.get("enum")
    if isinstance(values, list) and len(cast("list[Any]", values)) > ENUM_COMMON:
        found.append(f"parameters: an enum of {len(cast('list[Any]', values))} values; OpenAI takes {ENUM_COMMON}")
    pattern = node.get("pattern")
    if isinstance(pattern, str) and _LOOK_AROUND.search(pattern):
        found.append("parameters: a pattern with look-around is refused by OpenAI's strict mode and by Rust regexes")
    return found


def _properties(node: Schema) -> Schema:
    properties = node.get("properties")
    return cast("Schema", properties) if isinstance(properties, dict) else {}


def _depth(node: Schema) -> int:
    """Count levels of objects below one another, as written."""
    inner = [*_properties(node).values(), node.get("items")]
    below = max((_depth(cast("Schema", value)) for value in inner if isinstance(value, dict)), default=0)
    return below + (1 if "properties" in node else 0)
