"""Detects faults in what a model wrote: calls that do not fit the tools, and calls that were left in a text.

Faults are counted and change nothing: a call with bad arguments gets an error as its result, a text stays a text.
"""

import re
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from treadle.core.items import CallItem, MessageItem, ReasoningItem, text_of
from treadle.core.json import BadJson, read_json
from treadle.core.memoized import Memo
from treadle.core.tool_definitions import ToolSpec

ARGUMENTS_CHARS_MAX = 65_536
"""Arguments beyond this are not looked into: they are checked by the schema when the tool runs."""

Fault = tuple[str, str]

INVENTED: Fault = ("invented_tool", "a tool was called that was not offered")
BLANK: Fault = ("blank_arguments", "a call without arguments to a tool that requires some")
FENCED: Fault = ("fenced_arguments", "arguments in a code fence")
TRAILING: Fault = ("trailing_quotes", "quotes behind the arguments of a call")
SEVERAL: Fault = ("several_objects", "several objects as the arguments of one call")
ANOTHER: Fault = ("arguments_of_another", "arguments that fit another tool than the one that was called")
NUMBER: Fault = ("number_as_text", "a number came as a text")
DIALECT: Fault = ("dialect_text", "a call in the text of the answer")
DIALECT_THOUGHT: Fault = ("dialect_thought", "a call in the thoughts of the answer")
END_THINK: Fault = ("stray_end_think", "an end of thinking in the text of the answer")

_OBJECT: Any = dict
_FENCE = re.compile(r"\s*```")
_TRAILING = re.compile(r'\s*\{.*\}\s*"+\s*\}?\s*', re.DOTALL)
_SEVERAL = re.compile(r"\}\s*\{")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_NUMBERS = ("integer", "number")
_FENCED_CODE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_DIALECT = re.compile(
    r"<tool_call>|</tool_call>|<\|tool_call|<｜tool▁call|<\|python_tag\|>|\[TOOL_CALLS\]|<function=|<invoke name="
    r"|<\|channel\|>commentary|functools\[\{"
)
"""How the templates of Qwen, Hermes, DeepSeek, Llama, Mistral, Anthropic and OpenAI's open models begin a call."""


class _Schema(msgspec.Struct):
    properties: dict[str, Any] = {}
    required: list[Any] = []
    numbers: frozenset[str] = frozenset()


_schema = msgspec.json.Decoder(_Schema)


def _read(spec: ToolSpec) -> _Schema | None:
    """Read a tool's schema, with the names of its parameters that are numbers."""
    try:
        schema = _schema.decode(spec.parameters)
    except msgspec.DecodeError:
        return None
    schema.numbers = frozenset([name for name, wanted in schema.properties.items() if _wants_number(wanted)])
    return schema


def _wants_number(wanted: Any) -> bool:
    return isinstance(wanted, dict) and cast("dict[str, Any]", wanted).get("type") in _NUMBERS


_SCHEMAS: Memo[ToolSpec, _Schema | None] = Memo(_read, 1_024)


def call_faults(call: CallItem, specs: Mapping[str, ToolSpec]) -> list[Fault]:
    """Return what is wrong with a call among the offered tools; nothing where none were offered."""
    if not specs or call.kind != "function":
        return []
    spec = specs.get(call.name)
    if spec is None:
        return [INVENTED]
    text = call.arguments
    if len(text) > ARGUMENTS_CHARS_MAX or spec.kind != "function":
        return []
    try:
        given: Any = read_json(text)
    except BadJson:
        return _text_faults(text)
    return _value_faults(given, spec, specs) if isinstance(given, _OBJECT) else []


def item_faults(item: MessageItem | ReasoningItem) -> list[Fault]:
    """Return what a text or a thought holds that should have been a call, or the end of the thoughts."""
    is_thought = isinstance(item, ReasoningItem)
    text = "".join((*item.summary, *item.text)) if is_thought else text_of(item.content)
    if "<" not in text and "[" not in text:
        return []
    bare = _FENCED_CODE.sub("", text)
    found: list[Fault] = []
    if _DIALECT.search(bare):
        found.append(DIALECT_THOUGHT if is_thought else DIALECT)
    if not is_thought and "</think>" in bare:
        found.append(END_THINK)
    return found


def _text_faults(text: str) -> list[Fault]:
    """Return the faults of arguments that are not JSON."""
    if _FENCE.match(text):
        return [FENCED]
    if _TRAILING.fullmatch(text):
        return [TRAILING]
    return [SEVERAL] if text.lstrip().startswith("{") and _SEVERAL.search(text) else []


def _value_faults(given: dict[str, Any], spec: ToolSpec, specs: Mapping[str, ToolSpec]) -> list[Fault]:
    own = _SCHEMAS.of(spec)
    if own is None:
        return []
    if not given:
        return [BLANK] if own.required else []
    if not given.keys() & own.properties.keys() and any(_fits(given, other) for other in specs.values()):
        return [ANOTHER]
    for name in own.numbers & given.keys():
        value = given[name]
        if isinstance(value, str) and len(value) <= 32 and _NUMBER.fullmatch(value.strip()):
            return [NUMBER]
    return []


def _fits(given: dict[str, Any], spec: ToolSpec) -> bool:
    schema = _SCHEMAS.of(spec)
    if schema is None or not schema.properties:
        return False
    return given.keys() <= schema.properties.keys() and all(name in given for name in schema.required)
