"""Schemas written in a subset: references written out, unions flattened, every node typed, constraints kept as words.

Linear in what it writes: the nodes of all schemas of a request share one budget, and a circle or a bomb is cut to a
permissive schema with a note. It reads only values; fetching nothing, it cannot be made to fetch.
"""

from collections.abc import Callable
from typing import Any, cast

from treadle.core.json import write_json
from treadle.core.request import NoteAction
from treadle.protocols.translation.schema_forms import (
    HOPS_MAX,
    META,
    SHAPES,
    SUBSETS,
    TYPE_OF_KEYWORD,
    TYPES,
    Node,
    Subset,
    breadth,
    merge,
    resolve,
    step,
)
from treadle.protocols.translation.schema_loss_notes import CUT, CYCLE, SchemaLog

DEPTH_MAX = 64
WORDS_CHARS_MAX = 200
"""A constraint that the subset does not know is put into the description unless it is longer than this."""

_NULLS: tuple[Node, ...] = ({"type": "null"}, {"const": None}, {"enum": [None]})
_ANNOTATIONS = ("title", "description")


class SchemaBudget:
    """How many nodes may still be written; shared by all schemas of one request."""

    def __init__(self, nodes: int) -> None:
        self._left = nodes

    def take(self, count: int = 1) -> bool:
        """Use some of it up, and tell whether there was any left."""
        has_some = self._left > 0
        self._left -= count
        return has_some

    def take_all(self, *nodes: Node) -> bool:
        """Use up what it costs to merge nodes, and tell whether there was enough left to begin with each of them."""
        # A spent budget is asked first: measuring a wide node again and again is the work it is there to save.
        return all(self._left > 0 and self.take(1 + breadth(node)) for node in nodes)


