"""Fills the required arguments of a tool from its JSON Schema and the values found in a prompt.

The schema may come from any client, so nothing in it is assumed to have the right type. What the prompt does not
contain is filled with a value that the schema allows, and reported as missing.
"""

import re
from collections.abc import Callable
from typing import Any, cast

from treadle.core.json import BadJson, read_json
from treadle.core.tool_definitions import ToolSpec
from treadle.providers.demo_model.prompt_parsing import Prompt, words_of

DEPTH_MAX = 4

_WORD = re.compile(r"[\w'-]+")
_PROMPT_WORD = re.compile(r"[\w'./#@-]*\w")
_BETWEEN = frozenset({"number", "no", "nr", "id", "code", "called", "named", "is"})
"""Words that may stand between a name and its value: `article number A7`."""

Schema = dict[str, Any]
_NO = frozenset({"no", "not", "without", "false", "off", "never", "don't"})

PLACE = "place"
_KIND_OF_WORD = {
    "city": PLACE,
    "town": PLACE,
    "place": PLACE,
    "location": PLACE,
    "country": PLACE,
    "region": PLACE,
    "timezone": PLACE,
    "origin": PLACE,
    "destination": PLACE,
    "pattern": "pattern",
    "glob": "pattern",
    "path": "path",
    "file": "path",
    "filename": "path",
    "dir": "path",
    "directory": "path",
    "folder": "path",
    "expression": "sum",
    "formula": "sum",
    "url": "url",
    "link": "url",
    "email": "email",
    "date": "date",
    "day": "date",
    "query": "phrase",
    "text": "phrase",
    "message": "phrase",
    "content": "phrase",
    "question": "phrase",
    "prompt": "phrase",
    "input": "phrase",
}
EXAMPLES = {
    PLACE: "Paris",
    "pattern": "**/*",
    "path": "README.md",
    "sum": "6 * 7",
    "url": "https://example.org",
    "email": "ada@example.org",
    "date": "2026-01-01",
    "phrase": "hello",
    "name": "Ada",
}
_EVIDENCE: dict[str, Callable[[Prompt], tuple[str, ...]]] = {
    PLACE: lambda prompt: prompt.places,
    "pattern": lambda prompt: prompt.patterns,
    "path": lambda prompt: prompt.paths,
    "sum": lambda prompt: prompt.sums,
    "url": lambda prompt: prompt.urls,
    "email": lambda prompt: prompt.emails,
    "date": lambda prompt: prompt.dates,
}


class Filler:
    """Fills one call's arguments; each value of the prompt is used once, in the order of the schema."""

    def __init__(self, prompt: Prompt) -> None:
        self.missing: list[str] = []
        self._prompt = prompt
        self._numbers = list(prompt.numbers)
        self._quoted = list(prompt.quoted)
        self._chosen: set[str] = set()
        self._found = {kind: list(find(prompt)) for kind, find in _EVIDENCE.items()}
        self._prompt_words = _PROMPT_WORD.findall(prompt.text)

    def fill(self, schema: Schema, root: Schema, depth: int = 0) -> dict[str, Any]:
        """Return a value for every required property of an object schema."""
        return {name: self._value(name, part, root, depth) for name, part in required_of(schema, root).items()}

    def _value(self, name: str, schema: Schema, root: Schema, depth: int) -> Any:
        if "const" in schema:
            return schema["const"]
        if isinstance(choices := schema.get("enum"), list) and choices:
            return self._choose(cast("list[Any]", choices))
        match type_of(schema):
            case "integer":
                return int(float(self._number(name, schema)))
            case "number":
                value = float(self._number(name, schema))
                return int(value) if value.is_integer() else value
            case "boolean":
                return not (_NO & set(self._prompt.text.lower().split()))
            case "null":
                return None
            case "array":
                items = resolve(schema.get("items"), root)
                return [self._value(name, items, root, depth + 1)] if depth < DEPTH_MAX else []
            case "object":
                return self.fill(schema, root, depth + 1) if depth < DEPTH_MAX else {}
            case _:
                return self._string(name, schema)

    def _choose(self, choices: list[Any]) -> Any:
        """Return the choice mentioned first in the prompt that was not used yet, else the first choice."""
        words = f" {' '.join(_WORD.findall(self._prompt.text.lower()))} "
        mentioned = [one for one in choices if isinstance(one, str) and f" {one.lower()} " in words]
        unused = [one for one in mentioned if one not in self._chosen] or mentioned
        if not unused:
            return choices[0]
        taken = min(unused, key=lambda one: words.index(f" {one.lower()} "))
        self._chosen.add(taken)
        return taken

    def _number(self, name: str, schema: Schema) -> str:
        if self._numbers:
            return self._numbers.pop(0)
        self.missing.append(name)
        fallback = schema.get("default", schema.get("minimum", 1))
        return str(fallback) if isinstance(fallback, int | float) else "1"

    def _string(self, name: str, schema: Schema) -> str:
        kind = kind_of(name)
        if kind == "name" and (named := self._named(name)):
            return named
        found = self._found.get(kind, [])
        if found:
            return found.pop(0)
        if self._quoted:
            return self._quoted.pop(0)
        if kind == "phrase":
            return _phrase(self._prompt)
        if kind == "name" and self._found[PLACE]:
            return self._found[PLACE].pop(0)
        if isinstance(default := schema.get("default"), str):
            return default
        if kind != "pattern":
            self.missing.append(name)
        return EXAMPLES[kind]

    def _named(self, name: str) -> str | None:
        """Return the value after the parameter's own name in the prompt: `article A7`, `customer Ada`."""
        wanted = words_of(name)
        prompt_words = iter(self._prompt_words)
        for word in prompt_words:
            if words_of(word) & wanted:
                value = next((each for each in prompt_words if each.lower() not in _BETWEEN), "")
                return value if value[:1].isupper() or any(map(str.isdigit, value)) else None
        return None


