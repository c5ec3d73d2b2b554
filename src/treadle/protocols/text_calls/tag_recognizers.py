"""Recognisers of calls in tags: parameters by attribute, keys and values in tags of their own, element names; frames.

A closing tag inside a raw value counts only where, white space aside, another tag of the same grammar or the end of
the text follows. A missing one is forgiven where the next parameter, by a name that the tool has, begins.
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec

from treadle.protocols.text_calls.call_building import TextCall, made, object_of, read_name, unwrapped
from treadle.protocols.text_calls.dialect_grammar import Elements, Pairs, Tagged
from treadle.protocols.text_calls.dialect_table import BY_ID, FRAME_ENDS
from treadle.protocols.text_calls.json_recognizers import Calls, close
from treadle.protocols.text_calls.resumable_reader import ResumableReader, Wait, json_span
from treadle.protocols.text_calls.schema_values import TextTool, TextTools, Typed, from_text, types_of

_KEY_CHARS_MAX = 256
_ATTRIBUTE_CHARS_MAX = 512
_ATTRIBUTES_MAX = 8
_DEPTH_MAX = 32
_QUOTES = ('"', "'")
_CDATA, _CDATA_END = "<![CDATA[", "]]>"
_STRING_WORDS = frozenset({"true", "string"})
_CHANNELS = frozenset({"analysis", "commentary", "final"})
_READERS = frozenset({"", "user", "all", "assistant"})
Begins = Callable[[ResumableReader], Wait[bool]]
Pair = str | Typed


def raw_value(
    reader: ResumableReader, closer: str, followers: Sequence[str], early: str = "", begins: Begins | None = None
) -> Wait[str | None]:
    """Read a value up to and through its closer; `early` is a tag before which the closer may be missing."""
    words = (closer, early) if early else (closer,)
    parts: list[str] = []
    while True:
        found = yield from reader.up_to(words)
        if found is None:
            return None
        before, word = found
        parts.append(before)
        mark = reader.mark
        if word == closer:
            yield from reader.space()
            is_end = (yield from reader.peek()) == "" or bool((yield from reader.any_of(followers)))
            reader.back(mark)
            if is_end:
                return "".join(parts)
        elif begins is not None:
            is_next = yield from begins(reader)
            reader.back(mark)
            if is_next:
                reader.back(mark - len(word))
                return "".join(parts)
        parts.append(word)


class _Open(msgspec.Struct):
    """A call that is being read: its tool and the values so far."""

    tool: TextTool
    pairs: dict[str, Pair] = msgspec.field(default_factory=dict[str, Pair])

    def expects(self, key: str) -> bool:
        """Return whether a parameter of this name may still come."""
        return key in self.tool.properties and key not in self.pairs

    @property
    def may_end_early(self) -> bool:
        """Return whether nothing that the tool needs is missing."""
        return bool(self.pairs) and self.tool.required <= self.pairs.keys()

    def made(self) -> TextCall:
        """Return the call."""
        return made(self.tool, unwrapped(self.tool, self.tool.from_text(self.pairs)))


def tagged(reader: ResumableReader, grammar: Tagged, tools: TextTools) -> Wait[Calls]:
    """Read calls in tags that name the tool and each parameter."""
    opened = yield from _skip(reader, _openers(grammar))
    calls: Calls = []
    mark = reader.mark
    while (yield from reader.literal(grammar.head + grammar.call)):
        call = yield from _tagged_call(reader, grammar, tools)
        if call is None:
            if opened or not calls:
                return []
            break
        calls.append(call)
        mark = yield from _after_call(reader, grammar)
    reader.back(mark)
    return calls


def _openers(grammar: Tagged) -> tuple[str, ...]:
    return (*(grammar.tag(wrap) for wrap in grammar.wraps), *grammar.leads)


def _skip(reader: ResumableReader, words: Sequence[str]) -> Wait[bool]:
    """Read these words in any order, white space between them; return whether there was one."""
    has_any = False
    while words and (yield from reader.any_of(words)):
        has_any = True
        yield from reader.space()
    return has_any


def _after_call(reader: ResumableReader, grammar: Tagged) -> Wait[int]:
    """Read what ends a call and what may stand before the next; return the place behind the last end."""
    openers = _openers(grammar)
    closers = (*(grammar.end(wrap) for wrap in grammar.wraps), *grammar.ends)
    mark = reader.mark
    while True:
        yield from reader.space()
        word = (yield from reader.any_of((*closers, *openers))) if closers or openers else ""
        if not word:
            return mark
        if word in closers:
            mark = reader.mark


def _tagged_call(reader: ResumableReader, grammar: Tagged, tools: TextTools) -> Wait[TextCall | None]:
    tool = yield from _tool_of(reader, grammar, tools)
    if tool is None:
        return None
    yield from reader.space()
    if grammar.has_json and (yield from reader.peek()) == "{":
        arguments = object_of((yield from json_span(reader)))
        is_over = yield from close(reader, (grammar.end(grammar.call),), is_needed=True)
        return made(tool, unwrapped(tool, arguments)) if arguments is not None and is_over else None
    call = _Open(tool)
    while (yield from reader.literal(grammar.head + grammar.param)):
        if not (yield from _parameter(reader, grammar, call)):
            return None
        yield from reader.space()
    if (yield from reader.literal(grammar.end(grammar.call))):
        return call.made()
    mark = reader.mark
    ends = (grammar.head + grammar.call, *(grammar.end(wrap) for wrap in grammar.wraps), *grammar.ends)
    is_over = (yield from reader.peek()) == "" or bool((yield from reader.any_of(ends)))
    reader.back(mark)
    return call.made() if is_over and call.may_end_early else None


def _tool_of(reader: ResumableReader, grammar: Tagged, tools: TextTools) -> Wait[TextTool | None]:
    if not grammar.name_attr:
        if not (yield from reader.literal("=")):
            return None
        tool = yield from read_name(reader, ">", tools)
        return tool if tool is not None and (yield from reader.literal(grammar.tail)) else None
    attributes = yield from _attributes(reader, grammar, tools)
    return None if attributes is None else tools.find(attributes.get(grammar.name_attr, ""))


def _attributes(
    reader: ResumableReader, grammar: Tagged, tools: TextTools | None = None
) -> Wait[dict[str, str] | None]:
    """Read the attributes of a tag through its end; with tools the first one must be a registered name."""
    found: dict[str, str] = {}
    while len(found) < _ATTRIBUTES_MAX:
        yield from reader.space()
        if (yield from reader.literal(grammar.tail)):
            return found
        name = yield from reader.until("= <>\n\"'", _KEY_CHARS_MAX)
        if not name:
            return None
        yield from reader.space()
        if not (yield from reader.literal("=")):
            return None
        yield from reader.space()
        quote = yield from reader.peek()
        if quote not in _QUOTES:
            return None
        reader.at += 1
        if tools is not None and name == grammar.name_attr:
            mark = reader.mark
            if (yield from read_name(reader, quote, tools)) is None:
                return None
            reader.back(mark)
        value = yield from reader.until(quote, _ATTRIBUTE_CHARS_MAX)
        if value is None or not (yield from reader.literal(quote)):
            return None
        found[name] = value.replace("&quot;", '"').replace("&amp;", "&") if grammar.has_entities else value
    return None


def _parameter(reader: ResumableReader, grammar: Tagged, call: _Open) -> Wait[bool]:
    """Read one parameter, of which the tag's name was read."""
    attributes: dict[str, str] = {}
    if grammar.key_attr:
        given = yield from _attributes(reader, grammar)
        if given is None:
            return False
        attributes, key = given, given.get(grammar.key_attr, "")
    else:
        key = yield from _key(reader, grammar)
    if not key or key in call.pairs:
        return False
    value = yield from _value(reader, grammar, call, key)
    if value is None:
        return False
    kind = attributes.get(grammar.type_attr) if grammar.type_attr else None
    call.pairs[key] = value if kind is None else Typed(text=value, is_string=kind.lower() in _STRING_WORDS)
    return True


