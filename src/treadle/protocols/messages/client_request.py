"""A Messages request as a canonical one.

What Treadle acts on is typed and checked; what it does not know travels on, as it was written, to upstreams of the
same protocol. A continued thread inherits what its request leaves out. A refusal names the field as the API would.
"""

from typing import Any, Generic, TypeVar

import msgspec

from treadle.core.items import AnyItem, TextPart
from treadle.core.json import write_json
from treadle.core.request import Options, Request, Surface
from treadle.core.tool_definitions import AUTO, ToolChoice
from treadle.protocols.field_reader import (
    INTEGER,
    LIST,
    NULL,
    TEXT,
    Fields,
    Opened,
    Shape,
    given,
    given_object,
    is_null,
    missing,
    open_request,
    read_known,
    read_value,
    refusal,
    starts_with,
    unknown_in,
    usual_or_raw,
)
from treadle.protocols.messages.client_messages import HistoryReader, Message, are_shallow, usual_message
from treadle.protocols.messages.content_blocks import read_content
from treadle.protocols.messages.provider_state import PROTOCOL
from treadle.protocols.messages.tools import ToolShelf, read_choice
from treadle.protocols.translation_notes import Notes, Recent
from treadle.protocols.turn_grouping import TurnText, read_plain_turns

M = TypeVar("M")

SCHEMA_NAME = "output"
"""The name that other APIs demand of an output schema and this one has no place for."""

EFFORT_BUDGETS = ((4_096, "low"), (16_384, "medium"))
"""Up to how many tokens of thinking an effort of that name amounts to; more is high."""


class _Asked(msgspec.Struct, Generic[M], kw_only=True, gc=False):
    """What Treadle acts on of a request, in the order in which it is checked; what has several forms is raw."""

    model: str | None = ""
    mcp_servers: msgspec.Raw = NULL
    messages: M
    thread: msgspec.Raw = NULL
    tools: msgspec.Raw = NULL
    tool_choice: msgspec.Raw = NULL
    system: msgspec.Raw = NULL
    stream: bool | None = None
    thinking: msgspec.Raw = NULL
    output_config: msgspec.Raw = NULL
    output_format: msgspec.Raw = NULL
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop_sequences: list[msgspec.Raw] | None = None


_KNOWN = frozenset(_Asked.__struct_fields__)
_asked: msgspec.json.Decoder[_Asked[Any]] = msgspec.json.Decoder(_Asked[msgspec.Raw])
_usual = msgspec.json.Decoder(_Asked[list[Message]])


_mixed = msgspec.json.Decoder(_Asked[list[msgspec.Raw]])


def _read_usual(data: bytes) -> _Asked[Any] | None:
    """Decode a request whose messages are usual; None if what stands in one may nest too deep."""
    asked = _usual.decode(data)
    return asked if are_shallow(asked.messages) else None


def _read_mixed(data: bytes) -> _Asked[Any] | None:
    asked: _Asked[Any] = _mixed.decode(data)
    messages = asked.messages = usual_or_raw(asked.messages, usual_message)
    is_shallow = messages is not None and are_shallow([each for each in messages if isinstance(each, Message)])
    return asked if is_shallow else None


SHAPES: tuple[Shape[_Asked[Any]], ...] = (
    msgspec.json.Decoder(_Asked[list[TurnText]]).decode,
    _read_usual,
    _read_mixed,
)
"""The usual shapes of a request by those of its messages, the plainest first."""


def read_request(body: bytes) -> Request:
    """Read a client's request.

    Raises: ProtocolError, with `param` naming the field.
    """
    opened = open_request(body, "messages", SHAPES)
    asked = read_known(_asked, opened) if opened.known is None else opened.known
    notes = Notes()
    if opened.mended:
        notes.add("lone_surrogate", "coerced", "halves of surrogate pairs became U+FFFD", count=opened.mended)
    extra: dict[str, msgspec.Raw] = {}
    items, definitions = _read_messages(asked, extra, notes)
    previous = None if asked.thread is NULL else _read_thread(asked.thread)
    if not items and previous is None:
        raise refusal("messages", "at least one message is required")
    shelf = _NO_TOOLS if asked.tools is NULL and not definitions else _shelf(asked.tools, definitions, extra, notes)
    choice, parallel = AUTO, None
    if asked.tool_choice is not NULL:
        choice, parallel = _read_choice(asked.tool_choice, shelf, extra, notes)
    instructions = None if asked.system is NULL else _read_system(asked.system, extra)
    return Request(
        protocol=PROTOCOL,
        model=asked.model or "",
        items=items,
        instructions=instructions,
        tools=shelf.specs,
        tool_choice=choice,
        options=_read_options(asked, opened, parallel, extra),
        surface=Surface(stream=asked.stream is True),
        previous_response_id=previous,
        inherits=previous is not None,
        notes=notes.all(),
    )


def system_text(raw: msgspec.Raw) -> str:
    """Return the text of a system prompt.

    Raises: ProtocolError.
    """
    texts = (part.text for part in read_content(raw, "system") if isinstance(part, TextPart))
    return "\n\n".join(text for text in texts if text)


def effort_of(budget_tokens: int) -> str:
    """Return the effort that a budget of thinking amounts to."""
    return next((effort for bound, effort in EFFORT_BUDGETS if budget_tokens <= bound), "high")


