"""A Chat Completions request as a canonical one.

What Treadle acts on is typed and checked; what it does not know travels on, as it was written, to upstreams of the
same protocol. A refusal names the field as the API would.
"""

from typing import Any, Generic, TypeVar

import msgspec

from treadle.core.items import AnyItem
from treadle.core.json import write_json
from treadle.core.request import Options, Request, Surface
from treadle.core.tool_definitions import AUTO, ToolChoice, ToolSpec
from treadle.protocols.chat.client_messages import ChatMessage, MessageReader, usual_message
from treadle.protocols.chat.content_parts import PROTOCOL
from treadle.protocols.chat.tools import ReadTools, read_choice, read_legacy_choice, read_tools
from treadle.protocols.field_reader import (
    FLAG,
    LIST,
    NULL,
    TEXT,
    Fields,
    Opened,
    Shape,
    given,
    given_object,
    is_null,
    members_in,
    missing,
    open_request,
    read_known,
    read_value,
    refusal,
    unknown_in,
    usual_or_raw,
)
from treadle.protocols.translation_notes import CHOICE, HOSTED, METADATA, Notes, Recent
from treadle.protocols.turn_grouping import TurnText, read_plain_turns

OLD_TOKENS_MAX = "max_tokens"
CHOICES_MAX = 8
"""Each choice is a run of its own, with model calls and tools of its own."""

M = TypeVar("M")


class _Asked(msgspec.Struct, Generic[M], kw_only=True, gc=False):
    """What Treadle acts on of a request, in the order in which it is checked; what has several forms is raw."""

    model: str | None = ""
    messages: M
    tools: msgspec.Raw = NULL
    functions: list[msgspec.Raw] | None = None
    tool_choice: msgspec.Raw = NULL
    function_call: msgspec.Raw = NULL
    stream_options: msgspec.Raw = NULL
    stream: bool | None = None
    n: int | None = None
    metadata: msgspec.Raw = NULL
    store: bool | None = None
    max_completion_tokens: int | None = None
    max_tokens: int | None = None
    stop: str | list[str] | None = None
    parallel_tool_calls: bool | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    reasoning_effort: str | None = None
    response_format: msgspec.Raw = NULL


_KNOWN = frozenset(_Asked.__struct_fields__)
_asked: msgspec.json.Decoder[_Asked[Any]] = msgspec.json.Decoder(_Asked[msgspec.Raw])
_mixed = msgspec.json.Decoder(_Asked[list[msgspec.Raw]])


def _read_mixed(data: bytes) -> _Asked[Any] | None:
    asked: _Asked[Any] = _mixed.decode(data)
    asked.messages = usual_or_raw(asked.messages, usual_message)
    return None if asked.messages is None else asked


SHAPES: tuple[Shape[_Asked[Any]], ...] = (
    msgspec.json.Decoder(_Asked[list[TurnText]]).decode,
    msgspec.json.Decoder(_Asked[list[ChatMessage]]).decode,
    _read_mixed,
)
"""The usual shapes of a request by those of its messages, the plainest first."""


def _read_list(raw: msgspec.Raw, notes: Notes) -> ReadTools:
    return read_tools(read_value(LIST, raw, "tools"), "tools", notes)


_TOOLS = Recent(_read_list)


class _Tools(msgspec.Struct, frozen=True, kw_only=True):
    """The tools of a request and the choice among them; `kept` is what only an upstream of Chat can make of it."""

    specs: tuple[ToolSpec, ...] = ()
    choice: ToolChoice = AUTO
    hosted: dict[str, msgspec.Raw] = {}
    is_legacy: bool = False


_NO_TOOLS = _Tools()


def read_request(body: bytes) -> Request:
    """Read a client's request.

    Raises: ProtocolError, with `param` naming the field.
    """
    opened = open_request(body, "messages", SHAPES)
    asked = read_known(_asked, opened) if opened.known is None else opened.known
    notes = Notes()
    if opened.mended:
        notes.add("lone_surrogate", "coerced", "halves of surrogate pairs became U+FFFD", count=opened.mended)
    items = _read_messages(asked.messages, opened, notes)
    has_tools = not (asked.tools is asked.tool_choice is NULL and asked.functions is None)
    tools = _read_tools(asked, notes) if has_tools else _NO_TOOLS
    if asked.n is not None and not 1 <= asked.n <= CHOICES_MAX:
        raise refusal("n", f"Expected `int` from 1 to {CHOICES_MAX}")
    surface = Surface(
        stream=asked.stream is True,
        include_usage=asked.stream_options is not NULL and _wants_usage(asked.stream_options),
        legacy_functions=tools.is_legacy,
        choices=asked.n or 1,
        metadata=None if asked.metadata is NULL else given_object(asked.metadata, METADATA),
    )
    extra = {**unknown_in(opened, _KNOWN), **tools.hosted}
    if surface.metadata is not None:
        extra[METADATA] = surface.metadata
    return Request(
        protocol=PROTOCOL,
        model=asked.model or "",
        items=items,
        tools=tools.specs,
        tool_choice=tools.choice,
        options=_read_options(asked, tools.is_legacy, extra, notes),
        surface=surface,
        store=asked.store is not False,
        notes=notes.all() if notes.added else (),
    )