def _key(reader: ResumableReader, grammar: Tagged) -> Wait[str]:
    if not (yield from reader.literal("=")):
        return ""
    key = yield from reader.until("><\n", _KEY_CHARS_MAX)
    return key.strip().strip("\"'") if key and (yield from reader.literal(grammar.tail)) else ""


def _value(reader: ResumableReader, grammar: Tagged, call: _Open, key: str) -> Wait[str | None]:
    closer = grammar.end(grammar.param)
    if grammar.has_cdata and (yield from reader.literal(_CDATA)):
        return (yield from _cdata(reader, closer))
    opener = f"{grammar.head}{grammar.param}{' ' if grammar.key_attr else '='}"
    wraps = tuple(grammar.end(wrap) for wrap in grammar.wraps)
    followers = (opener, grammar.end(grammar.call), *wraps, *grammar.ends)

    def begins(reader: ResumableReader) -> Wait[bool]:
        if not grammar.key_attr:
            return call.expects((yield from _next_key(reader, grammar)))
        given = yield from _attributes(reader, grammar)
        name = "" if given is None else given.get(grammar.key_attr, "")
        return name != key and call.expects(name)

    early = opener if grammar.key_attr else f"\n{opener}"
    start = reader.mark
    value = yield from raw_value(reader, closer, followers, early, begins)
    if value is None:
        value = _unclosed(reader, start, grammar.end(grammar.call), (*wraps, *grammar.ends))
    return _trimmed(value) if value is not None and grammar.trims else value