def _read_messages(
    asked: _Asked[Any], extra: dict[str, msgspec.Raw], notes: Notes
) -> tuple[tuple[AnyItem, ...], list[tuple[str, msgspec.Raw]]]:
    """Return the items, and the tools that are defined among them, with their paths."""
    servers = frozenset[str]() if asked.mcp_servers is NULL else _servers(asked.mcp_servers, extra)
    messages: list[Any] | msgspec.Raw = asked.messages
    if isinstance(messages, msgspec.Raw):
        if is_null(messages):
            raise missing("messages")
        reader = HistoryReader(notes, servers)
        return reader.read(messages, "messages"), reader.definitions
    if messages and type(messages[0]) is TurnText:
        return read_plain_turns(messages), []
    reader = HistoryReader(notes, servers)
    return reader.read_decoded(messages, "messages"), reader.definitions


def _read_system(raw: msgspec.Raw, extra: dict[str, msgspec.Raw]) -> str | None:
    """Return the system prompt as text; its blocks are kept where they hold more than the text."""
    if is_null(raw):
        return None
    text = system_text(raw)
    if text and not starts_with(raw, '"'):
        extra["system"] = raw.copy()
    return text or None


def _read_thread(raw: msgspec.Raw) -> str | None:
    """Return the message that this request continues; a new thread needs only its id."""
    if is_null(raw):
        return None
    thread = Fields(raw, "thread")
    return thread.need("previous_message_id", TEXT) if thread.need("type", TEXT) == "continue" else None


def _servers(raw: msgspec.Raw, extra: dict[str, msgspec.Raw]) -> frozenset[str]:
    """Return the names of the MCP servers that the upstream shall call."""
    if is_null(raw):
        return frozenset()
    extra["mcp_servers"] = raw.copy()
    servers = enumerate(read_value(LIST, raw, "mcp_servers"))
    names = (Fields(server, f"mcp_servers.{place}").get("name", TEXT) for place, server in servers)
    return frozenset(name for name in names if name)


def _shelf(
    raw: msgspec.Raw, definitions: list[tuple[str, msgspec.Raw]], extra: dict[str, msgspec.Raw], notes: Notes
) -> ToolShelf:
    tools = given(raw)
    if definitions:
        shelf = ToolShelf() if tools is None else _read_shelf(tools, notes)
        shelf.add(definitions, notes)
    else:
        shelf = _NO_TOOLS if tools is None else _SHELVES.of(tools, notes)
    if shelf.hosted:
        extra["tools"] = msgspec.Raw(write_json(shelf.hosted))
    return shelf


def _read_shelf(raw: msgspec.Raw, notes: Notes) -> ToolShelf:
    shelf = ToolShelf()
    shelf.add(((f"tools.{place}", each) for place, each in enumerate(read_value(LIST, raw, "tools"))), notes)
    return shelf


_SHELVES = Recent(_read_shelf)
_NO_TOOLS = ToolShelf()


def _read_choice(
    raw: msgspec.Raw, shelf: ToolShelf, extra: dict[str, msgspec.Raw], notes: Notes
) -> tuple[ToolChoice, bool | None]:
    if is_null(raw):
        return AUTO, None
    choice, parallel = read_choice(raw, notes)
    if shelf.can_choose(choice):
        return choice, parallel
    extra["tool_choice"] = raw.copy()
    return AUTO, parallel


def _read_options(
    asked: _Asked[Any], opened: Opened[Any], parallel: bool | None, extra: dict[str, msgspec.Raw]
) -> Options:
    budget = None if asked.thinking is NULL else _budget(asked.thinking, extra)
    effort, schema = None, None
    if not (asked.output_config is asked.output_format is NULL):
        effort, schema = _read_output(asked, extra, has_budget=budget is not None)
    if asked.max_tokens is not None and asked.max_tokens < 0:
        raise refusal("max_tokens", "Expected `int` >= 0")
    stop = enumerate(asked.stop_sequences or ())
    return Options(
        max_output_tokens=asked.max_tokens,
        temperature=asked.temperature,
        top_p=asked.top_p,
        stop=tuple([read_value(TEXT, raw, f"stop_sequences.{place}") for place, raw in stop]),
        parallel_tool_calls=parallel,
        reasoning_effort=effort or (None if budget is None else effort_of(budget)),
        output_schema=schema,
        extra={**unknown_in(opened, _KNOWN), **extra},
        extra_protocol=PROTOCOL,
    )


def _budget(given_thinking: msgspec.Raw, extra: dict[str, msgspec.Raw]) -> int | None:
    """Return how many tokens the model may think, if the request names a number."""
    raw = given_object(given_thinking, "thinking")
    if raw is None:
        return None
    extra["thinking"] = raw
    return Fields(raw, "thinking").get("budget_tokens", INTEGER)


def _read_output(
    asked: _Asked[Any], extra: dict[str, msgspec.Raw], *, has_budget: bool
) -> tuple[str | None, msgspec.Raw | None]:
    """Return the effort and the output schema; the other fields of the output are kept."""
    config = None if is_null(asked.output_config) else Fields(asked.output_config, "output_config")
    form = None if is_null(asked.output_format) else Fields(asked.output_format, "output_format")
    if config is None:
        return None, _read_format(form)
    effort = config.get("effort", TEXT)
    form = config.object("format") or form
    rest: dict[str, Any] = dict(config.rest())
    if effort is not None and has_budget:
        # Beside a budget an effort cannot be told from one that only restates the budget.
        rest["effort"] = effort
    if rest:
        extra["output_config"] = msgspec.Raw(write_json(rest))
    return effort, _read_format(form)


def _read_format(form: Fields | None) -> msgspec.Raw | None:
    """Return the output schema in the canonical form, which has a name."""
    if form is None or form.need("type", TEXT) == "text":
        return None
    schema = form.json_object("schema")
    if schema is None:
        return msgspec.Raw(b'{"type":"json_object"}')
    return msgspec.Raw(write_json({"type": "json_schema", "name": SCHEMA_NAME, "schema": schema, **form.rest()}))
