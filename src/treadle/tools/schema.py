"""JSON Schemas: walking them, refusing the dangerous ones, and naming everything wrong with a value.

Schemas may come from strangers (MCP servers, guests), so nothing is ever fetched, a regular expression has a
backtracking limit, and a schema that unfolds without end is refused before it is compiled.
"""

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any, cast

import jsonschema_rs
import msgspec

from treadle.canon.json import BadJson, check_bounds, cut_text, read_json, write_json
from treadle.canon.tools import Fault

ERRORS_MAX = 20
MESSAGE_BYTES_MAX = 300
UNFOLDED_NODES_MAX = 10_000
RECURSIVE_DEPTH_MAX = 8
"""Listing the errors of a recursive schema may double with each level, so beyond this depth none are listed."""

Schema = dict[str, Any]

_ONE = (
    "additionalItems",
    "additionalProperties",
    "contains",
    "contentSchema",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
)
_LISTED = ("allOf", "anyOf", "items", "oneOf", "prefixItems")
_NAMED = ("dependentSchemas", "patternProperties", "properties")
_DEFINITIONS = ("$defs", "definitions")
_FOREIGN_SCOPE = ("$dynamicRef", "$recursiveRef")
_TYPE_ALIASES = {
    "any": None,
    "bool": "boolean",
    "dict": "object",
    "double": "number",
    "float": "number",
    "int": "integer",
    "list": "array",
    "str": "string",
    "tuple": "array",
}
_PATTERNS = jsonschema_rs.FancyRegexOptions(backtrack_limit=100_000, size_limit=1 << 20, dfa_size_limit=1 << 20)


class BadSchema(ValueError):
    """The schema cannot be used; the message says why."""


def children(schema: Schema) -> Iterator[Schema]:
    """Yield the schemas directly inside this one that apply to a value; definitions are not among them."""
    for key in _ONE:
        if isinstance(schema.get(key), dict):
            yield schema[key]
    yield from _inside(schema, _LISTED, _NAMED)


def every(schema: Schema) -> Iterator[Schema]:
    """Yield this schema and all schemas written inside it, definitions too; references are not followed."""
    stack = [schema]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(children(node))
        stack.extend(_inside(node, (), _DEFINITIONS))


def resolve(root: Schema, reference: str) -> Schema | bool:
    """Return what a local reference points at.

    Raises: BadSchema, for a reference that leaves the document or points nowhere.
    """
    if reference != "#" and not reference.startswith("#/"):
        raise BadSchema(f'the reference "{_short(reference)}" is not a local one (#/…); nothing is fetched')
    node: Any = root
    for token in reference.split("/")[1:]:
        key = token.replace("~1", "/").replace("~0", "~")
        if isinstance(node, list) and key.isdigit() and int(key) < len(cast("list[Any]", node)):
            node = cast("list[Any]", node)[int(key)]
        elif isinstance(node, dict) and key in node:
            node = cast("Schema", node)[key]
        else:
            raise BadSchema(f'the reference "{_short(reference)}" points nowhere')
    if not isinstance(node, dict | bool):
        raise BadSchema(f'the reference "{_short(reference)}" points at something that is not a schema')
    return cast("Schema | bool", node)


def unfold(root: Schema) -> bool:
    """Walk the schema with its references followed, and tell whether it is recursive.

    Raises: BadSchema, when it unfolds into too many nodes or needs another document.
    """
    nodes, is_recursive = 0, False
    stack: list[tuple[Schema, frozenset[str]]] = [(root, frozenset())]
    while stack:
        node, seen = stack.pop()
        nodes += 1
        if nodes > UNFOLDED_NODES_MAX:
            raise BadSchema(f"the schema unfolds into more than {UNFOLDED_NODES_MAX} nodes")
        _refuse_scopes(node, is_root=node is root)
        stack.extend((child, seen) for child in children(node))
        reference = node.get("$ref")
        if not isinstance(reference, str):
            continue
        target = resolve(root, reference)
        if reference in seen or target is root:
            is_recursive = True
        elif isinstance(target, dict):
            stack.append((target, seen | {reference}))
    return is_recursive