def _unclosed(reader: ResumableReader, start: int, end: str, closers: Sequence[str]) -> str | None:
    """Return the value at the end of the text whose own end is missing though that of its call is there.

    `closers` are what may stand behind the end of the call.
    """
    text = reader.since(start).rstrip()
    for word in closers:
        text = text.removesuffix(word).rstrip()
    value = text.removesuffix(end)
    if value == text:
        return None
    reader.back(start + len(value))
    return value


def _next_key(reader: ResumableReader, grammar: Tagged) -> Wait[str]:
    key = yield from reader.until("><\n", _KEY_CHARS_MAX)
    return key.strip() if key and (yield from reader.literal(grammar.tail)) else ""


def _trimmed(value: str) -> str:
    """Take one line feed from each end."""
    return value.removeprefix("\n").removesuffix("\n")


def _cdata(reader: ResumableReader, closer: str) -> Wait[str | None]:
    parts: list[str] = []
    while True:
        found = yield from reader.up_to((_CDATA_END,))
        if found is None:
            return None
        parts.append(found[0])
        mark = reader.mark
        yield from reader.space()
        if (yield from reader.literal(closer)):
            return "".join(parts)
        reader.back(mark)
        parts.append(_CDATA_END)


class _PairTags(msgspec.Struct, frozen=True):
    """The tags of keys and values, with the suffix that all of them share."""

    suffix: str

    def tag(self, name: str) -> str:
        """Return a tag, or the end of one."""
        return f"<{name}{self.suffix}>"


def pairs(reader: ResumableReader, grammar: Pairs, tools: TextTools) -> Wait[Calls]:
    """Read calls whose keys and values stand in tags of their own."""
    has_sep = grammar.name_end == "sep"
    word = yield from reader.any_of(("<tool_calls", "<tool_call") if has_sep else ("<tool_call",))
    suffix = ""
    if has_sep and (yield from reader.peek()) == ":":
        suffix = (yield from reader.until("> \n<", 64)) or ""
    tags = _PairTags(suffix)
    if not word or not (yield from reader.literal(">")):
        return []
    if word == "<tool_calls":
        yield from reader.space()
        if not (yield from reader.literal(tags.tag("tool_call"))):
            return []
    calls: Calls = []
    while True:
        call = yield from _pair_call(reader, grammar, tags, tools)
        if call is None:
            return []
        calls.append(call)
        mark = reader.mark
        yield from reader.space()
        if (yield from reader.literal(tags.tag("/tool_calls"))):
            return calls
        if not (yield from reader.literal(tags.tag("tool_call"))):
            reader.back(mark)
            return calls
        if not (yield from _is_pair_name(reader, tools)):
            reader.back(mark)
            return calls


def _is_pair_name(reader: ResumableReader, tools: TextTools) -> Wait[bool]:
    """Return whether the next block is of this grammar too."""
    mark = reader.mark
    yield from reader.space()
    tool = yield from read_name(reader, "< \t\r\n", tools)
    reader.back(mark)
    return tool is not None