def parameters_of(tool: ToolSpec) -> Schema:
    """Return the tool's schema; an empty one where it is not an object."""
    try:
        value: Any = read_json(bytes(tool.parameters))
    except BadJson:
        return {}
    return cast("Schema", value) if isinstance(value, dict) else {}


def required_of(schema: Schema, root: Schema) -> dict[str, Schema]:
    """Return the schemas of the required properties, in the order they are declared."""
    properties: Any = schema.get("properties")
    required: Any = schema.get("required")
    if not isinstance(properties, dict) or not isinstance(required, list):
        return {}
    declared = cast("dict[str, Any]", properties)
    names = cast("list[Any]", required)
    return {name: resolve(part, root) for name, part in declared.items() if name in names}


def resolve(schema: object, root: Schema) -> Schema:
    """Follow references inside the document and take the first alternative that is not null."""
    for _ in range(DEPTH_MAX):
        if not isinstance(schema, dict):
            return {}
        part = cast("Schema", schema)
        if isinstance(reference := part.get("$ref"), str):
            schema = _at(root, reference)
            continue
        options: Any = part.get("anyOf") or part.get("oneOf")
        if not isinstance(options, list):
            return part
        schema = next((one for one in cast("list[object]", options) if one != {"type": "null"}), None)
    return {}


def type_of(schema: Schema) -> str:
    """Return the type of a value: the first one that is not null."""
    kind: Any = schema.get("type")
    if isinstance(kind, list):
        kind = next((one for one in cast("list[Any]", kind) if one != "null"), "null")
    return kind if isinstance(kind, str) else ("object" if "properties" in schema else "string")


def kind_of(name: str) -> str:
    """Return the kind of text that a parameter's name suggests."""
    words = words_of(name)
    return next((kind for word, kind in _KIND_OF_WORD.items() if word in words), "name")


def evidence(tool: ToolSpec, prompt: Prompt) -> int:
    """Count the required parameters whose kind clearly occurs in the prompt."""
    schema = parameters_of(tool)
    kinds = {kind_of(name) for name in required_of(schema, schema)} - {PLACE}
    return sum(1 for kind in kinds if kind in _EVIDENCE and _EVIDENCE[kind](prompt))


def _at(root: Schema, reference: str) -> Any:
    node: Any = root
    for step in reference.removeprefix("#").split("/")[1:]:
        if not isinstance(node, dict):
            return {}
        node = cast("Schema", node).get(step.replace("~1", "/").replace("~0", "~"))
    return node


def _phrase(prompt: Prompt) -> str:
    """Return what follows `for`, `about` or a colon, else the whole prompt."""
    text = prompt.text.rstrip(" ?!.")
    for word in (" for ", " about ", ": "):
        _, found, rest = text.partition(word)
        if found and rest.strip():
            return rest.strip()
    return text