def _read_messages(messages: list[Any] | msgspec.Raw, opened: Opened[Any], notes: Notes) -> tuple[AnyItem, ...]:
    if isinstance(messages, msgspec.Raw):
        if is_null(messages):
            raise missing("messages")
        items = MessageReader(notes).read(messages, "messages")
    elif messages and type(messages[0]) is TurnText:
        return read_plain_turns(messages)
    else:
        items = MessageReader(notes).read_decoded(messages, members_in(opened)["messages"], "messages")
    if not items:
        raise refusal("messages", "at least one message is needed")
    return items


def _read_tools(asked: _Asked[Any], notes: Notes) -> _Tools:
    tools, functions = given(asked.tools), asked.functions
    read = ReadTools() if tools is None else _TOOLS.of(tools, notes)
    if asked.tool_choice is NULL and not (read.others or functions):
        return _Tools(specs=read.specs)
    raw = given(asked.tool_choice)
    if read.specs or read.others or not functions:
        if functions:
            notes.add("functions_dropped", "dropped", "legacy functions beside tools", "functions")
        choice = AUTO if raw is None else read_choice(raw, read.others, notes)
        others = read.others
        if others and choice is not None and choice.allowed is not None:
            notes.add("hosted_tool", "dropped", "allowed_tools names only tools that are called", HOSTED, len(others))
            others = ()
        hosted = {HOSTED: msgspec.Raw(write_json(others))} if others else {}
        if raw is not None and choice is None:
            hosted[CHOICE] = raw.copy()
        return _Tools(specs=read.specs, choice=choice or AUTO, hosted=hosted)
    specs = read_tools(functions, "functions", notes, legacy=True).specs
    notes.add("legacy_functions", "emulated", "an answer shows the first of its calls only", "functions")
    legacy = given(asked.function_call)
    return _Tools(specs=specs, choice=AUTO if legacy is None else read_legacy_choice(legacy), is_legacy=True)


def _wants_usage(raw: msgspec.Raw) -> bool:
    return not is_null(raw) and Fields(raw, "stream_options").get("include_usage", FLAG) is True


def _read_options(asked: _Asked[Any], is_legacy: bool, extra: dict[str, msgspec.Raw], notes: Notes) -> Options:
    """Return the options; `extra` is what Treadle does not act on, to be added to."""
    tokens_max, old_tokens_max, stop = asked.max_completion_tokens, asked.max_tokens, asked.stop
    if not (tokens_max is old_tokens_max is None):
        _check_tokens_max(tokens_max, old_tokens_max, notes)
    schema = None if asked.response_format is NULL else _read_format(asked.response_format, extra)
    if old_tokens_max is not None and tokens_max is None:
        # Older servers know only the old spelling, so the client's own is kept.
        extra[OLD_TOKENS_MAX] = msgspec.Raw(str(old_tokens_max).encode())
    return Options(
        max_output_tokens=tokens_max or old_tokens_max,
        temperature=asked.temperature,
        top_p=asked.top_p,
        stop=() if stop is None else (stop,) if isinstance(stop, str) else tuple(stop),
        seed=asked.seed,
        # A legacy answer has room for one call only.
        parallel_tool_calls=False if is_legacy else asked.parallel_tool_calls,
        reasoning_effort=asked.reasoning_effort,
        output_schema=schema,
        extra=extra,
        extra_protocol=PROTOCOL,
    )


def _check_tokens_max(tokens_max: int | None, old_tokens_max: int | None, notes: Notes) -> None:
    for name, count in (("max_completion_tokens", tokens_max), (OLD_TOKENS_MAX, old_tokens_max)):
        if count is not None and count < 1:
            raise refusal(name, "Expected `int` >= 1")
    if tokens_max is not None and old_tokens_max not in (None, tokens_max):
        notes.add("option_dropped", "dropped", "max_completion_tokens says otherwise", OLD_TOKENS_MAX)


def _read_format(given_format: msgspec.Raw, extra: dict[str, msgspec.Raw]) -> msgspec.Raw | None:
    """Read `response_format` as the canonical, flat output schema; a kind that only Chat's servers know is extra."""
    raw = given_object(given_format, "response_format")
    if raw is None:
        return None
    form = Fields(raw, "response_format")
    kind = form.get("type", TEXT)
    if kind == "text":
        return None
    if kind == "json_object":
        return raw
    schema = form.object("json_schema") if kind == "json_schema" else None
    if schema is None:
        extra["response_format"] = raw
        return None
    return msgspec.Raw(write_json({**schema.rest(), "type": kind}))