def _pair_call(reader: ResumableReader, grammar: Pairs, tags: _PairTags, tools: TextTools) -> Wait[TextCall | None]:
    yield from reader.space()
    tool = yield from read_name(reader, "< \t\r\n", tools)
    if tool is None or (grammar.name_end == "\n" and (yield from reader.peek()) not in ("\n", "\r")):
        return None
    yield from reader.space()
    if grammar.name_end == "sep":
        if not (yield from reader.literal(tags.tag("tool_sep"))):
            return None
        yield from reader.space()
    call = _Open(tool)
    while (yield from reader.literal(tags.tag("arg_key"))):
        if not (yield from _pair(reader, tags, call)):
            return None
        yield from reader.space()
    end = tags.tag("/tool_call")
    if (yield from reader.literal(end)):
        return call.made()
    mark = reader.mark
    followers = (tags.tag("tool_call"), tags.tag("/tool_calls"))
    is_over = (yield from reader.peek()) == "" or bool((yield from reader.any_of(followers)))
    reader.back(mark)
    return call.made() if is_over and call.may_end_early else None


def _pair(reader: ResumableReader, tags: _PairTags, call: _Open) -> Wait[bool]:
    """Read one key and its value; a key's end may be doubled, a value's begin or end missing."""
    key = yield from reader.until("<", _KEY_CHARS_MAX)
    key_end = tags.tag("/arg_key")
    if not key or key.strip() in call.pairs or not (yield from reader.literal(key_end)):
        return False
    key = key.strip()
    yield from reader.space()
    yield from _skip(reader, (key_end,))
    yield from reader.literal(tags.tag("arg_value"))

    def begins(reader: ResumableReader) -> Wait[bool]:
        name = yield from reader.until("<", _KEY_CHARS_MAX)
        if name is None or not (yield from reader.literal(key_end)):
            return False
        return name.strip() != key and call.expects(name.strip())

    followers = (tags.tag("arg_key"), tags.tag("/tool_call"), tags.tag("/tool_calls"))
    start = reader.mark
    value = yield from raw_value(reader, tags.tag("/arg_value"), followers, tags.tag("arg_key"), begins)
    if value is None:
        value = _unclosed(reader, start, tags.tag("/tool_call"), (tags.tag("/tool_calls"),))
    if value is None:
        return False
    call.pairs[key] = value
    return True


def elements(reader: ResumableReader, grammar: Elements, tools: TextTools) -> Wait[Calls]:
    """Read calls in tags that are named like the parameters."""
    if grammar.sentinel:
        return (yield from _Nested(reader, grammar.sentinel, tools).calls())
    if not (yield from reader.literal("<")):
        return []
    tool = yield from read_name(reader, ">", tools)
    if tool is None or not (yield from reader.literal(">")):
        return []
    call = _Open(tool)
    end = f"</{tool.name}>"
    tags = {f"<{key}>": key for key in tool.properties}
    yield from reader.space()
    while tags and (word := (yield from reader.any_of(tuple(tags)))):
        key = tags[word]
        value = yield from raw_value(reader, f"</{key}>", (end, *tags))
        if value is None or key in call.pairs:
            return []
        call.pairs[key] = _trimmed(value)
        yield from reader.space()
    if (yield from reader.literal(end)):
        return [call.made()]
    return [call.made()] if (yield from reader.peek()) == "" and call.may_end_early else []


Node = str | list[tuple[str, "Node"]]


class _Nested:
    """Reads tags behind a sentinel, nested ones too."""

    def __init__(self, reader: ResumableReader, sentinel: str, tools: TextTools) -> None:
        self._reader = reader
        self._mark = sentinel
        self._tools = tools

    def calls(self) -> Wait[Calls]:
        """Read a block of calls."""
        reader = self._reader
        yield from reader.literal(f"{self._mark}<tool_call>")
        yield from reader.space()
        found: Calls = []
        place = reader.mark
        grammar = Tagged(call="invoke", name_attr="name")
        while (yield from reader.literal(f"{self._mark}<invoke")):
            tool = yield from _tool_of(reader, grammar, self._tools)
            if tool is None:
                return []
            children = yield from self._children("invoke", 0)
            if children is None:
                return []
            given = {key: _typed(node, tool.of(key), tool.schema) for key, node in children}
            found.append(made(tool, unwrapped(tool, given)))
            place = reader.mark
            yield from reader.space()
            if (yield from reader.literal(f"{self._mark}</tool_call>")):
                place = reader.mark
                break
        reader.back(place)
        return found

    def _children(self, parent: str, depth: int) -> Wait[list[tuple[str, Node]] | None]:
        """Read the tags inside a tag, through its end."""
        found: list[tuple[str, Node]] = []
        reader = self._reader
        while depth <= _DEPTH_MAX:
            yield from reader.space()
            if not (yield from reader.literal(f"{self._mark}<")):
                return None
            name = yield from reader.until("> \n", _KEY_CHARS_MAX)
            if not name or not (yield from reader.literal(">")):
                return None
            if name == f"/{parent}":
                return found
            node = yield from self._node(name, depth)
            if node is None:
                return None
            found.append((name, node))
        return None

    def _node(self, name: str, depth: int) -> Wait[Node | None]:
        reader = self._reader
        text = yield from reader.up_to((self._mark,))
        if text is None:
            return None
        if (yield from reader.literal(f"</{name}>")):
            return text[0]
        reader.back(reader.mark - len(self._mark))
        return None if text[0].strip() else (yield from self._children(name, depth + 1))


