"""JSON Schemas: traversal, refusal of dangerous ones, and validation of values.

Schemas may come from untrusted sources (MCP servers, guests), so nothing is fetched, and a schema whose references
expand too far is refused before it is compiled. jsonschema_rs holds the GIL while it works, so a thread would not keep
the event loop free: only checks that are provably cheap run in this process, with patterns that match in linear time.
All others run in a process that can be killed (`schema_worker`).
"""

import asyncio
from collections.abc import Iterator
from typing import Any, cast

import msgspec

from treadle.core.json import read_json, write_json
from treadle.core.tool_definitions import Fault
from treadle.tools.compiled_schema import BadSchema, CompiledSchema, Schema, shorten
from treadle.tools.schema_worker import WorkerSchema

UNFOLDED_NODES_MAX = 10_000
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
SCHEMA_BYTES_NEAR_MAX = 32_768
PATTERNS_NEAR_MAX = 100
STEPS_NEAR_MAX = 2_000_000
"""A step of a check takes at most about 8 ns (an enum of objects, 2026-11), so a check less than 20 ms."""
FAULT_STEPS_NEAR_MAX = 50_000
"""A step of listing faults takes at most about 300 ns (anyOf, 2026-11)."""


def children(schema: Schema) -> Iterator[Schema]:
    """Yield the direct subschemas that apply to a value, without definitions."""
    for key in _ONE:
        if isinstance(schema.get(key), dict):
            yield schema[key]
    yield from _inside(schema, _LISTED, _NAMED)


def every(schema: Schema) -> Iterator[Schema]:
    """Yield this schema and all its subschemas, with definitions; references are not followed."""
    stack = [schema]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(children(node))
        stack.extend(_inside(node, (), _DEFINITIONS))


def resolve(root: Schema, reference: str) -> Schema | bool:
    """Return the target of a local reference.

    Raises: BadSchema, for a reference to another document or to nothing.
    """
    if reference != "#" and not reference.startswith("#/"):
        raise BadSchema(f'the reference "{shorten(reference)}" is not a local one (#/…); nothing is fetched')
    node: Any = root
    for token in reference.split("/")[1:]:
        key = token.replace("~1", "/").replace("~0", "~")
        if isinstance(node, list) and key.isdigit() and int(key) < len(cast("list[Any]", node)):
            node = cast("list[Any]", node)[int(key)]
        elif isinstance(node, dict) and key in node:
            node = cast("Schema", node)[key]
        else:
            raise BadSchema(f'the reference "{shorten(reference)}" points nowhere')
    if not isinstance(node, dict | bool):
        raise BadSchema(f'the reference "{shorten(reference)}" points at something that is not a schema')
    return cast("Schema | bool", node)


class Unfolded(msgspec.Struct, frozen=True, kw_only=True):
    """The size of a schema with its references followed, and the number of references to itself."""

    nodes: int
    recursions: int


def unfold(root: Schema) -> Unfolded:
    """Walk the schema with its references followed.

    Raises: BadSchema, when it expands to too many nodes or needs another document.
    """
    nodes, recursions = 0, 0
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
            recursions += 1
        elif isinstance(target, dict):
            stack.append((target, seen | {reference}))
    return Unfolded(nodes=nodes, recursions=recursions)


