"""Recognisers of calls whose arguments are JSON, Python or braces: one coroutine for each grammar.

Each starts at a marker and returns the calls, or none as soon as it can tell that there are none.
"""

from collections.abc import Sequence
from typing import Any, cast

from treadle.protocols.text_calls.call_building import TextCall, calls_of, looks_like_call, made, object_of, read_name
from treadle.protocols.text_calls.dialect_grammar import Braces, JsonBody, NamedJson, Pythonic, Whole
from treadle.protocols.text_calls.json_repair import RepairRefused
from treadle.protocols.text_calls.python_literals import PythonCall, PythonReader
from treadle.protocols.text_calls.resumable_reader import ResumableReader, Wait, json_span, python_span
from treadle.protocols.text_calls.schema_values import TextTool, TextTools, Typed, from_text, types_of

Calls = list[TextCall]
FENCE = "```"
_INFOS = frozenset({"", "json", "tool_call", "tool_calls", "tool_json"})
_INFO_CHARS_MAX = 16
_ID_CHARS_MAX = 128
_SCALAR_CHARS_MAX = 4_096
_DEPTH_MAX = 32


def close(
    reader: ResumableReader, closers: Sequence[str], *, is_needed: bool, followers: Sequence[str] = ()
) -> Wait[bool]:
    """Read the closers that stand here; a missing one is forgiven at the end, and where another call follows."""
    mark = reader.mark
    is_closed = False
    while True:
        yield from reader.space()
        if not closers or not (yield from reader.any_of(closers)):
            break
        is_closed, mark = True, reader.mark
    is_over = is_closed or not is_needed or (yield from reader.peek()) == ""
    is_over = is_over or bool(followers and (yield from reader.any_of(followers)))
    reader.back(mark)
    return is_over


def json_body(reader: ResumableReader, grammar: JsonBody, tools: TextTools) -> Wait[Calls]:
    """Read a marker and the JSON values behind it."""
    if not (yield from _open_body(reader, grammar)):
        return []
    found: Calls = []
    start = reader.mark
    while True:
        char = yield from reader.peek()
        calls: Calls = []
        if char and char in grammar.first:
            calls = yield from _one_value(reader, tools, is_keyed=grammar.is_keyed)
        if not calls:
            return []
        found += calls
        if not (yield from _goes_on(reader, grammar)):
            break
    body = reader.since(start)
    if grammar.is_fenced and not (yield from _close_fence(reader)):
        return []
    if not (yield from close(reader, grammar.closers, is_needed=grammar.needs_closer, followers=grammar.markers)):
        return []
    if grammar.is_echoed:
        yield from reader.literal(body + grammar.closers[0])
    return found


def _open_body(reader: ResumableReader, grammar: JsonBody) -> Wait[bool]:
    if grammar.maybe and (yield from reader.literal(grammar.maybe)):
        yield from reader.space()
    for word in grammar.opener:
        if not (yield from reader.literal(word)):
            return False
        if grammar.is_fenced or word != "functools":
            yield from reader.space()
    return not grammar.is_fenced or (yield from _open_fence(reader))


def _one_value(
    reader: ResumableReader, tools: TextTools, *, is_keyed: bool = False, is_markerless: bool = False
) -> Wait[Calls]:
    if not (yield from looks_like_call(reader, tools, is_keyed=is_keyed, is_markerless=is_markerless)):
        return []
    text = yield from json_span(reader)
    return calls_of(text, tools, is_keyed=is_keyed, is_markerless=is_markerless)


def _goes_on(reader: ResumableReader, grammar: JsonBody) -> Wait[bool]:
    """Read to the next value, if there is one; closing brackets too many are read over."""
    yield from _extra_brackets(reader)
    mark = reader.mark
    yield from reader.space()
    char = yield from reader.peek()
    if char and char in grammar.separators:
        reader.at += 1
        yield from reader.space()
        char = yield from reader.peek()
    elif not (grammar.needs_closer and grammar.separators):
        char = ""
    if char and char in grammar.first:
        return True
    reader.back(mark)
    return False


def _extra_brackets(reader: ResumableReader) -> Wait[None]:
    while (yield from reader.peek()) in ("}", "]"):
        reader.at += 1