def _typed(node: Node, schema: Any, root: Any) -> Any:
    """Return nested tags as their schema says: an object of their names, or a list of their contents."""
    kinds = types_of(schema, root)
    known = cast("dict[str, Any]", schema) if isinstance(schema, dict) else {}
    if isinstance(node, str) and (node.strip() or not kinds or "string" in kinds):
        return from_text(node, schema, root)
    node = [] if isinstance(node, str) else node
    is_list = "array" in kinds or (not kinds and bool(node) and all(name == "item" for name, _ in node))
    if is_list:
        return [_typed(each, known.get("items"), root) for _, each in node]
    properties = known.get("properties")
    inner = cast("dict[str, Any]", properties) if isinstance(properties, dict) else {}
    return {name: _typed(each, inner.get(name), root) for name, each in node}


class TagFrame(msgspec.Struct, frozen=True, kw_only=True):
    """A message with a header: what it calls, or whether its text is for the user."""

    calls: tuple[TextCall, ...] = ()
    is_visible: bool = False


def frame(reader: ResumableReader, tools: TextTools) -> Wait[TagFrame | None]:
    """Read a header, and the message behind it unless that is for the user."""
    header = yield from _header(reader)
    if header is None:
        return None
    channel, recipient = header
    if recipient in _READERS and channel != "analysis":
        return TagFrame(is_visible=True)
    if recipient == "self" or (recipient in _READERS and channel == "analysis"):
        ended = yield from reader.up_to((*FRAME_ENDS, "<|start|>"))
        if ended is not None and ended[1] == "<|start|>":
            reader.back(reader.mark - len("<|start|>"))
        return TagFrame()
    tool = tools.find(recipient)
    if tool is None:
        return None
    yield from reader.space()
    calls = yield from _framed_calls(reader, tool, tools)
    if not calls or not (yield from close(reader, FRAME_ENDS, is_needed=True, followers=("<|start|>",))):
        return None
    return TagFrame(calls=tuple(calls))


def _framed_calls(reader: ResumableReader, tool: TextTool, tools: TextTools) -> Wait[Calls]:
    if (yield from reader.peek()) == "{":
        arguments = object_of((yield from json_span(reader)))
        return [] if arguments is None else [made(tool, arguments)]
    grammar = BY_ID["muse_atem"].grammar
    assert isinstance(grammar, Tagged)
    # The end of the message is read by who reads the frame.
    return (yield from tagged(reader, msgspec.structs.replace(grammar, ends=()), tools))


def _header(reader: ResumableReader) -> Wait[tuple[str, str] | None]:
    """Read a header through `<|message|>`; return its channel and recipient."""
    if (yield from reader.literal("<|start|>")) and not (yield from reader.literal("assistant")):
        return None
    channel = recipient = ""
    for _ in range(_ATTRIBUTES_MAX):
        yield from reader.space()
        word = yield from reader.any_of(("<|message|>", "<|channel|>", "<|constrain|>", "to=", "json"))
        if word == "<|message|>":
            return channel, recipient
        if not word:
            return None
        if word == "json":
            continue
        value = yield from reader.until(" <\n", _KEY_CHARS_MAX)
        if not value:
            return None
        if word == "<|channel|>":
            channel = value
            if channel not in _CHANNELS:
                return None
        elif word == "to=":
            recipient = value
    return None