class SubsetWriter:
    """Writes one schema; `root` is where its references point."""

    def __init__(self, root: Node, form: str, log: SchemaLog, budget: SchemaBudget) -> None:
        self._root = root
        self._form: Subset = SUBSETS[form]
        self._log = log
        self._budget = budget
        self._writers: dict[str, Callable[[Any, str, frozenset[str]], Any]] = {
            "properties": self._properties,
            "items": self._items,
            "prefixItems": self._list,
            "additionalProperties": self._additional,
            "enum": self._enum,
        }

    def write(self, value: Any, pointer: str, open_refs: frozenset[str] = frozenset()) -> Node:
        """Return the node as the subset spells it."""
        if pointer.count("/") > DEPTH_MAX or not self._budget.take():
            self._log.add(*CUT, pointer)
            return {"type": "object"}
        if not isinstance(value, dict):
            return self._any(pointer)
        node, open_refs, loss = self._expanded(cast("Node", value), pointer, open_refs)
        if loss is not None:
            self._log.add(*loss, pointer)
            return {"type": "object", **{key: node[key] for key in _ANNOTATIONS if key in node}}
        node, has_null = _without_null(self._one_union(node, pointer))
        branches = [branch for branch in _listed(node.pop("anyOf", None)) if branch is not False]
        if len(branches) > 1:
            written = self._union(node, branches, pointer, open_refs)
        elif branches:
            written = self.write(self._merged(_node(branches[0]), node), pointer, open_refs)
        else:
            written = self._plain(node, pointer, open_refs)
        return self._with_null(written) if has_null else written

    def _merged(self, *nodes: Node) -> Node:
        """Merge nodes within the budget; without any left the result is not written anyway."""
        return merge(*nodes) if self._budget.take_all(*nodes) else {}

    def _expanded(
        self, node: Node, pointer: str, above: frozenset[str]
    ) -> tuple[Node, frozenset[str], tuple[str, NoteAction, str] | None]:
        """Return the node with its references and allOf written into it, and why that cannot be done.

        `above` are the references that lead here; a repeated one is a cycle, or adds nothing if it is this node's.
        """
        here: set[str] = set()
        met: set[str] = set()
        for _ in range(HOPS_MAX):
            parts = _listed(node.get("allOf"))
            if "$ref" not in node and not parts:
                break
            own = {key: value for key, value in node.items() if key not in ("$ref", "allOf")}
            parts = [{"$ref": node["$ref"]}, *parts] if "$ref" in node else parts
            nodes: list[Node] = []
            for part in parts:
                nodes += self._entered(_node(part), pointer, (above, here, met))
            if not self._budget.take_all(*nodes, own):
                return own, above | here, CUT
            node = self._all_of([*reversed(nodes), own], pointer)
        else:
            return node, above | here, CYCLE
        if met and node.keys() <= {*_ANNOTATIONS, *META}:
            return node, above | here, CYCLE
        if met & above:
            self._log.add(*CYCLE, pointer)
        return node, above | here, None

    def _entered(self, part: Node, pointer: str, refs: tuple[frozenset[str], set[str], set[str]]) -> list[Node]:
        """Return a part of a node, and what it refers to, one step in; `refs` are those above, here and met again."""
        if "$ref" not in part:
            return [part]
        above, here, met = refs
        rest = {key: value for key, value in part.items() if key != "$ref"}
        ref = part["$ref"]
        if isinstance(ref, str) and (ref in above or ref in here):
            met.add(ref)
            return [rest]
        target = resolve(self._root, ref)
        if target is None:
            self._log.add("schema_ref", "dropped", "a reference that leads nowhere in the schema", pointer)
            return [rest]
        here.add(str(ref))
        return [rest, target]

    def _all_of(self, nodes: list[Node], pointer: str) -> Node:
        """Merge nodes that must all hold; contradictions are noted."""
        clashes: set[str] = set()
        merged = merge(*nodes, clashes=clashes)
        for key in sorted(clashes):
            message = "of several demands on one keyword only one was kept"
            self._log.add("schema_all_of", "dropped", message, step(pointer, key))
        return merged

    def _one_union(self, node: Node, pointer: str) -> Node:
        """Return the node with const as enum, and oneOf and lists of types as anyOf."""
        node = dict(node)
        if "const" in node:
            node["enum"] = [node.pop("const")]
        if isinstance(node.get("oneOf"), list):
            self._log.add("schema_one_of", "coerced", "oneOf became anyOf", pointer)
            branches = cast("list[Any]", node.pop("oneOf"))
            node["anyOf"] = [*(node["anyOf"] if isinstance(node.get("anyOf"), list) else ()), *branches]
        kinds = node.get("type")
        return self._one_type(node, cast("list[Any]", kinds), pointer) if isinstance(kinds, list) else node

    def _one_type(self, node: Node, kinds: list[Any], pointer: str) -> Node:
        """Return a node of several types as alternatives of one type each."""
        names = dict.fromkeys(kind.lower() if isinstance(kind, str) else "" for kind in kinds)
        real = [name for name in names if name in TYPES and name != "null"]
        strange = len(names) - len(real) - ("null" in names)
        node.pop("type")
        if "null" in names:
            node["nullable"] = True
        if strange or (len(real) > 1 and isinstance(node.get("anyOf"), list)):
            self._log.add("schema_type", "dropped", "types that are none, or stand beside anyOf", step(pointer, "type"))
        if len(real) == 1:
            node["type"] = real[0]
        elif real and not isinstance(node.get("anyOf"), list):
            node["anyOf"] = [{"type": name, **_about(node, name)} for name in real]
            node = {key: value for key, value in node.items() if TYPE_OF_KEYWORD.get(key) is None}
        return node

    def _union(self, node: Node, branches: list[Any], pointer: str, open_refs: frozenset[str]) -> Node:
        """Write alternatives; what stands beside them belongs to each of them."""
        beside = {key: value for key, value in node.items() if key not in _ANNOTATIONS and key not in META}
        annotations = {key: node[key] for key in _ANNOTATIONS if key in node}
        place = step(pointer, "anyOf")
        written = [
            self.write(self._merged(beside, _node(branch)), step(place, number), open_refs)
            for number, branch in enumerate(branches)
        ]
        return self._beside(annotations, {"anyOf": written})

    def _plain(self, node: Node, pointer: str, open_refs: frozenset[str]) -> Node:
        kind = self._type(node)
        if kind is None:
            return self._untyped(node, pointer)
        written: Node = {"type": kind}
        words: list[str] = []
        for key, value in self._tidied(node, kind, pointer).items():
            if key == "type" or key in META:
                self._note_meta(key, pointer)
            elif self._takes(key, value):
                write = self._writers.get(key)
                self._budget.take(0 if write is not None and key != "enum" else _size(value))
                written[key] = value if write is None else write(value, step(pointer, key), open_refs)
            else:
                words += self._in_words(key, value, pointer)
        return self._closed(_with_words(written, words), pointer)

    def _untyped(self, node: Node, pointer: str) -> Node:
        """Write a node of any type; its other constraints become words of the description."""
        rest = [(key, value) for key, value in node.items() if key not in META and key not in _ANNOTATIONS]
        words = [word for key, value in rest for word in self._in_words(key, value, pointer)]
        annotations = {key: node[key] for key in _ANNOTATIONS if isinstance(node.get(key), str)}
        return self._beside(_with_words(annotations, words), self._any(pointer))

    def _beside(self, annotations: Node, union: Node) -> Node:
        """Put annotations beside alternatives, or into each of them where nothing may stand beside them."""
        if not self._form.is_lone:
            return {**annotations, **union}
        return {"anyOf": [{**annotations, **branch} for branch in cast("list[Node]", union["anyOf"])]}

    def _type(self, node: Node) -> str | None:
        """Return the type that the node names, or that its keywords and values are about."""
        kind = node.get("type")
        if isinstance(kind, str) and kind.lower() in TYPES:
            return kind.lower()
        values = _listed(node.get("enum"))
        if values == [None]:
            return "null"
        if values and all(isinstance(value, str) for value in values):
            return "string"
        if values and all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
            return "number"
        if values and all(isinstance(value, bool) for value in values):
            return "boolean"
        return next((TYPE_OF_KEYWORD[key] for key in node if key in TYPE_OF_KEYWORD), None)

    def _tidied(self, node: Node, kind: str, pointer: str) -> Node:
        """Return the node with tuples and draft-04 bounds in the form the subset knows."""
        node = dict(node)
        if isinstance(node.get("items"), list):
            node["prefixItems"] = node.pop("items")
        is_known = "prefixItems" in self._form.keywords
        if kind == "array" and not is_known and isinstance(node.get("prefixItems"), list):
            tuple_items = cast("list[Any]", node.pop("prefixItems"))
            node["items"] = {"anyOf": tuple_items} if tuple_items else {}
            node.setdefault("minItems", len(tuple_items))
            node.setdefault("maxItems", len(tuple_items))
            self._log.add("schema_tuple", "coerced", "a list of fixed places became a list of any of them", pointer)
        return node

    def _takes(self, key: str, value: Any) -> bool:
        if not isinstance(value, SHAPES.get(key, object)):
            return False
        if key == "format" and self._form.formats is not None:
            return value in self._form.formats
        if key == "enum" and self._form.has_string_enums:
            return isinstance(value, list) and all(isinstance(item, str) for item in cast("list[Any]", value))
        return key in self._form.keywords

    def _note_meta(self, key: str, pointer: str) -> None:
        if key in META and key not in ("$defs", "definitions"):
            self._log.add("schema_meta", "coerced", "what says nothing of a value was left out", step(pointer, key))

    def _in_words(self, key: str, value: Any, pointer: str) -> list[str]:
        """Return a keyword that the subset lacks as words for the description, if it is short enough."""
        place = step(pointer, key)
        if key == "additionalProperties" and isinstance(value, bool):
            self._log.add("schema_meta", "coerced", "what says nothing of a value was left out", place)
            return []
        text = write_json(value).decode()
        self._budget.take(len(text) // 64)
        if isinstance(value, dict) or len(text) > WORDS_CHARS_MAX:
            self._log.add("schema_keyword", "dropped", "a keyword that the upstream does not take", place)
            return []
        self._log.add("schema_words", "emulated", "a keyword went into the description", place)
        return [f"{key}: {text}"]

    def _closed(self, node: Node, pointer: str) -> Node:
        """Complete what the subset wants complete: items of a list, required names that exist."""
        if node["type"] == "array" and "items" not in node and "prefixItems" not in node:
            node["items"] = self._any(step(pointer, "items"))
        names = _listed(node.pop("required", None))
        properties = _node(node.get("properties"))
        known = [name for name in names if isinstance(name, str) and name in properties]
        if len(known) < len(names):
            self._log.add("schema_required", "coerced", "a required name that is no property", pointer)
        return {**node, "required": known} if known else node

    def _properties(self, value: Any, pointer: str, open_refs: frozenset[str]) -> Node:
        written: Node = {}
        for name, schema in _node(value).items():
            if schema is False:
                self._log.add("schema_keyword", "dropped", "a keyword that the upstream does not take", pointer)
                continue
            written[name] = self.write(schema, step(pointer, name), open_refs)
        return written

    def _items(self, value: Any, pointer: str, open_refs: frozenset[str]) -> Node:
        return self.write(value, pointer, open_refs)

    def _list(self, value: Any, pointer: str, open_refs: frozenset[str]) -> list[Node]:
        places = enumerate(_listed(value))
        return [self.write(schema, step(pointer, number), open_refs) for number, schema in places]

    def _additional(self, value: Any, pointer: str, open_refs: frozenset[str]) -> Any:
        return value if isinstance(value, bool) else self.write(value, pointer, open_refs)

    def _enum(self, value: Any, pointer: str, open_refs: frozenset[str]) -> Any:
        """Leave out the empty string where only strings are taken: Gemini refuses it there."""
        if not self._form.has_string_enums or "" not in value:
            return value
        self._log.add("schema_enum", "coerced", "an empty value of an enum", pointer)
        return [item for item in value if item != ""] or value

    def _any(self, pointer: str) -> Node:
        """Return a schema for any value but null, since every node must have a type."""
        self._log.add("schema_typeless", "coerced", "a schema without a type became one of the basic types", pointer)
        return {"anyOf": [{"type": kind} for kind in ("string", "number", "boolean", "object")]}

    def _with_null(self, node: Node) -> Node:
        if node.get("type") == "null":
            return node
        if self._form.has_nullable:
            branches = cast("list[Node]", node.get("anyOf", ()))
            return (
                {"anyOf": [self._with_null(branch) for branch in branches]} if branches else {**node, "nullable": True}
            )
        if "anyOf" in node:
            return {**node, "anyOf": [*node["anyOf"], {"type": "null"}]}
        return {**node, "type": [node["type"], "null"]}


def _without_null(node: Node) -> tuple[Node, bool]:
    """Take null out of a node's alternatives and values, and tell whether it was there."""
    has_null = node.pop("nullable", False) is True
    if isinstance(node.get("anyOf"), list):
        branches = cast("list[Any]", node.pop("anyOf"))
        real = [branch for branch in branches if branch not in _NULLS]
        has_null = has_null or len(real) < len(branches)
        node |= {"anyOf": real} if real else {"type": "null"}
    if isinstance(node.get("enum"), list) and None in node["enum"] and len(node["enum"]) > 1:
        node["enum"] = [value for value in cast("list[Any]", node["enum"]) if value is not None]
        has_null = True
    return node, has_null


def _with_words(node: Node, words: list[str]) -> Node:
    """Return the node with constraints in words behind its description."""
    if not words:
        return node
    description = str(node.get("description", ""))
    return {**node, "description": f"{description} [{'; '.join(words)}]".lstrip()}


def _about(node: Node, kind: str) -> Node:
    """Return the keywords of a node that are about one type."""
    kind = "number" if kind == "integer" else kind
    return {key: value for key, value in node.items() if TYPE_OF_KEYWORD.get(key) == kind}


def _node(value: Any) -> Node:
    return cast("Node", value) if isinstance(value, dict) else {}


def _listed(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _size(value: Any) -> int:
    """Return what a value costs: its parts, and its text by the line."""
    match value:
        case str():
            return len(value) // 64
        case list():
            return sum(1 + _size(item) for item in cast("list[Any]", value))
        case dict():
            return sum(1 + _size(item) for item in cast("Node", value).values())
        case _:
            return 0
