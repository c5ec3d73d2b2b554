"""Reading the body of `POST /v1/responses` into a canonical request.

What Treadle acts on is typed; every other field is carried as it came. Unknown fields, items and tools are
never refused, because stock clients send new ones all the time; a wrong type is, and the error names the field.
"""

import msgspec

from treadle.canon.errors import ProtocolError
from treadle.canon.json import write_json
from treadle.canon.request import Note, Options, Request, Surface
from treadle.canon.tools import AUTO
from treadle.wire.fields import LIST, NULL, missing, open_request
from treadle.wire.fields import read_value as read
from treadle.wire.notes import CHOICE, HOSTED, METADATA, Notes, Recent
from treadle.wire.responses.content import PROTOCOL
from treadle.wire.responses.input import SHAPES, Reading, read_input, read_told
from treadle.wire.responses.tools import ToolShelf, mcp_servers, read_choice


class _Reasoning(msgspec.Struct, kw_only=True):
    effort: str | None = None


class _Format(msgspec.Struct, kw_only=True):
    type: str


class _Text(msgspec.Struct, kw_only=True):
    format: msgspec.Raw = NULL


class _Body(msgspec.Struct, kw_only=True):
    model: str
    input: str | list[msgspec.Raw] | None = None
    instructions: str | None = None
    tools: list[msgspec.Raw] | None = None
    tool_choice: msgspec.Raw = NULL
    parallel_tool_calls: bool | None = None
    max_tool_calls: int | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    reasoning: _Reasoning | None = None
    text: _Text | None = None
    metadata: dict[str, msgspec.Raw] | None = None
    store: bool | None = None
    background: bool | None = None
    stream: bool | None = None
    previous_response_id: str | None = None
    conversation: msgspec.Raw = NULL
    prompt: msgspec.Raw = NULL


_KEPT = frozenset({"reasoning", "text", "conversation", "prompt", METADATA})
_TAKEN = frozenset(_Body.__struct_fields__) - _KEPT
"""Fields that have a place of their own; the others, and those of which only a part is read, are carried whole."""

_FOR_HOSTED = frozenset({"max_tool_calls"})
"""Fields that Treadle heeds for its own tools and the upstream for those that it runs."""

_EMPTY = msgspec.Raw(b"[]")
_body = msgspec.json.Decoder(_Body)
_fields: msgspec.json.Decoder[dict[str, msgspec.Raw]] = msgspec.json.Decoder(dict[str, msgspec.Raw])
_format: msgspec.json.Decoder[_Format | None] = msgspec.json.Decoder(_Format | None)


def read_request(body: bytes) -> Request:
    """Read a whole request.

    Raises: ProtocolError, naming the field.
    """
    opened = open_request(body, "input", SHAPES)
    fields = opened.members if opened.members is not None else read(_fields, opened.data)
    # An input that is decoded already need not be gone through again.
    typed = read(_body, opened.data if opened.told is None else write_json({**fields, "input": _EMPTY}))
    _check(typed)
    tools = None if typed.tools is None else _TOOLS.of(fields["tools"], Notes())
    servers = frozenset[str]() if tools is None else tools.servers
    if opened.told is not None:
        reading = read_told(opened.told, fields["input"], servers)
    else:
        reading = read_input(typed.input if typed.input is not None else [], servers)
    shelf = _shelf(tools, reading)
    choice = read_choice(typed.tool_choice, shelf)
    return Request(
        protocol=PROTOCOL,
        model=typed.model,
        items=tuple(reading.items),
        instructions=typed.instructions,
        tools=shelf.specs,
        tool_choice=choice or AUTO,
        options=_options(typed, fields, shelf.hosted, is_hosted=choice is None),
        surface=_surface(typed, fields),
        store=typed.store is not False,
        background=bool(typed.background),
        previous_response_id=typed.previous_response_id,
        max_tool_calls=typed.max_tool_calls,
        approvals=tuple(reading.approvals),
        notes=(*_mended(opened.mended), *reading.tally.notes(), *shelf.notes),
    )