class Validator:
    """One schema, compiled once: says whether a value fits, and if not everything that is wrong."""

    def __init__(self, parameters: msgspec.Raw) -> None:
        schema = _read_schema(parameters)
        self.is_recursive = unfold(schema)
        self._properties = tuple(cast("Schema", schema.get("properties") or {}))
        try:
            self._compiled = jsonschema_rs.validator_for(
                schema, offline=True, mask="the value", pattern_options=_PATTERNS
            )
        except ValueError as error:
            raise BadSchema(_short(getattr(error, "message", str(error)))) from None

    def is_valid(self, value: object) -> bool:
        """Tell whether the value fits; cheap, also when it does not."""
        return self._compiled.is_valid(value)

    def faults(self, value: object) -> list[Fault]:
        """List what is wrong with the value, each with its JSON Pointer; bounded, and slow on hostile input."""
        if self.is_recursive and _is_deeper(value, RECURSIVE_DEPTH_MAX):
            return [Fault(code="invalid_arguments", path="", message="does not fit the schema, and nests deeply")]
        found: list[Fault] = []
        for error in self._compiled.iter_errors(value):
            found.extend(self._spell(error))
            if len(found) >= ERRORS_MAX:
                break
        return found[:ERRORS_MAX]

    def _spell(self, error: jsonschema_rs.ValidationError) -> list[Fault]:
        kind, path = error.kind, list(error.instance_path)
        match kind:
            case jsonschema_rs.ValidationErrorKind.AdditionalProperties():
                return [_fault([*path, name], self._unknown(name)) for name in kind.unexpected]
            case jsonschema_rs.ValidationErrorKind.Required():
                return [_fault([*path, str(kind.property)], "is required")]
            case jsonschema_rs.ValidationErrorKind.AnyOf() | jsonschema_rs.ValidationErrorKind.OneOfNotValid():
                reasons = [branch[0].message for branch in kind.context[:4] if branch]
                return [_fault(path, "fits none of the alternatives: " + "; ".join(reasons))]
            case _:
                return [_fault(path, error.message)]

    def _unknown(self, name: str) -> str:
        near = get_close_matches(name, self._properties, 1)
        return f'is not a known field; did you mean "{near[0]}"?' if near else "is not a known field"


def pointer(path: list[str | int]) -> str:
    """Write a path as a JSON Pointer."""
    return "".join(f"/{str(token).replace('~', '~0').replace('/', '~1')}" for token in path)


def _inside(schema: Schema, listed: tuple[str, ...], named: tuple[str, ...]) -> Iterator[Schema]:
    for key in listed:
        if isinstance(schema.get(key), list):
            yield from _schemas(cast("list[Any]", schema[key]))
    for key in named:
        if isinstance(schema.get(key), dict):
            yield from _schemas(list(cast("Schema", schema[key]).values()))


def _schemas(values: list[Any]) -> Iterator[Schema]:
    return (cast("Schema", value) for value in values if isinstance(value, dict))


def _read_schema(parameters: msgspec.Raw) -> Schema:
    try:
        schema = read_json(bytes(parameters))
    except ValueError as error:
        raise BadSchema(f"the schema cannot be read: {error}") from None
    if not isinstance(schema, dict):
        raise BadSchema("the schema must be an object")
    for node in every(cast("Schema", schema)):
        _use_standard_types(node)
    return cast("Schema", schema)


def _use_standard_types(node: Schema) -> None:
    """Turn `dict`, `float`, `OBJECT` and their like, as seen in the wild, into what the standard calls them."""
    name = node.get("type")
    if not isinstance(name, str):
        return
    standard = _TYPE_ALIASES.get(name.lower(), name.lower())
    if standard is None:
        del node["type"]
    else:
        node["type"] = standard


def _refuse_scopes(node: Schema, *, is_root: bool) -> None:
    """Refuse what would make `#/…` mean something else than a place in this document."""
    for key in _FOREIGN_SCOPE:
        if key in node:
            raise BadSchema(f'"{key}" is not supported in the schema of a tool')
    if not is_root and isinstance(node.get("$id"), str):
        raise BadSchema('a nested "$id" is not supported in the schema of a tool')


def _is_deeper(value: object, depth_max: int) -> bool:
    try:
        check_bounds(write_json(value), depth_max=depth_max)
    except BadJson:
        return True
    return False


def _fault(path: list[str | int], message: str) -> Fault:
    return Fault(code="invalid_arguments", path=_short(pointer(path)), message=_short(message))


def _short(text: str) -> str:
    return cut_text(text, MESSAGE_BYTES_MAX)
