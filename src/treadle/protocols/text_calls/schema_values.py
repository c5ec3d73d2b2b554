"""The tools of a request as recognisers need them: registered names, and text converted to what a schema asks for.

Where the schema asks for a string, text stays as it is. Text that does not fit its type stays text: the tool's
validation reports it to the model.
"""

import json
import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any, cast

import msgspec

from treadle.core.json import BadJson, read_json, write_json
from treadle.core.tool_definitions import ToolSpec
from treadle.protocols.text_calls.json_repair import RepairRefused, joined, read_tolerant

PREFIXES = ("functions.", "function.", "tools.", "tool.", "default_api.", "default_api:", "multi_tool_use.")
"""What models put before a tool's name when their template showed it in a namespace."""

_COUNTER = re.compile(r":\d+$")
_INTEGER = re.compile(r"[+-]?\d{1,4000}")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_BOOLEANS = {"true": True, "false": False}
_ORDER = ("null", "integer", "number", "boolean", "object", "array", "string")
_ALIASES = {
    "int": "integer", "int32": "integer", "int64": "integer", "long": "integer", "short": "integer", "uint": "integer",
    "float": "number", "double": "number", "decimal": "number", "num": "number",
    "bool": "boolean", "binary": "boolean",
    "dict": "object", "map": "object", "struct": "object", "record": "object",
    "list": "array", "tuple": "array", "arr": "array", "set": "array", "sequence": "array",
    "str": "string", "text": "string", "varchar": "string", "char": "string", "enum": "string",
    "none": "null",
}  # fmt: skip
"""Types that schemas name though JSON Schema does not."""

_REFS_MAX = 8


