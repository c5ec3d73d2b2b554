"""A Messages request as a canonical one.

What Treadle acts on is typed and checked; what it does not know travels on, as it was written, to upstreams of the
same protocol. A thread that goes on inherits what its request leaves out. A refusal names the field as the API would.
"""

from typing import Any

import msgspec

from treadle.canon.errors import ProtocolError
from treadle.canon.items import TextPart
from treadle.canon.json import write_json
from treadle.canon.request import Options, Request, Surface
from treadle.canon.tools import AUTO, ToolChoice
from treadle.wire.fields import (
    FLAG,
    INTEGER,
    LIST,
    NUMBER,
    TEXT,
    Fields,
    missing,
    open_request,
    read_value,
    refusal,
    starts_with,
)
from treadle.wire.messages.history import SHAPES, HistoryReader
from treadle.wire.messages.parts import read_content
from treadle.wire.messages.seal import PROTOCOL
from treadle.wire.messages.tools import ToolShelf, read_choice
from treadle.wire.notes import Notes, Recent

SCHEMA_NAME = "output"
"""The name that other APIs demand of an output schema and this one has no place for."""

EFFORT_BUDGETS = ((4_096, "low"), (16_384, "medium"))
"""Up to how many tokens of thinking an effort of that name amounts to; more is high."""


def read_request(body: bytes) -> Request:
    """Read a client's request.

    Raises: ProtocolError, with `param` naming the field.
    """
    notes = Notes()
    fields, told = _open(body, notes)
    model = fields.need("model", TEXT)
    kept: dict[str, msgspec.Raw] = {}
    reader = HistoryReader(notes, _servers(fields, kept))
    messages = fields.raw("messages")
    if messages is None:
        raise missing("messages")
    items = reader.read(messages, "messages", told)
    previous = _read_thread(fields)
    if not items and previous is None:
        raise refusal("messages", "at least one message is required")
    shelf = _shelf(fields, reader, kept, notes)
    choice, parallel = _read_choice(fields, shelf, kept, notes)
    instructions = _read_system(fields, kept)
    surface = Surface(stream=fields.get("stream", FLAG) is True)
    options = _read_options(fields, kept)
    return Request(
        protocol=PROTOCOL,
        model=model,
        items=items,
        instructions=instructions,
        tools=shelf.specs,
        tool_choice=choice,
        options=msgspec.structs.replace(options, parallel_tool_calls=parallel, extra={**fields.rest(), **kept}),
        surface=surface,
        previous_response_id=previous,
        inherits=previous is not None,
        notes=notes.all(),
    )


def system_text(raw: msgspec.Raw) -> str:
    """Return what a system prompt says, as one text.

    Raises: ProtocolError.
    """
    texts = (part.text for part in read_content(raw, "system") if isinstance(part, TextPart))
    return "\n\n".join(text for text in texts if text)


def effort_of(budget_tokens: int) -> str:
    """Return the effort that a budget of thinking amounts to."""
    return next((effort for bound, effort in EFFORT_BUDGETS if budget_tokens <= bound), "high")


def _open(body: bytes, notes: Notes) -> tuple[Fields, list[Any] | None]:
    opened = open_request(body, "messages", SHAPES)
    if opened.mended:
        notes.add("lone_surrogate", "coerced", "halves of surrogate pairs became U+FFFD", count=opened.mended)
    try:
        return Fields(opened.data, "", opened.members), opened.told
    except ProtocolError as error:
        raise ProtocolError(f"The body is not a JSON object: {error.message}", code="invalid_json") from None


def _read_system(fields: Fields, kept: dict[str, msgspec.Raw]) -> str | None:
    """Return the system prompt as text; its blocks are kept where they say more than the text does."""
    raw = fields.raw("system")
    if raw is None:
        return None
    text = system_text(raw)
    if text and not starts_with(raw, '"'):
        kept["system"] = raw.copy()
    return text or None


def _read_thread(fields: Fields) -> str | None:
    """Return the message that this request goes on from; a thread that begins needs nothing but its id."""
    thread = fields.object("thread")
    if thread is None or thread.need("type", TEXT) != "continue":
        return None
    return thread.need("previous_message_id", TEXT)