def _open_fence(reader: ResumableReader) -> Wait[bool]:
    if not (yield from reader.literal(FENCE)):
        return False
    info = yield from reader.until("\n", _INFO_CHARS_MAX)
    if info is None or info.strip() not in _INFOS or not (yield from reader.literal("\n")):
        return False
    yield from reader.space()
    return True


def _close_fence(reader: ResumableReader) -> Wait[bool]:
    yield from reader.space()
    return (yield from reader.literal(FENCE)) or not reader.has_more


def named_json(reader: ResumableReader, grammar: NamedJson, tools: TextTools) -> Wait[Calls]:
    """Read calls of a name and the arguments as JSON behind it."""
    if grammar.wrappers and (yield from reader.any_of(grammar.wrappers)):
        yield from reader.space()
    found: Calls = []
    mark = reader.mark
    while (yield from reader.literal(grammar.opener)):
        call = yield from _named_call(reader, grammar, tools)
        if call is None:
            return []
        followers = (grammar.opener,)
        if not (yield from close(reader, grammar.closers, is_needed=grammar.needs_closer, followers=followers)):
            return []
        found.append(call)
        mark = reader.mark
        yield from reader.space()
    reader.back(mark)
    return found


def _named_call(reader: ResumableReader, grammar: NamedJson, tools: TextTools) -> Wait[TextCall | None]:
    if grammar.lead and not (yield from reader.literal(grammar.lead)):
        return None
    if grammar.id_end:
        reference = yield from reader.until(grammar.id_end[0], _ID_CHARS_MAX)
        if reference is None or not (yield from reader.literal(grammar.id_end)):
            return None
    if grammar.may_be_code:
        yield from reader.space()
    is_name_code = grammar.may_be_code and (yield from reader.literal("`"))
    start = reader.mark
    ends = "".join(end[0] for end in grammar.name_ends) or "[{ \n"
    tool = yield from read_name(reader, "`" if is_name_code else ends, tools)
    if tool is None or (is_name_code and not (yield from reader.literal("`"))):
        return None
    written = reader.since(start).strip().rstrip("`")
    if not (yield from _to_arguments(reader, grammar)):
        return None
    fence = (yield from _open_code(reader)) if grammar.may_be_code else ""
    if fence is None or (yield from reader.peek()) != "{":
        return None
    arguments = object_of((yield from json_span(reader)))
    if arguments is None:
        return None
    yield from _extra_brackets(reader)
    if fence and not (yield from _close_code(reader, fence)):
        return None
    if grammar.is_fenced and not (yield from _close_fence(reader)):
        return None
    return made(tool, arguments, written if written != tool.name else "")


def _to_arguments(reader: ResumableReader, grammar: NamedJson) -> Wait[bool]:
    """Read what stands between the name and the object."""
    if grammar.name_ends and not (yield from reader.any_of(grammar.name_ends)):
        return False
    yield from reader.space()
    if grammar.id_mark and (yield from reader.literal(grammar.id_mark)):
        yield from reader.until("[{", _ID_CHARS_MAX)
    if grammar.args_mark:
        has_mark = yield from reader.literal(grammar.args_mark)
        if not has_mark and grammar.name_ends:
            return False
        yield from reader.space()
    return not grammar.is_fenced or (yield from _open_fence(reader))


def _open_code(reader: ResumableReader) -> Wait[str | None]:
    """Read what opens a fence or inline code, if there is any, and return it; None for a fence of something else."""
    mark = reader.mark
    if (yield from reader.literal(FENCE)):
        reader.back(mark)
        return FENCE if (yield from _open_fence(reader)) else None
    return "`" if (yield from reader.literal("`")) else ""


def _close_code(reader: ResumableReader, fence: str) -> Wait[bool]:
    """Read the end of the code that was opened so."""
    return (yield from _close_fence(reader)) if fence == FENCE else (yield from reader.literal(fence))


def pythonic(reader: ResumableReader, grammar: Pythonic, tools: TextTools) -> Wait[Calls]:
    """Read calls as Python writes them."""
    if not (yield from reader.literal(grammar.opener)):
        return []
    if grammar.opener.startswith(FENCE):
        info = yield from reader.until("\n", _INFO_CHARS_MAX)
        if info is None or info.strip():
            return []
    yield from reader.space()
    start = reader.mark
    if (yield from reader.peek()) == "[":
        found = yield from _python_list(reader, tools)
    else:
        found = [] if grammar.is_list else (yield from _python_lines(reader, grammar, tools))
    body = reader.since(start)
    if not found or not (yield from close(reader, (grammar.closer,), is_needed=True)):
        return []
    if grammar.is_echoed:
        yield from reader.literal(body + grammar.closer)
    return found