class TextTool(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """One registered tool: its name, the schemas of its parameters, and which of them it needs."""

    name: str
    is_custom: bool = False
    schema: dict[str, Any]

    @property
    def properties(self) -> dict[str, Any]:
        """Return the schemas of the parameters."""
        found = self.schema.get("properties")
        return cast("dict[str, Any]", found) if isinstance(found, dict) else {}

    @property
    def required(self) -> frozenset[str]:
        """Return the parameters that must be given."""
        found = self.schema.get("required")
        names = cast("list[Any]", found) if isinstance(found, list) else []
        return frozenset(name for name in names if isinstance(name, str))

    def of(self, key: str) -> Any:
        """Return the schema of a parameter, if it has one."""
        return self.properties.get(key)

    def from_text(self, pairs: "dict[str, str | Typed]") -> dict[str, Any]:
        """Return arguments whose values are text, converted by their schemas."""
        return {key: from_text(value, self.of(key), self.schema) for key, value in pairs.items()}

    def from_json(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return arguments with their types, lists and objects that were written as strings undone."""
        wanted = self.containers.keys() & arguments.keys()
        undone = {
            key: container(arguments[key], self.containers[key], arguments[key])
            for key in wanted
            if type(arguments[key]) is str
        }
        return {**arguments, **undone} if undone else arguments

    @cached_property
    def containers(self) -> dict[str, frozenset[str]]:
        """Return the types of the parameters that are lists or objects and nothing else."""
        kinds = {key: types_of(schema, self.schema) for key, schema in self.properties.items()}
        return {key: each for key, each in kinds.items() if each and each <= {"array", "object", "null"}}


class Typed(msgspec.Struct, frozen=True, kw_only=True):
    """Text of which the dialect itself says whether it is a string or JSON."""

    text: str
    is_string: bool


class TextTools:
    """The registered tools by name; schemas are read when a call asks for them."""

    __slots__ = ("_read", "_specs", "names", "names_chars_max")

    def __init__(self, specs: Sequence[ToolSpec]) -> None:
        self._specs = {spec.name: spec for spec in specs}
        self._read: dict[str, TextTool] = {}
        self.names = tuple(self._specs)
        self.names_chars_max = max(map(len, self.names), default=0) + 40

    def find(self, written: str) -> TextTool | None:
        """Return the tool of this name, a namespace before it and a counter behind it left out."""
        known = self._read.get(written)
        if known is not None:
            return known
        name = written.strip()
        if name not in self._specs:
            name = _COUNTER.sub("", name)
        if name not in self._specs:
            bare = (name.removeprefix(prefix) for prefix in PREFIXES if name.startswith(prefix))
            name = next((each for each in bare if each in self._specs), "")
        return self._tool(name) if name in self._specs else None

    def may_begin(self, text: str) -> bool:
        """Return whether a registered name may begin with this."""
        text = text.lstrip()
        bare = [text, *(text[len(prefix) :] for prefix in PREFIXES if text.startswith(prefix))]
        if any(prefix.startswith(text) for prefix in PREFIXES):
            return True
        return any(_known(each, name) for each in bare for name in self.names)

    def _tool(self, name: str) -> TextTool:
        if name not in self._read:
            spec = self._specs[name]
            try:
                schema = read_json(bytes(spec.parameters))
            except BadJson:
                schema = None
            known = cast("dict[str, Any]", schema) if isinstance(schema, dict) else {}
            self._read[name] = TextTool(name=name, is_custom=spec.kind == "custom", schema=known)
        return self._read[name]


def _known(text: str, name: str) -> bool:
    return name.startswith(text) or (text.startswith(name) and _COUNTER.sub("", f"{text}0") == name)


def types_of(schema: Any, root: Any, depth: int = 0) -> frozenset[str]:
    """Return the types that a schema allows; none where it names none."""
    if not isinstance(schema, dict) or depth > _REFS_MAX:
        return frozenset()
    known = cast("dict[str, Any]", schema)
    kind = known.get("type")
    if kind is not None:
        kinds = cast("list[Any]", kind) if isinstance(kind, list) else [kind]
        names = {each.lower() for each in kinds if isinstance(each, str)}
        return frozenset(each for each in (_ALIASES.get(name, name) for name in names) if each in _ORDER)
    found: set[str] = set()
    for word in ("anyOf", "oneOf", "allOf"):
        inner = known.get(word)
        for each in cast("list[Any]", inner) if isinstance(inner, list) else []:
            found |= types_of(each, root, depth + 1)
    if isinstance(reference := known.get("$ref"), str):
        found |= types_of(_referred(reference, root), root, depth + 1)
    choices = known.get("enum", [known["const"]] if "const" in known else None)
    if isinstance(choices, list):
        found |= {_type_name(each) for each in cast("list[Any]", choices)}
    if not found and ("properties" in known or "items" in known):
        found.add("object" if "properties" in known else "array")
    return frozenset(found)


def _referred(reference: str, root: Any) -> Any:
    for step in reference.removeprefix("#/").split("/"):
        if not isinstance(root, dict):
            return None
        root = cast("dict[str, Any]", root).get(step.replace("~1", "/").replace("~0", "~"))
    return root


def _type_name(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def from_text(value: str | Typed, schema: Any, root: Any) -> Any:
    """Return what a text means to a schema; where it fits no type it stays text."""
    if isinstance(value, Typed):
        if value.is_string:
            return value.text
        try:
            return read_tolerant(value.text)
        except RepairRefused:
            value = value.text
    kinds = types_of(schema, root)
    if not kinds:
        return _untyped(value)
    for kind in _ORDER:
        if kind in kinds:
            made = _as(kind, value)
            if made is not _NOT:
                return made
    return value


_NOT = object()


def _as(kind: str, text: str) -> Any:
    """Return the text as a value of this type, or `_NOT`."""
    word = text.strip()
    match kind:
        case "null":
            return None if word in ("null", "None") else _NOT
        case "integer":
            return int(word) if _INTEGER.fullmatch(word) else _as("number", word)
        case "number":
            return _number(word) if _NUMBER.fullmatch(word) else _NOT
        case "boolean":
            return _BOOLEANS.get(word.lower(), _NOT)
        case "object" | "array":
            return container(word, frozenset({kind}), _NOT)
        case _:
            return text


def _number(word: str) -> Any:
    if _INTEGER.fullmatch(word):
        return int(word)
    value = float(word)
    return _NOT if value in (float("inf"), float("-inf")) else value


def container(text: str, kinds: frozenset[str], otherwise: Any) -> Any:
    """Return the list or object that a text writes down, else the text."""
    if text.lstrip()[:1] not in ("[", "{", "("):
        return otherwise
    word = text.strip()
    if word[:1] == "(" and word[-1:] == ")":
        word = f"[{word[1:-1]}]"
    try:
        value = read_tolerant(word)
    except RepairRefused:
        return otherwise
    fits = (isinstance(value, list) and "array" in kinds) or (isinstance(value, dict) and "object" in kinds)
    return cast("Any", value) if fits else otherwise


def _untyped(text: str) -> Any:
    """Return the JSON value that a text is, where no schema names its type."""
    word = text.strip()
    if word[:1] in ("{", "["):
        return container(word, frozenset({"array", "object"}), text)
    if word in ("true", "false", "null"):
        return json.loads(word)
    try:
        value = json.loads(word) if _NUMBER.fullmatch(word) else text
    except ValueError:
        return text
    return text if value in (float("inf"), float("-inf")) else value


def write_arguments(arguments: dict[str, Any]) -> str:
    """Write arguments as JSON text; halves of characters are put together."""
    try:
        return write_json(arguments).decode()
    except (UnicodeEncodeError, OverflowError):
        cleaned = _cleaned(arguments)
    try:
        return write_json(cleaned).decode()
    except (UnicodeEncodeError, OverflowError):
        # A lone half has no spelling but its escape, which readers of the arguments refuse.
        return json.dumps(cleaned, separators=(",", ":"), allow_nan=False)


def _cleaned(value: Any) -> Any:
    match value:
        case str():
            return joined(value)
        case list():
            return [_cleaned(each) for each in cast("list[Any]", value)]
        case dict():
            return {joined(str(key)): _cleaned(each) for key, each in cast("dict[Any, Any]", value).items()}
        case _:
            return value
