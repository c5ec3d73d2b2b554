"""JSON Schemas: walking them, refusing the dangerous ones, and naming everything wrong with a value.

Schemas may come from strangers (MCP servers, guests), so nothing is ever fetched, and a schema that unfolds without end
is refused before it is compiled. jsonschema_rs holds the GIL while it works, so a thread would not keep the event loop
free: only what is provably cheap is checked in this process, with patterns that run in linear time. All else is checked
in a process that can be killed (`schema_worker`).
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
"""Checking takes about 8 ns for a step at worst (an enum of objects, 2026-11), so less than 20 ms."""
FAULT_STEPS_NEAR_MAX = 50_000
"""Listing what is wrong takes about 300 ns for a step at worst (anyOf, 2026-11)."""


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
    """How large a schema is with its references followed, and in how many places it refers to itself."""

    nodes: int
    recursions: int


def unfold(root: Schema) -> Unfolded:
    """Walk the schema with its references followed.

    Raises: BadSchema, when it unfolds into too many nodes or needs another document.
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
    """One schema, compiled once: says whether a value fits, and if not everything that is wrong.

    Raises: BadSchema, when it cannot be used, or cannot be compiled within the worker's bounds.
    """

    def __init__(self, parameters: msgspec.Raw) -> None:
        schema = _read_schema(parameters)
        unfolded = unfold(schema)
        self.is_recursive = unfolded.recursions > 0
        self._nodes, self._recursions = unfolded.nodes, unfolded.recursions
        text = write_json(schema)
        written = max(1, sum(1 for _ in every(schema)))
        self._weight = len(text) * max(1.0, unfolded.nodes / written)
        # A value takes at least two characters of JSON. A recursive schema may look at one in several ways.
        steps_of_two = 2 * self._weight + self._nodes
        self._short_max = 0 if self._recursions > 1 else int(STEPS_NEAR_MAX / steps_of_two)
        self._near = self._compile_near(schema, len(text))
        self._far = None if self._near is not None else WorkerSchema(text, is_recursive=self.is_recursive)
        self._text = text

    @property
    def is_near(self) -> bool:
        """Tell whether the schema is compiled in this process; the worker has the others."""
        return self._near is not None

    def fits_now(self, value: object, size: int = 0) -> bool | None:
        """Tell at once whether the value fits; None when only the worker may find out.

        `size` is the length of its JSON where it is known: what is short is cheap, and need not be walked.
        """
        if self._near is None:
            return None
        if not 0 < size <= self._short_max and not self._is_cheap(value, STEPS_NEAR_MAX):
            return None
        return self._near.is_valid(value)

    async def fits(self, value: object) -> bool:
        """Tell whether the value fits; the event loop is free meanwhile.

        Raises: CheckTimeout, when it takes too long to find out.
        """
        known = self.fits_now(value)
        return await asyncio.to_thread(self.is_valid, value) if known is None else known

    def is_valid(self, value: object) -> bool:
        """Tell whether the value fits; waits for the worker where that is needed.

        Raises: CheckTimeout.
        """
        known = self.fits_now(value)
        return self._worker.is_valid(value) if known is None else known

    def faults(self, value: object) -> list[Fault]:
        """List what is wrong with the value, each with its JSON Pointer; for a thread, since it waits for the worker.

        Raises: CheckTimeout.
        """
        if self._near is not None and self._is_cheap(value, FAULT_STEPS_NEAR_MAX):
            return self._near.faults(value)
        return self._worker.faults(value)

    @property
    def _worker(self) -> WorkerSchema:
        if self._far is None:
            self._far = WorkerSchema(self._text, is_recursive=self.is_recursive)
        return self._far

    def _compile_near(self, schema: Schema, size: int) -> CompiledSchema | None:
        """Compile here what compiles quickly and runs in linear time."""
        patterns = sum(_patterns(node) for node in every(schema))
        if size > SCHEMA_BYTES_NEAR_MAX or patterns > PATTERNS_NEAR_MAX:
            return None
        try:
            return CompiledSchema(schema, is_recursive=self.is_recursive, is_linear=True)
        except BadSchema:
            if not patterns:
                raise
            # Perhaps only a pattern is not for the linear engine; the worker's words are those of the other one.
            return None

    def _is_cheap(self, value: object, steps_max: int) -> bool:
        """Tell whether checking the value takes no more steps than that, by an estimate from above."""
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
        # A recursive schema may go through each of its references to itself at every level of the value.
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


def _patterns(node: Schema) -> int:
    named = node.get("patternProperties")
    # A value of the format "regex" is compiled to be checked.
    own = ("pattern" in node) + (PATTERNS_NEAR_MAX + 1) * (node.get("format") == "regex")
    return own + (len(cast("Schema", named)) if isinstance(named, dict) else 0)
