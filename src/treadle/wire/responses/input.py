"""Reading the `input` of a request: each wire item becomes the canonical items it stands for.

A kind that is not in the table is kept exactly as it came. Tools that travel inside the input are handed
back apart; nothing is looked up here, a reference stays a reference.
"""

from collections.abc import Callable
from typing import Any, cast

import msgspec

from treadle.canon.items import (
    AnyItem,
    CallItem,
    CallKind,
    MessageItem,
    OpaqueItem,
    ReasoningItem,
    ReferenceItem,
    ResultItem,
    Role,
)
from treadle.canon.request import Note
from treadle.wire.responses.content import PROTOCOL, Tally, read_content, read_output, text_parts
from treadle.wire.responses.fields import NULL, at, missing, read
from treadle.wire.responses.seal import unseal
from treadle.wire.responses.tools import flat_name

_ROLES: frozenset[str] = frozenset({"system", "developer", "user", "assistant"})
_UNFINISHED: frozenset[str] = frozenset({"in_progress", "calling", "incomplete"})
_ATTACHED = Note(
    code="input_call_attached",
    action="kept",
    message="an empty assistant message before a call is the call's own turn",
    field="input",
)
_ADDED = Note(code="input_result_added", action="kept", message="a result was taken from the input", field="input")
_ODD_ROLE = Note(
    code="unknown_role",
    action="kept",
    message="a message of a role that Treadle does not know is kept as it is",
    field="input",
)


class Reading(msgspec.Struct, kw_only=True):
    """What the input held: its items, the tool lists that travelled inside it (with their paths), and notes."""

    items: list[AnyItem] = []
    tools: list[tuple[str, list[msgspec.Raw]]] = []
    tally: Tally = msgspec.field(default_factory=Tally)


class _Head(msgspec.Struct, kw_only=True):
    type: str | None = None
    id: str | None = None
    role: str | None = None


class _Message(msgspec.Struct, kw_only=True):
    role: str
    id: str | None = None
    content: str | list[msgspec.Raw] | None = None
    phase: str | None = None


class _Call(msgspec.Struct, kw_only=True):
    call_id: str
    name: str
    id: str | None = None
    arguments: msgspec.Raw = NULL
    input: str | None = None
    namespace: str | None = None


class _Result(msgspec.Struct, kw_only=True):
    call_id: str
    id: str | None = None
    name: str | None = None
    namespace: str | None = None
    output: msgspec.Raw = NULL
    status: str | None = None


class _Text(msgspec.Struct, kw_only=True):
    text: str = ""


class _Reasoning(msgspec.Struct, kw_only=True):
    id: str | None = None
    summary: list[_Text] | None = None
    content: list[_Text] | None = None
    encrypted_content: str | None = None


class _ServerCall(msgspec.Struct, kw_only=True):
    id: str
    name: str
    arguments: msgspec.Raw = NULL
    output: str | None = None
    error: msgspec.Raw = NULL
    status: str | None = None


class _ToolList(msgspec.Struct, kw_only=True):
    tools: list[msgspec.Raw]


class _Reference(msgspec.Struct, kw_only=True):
    id: str


_head = msgspec.json.Decoder(_Head)
_message = msgspec.json.Decoder(_Message)
_call = msgspec.json.Decoder(_Call)
_result = msgspec.json.Decoder(_Result)
_reasoning = msgspec.json.Decoder(_Reasoning)
_server_call = msgspec.json.Decoder(_ServerCall)
_tool_list = msgspec.json.Decoder(_ToolList)
_reference = msgspec.json.Decoder(_Reference)
_string = msgspec.json.Decoder(str)
_any: msgspec.json.Decoder[Any] = msgspec.json.Decoder()


def read_input(value: str | list[msgspec.Raw]) -> Reading:
    """Read the whole input, a text or a list of items.

    Raises: ProtocolError, naming the field.
    """
    reading = Reading()
    if isinstance(value, str):
        reading.items.append(MessageItem(role="user", content=text_parts(value)))
        return reading
    for index, raw in enumerate(value):
        path = f"input[{index}]"
        head = read(_head, raw, path)
        kind = head.type or _kind_of(head, path)
        _READERS.get(kind, _read_opaque)(reading, raw, path)
    return reading


def _kind_of(head: _Head, path: str) -> str:
    """Name the kind of an item without `type`: the easy message form, or a bare reference."""
    if head.role is not None:
        return "message"
    if head.id is not None:
        return "item_reference"
    raise missing(at(path, "type"))


def _read_message(reading: Reading, raw: msgspec.Raw, path: str) -> None:
    message = read(_message, raw, path)
    if message.role not in _ROLES:
        reading.tally.count(_ODD_ROLE)
        _read_opaque(reading, raw, path)
        return
    if message.content is None and message.role != "assistant":
        raise missing(at(path, "content"))
    item = MessageItem(
        id=message.id or "",
        role=cast("Role", message.role),
        content=read_content(message.content or "", at(path, "content"), reading.tally),
        phase=message.phase,
    )
    reading.items.append(item)