def _python_list(reader: ResumableReader, tools: TextTools) -> Wait[Calls]:
    mark = reader.mark
    reader.at += 1
    yield from reader.space()
    if (yield from read_name(reader, "(", tools)) is None:
        return []
    reader.back(mark)
    text = yield from python_span(reader)
    try:
        return _known([] if text is None else PythonReader(text).calls(), tools)
    except RepairRefused:
        return []


def _python_lines(reader: ResumableReader, grammar: Pythonic, tools: TextTools) -> Wait[Calls]:
    found: Calls = []
    while True:
        calls = yield from _python_line(reader, tools)
        if not calls:
            return []
        found += calls
        mark = reader.mark
        while (yield from reader.literal(";")):
            mark = reader.mark
        yield from reader.space()
        char = yield from reader.peek()
        reader.back(mark)
        if not (char.isalpha() or char == "_"):
            return found
        yield from reader.space()


def _python_line(reader: ResumableReader, tools: TextTools) -> Wait[Calls]:
    start = reader.mark
    if (yield from reader.literal("print(")):
        if (yield from read_name(reader, "(", tools)) is None:
            return []
        reader.back(start + len("print"))
    elif (yield from read_name(reader, "(", _CallSuffix(tools))) is None:
        return []
    if (yield from reader.peek()) != "(" or (yield from python_span(reader)) is None:
        return []
    try:
        return _known([PythonReader(reader.since(start)).one()], tools)
    except RepairRefused:
        return []


class _CallSuffix(TextTools):
    """Tools whose names may be followed by `.call`."""

    __slots__ = ("_tools",)

    def __init__(self, tools: TextTools) -> None:
        super().__init__(())
        self._tools = tools
        self.names_chars_max = tools.names_chars_max

    def find(self, written: str) -> TextTool | None:
        """Return the tool of this name."""
        return self._tools.find(written) or self._tools.find(written.strip().removesuffix(".call"))

    def may_begin(self, text: str) -> bool:
        """Return whether a registered name may begin with this."""
        head, dot, tail = text.rpartition(".")
        return self._tools.may_begin(text) or (dot == "." and "call".startswith(tail) and self.find(head) is not None)


def _known(calls: list[PythonCall], tools: TextTools) -> Calls:
    found: Calls = []
    for call in calls:
        tool = _CallSuffix(tools).find(call.name)
        if tool is None:
            return []
        found.append(made(tool, call.arguments))
    return found


def whole(reader: ResumableReader, grammar: Whole, tools: TextTools) -> Wait[Calls]:
    """Read a message that is nothing but calls."""
    if grammar.kind == "python":
        found = (yield from _python_list(reader, tools)) if (yield from reader.peek()) == "[" else []
    else:
        if grammar.kind == "fence" and not (yield from _open_fence(reader)):
            return []
        found = yield from _whole_json(reader, tools)
        if grammar.kind == "fence" and found and not (yield from _close_fence(reader)):
            return []
    if not found:
        return []
    yield from reader.space()
    return found if (yield from reader.peek()) == "" else []


def _whole_json(reader: ResumableReader, tools: TextTools) -> Wait[Calls]:
    found: Calls = []
    while True:
        calls = yield from _one_value(reader, tools, is_markerless=True)
        if not calls:
            return []
        found += calls
        mark = reader.mark
        yield from reader.space()
        if not (yield from reader.literal(";")):
            reader.back(mark)
            return found
        yield from reader.space()


