"""Schemas of tools and of answers, in the form that an upstream takes.

A schema that is fine as it is stays the same bytes. All forms want a plain object at the top; stray spellings
(upper-case types, `nullable`, draft-04 bounds, references to elsewhere) are mended; subsets are written by `subset`.
"""

import re
from functools import lru_cache
from typing import Any, cast

import msgspec

from treadle.core.json import BadJson, read_json, write_json
from treadle.core.tool_definitions import EMPTY_SCHEMA
from treadle.protocols.field_reader import OBJECT
from treadle.protocols.translation.schema_forms import (
    HOPS_MAX,
    LISTS,
    MAPS,
    SINGLES,
    SUBSETS,
    TYPES,
    Node,
    merge,
    resolve,
    step,
)
from treadle.protocols.translation.schema_loss_notes import CUT, SchemaLog
from treadle.protocols.translation.schema_subset import SchemaBudget, SubsetWriter
from treadle.protocols.translation.upstream_features import SchemaForm
from treadle.protocols.translation_notes import Notes

NODES_MAX = 50_000
"""How many nodes all schemas of one request may be written with."""

ANSWER_BYTES_MAX = 200_000
"""How large the schema of an answer may be to be written anew: as large as all tools together."""

_STRAY = re.compile(
    rb'"(?:STRING|NUMBER|INTEGER|BOOLEAN|OBJECT|ARRAY|NULL|TYPE_UNSPECIFIED|nullable)"'
    rb'|"\$ref"\s*:\s*"[^#]|"exclusiveM(?:in|ax)imum"\s*:\s*[tf]|"items"\s*:\s*\['
)
_UNIONS = ("allOf", "anyOf", "oneOf")
_REMEMBERED_BYTES_MAX = 4_096
"""A schema over this is looked at each time."""

_BARRED_TOP = ("enum", "const", "not", "$ref", *_UNIONS)


class Schemas:
    """Writes the schemas of one request; they share a budget."""

    def __init__(self, form: SchemaForm, notes: Notes) -> None:
        self._form = form
        self._notes = notes
        self._budget = SchemaBudget(NODES_MAX)

    def write(self, raw: msgspec.Raw, path: str, *, is_tool: bool = True) -> msgspec.Raw:
        """Return the schema that stands at `path` as the upstream takes it; that of a tool is an object at the top."""
        if self._form not in SUBSETS and not _is_stray(raw, is_tool):
            return raw
        log = SchemaLog(path)
        if not is_tool and len(bytes(raw)) > ANSWER_BYTES_MAX:
            log.add(*CUT, "")
            log.add_to(self._notes)
            return msgspec.Raw(b'{"type":"object"}')
        try:
            value: Any = read_json(bytes(raw))
        except BadJson:
            value = None
        root = cast("Node", value) if isinstance(value, dict) and not is_tool else self._top(value, log)
        if self._form in SUBSETS:
            root = SubsetWriter(root, self._form, log, self._budget).write(root, "")
        else:
            root = _mended(root, root, "", log)
        log.add_to(self._notes)
        return msgspec.Raw(write_json(root))

    def _top(self, value: Any, log: SchemaLog) -> Node:
        """Return the schema as a plain object: providers take no reference, union or other type at the top."""
        if not isinstance(value, dict):
            if value is not True:
                log.add("schema_top", "coerced", "what is no object schema became any object", "")
            return cast("Node", read_json(bytes(EMPTY_SCHEMA)))
        node = _without_unions(cast("Node", value), log, self._budget)
        node.pop("nullable", None)
        kind = node.get("type")
        kinds = cast("list[Any]", kind if isinstance(kind, list) else [kind])
        if kind is not None and "object" not in [str(name).lower() for name in kinds]:
            log.add("schema_top", "coerced", "what is no object schema became any object", "")
            node = {key: value for key, value in node.items() if key in ("title", "description")}
        for key in [name for name in _BARRED_TOP if name in node]:
            log.add("schema_top", "dropped", f"{key} at the top of a schema", "")
            del node[key]
        properties = node.get("properties")
        return {**node, "type": "object", "properties": properties if isinstance(properties, dict) else {}}


def _is_stray(raw: msgspec.Raw, is_tool: bool) -> bool:
    """Return whether a schema needs a second look; the same tools come with every request."""
    data = bytes(raw)
    return _looks_stray(data, is_tool) if len(data) <= _REMEMBERED_BYTES_MAX else _look(data, is_tool)


def _look(data: bytes, is_tool: bool) -> bool:
    """Look at the bytes of a schema and its topmost keys alone."""
    if _STRAY.search(data) or data.count(b'"array"') > data.count(b'"items"'):
        return True
    if not is_tool:
        return False
    try:
        top = OBJECT.decode(data)
    except msgspec.DecodeError:
        return True
    is_object = bytes(top.get("type", b"")) == b'"object"' and bytes(top.get("properties", b""))[:1] == b"{"
    return not is_object or any(name in top for name in _BARRED_TOP)


_looks_stray = lru_cache(maxsize=512)(_look)