def _read_call(reading: Reading, raw: msgspec.Raw, path: str) -> None:
    call = read(_call, raw, path)
    _add_call(reading, call, "function", _arguments(call.arguments, at(path, "arguments")))


def _read_custom_call(reading: Reading, raw: msgspec.Raw, path: str) -> None:
    call = read(_call, raw, path)
    _add_call(reading, call, "custom", call.input or "")


def _add_call(reading: Reading, call: _Call, kind: CallKind, arguments: str) -> None:
    if reading.items and _is_empty_turn(reading.items[-1]):
        reading.items.pop()
        reading.tally.count(_ATTACHED)
    item = CallItem(
        id=call.id or "",
        call_id=call.call_id,
        name=flat_name(call.name, call.namespace),
        arguments=arguments,
        kind=kind,
        namespace=call.namespace,
    )
    reading.items.append(item)


def _is_empty_turn(item: AnyItem) -> bool:
    return isinstance(item, MessageItem) and item.role == "assistant" and not item.content


def _read_result(reading: Reading, raw: msgspec.Raw, path: str) -> None:
    _add_result(reading, raw, path, "function")


def _read_custom_result(reading: Reading, raw: msgspec.Raw, path: str) -> None:
    _add_result(reading, raw, path, "custom")


def _add_result(reading: Reading, raw: msgspec.Raw, path: str, kind: CallKind) -> None:
    result = read(_result, raw, path)
    # The protocol has no flag for a failed result; `incomplete` is the nearest word it has.
    is_error = result.status == "incomplete"
    item = ResultItem(
        id=result.id or "",
        call_id=result.call_id,
        name=flat_name(result.name, result.namespace) if result.name else "",
        output=read_output(result.output, at(path, "output"), reading.tally),
        is_error=is_error,
        kind=kind,
        rc="failed" if is_error else "ok",
    )
    reading.items.append(item)
    reading.tally.count(_ADDED)


def _read_reasoning(reading: Reading, raw: msgspec.Raw, path: str) -> None:
    reasoning = read(_reasoning, raw, path)
    item = ReasoningItem(
        id=reasoning.id or "",
        summary=tuple(part.text for part in reasoning.summary or ()),
        text=tuple(part.text for part in reasoning.content or ()),
        blobs=unseal(reasoning.encrypted_content or ""),
    )
    reading.items.append(item)


def _read_server_call(reading: Reading, raw: msgspec.Raw, path: str) -> None:
    """Read a call that a server ran: it and its result are one item on this wire, paired by the item's own id."""
    call = read(_server_call, raw, path)
    error = _error_text(call.error, at(path, "error"))
    unfinished = error is None and call.output is None and call.status in _UNFINISHED
    reading.items.append(
        CallItem(
            id=call.id,
            call_id=call.id,
            name=call.name,
            arguments=_arguments(call.arguments, at(path, "arguments")),
            side="server",
        )
    )
    reading.items.append(
        ResultItem(
            call_id=call.id,
            name=call.name,
            output=text_parts(call.output if error is None else error),
            is_error=error is not None or unfinished,
            rc="interrupted" if unfinished else "ok" if error is None else "failed",
        )
    )


def _read_tools(reading: Reading, raw: msgspec.Raw, path: str) -> None:
    reading.tools.append((at(path, "tools"), read(_tool_list, raw, path).tools))


def _read_reference(reading: Reading, raw: msgspec.Raw, path: str) -> None:
    reading.items.append(ReferenceItem(id=read(_reference, raw, path).id))


def _read_opaque(reading: Reading, raw: msgspec.Raw, path: str) -> None:
    reading.items.append(OpaqueItem(id=read(_head, raw, path).id or "", protocol=PROTOCOL, raw=raw))


_READERS: dict[str, Callable[[Reading, msgspec.Raw, str], None]] = {
    "message": _read_message,
    "function_call": _read_call,
    "function_call_output": _read_result,
    "custom_tool_call": _read_custom_call,
    "custom_tool_call_output": _read_custom_result,
    "reasoning": _read_reasoning,
    "mcp_call": _read_server_call,
    "additional_tools": _read_tools,
    "item_reference": _read_reference,
}


def _arguments(raw: msgspec.Raw, path: str) -> str:
    """Return arguments as JSON text; some clients replay an object, null or nothing where a string belongs."""
    data = bytes(raw)
    if data.startswith(b'"'):
        return read(_string, raw, path) or "{}"
    return "{}" if raw == NULL else data.decode()


def _error_text(raw: msgspec.Raw, path: str) -> str | None:
    """Return the words of an mcp_call's error: a text, its `message`, or the content that the tool gave."""
    value: Any = read(_any, raw, path)
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        value = fields.get("message") or fields.get("content") or fields
    if isinstance(value, list):
        parts = [cast("dict[str, Any]", part) for part in cast("list[Any]", value) if isinstance(part, dict)]
        value = "".join(str(part.get("text", "")) for part in parts)
    if value is None or isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()