def braces(reader: ResumableReader, grammar: Braces, tools: TextTools) -> Wait[Calls]:
    """Read `call:` and a name, then keys and values in braces."""
    if not (yield from reader.literal(grammar.opener)):
        return []
    if not grammar.opener.startswith("call:") and not (yield from reader.literal("call:")):
        return []
    tool = yield from read_name(reader, "{", tools)
    if tool is None or (yield from reader.peek()) != "{":
        return []
    value = yield from _Braced(reader, grammar.quote).value(0)
    if not isinstance(value, dict):
        return []
    closers = (grammar.closer,) if grammar.closer else ()
    if not (yield from close(reader, closers, is_needed=bool(closers), followers=grammar.markers)):
        return []
    # Models put a word of their own around numbers too; quotes of JSON say that a text is meant.
    is_loose = grammar.quote != '"'
    arguments: dict[str, Any] = {
        key: typed(each, tool.of(key), tool.schema, is_loose=is_loose) for key, each in value.items()
    }
    return [made(tool, arguments)]


Node = str | Typed | list["Node"] | dict[str, "Node"]
"""A value whose scalars are text still."""


class _Broken:
    """What stands for a value that is none."""


_BROKEN = _Broken()


class _Braced:
    """Reads values in braces and brackets, text between quotes, and bare scalars."""

    def __init__(self, reader: ResumableReader, quote: str) -> None:
        self._reader = reader
        self._quote = quote

    def value(self, depth: int) -> Wait["Node | _Broken"]:
        """Read a value of any kind."""
        yield from self._reader.space()
        if (yield from self._reader.literal(self._quote)):
            text = yield from self._quoted()
            return _BROKEN if text is None else Typed(text=text, is_string=True)
        char = yield from self._reader.peek()
        if char in ("{", "["):
            self._reader.at += 1
            if depth > _DEPTH_MAX:
                return _BROKEN
            return (yield from (self._object(depth) if char == "{" else self._list(depth)))
        bare = yield from self._reader.until(",}]", _SCALAR_CHARS_MAX)
        return _BROKEN if bare is None or not self._reader.has_more else bare.strip()

    def _quoted(self) -> Wait[str | None]:
        parts: list[str] = []
        while True:
            found = yield from self._reader.up_to((self._quote,))
            if found is None:
                return None
            parts.append(found[0])
            backslashes = len(found[0]) - len(found[0].rstrip("\\"))
            if self._quote != '"' or backslashes % 2 == 0:
                break
            parts.append(self._quote)
        text = "".join(parts)
        if self._quote != '"':
            return text
        return str((object_of(f'{{"v": "{text}"}}') or {"v": text})["v"])

    def _object(self, depth: int) -> Wait["Node | _Broken"]:
        found: dict[str, Node] = {}
        while True:
            yield from self._reader.space()
            if (yield from self._reader.literal("}")):
                return found
            key = yield from self._key()
            if key is None:
                return _BROKEN
            value = yield from self.value(depth + 1)
            if isinstance(value, _Broken) or not (yield from self._separated("}")):
                return _BROKEN
            found[key] = value

    def _key(self) -> Wait[str | None]:
        if (yield from self._reader.literal(self._quote)):
            key = yield from self._quoted()
            yield from self._reader.space()
        else:
            key = yield from self._reader.until(":,{}[]<", _ID_CHARS_MAX)
        if key is None or not (yield from self._reader.literal(":")):
            return None
        return key.strip()

    def _list(self, depth: int) -> Wait["Node | _Broken"]:
        found: list[Node] = []
        while True:
            yield from self._reader.space()
            if (yield from self._reader.literal("]")):
                return found
            value = yield from self.value(depth + 1)
            if isinstance(value, _Broken) or not (yield from self._separated("]")):
                return _BROKEN
            found.append(value)

    def _separated(self, end: str) -> Wait[bool]:
        yield from self._reader.space()
        if (yield from self._reader.literal(",")):
            return True
        return (yield from self._reader.peek()) == end


def typed(node: Node, schema: Any, root: Any, *, is_loose: bool = False) -> Any:
    """Return a value whose scalars are text as its schema says; if it `is_loose`, quoted ones too."""
    known = cast("dict[str, Any]", schema) if isinstance(schema, dict) else {}
    if isinstance(node, dict):
        properties = known.get("properties")
        inner = cast("dict[str, Any]", properties) if isinstance(properties, dict) else {}
        return {key: typed(each, inner.get(key), root, is_loose=is_loose) for key, each in node.items()}
    if isinstance(node, list):
        return [typed(each, known.get("items"), root, is_loose=is_loose) for each in node]
    if is_loose and isinstance(node, Typed) and node.is_string and types_of(schema, root):
        return from_text(node.text, schema, root)
    return from_text(node, schema, root)
