"""From what a recogniser read to calls: JSON values of every shape that names a tool and its arguments."""

import re
from typing import Any, cast

import msgspec

from treadle.protocols.text_calls.json_repair import RepairRefused, read_tolerant
from treadle.protocols.text_calls.resumable_reader import ResumableReader, Wait
from treadle.protocols.text_calls.schema_values import TextTool, TextTools, write_arguments

NAME_KEYS = ("name", "tool_name", "tool", "function", "recipient_name", "function_name")
ARGUMENT_KEYS = ("arguments", "parameters", "args", "input", "tool_input", "kwargs")
LIST_KEYS = ("tool_calls", "tool_uses")
_BESIDE = frozenset({"id", "type", "tool_call_id", "call_id", "index"})
_KNOWN = frozenset({*NAME_KEYS, *ARGUMENT_KEYS, *LIST_KEYS, *_BESIDE})
_PARALLEL = "multi_tool_use.parallel"
_WRAPPERS = frozenset({"arguments", "input", "parameters"})
_KEY_CHARS_MAX = 200
_QUOTES = ('"', "'")
_FENCED = re.compile(r"\s*```[ \t]*(?:json)?[ \t]*\n(.*)\n?[ \t]*```\s*", re.DOTALL | re.IGNORECASE)


class TextCall(msgspec.Struct, frozen=True, kw_only=True):
    """A recovered call: the registered name, the arguments as JSON text, and the id the model gave it, if any."""

    name: str
    arguments: str
    ref: str = ""


def made(tool: TextTool, arguments: dict[str, Any], ref: str = "") -> TextCall:
    """Return a call of a tool with arguments that already have their types."""
    return TextCall(name=tool.name, arguments=write_arguments(tool.from_json(arguments)), ref=ref)