def _servers(fields: Fields, kept: dict[str, msgspec.Raw]) -> frozenset[str]:
    """Return the names of the MCP servers that the upstream shall call."""
    raw = fields.raw("mcp_servers")
    if raw is None:
        return frozenset()
    kept["mcp_servers"] = raw.copy()
    servers = enumerate(read_value(LIST, raw, "mcp_servers"))
    names = (Fields(server, f"mcp_servers.{place}").get("name", TEXT) for place, server in servers)
    return frozenset(name for name in names if name)


def _shelf(fields: Fields, reader: HistoryReader, kept: dict[str, msgspec.Raw], notes: Notes) -> ToolShelf:
    tools = fields.raw("tools")
    if reader.definitions:
        shelf = ToolShelf() if tools is None else _read_shelf(tools, notes)
        shelf.add(reader.definitions, notes)
    else:
        shelf = ToolShelf() if tools is None else _SHELVES.of(tools, notes)
    if shelf.hosted:
        kept["tools"] = msgspec.Raw(write_json(shelf.hosted))
    return shelf


def _read_shelf(raw: msgspec.Raw, notes: Notes) -> ToolShelf:
    shelf = ToolShelf()
    shelf.add(((f"tools.{place}", each) for place, each in enumerate(read_value(LIST, raw, "tools"))), notes)
    return shelf


_SHELVES = Recent(_read_shelf)


def _read_choice(
    fields: Fields, shelf: ToolShelf, kept: dict[str, msgspec.Raw], notes: Notes
) -> tuple[ToolChoice, bool | None]:
    raw = fields.raw("tool_choice")
    if raw is None:
        return AUTO, None
    choice, parallel = read_choice(raw, notes)
    if shelf.can_choose(choice):
        return choice, parallel
    kept["tool_choice"] = raw.copy()
    return AUTO, parallel


def _read_options(fields: Fields, kept: dict[str, msgspec.Raw]) -> Options:
    budget = _budget(fields, kept)
    effort, schema = _read_output(fields, kept, has_budget=budget is not None)
    return Options(
        max_output_tokens=_count(fields, "max_tokens"),
        temperature=fields.get("temperature", NUMBER),
        top_p=fields.get("top_p", NUMBER),
        stop=_read_stop(fields),
        reasoning_effort=effort or (None if budget is None else effort_of(budget)),
        output_schema=schema,
        extra_protocol=PROTOCOL,
    )


def _budget(fields: Fields, kept: dict[str, msgspec.Raw]) -> int | None:
    """Return how many tokens the model may think, if that is said."""
    raw = fields.json_object("thinking")
    if raw is None:
        return None
    kept["thinking"] = raw
    return Fields(raw, "thinking").get("budget_tokens", INTEGER)


def _read_output(
    fields: Fields, kept: dict[str, msgspec.Raw], *, has_budget: bool
) -> tuple[str | None, msgspec.Raw | None]:
    """Return the effort and the output schema; what else is said of the output is kept."""
    config = fields.object("output_config")
    form = fields.object("output_format")
    if config is None:
        return None, _read_format(form)
    effort = config.get("effort", TEXT)
    form = config.object("format") or form
    rest: dict[str, Any] = dict(config.rest())
    if effort is not None and has_budget:
        # Beside a budget an effort cannot be told from one that only restates the budget.
        rest["effort"] = effort
    if rest:
        kept["output_config"] = msgspec.Raw(write_json(rest))
    return effort, _read_format(form)


def _read_format(form: Fields | None) -> msgspec.Raw | None:
    """Return the output schema in the canonical form, which has a name."""
    if form is None or form.need("type", TEXT) == "text":
        return None
    schema = form.json_object("schema")
    if schema is None:
        return msgspec.Raw(b'{"type":"json_object"}')
    return msgspec.Raw(write_json({"type": "json_schema", "name": SCHEMA_NAME, "schema": schema, **form.rest()}))


def _read_stop(fields: Fields) -> tuple[str, ...]:
    raws = fields.get("stop_sequences", LIST) or ()
    return tuple(read_value(TEXT, raw, f"stop_sequences.{place}") for place, raw in enumerate(raws))


def _count(fields: Fields, name: str) -> int | None:
    value = fields.get(name, INTEGER)
    if value is not None and value < 0:
        raise refusal(name, "Expected `int` >= 0")
    return value