class Validator:
    """Validates values against one schema, compiled once: in this process when that is cheap, else in the worker.

    Raises: BadSchema, when it is invalid or cannot be compiled within the worker's limits.
    """

    def __init__(self, parameters: msgspec.Raw) -> None:
        schema = _read_schema(parameters)
        unfolded = unfold(schema)
        self.is_recursive = unfolded.recursions > 0
        self._nodes, self._recursions = unfolded.nodes, unfolded.recursions
        text = write_json(schema)
        written = max(1, sum(1 for _ in every(schema)))
        self._weight = len(text) * max(1.0, unfolded.nodes / written)
        # A value takes at least two characters of JSON, so its length bounds its nodes. With two or more recursive
        # references the schema may visit a node many times, so length bounds nothing.
        steps_of_two = 2 * self._weight + self._nodes
        self._short_max = 0 if self._recursions > 1 else int(STEPS_NEAR_MAX / steps_of_two)
        self._local = self._compile_local(schema, len(text))
        self._remote = None if self._local is not None else WorkerSchema(text, is_recursive=self.is_recursive)
        self._text = text

    @property
    def is_near(self) -> bool:
        """Return whether the schema is compiled in this process; otherwise only the worker has it."""
        return self._local is not None

    def fits_now(self, value: object, size: int = 0) -> bool | None:
        """Return at once whether the value fits; None when the worker must check it.

        `size` is the length of its JSON if known: a short value is cheap and its cost need not be estimated.
        """
        if self._local is None:
            return None
        if not 0 < size <= self._short_max and not self._is_cheap(value, STEPS_NEAR_MAX):
            return None
        return self._local.is_valid(value)

    async def fits(self, value: object) -> bool:
        """Return whether the value fits, without blocking the event loop.

        Raises: CheckTimeout, when the check takes too long.
        """
        known = self.fits_now(value)
        return await asyncio.to_thread(self.is_valid, value) if known is None else known

    def is_valid(self, value: object) -> bool:
        """Return whether the value fits; blocks when the worker must check it.

        Raises: CheckTimeout.
        """
        known = self.fits_now(value)
        return self._worker.is_valid(value) if known is None else known

    def faults(self, value: object) -> list[Fault]:
        """List the value's faults, each with its JSON Pointer. Call it in a thread: it may wait for the worker.

        Raises: CheckTimeout.
        """
        if self._local is not None and self._is_cheap(value, FAULT_STEPS_NEAR_MAX):
            return self._local.faults(value)
        return self._worker.faults(value)

    @property
    def _worker(self) -> WorkerSchema:
        if self._remote is None:
            self._remote = WorkerSchema(self._text, is_recursive=self.is_recursive)
        return self._remote

    def _compile_local(self, schema: Schema, size: int) -> CompiledSchema | None:
        """Compile the schema in this process if it compiles quickly and matches in linear time."""
        patterns = sum(_patterns(node) for node in every(schema))
        if size > SCHEMA_BYTES_NEAR_MAX or patterns > PATTERNS_NEAR_MAX:
            return None
        try:
            return CompiledSchema(schema, is_recursive=self.is_recursive, is_linear=True)
        except BadSchema:
            if not patterns:
                raise
            # The pattern may only be unsupported by the linear engine; the worker retries with the backtracking one,
            # and its error message is the right one.
            return None

    def _is_cheap(self, value: object, steps_max: int) -> bool:
        """Return whether an upper estimate of the steps to check the value is within the limit."""
        nodes_max = int(steps_max / self._weight)
        nodes = chars = deepest = 0
        stack: list[tuple[Any, int]] = [(value, 0)]
        while stack:
            node, depth = stack.pop()
            nodes += 1
            deepest = max(deepest, depth)
            if isinstance(node, str):
                chars += len(node)
            elif isinstance(node, dict):
                fields = cast("dict[str, Any]", node)
                chars += sum(map(len, fields))
                stack.extend((each, depth + 1) for each in fields.values())
            elif isinstance(node, list):
                stack.extend((each, depth + 1) for each in cast("list[Any]", node))
            elif isinstance(node, int):
                chars += node.bit_length() // 4
            if nodes + len(stack) > nodes_max + 1:
                return False
        # At every level of the value, a recursive schema may follow each of its references to itself.
        ways = self._recursions ** min(deepest, 32) if self._recursions > 1 else 1
        return (nodes * self._weight + chars * self._nodes / 8) * ways <= steps_max


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
    """Replace non-standard type names seen in practice (`dict`, `float`, `OBJECT`) with the standard ones."""
    name = node.get("type")
    if not isinstance(name, str):
        return
    standard = _TYPE_ALIASES.get(name.lower(), name.lower())
    if standard is None:
        del node["type"]
    else:
        node["type"] = standard


def _refuse_scopes(node: Schema, *, is_root: bool) -> None:
    """Refuse keywords that would make `#/…` refer to something other than this document's root."""
    for key in _FOREIGN_SCOPE:
        if key in node:
            raise BadSchema(f'"{key}" is not supported in the schema of a tool')
    if not is_root and isinstance(node.get("$id"), str):
        raise BadSchema('a nested "$id" is not supported in the schema of a tool')


def _patterns(node: Schema) -> int:
    named = node.get("patternProperties")
    # The format "regex" compiles the value itself, at a cost without a bound: count it as too many patterns.
    own = ("pattern" in node) + (PATTERNS_NEAR_MAX + 1) * (node.get("format") == "regex")
    return own + (len(cast("Schema", named)) if isinstance(named, dict) else 0)
