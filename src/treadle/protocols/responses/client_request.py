"""Reading the body of `POST /v1/responses` into a canonical request.

What Treadle acts on is typed; every other field is carried as it came. Unknown fields, items and tools are
never refused, because stock clients send new ones all the time; a wrong type is, and the error names the field.
"""

from typing import Any, Generic, TypeVar

import msgspec

from treadle.core.errors import ProtocolError
from treadle.core.json import write_json
from treadle.core.request import Note, Options, Request, Surface
from treadle.core.tool_definitions import AUTO
from treadle.protocols.field_reader import (
    LIST,
    NULL,
    OBJECT,
    Shape,
    given,
    missing,
    open_request,
    unknown_in,
    usual_or_raw,
)
from treadle.protocols.field_reader import read_value as read
from treadle.protocols.responses.client_input import Reading, Usual, read_input, usual_item
from treadle.protocols.responses.content_parts import PROTOCOL, counted
from treadle.protocols.responses.tools import ToolShelf, mcp_servers, read_choice
from treadle.protocols.translation_notes import CHOICE, HOSTED, METADATA, Notes, Recent
from treadle.protocols.turn_grouping import TurnText

Input = TypeVar("Input")


class _Reasoning(msgspec.Struct, kw_only=True):
    effort: str | None = None


class _Format(msgspec.Struct, kw_only=True):
    type: str


class _Text(msgspec.Struct, kw_only=True):
    format: msgspec.Raw = NULL


class _Body(msgspec.Struct, Generic[Input], kw_only=True, gc=False):
    model: str | None = ""
    input: Input | None = None
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
"""Fields that Treadle applies to its own tools and the upstream to those that it runs."""

_body: msgspec.json.Decoder[_Body[Any]] = msgspec.json.Decoder(_Body[str | list[msgspec.Raw]])
_mixed = msgspec.json.Decoder(_Body[list[msgspec.Raw]])


def _read_mixed(data: bytes) -> _Body[Any] | None:
    body: _Body[Any] = _mixed.decode(data)
    body.input = usual_or_raw(body.input or [], usual_item)
    return None if body.input is None else body


SHAPES: tuple[Shape[_Body[Any]], ...] = (
    msgspec.json.Decoder(_Body[str | list[TurnText]]).decode,
    msgspec.json.Decoder(_Body[list[Usual]]).decode,
    _read_mixed,
)
"""The usual shapes of a request by those of its input, the plainest first."""

_format: msgspec.json.Decoder[_Format | None] = msgspec.json.Decoder(_Format | None)


def read_request(body: bytes) -> Request:
    """Read a whole request.

    Raises: ProtocolError, naming the field.
    """
    opened = open_request(body, "input", SHAPES)
    fields = opened.members if opened.members is not None else read(OBJECT, opened.data)
    typed = read(_body, opened.data) if opened.known is None else opened.known
    _check(typed)
    tools = None if typed.tools is None else _TOOLS.of(fields["tools"], Notes())
    servers = frozenset[str]() if tools is None else tools.servers
    reading = read_input([] if typed.input is None else typed.input, servers, fields.get("input", NULL))
    is_bare = tools is None and typed.tool_choice is NULL and not reading.tools
    shelf = _NO_TOOLS if is_bare else _shelf(tools, reading)
    choice = AUTO if typed.tool_choice is NULL else read_choice(typed.tool_choice, shelf)
    taken = _TAKEN if choice is not None and not shelf.hosted else _taken(shelf.hosted, is_hosted=choice is None)
    extra = unknown_in(opened, taken)
    if shelf.hosted:
        extra[HOSTED] = msgspec.Raw(write_json(shelf.hosted))
    return Request(
        protocol=PROTOCOL,
        model=typed.model or "",
        items=tuple(reading.items),
        instructions=typed.instructions,
        tools=shelf.specs,
        tool_choice=choice or AUTO,
        options=_options(typed, extra),
        surface=_surface(typed, fields),
        store=typed.store is not False,
        background=bool(typed.background),
        previous_response_id=typed.previous_response_id,
        max_tool_calls=typed.max_tool_calls,
        approvals=tuple(reading.approvals),
        notes=(*_mended(opened.mended), *counted(reading.notes), *shelf.notes),
    )


def _check(body: _Body[Any]) -> None:
    """Refuse what contradicts itself or gives the model nothing to answer."""
    has_conversation = given(body.conversation) is not None
    has_history = body.previous_response_id is not None or has_conversation
    if body.input is None and not has_history and given(body.prompt) is None:
        raise missing("input")
    if body.previous_response_id is not None and has_conversation:
        raise ProtocolError(
            "'previous_response_id' and 'conversation' exclude each other: send one of them",
            code="mutually_exclusive_parameters",
            param="conversation",
        )
    if body.background and body.store is False:
        raise ProtocolError("a background response must be stored: leave 'store' out or set it to true", param="store")
    for name, value in (("max_output_tokens", body.max_output_tokens), ("max_tool_calls", body.max_tool_calls)):
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
_NO_TOOLS = ToolShelf()


def _shelf(tools: _Tools | None, reading: Reading) -> ToolShelf:
    shelf = ToolShelf() if tools is None else tools.shelf()
    for path, raws in reading.tools:
        shelf.add(raws, path)
    return shelf


def _taken(hosted: list[msgspec.Raw], *, is_hosted: bool) -> frozenset[str]:
    """Return the fields that have a place of their own, but those that apply to the upstream's own tools."""
    return _TAKEN - (_FOR_HOSTED if hosted else frozenset()) - ({CHOICE} if is_hosted else frozenset())


def _options(body: _Body[Any], extra: dict[str, msgspec.Raw]) -> Options:
    return Options(
        max_output_tokens=body.max_output_tokens,
        temperature=body.temperature,
        top_p=body.top_p,
        parallel_tool_calls=body.parallel_tool_calls,
        reasoning_effort=body.reasoning.effort if body.reasoning else None,
        output_schema=None if body.text is None else _output_schema(body.text),
        extra=extra,
        extra_protocol=PROTOCOL,
    )


def _output_schema(text: _Text) -> msgspec.Raw | None:
    """Return `text.format` unless it asks for plain text, which is what a model gives anyway."""
    form = read(_format, text.format, "text.format")
    return None if form is None or form.type == "text" else text.format


def _surface(body: _Body[Any], fields: dict[str, msgspec.Raw]) -> Surface:
    return Surface(
        stream=body.stream is True,
        metadata=None if body.metadata is None else fields[METADATA],
        tools_echo=None if body.tools is None else fields[HOSTED],
        tool_choice_echo=given(body.tool_choice),
    )


def _mended(count: int) -> tuple[Note, ...]:
    if not count:
        return ()
    message = "half of a surrogate pair was replaced by U+FFFD"
    return (Note(code="lone_surrogate", action="coerced", message=message, count=count),)