def object_of(text: str | None, *, is_sure: bool = False) -> dict[str, Any] | None:
    """Return the object that a text is, or nearly is; with `is_sure` only where it can be no other."""
    if text is None:
        return None
    fenced = _FENCED.fullmatch(text)
    try:
        value = read_tolerant(text if fenced is None else fenced[1], is_sure=is_sure)
        if isinstance(value, str):
            value = read_tolerant(value, is_sure=is_sure)
    except RepairRefused:
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def unwrapped(tool: TextTool, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments inside a parameter that only wraps them, where they fit the tool and it does not."""
    if len(arguments) != 1:
        return arguments
    key, value = next(iter(arguments.items()))
    if key not in _WRAPPERS or key in tool.properties:
        return arguments
    inner = object_of(value) if isinstance(value, str) else value
    if not isinstance(inner, dict):
        return arguments
    fits = cast("dict[str, Any]", inner)
    return fits if fits.keys() <= tool.properties.keys() else arguments


def calls_of(
    text: str | None, tools: TextTools, *, is_keyed: bool = False, is_markerless: bool = False
) -> list[TextCall]:
    """Return the calls that a JSON text names; none where one of them is not whole or not registered."""
    if text is None:
        return []
    try:
        value = read_tolerant(text)
    except RepairRefused:
        return []
    return _Shapes(tools, is_keyed=is_keyed, is_markerless=is_markerless).calls(value) or []


class _Shapes:
    """The shapes of a call in JSON."""

    def __init__(self, tools: TextTools, *, is_keyed: bool, is_markerless: bool) -> None:
        self._tools = tools
        self._is_keyed = is_keyed
        self._is_markerless = is_markerless

    def calls(self, value: Any, depth: int = 0) -> list[TextCall] | None:
        """Return the calls of a value; None where it is, or holds, something else."""
        if depth > 4:
            return None
        if isinstance(value, list):
            return self._all(cast("list[Any]", value), depth)
        if not isinstance(value, dict):
            return None
        known = cast("dict[str, Any]", value)
        for key in LIST_KEYS:
            if isinstance(known.get(key), list):
                return self._all(known[key], depth)
        if self._is_keyed:
            return self._keyed(known)
        if isinstance(known.get("function"), dict):
            return self.calls(known["function"], depth + 1)
        return self._named(known, depth)

    def _all(self, values: list[Any], depth: int) -> list[TextCall] | None:
        found: list[TextCall] = []
        for each in values:
            calls = self.calls(each, depth + 1)
            if calls is None:
                return None
            found += calls
        return found

    def _keyed(self, value: dict[str, Any]) -> list[TextCall] | None:
        found: list[TextCall] = []
        for name, given in value.items():
            tool, arguments = self._tools.find(name), _arguments(given)
            if tool is None or arguments is None:
                return None
            found.append(made(tool, arguments))
        return found

    def _named(self, value: dict[str, Any], depth: int) -> list[TextCall] | None:
        name = next((value[key] for key in NAME_KEYS if isinstance(value.get(key), str)), "")
        key = next((key for key in ARGUMENT_KEYS if key in value), None)
        if key is None and (self._is_markerless or value.keys() - {*NAME_KEYS, *_BESIDE}):
            return None
        if self._is_markerless and value.keys() - _KNOWN:
            return None
        arguments = _arguments(value[key]) if key is not None else {}
        if arguments is None:
            return None
        if name == _PARALLEL:
            return self.calls(arguments, depth + 1)
        tool = self._tools.find(name)
        return None if tool is None else [made(tool, arguments)]


def _arguments(value: Any) -> dict[str, Any] | None:
    """Return arguments as an object: also those inside a string, and none at all."""
    if value is None or value == "":
        return {}
    if isinstance(value, str):
        return object_of(value)
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def read_name(reader: ResumableReader, stops: str, tools: TextTools) -> Wait[TextTool | None]:
    """Read a registered name up to one of the stops; None at the first character that fits no name."""
    while True:
        text = reader.text[reader.at : reader.at + tools.names_chars_max]
        end = next((place for place, char in enumerate(text) if char in stops), -1)
        word = text if end < 0 else text[:end]
        if word.strip() and not tools.may_begin(word.rstrip()):
            return None
        if end >= 0 or reader.is_ended:
            reader.at += len(word)
            return tools.find(word)
        if len(text) >= tools.names_chars_max:
            return None
        yield


def looks_like_call(reader: ResumableReader, tools: TextTools, *, is_keyed: bool, is_markerless: bool) -> Wait[bool]:
    """Look at the first key of an object or list of them: tell early that it names no registered tool."""
    mark = reader.mark
    fits = yield from _first_key_fits(reader, tools, is_keyed=is_keyed, is_markerless=is_markerless)
    reader.back(mark)
    return fits


def _first_key_fits(reader: ResumableReader, tools: TextTools, *, is_keyed: bool, is_markerless: bool) -> Wait[bool]:
    if (yield from reader.literal("[")):
        yield from reader.space()
    if not (yield from reader.literal("{")):
        return False
    yield from reader.space()
    quote = yield from reader.peek()
    if quote not in _QUOTES:
        return not is_markerless
    reader.at += 1
    key = yield from reader.until(quote, _KEY_CHARS_MAX)
    if key is None or not (yield from reader.literal(quote)):
        return False
    if is_keyed:
        return tools.find(key) is not None
    if key not in NAME_KEYS:
        return not is_markerless or key in _KNOWN
    return (yield from _first_name_fits(reader, tools, key))


def _first_name_fits(reader: ResumableReader, tools: TextTools, key: str) -> Wait[bool]:
    yield from reader.space()
    if not (yield from reader.literal(":")):
        return False
    yield from reader.space()
    quote = yield from reader.peek()
    if quote not in _QUOTES:
        return key == "function" and quote == "{"
    reader.at += 1
    mark = reader.mark
    if (yield from reader.literal(_PARALLEL)):
        return True
    reader.back(mark)
    return (yield from read_name(reader, quote, tools)) is not None