def _without_unions(node: Node, log: SchemaLog, budget: SchemaBudget) -> Node:
    """Return the top with its reference and unions written into it, as far as the budget allows."""
    root, node = node, dict(node)
    for _ in range(HOPS_MAX):
        if "$ref" in node:
            target = resolve(root, node.pop("$ref"))
            if target is None:
                log.add("schema_ref", "dropped", "a reference that leads nowhere in the schema", "")
            node = merge(target or {}, node)
            continue
        name = next((name for name in _UNIONS if isinstance(node.get(name), list)), None)
        if name is None:
            break
        given = [cast("Node", branch) for branch in cast("list[Any]", node.pop(name)) if isinstance(branch, dict)]
        branches = [_at_top(root, branch, log, budget) for branch in given]
        if not budget.take_all(*branches):
            log.add(*CUT, f"/{name}")
            break
        node = _joined(node, name, branches, log)
    return node


def _at_top(root: Node, node: Node, log: SchemaLog, budget: SchemaBudget) -> Node:
    """Return an alternative with its own references and allOf written into it."""
    for _ in range(HOPS_MAX):
        parts = node.get("allOf")
        parts = cast("list[Any]", parts) if isinstance(parts, list) else []
        if "$ref" not in node and not parts:
            return node
        own = {key: value for key, value in node.items() if key not in ("$ref", "allOf")}
        if "$ref" in node:
            target = resolve(root, node["$ref"])
            if target is None:
                log.add("schema_ref", "dropped", "a reference that leads nowhere in the schema", "")
            elif not own and not parts:
                node = target
                continue
            parts = [target, *parts]
        nodes = [cast("Node", part) for part in parts if isinstance(part, dict)]
        if not budget.take_all(*nodes, own):
            log.add(*CUT, "")
            return own
        node = merge(*reversed(nodes), own)
    return {key: value for key, value in node.items() if key not in ("$ref", "allOf")}


def _joined(node: Node, name: str, branches: list[Node], log: SchemaLog) -> Node:
    """Join alternatives into one object: every property of any of them, required what all of them require."""
    if name != "allOf":
        log.add("schema_union", "coerced", f"{name} at the top of a schema was joined into one object", f"/{name}")
    wanted = [set(_names(branch.get("required"))) for branch in branches]
    common = set[str]().union(*wanted) if name == "allOf" else set[str].intersection(*wanted) if wanted else set[str]()
    own = _names(node.get("required"))
    if name == "allOf":
        node = merge(*reversed(branches), node)
    else:
        node = merge(*(_unbounded(branch) for branch in branches), node, same="anyOf")
    required = [*own, *(one for branch in branches for one in _names(branch.get("required")) if one in common)]
    node["required"] = list(dict.fromkeys(required))
    return node


def _unbounded(branch: Node) -> Node:
    """Return an alternative without bounds that the others do not set."""
    return {key: value for key, value in branch.items() if key not in ("minProperties", "maxProperties")}


def _names(value: Any) -> list[str]:
    return [name for name in cast("list[Any]", value if isinstance(value, list) else []) if isinstance(name, str)]


def _mended(node: Any, root: Node, pointer: str, log: SchemaLog) -> Any:
    """Return a schema of any form with stray spellings put right, otherwise as it was."""
    if not isinstance(node, dict):
        return node
    mended = _standard(cast("Node", node), root, pointer, log)
    for key, value in mended.items():
        place = step(pointer, key)
        if key in MAPS and isinstance(value, dict):
            children = cast("Node", value)
            mended[key] = {name: _mended(child, root, step(place, name), log) for name, child in children.items()}
        elif key in LISTS and isinstance(value, list):
            places = enumerate(cast("list[Any]", value))
            mended[key] = [_mended(child, root, step(place, number), log) for number, child in places]
        elif key in SINGLES:
            mended[key] = _mended(value, root, place, log)
    return mended


def _standard(node: Node, root: Node, pointer: str, log: SchemaLog) -> Node:
    """Return one node without what JSON Schema 2020-12 does not know."""
    node = dict(node)
    kinds = node.get("type")
    if isinstance(kinds, str):
        node["type"] = _kind(kinds)
    elif isinstance(kinds, list):
        node["type"] = [_kind(kind) if isinstance(kind, str) else kind for kind in cast("list[Any]", kinds)]
    if node.get("type") == "type_unspecified":
        del node["type"]
    if "nullable" in node and node.pop("nullable") is True:
        node = _nullable(node)
    for bound, strict in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if isinstance(node.get(strict), bool) and node.pop(strict) and bound in node:
            node[strict] = node.pop(bound)
    if isinstance(node.get("items"), list):
        node["prefixItems"] = node.pop("items")
    if node.get("type") == "array" and not {"items", "prefixItems"} & node.keys():
        node["items"] = {}
    if "$ref" in node and resolve(root, node["$ref"]) is None:
        log.add("schema_ref", "dropped", "a reference that leads nowhere in the schema", pointer)
        del node["$ref"]
    return node


def _kind(name: str) -> str:
    lowered = name.lower()
    return lowered if lowered in TYPES or lowered == "type_unspecified" else name


def _nullable(node: Node) -> Node:
    if isinstance(node.get("type"), str):
        node["type"] = [node["type"], "null"]
    elif isinstance(node.get("anyOf"), list):
        node["anyOf"] = [*node["anyOf"], {"type": "null"}]
    if isinstance(node.get("enum"), list) and None not in node["enum"]:
        node["enum"] = [*node["enum"], None]
    return node