def _check(body: _Body) -> None:
    """Refuse what contradicts itself or gives the model nothing to answer."""
    has_history = body.previous_response_id is not None or body.conversation != NULL
    if body.input is None and not has_history and body.prompt == NULL:
        raise missing("input")
    if body.previous_response_id is not None and body.conversation != NULL:
        raise ProtocolError(
            "'previous_response_id' and 'conversation' exclude each other: send one of them",
            code="mutually_exclusive_parameters",
            param="conversation",
        )
    if body.background and body.store is False:
        raise ProtocolError("a background response must be stored: leave 'store' out or set it to true", param="store")
    for name in ("max_output_tokens", "max_tool_calls"):
        value: int | None = getattr(body, name)
        if value is not None and value < 1:
            raise ProtocolError(f"'{name}' must be at least 1, got {value}", param=name)


class _Tools:
    """The tools of a request: which servers the upstream shall call among them, and, when first asked, all of them."""

    def __init__(self, raw: msgspec.Raw) -> None:
        self._raws = LIST.decode(raw)
        self._shelf: ToolShelf | None = None
        self.servers = mcp_servers(self._raws)

    def shelf(self) -> ToolShelf:
        """Return the tools, to be added to.

        Raises: ProtocolError, naming the field.
        """
        if self._shelf is None:
            shelf = ToolShelf()
            shelf.add(self._raws, "tools")
            self._shelf = shelf
        return ToolShelf(self._shelf)


def _read_tools(raw: msgspec.Raw, notes: Notes) -> _Tools:
    return _Tools(raw)


_TOOLS = Recent(_read_tools)


def _shelf(tools: _Tools | None, reading: Reading) -> ToolShelf:
    shelf = ToolShelf() if tools is None else tools.shelf()
    for path, raws in reading.tools:
        shelf.add(raws, path)
    return shelf


def _options(body: _Body, fields: dict[str, msgspec.Raw], hosted: list[msgspec.Raw], *, is_hosted: bool) -> Options:
    """Return the options; what only the upstream's own tools heed is kept beside them."""
    taken = _TAKEN - (_FOR_HOSTED if hosted else frozenset()) - ({CHOICE} if is_hosted else frozenset())
    extra = {name: raw for name, raw in fields.items() if name not in taken and raw != NULL}
    if hosted:
        extra[HOSTED] = msgspec.Raw(write_json(hosted))
    return Options(
        max_output_tokens=body.max_output_tokens,
        temperature=body.temperature,
        top_p=body.top_p,
        parallel_tool_calls=body.parallel_tool_calls,
        reasoning_effort=body.reasoning.effort if body.reasoning else None,
        output_schema=_output_schema(body.text),
        extra=extra,
        extra_protocol=PROTOCOL,
    )


def _output_schema(text: _Text | None) -> msgspec.Raw | None:
    """Return `text.format` unless it asks for plain text, which is what a model gives anyway."""
    if text is None:
        return None
    form = read(_format, text.format, "text.format")
    return None if form is None or form.type == "text" else text.format


def _surface(body: _Body, fields: dict[str, msgspec.Raw]) -> Surface:
    return Surface(
        stream=bool(body.stream),
        metadata=_given(fields, "metadata"),
        tools_echo=_given(fields, "tools"),
        tool_choice_echo=_given(fields, "tool_choice"),
    )


def _given(fields: dict[str, msgspec.Raw], name: str) -> msgspec.Raw | None:
    raw = fields.get(name, NULL)
    return None if raw == NULL else raw


def _mended(count: int) -> tuple[Note, ...]:
    if not count:
        return ()
    message = "half of a surrogate pair was replaced by U+FFFD"
    return (Note(code="lone_surrogate", action="coerced", message=message, count=count),)
