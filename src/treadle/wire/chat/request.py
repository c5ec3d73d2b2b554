"""A Chat Completions request as a canonical one.

What Treadle acts on is typed and checked; what it does not know travels on, as it was written, to upstreams of the
same protocol. A refusal names the field as the API would.
"""

from typing import Any

import msgspec

from treadle.canon.errors import ProtocolError
from treadle.canon.json import write_json
from treadle.canon.request import Options, Request, Surface
from treadle.canon.tools import AUTO, ToolChoice, ToolSpec
from treadle.wire.chat.messages import SHAPES, MessageReader
from treadle.wire.chat.parts import PROTOCOL
from treadle.wire.chat.tools import ReadTools, read_choice, read_legacy_choice, read_tools
from treadle.wire.fields import FLAG, INTEGER, LIST, NUMBER, TEXT, Fields, missing, open_request, read_value, refusal
from treadle.wire.notes import CHOICE, HOSTED, METADATA, Notes, Recent

OLD_TOKENS_MAX = "max_tokens"
CHOICES_MAX = 8
"""Each choice is a run of its own, with model calls and tools of its own."""

_STOP: msgspec.json.Decoder[str | list[str]] = msgspec.json.Decoder(str | list[str])


def _read_list(raw: msgspec.Raw, notes: Notes) -> ReadTools:
    return read_tools(read_value(LIST, raw, "tools"), "tools", notes)


_TOOLS = Recent(_read_list)


class _Tools(msgspec.Struct, frozen=True, kw_only=True):
    """The tools of a request and the choice among them; `kept` is what only an upstream of Chat can make of it."""

    specs: tuple[ToolSpec, ...]
    choice: ToolChoice
    kept: dict[str, msgspec.Raw] = {}
    is_legacy: bool = False


def read_request(body: bytes) -> Request:
    """Read a client's request.

    Raises: ProtocolError, with `param` naming the field.
    """
    notes = Notes()
    fields, told = _open(body, notes)
    model = fields.need("model", TEXT)
    messages = fields.raw("messages")
    if messages is None:
        raise missing("messages")
    items = MessageReader(notes).read(messages, "messages", told)
    if not items:
        raise refusal("messages", "at least one message is needed")
    tools = _read_tools(fields, notes)
    surface = _read_surface(fields, tools.is_legacy)
    if surface.metadata is not None:
        tools.kept[METADATA] = surface.metadata
    store = fields.get("store", FLAG)
    return Request(
        protocol=PROTOCOL,
        model=model,
        items=items,
        tools=tools.specs,
        tool_choice=tools.choice,
        options=_read_options(fields, tools, notes),
        surface=surface,
        store=store is not False,
        notes=notes.all(),
    )


def _open(body: bytes, notes: Notes) -> tuple[Fields, list[Any] | None]:
    opened = open_request(body, "messages", SHAPES)
    if opened.mended:
        notes.add("lone_surrogate", "coerced", "halves of surrogate pairs became U+FFFD", count=opened.mended)
    try:
        return Fields(opened.data, "", opened.members), opened.told
    except ProtocolError as error:
        raise ProtocolError(f"The body is not a JSON object: {error.message}", code="invalid_json") from None


def _read_tools(fields: Fields, notes: Notes) -> _Tools:
    tools = fields.raw("tools")
    read = ReadTools() if tools is None else _TOOLS.of(tools, notes)
    functions = fields.get("functions", LIST) or []
    raw, legacy_raw = fields.raw(CHOICE), fields.raw("function_call")
    if read != ReadTools() or not functions:
        if functions:
            notes.add("functions_dropped", "dropped", "legacy functions beside tools", "functions")
        choice = AUTO if raw is None else read_choice(raw, read.others, notes)
        others = read.others
        if others and choice is not None and choice.allowed is not None:
            notes.add("hosted_tool", "dropped", "allowed_tools names only tools that are called", HOSTED, len(others))
            others = ()
        kept = {HOSTED: msgspec.Raw(write_json(others))} if others else {}
        if raw is not None and choice is None:
            kept[CHOICE] = raw.copy()
        return _Tools(specs=read.specs, choice=choice or AUTO, kept=kept)
    specs = read_tools(functions, "functions", notes, legacy=True).specs
    notes.add("legacy_functions", "emulated", "an answer shows the first of its calls only", "functions")
    choice = AUTO if legacy_raw is None else read_legacy_choice(legacy_raw)
    return _Tools(specs=specs, choice=choice, is_legacy=True)


def _read_surface(fields: Fields, legacy: bool) -> Surface:
    stream_options = fields.object("stream_options")
    include_usage = stream_options is not None and stream_options.get("include_usage", FLAG) is True
    return Surface(
        stream=fields.get("stream", FLAG) is True,
        include_usage=include_usage,
        legacy_functions=legacy,
        choices=_read_count(fields),
        metadata=fields.json_object("metadata"),
    )


def _read_count(fields: Fields) -> int:
    count = fields.get("n", INTEGER)
    if count is not None and not 1 <= count <= CHOICES_MAX:
        raise refusal("n", f"Expected `int` from 1 to {CHOICES_MAX}")
    return count or 1


def _read_options(fields: Fields, tools: _Tools, notes: Notes) -> Options:
    tokens_max = _positive(fields, "max_completion_tokens")
    old_tokens_max = _positive(fields, OLD_TOKENS_MAX)
    if tokens_max is not None and old_tokens_max not in (None, tokens_max):
        notes.add("option_dropped", "dropped", "max_completion_tokens says otherwise", OLD_TOKENS_MAX)
    stop = fields.get("stop", _STOP)
    parallel = fields.get("parallel_tool_calls", FLAG)
    options = Options(
        max_output_tokens=tokens_max or old_tokens_max,
        temperature=fields.get("temperature", NUMBER),
        top_p=fields.get("top_p", NUMBER),
        stop=(stop,) if isinstance(stop, str) else tuple(stop or ()),
        seed=fields.get("seed", INTEGER),
        # A legacy answer has room for one call only.
        parallel_tool_calls=False if tools.is_legacy else parallel,
        reasoning_effort=fields.get("reasoning_effort", TEXT),
    )
    form, other_form = _read_format(fields)
    extra = {**fields.rest(), **tools.kept}
    if other_form is not None:
        extra["response_format"] = other_form
    if tokens_max is None and old_tokens_max is not None:
        # Older servers know only the old spelling, so the client's own is kept.
        extra[OLD_TOKENS_MAX] = msgspec.Raw(str(old_tokens_max).encode())
    return msgspec.structs.replace(options, output_schema=form, extra=extra, extra_protocol=PROTOCOL)


def _read_format(fields: Fields) -> tuple[msgspec.Raw | None, msgspec.Raw | None]:
    """Read `response_format` as the canonical, flat output schema; a kind that only Chat's servers know stays apart."""
    raw = fields.json_object("response_format")
    if raw is None:
        return None, None
    form = Fields(raw, "response_format")
    kind = form.get("type", TEXT)
    if kind == "text":
        return None, None
    if kind == "json_object":
        return raw, None
    schema = form.object("json_schema") if kind == "json_schema" else None
    if schema is None:
        return None, raw
    return msgspec.Raw(write_json({**schema.rest(), "type": kind})), None


def _positive(fields: Fields, name: str) -> int | None:
    value = fields.get(name, INTEGER)
    if value is not None and value < 1:
        raise refusal(name, "Expected `int` >= 1")
    return value
