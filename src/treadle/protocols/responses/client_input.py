"""Reading the `input` of a request: each wire item becomes the canonical items it stands for.

A kind that is not in the table is kept exactly as it came. Tools that travel inside the input are handed
back apart; nothing is looked up here, a reference stays a reference.
"""

import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, cast

import msgspec

from treadle.core.items import (
    AnyItem,
    CallItem,
    CallKind,
    MessageItem,
    OpaqueItem,
    ReasoningItem,
    ReferenceItem,
    ResultItem,
    Role,
    TextPart,
)
from treadle.core.json import type_errors
from treadle.core.request import Assent, Note
from treadle.protocols.field_reader import LIST, NULL, at, missing
from treadle.protocols.field_reader import read_value as read
from treadle.protocols.responses.content_parts import PROTOCOL, extra_of, read_content, read_output, text_parts
from treadle.protocols.responses.encrypted_content import unseal
from treadle.protocols.responses.hosted_calls import arguments_of, is_own, read_question, read_server_call
from treadle.protocols.responses.tools import flat_name
from treadle.protocols.turn_grouping import TurnText, read_plain_turns

_ROLES: frozenset[str] = frozenset({"system", "developer", "user", "assistant"})
_UPSTREAM_QUESTION = "mcpr_"
"""How ids of questions begin that the official API asks about servers which it calls by itself."""
_OF_PICTURE = re.compile(r"img_(?P<message>.+)_\d+")
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
    """What the input held: its items, the tool lists that travelled inside it (with their paths), and notes.

    `open` are the calls that still want a result, once a result came without the id of its call; `servers` the labels
    of MCP servers that the upstream calls, `named` the ids of the items so far, `approvals` the answers to what
    Treadle asked.
    """

    items: list[AnyItem] = []
    approvals: list[Assent] = []
    tools: list[tuple[str, list[msgspec.Raw]]] = []
    notes: list[Note] = []
    servers: frozenset[str] = frozenset()
    named: set[str] = set()


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
    call_id: str | None = None
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


class _ToolList(msgspec.Struct, kw_only=True):
    tools: list[msgspec.Raw]


class _Reference(msgspec.Struct, kw_only=True):
    id: str


class _Answer(msgspec.Struct, kw_only=True):
    approval_request_id: str
    approve: bool
    reason: str | None = None


_head = msgspec.json.Decoder(_Head)
_message = msgspec.json.Decoder(_Message)
_call = msgspec.json.Decoder(_Call)
_result = msgspec.json.Decoder(_Result)
_reasoning = msgspec.json.Decoder(_Reasoning)
_tool_list = msgspec.json.Decoder(_ToolList)
_reference = msgspec.json.Decoder(_Reference)
_answer = msgspec.json.Decoder(_Answer)


def read_input(value: str | list[Any], servers: frozenset[str] = frozenset(), raw: msgspec.Raw = NULL) -> Reading:
    """Read the whole input, a text or a list of items; `servers` are the MCP servers that the upstream shall call.

    Items may be in one of the usual shapes or raw; `raw` is the same list as it was written.

    Raises: ProtocolError, naming the field.
    """
    reading = Reading(servers=servers)
    if isinstance(value, str):
        reading.items.append(MessageItem(role="user", content=text_parts(value)))
    elif value and type(value[0]) is TurnText:
        reading.items = list(read_plain_turns(value))
    else:
        _read_items(reading, value, raw)
    return reading


def _read_items(reading: Reading, values: Sequence["Usual | msgspec.Raw"], raw: msgspec.Raw) -> None:
    raws: list[msgspec.Raw] = []
    for index, item in enumerate(values):
        if isinstance(item, msgspec.Raw):
            _read_odd(reading, item, f"input[{index}]")
        elif not _TAKERS[item.type](reading, item):
            # What is decoded already is seldom gone through again.
            raws = raws or LIST.decode(raw)
            _read_odd(reading, raws[index], f"input[{index}]")
        elif item.id is not None:
            reading.named.add(item.id)


def _read_odd(reading: Reading, raw: msgspec.Raw, path: str) -> None:
    head = read(_head, raw, path)
    kind = head.type or _kind_of(head, path)
    _READERS.get(kind, _read_opaque)(reading, raw, path)
    if head.id is not None:
        reading.named.add(head.id)


class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    type: Literal["input_text", "output_text", "text"]
    text: str
    annotations: Annotated[list[None], msgspec.Meta(max_length=0)] | None = None
    logprobs: Annotated[list[None], msgspec.Meta(max_length=0)] | None = None


class _Summary(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    type: Literal["summary_text"]
    text: str


class Usual(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """An item as clients usually send it: a message, a call, its result, or reasoning."""

    type: (
        Literal[
            "message",
            "function_call",
            "function_call_output",
            "custom_tool_call",
            "custom_tool_call_output",
            "reasoning",
        ]
        | None
    ) = None
    role: Role | None = None
    content: str | list[_Part] | None = None
    id: str | None = None
    status: str | None = None
    phase: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    input: str | None = None
    output: str | list[_Part] | None = None
    summary: list[_Summary] | None = None
    encrypted_content: str | None = None


_usual = msgspec.json.Decoder(Usual)


def usual_item(raw: msgspec.Raw) -> Usual | None:
    """Read an item of the usual shape; None for any other."""
    try:
        return _usual.decode(raw)
    except type_errors:
        return None


def _take_message(reading: Reading, item: Usual) -> bool:
    """Read a message; false, as for every kind, where a field is missing or belongs to another kind."""
    if item.role is None or (item.content is None and item.role != "assistant") or item.call_id is not None:
        return False
    if not item.name is item.arguments is item.input is item.output is item.summary is item.encrypted_content is None:
        return False
    parts = _parts_of(item.content)
    reading.items.append(MessageItem(id=item.id or "", role=item.role, content=parts, phase=item.phase))
    return True


def _take_call(reading: Reading, item: Usual) -> bool:
    if item.call_id is None or item.name is None:
        return False
    if not item.role is item.content is item.phase is item.output is item.summary is item.encrypted_content is None:
        return False
    is_custom = item.type == "custom_tool_call"
    if (item.arguments if is_custom else item.input) is not None:
        return False
    call = CallItem(
        id=item.id or "",
        call_id=item.call_id,
        name=item.name,
        arguments=item.input or "" if is_custom else item.arguments or "{}",
        kind="custom" if is_custom else "function",
    )
    _append_call(reading, call)
    return True


def _take_result(reading: Reading, item: Usual) -> bool:
    if item.call_id is None or item.input is not None or item.arguments is not None:
        return False
    if not item.role is item.content is item.phase is item.summary is item.encrypted_content is None:
        return False
    is_error = item.status == "incomplete"
    result = ResultItem(
        id=item.id or "",
        call_id=item.call_id,
        name=item.name or "",
        output=_parts_of(item.output),
        is_error=is_error,
        kind="custom" if item.type == "custom_tool_call_output" else "function",
        rc="failed" if is_error else "ok",
    )
    reading.items.append(result)
    reading.notes.append(_ADDED)
    return True


def _take_reasoning(reading: Reading, item: Usual) -> bool:
    if not item.role is item.content is item.phase is item.call_id is item.name is item.arguments is None:
        return False
    if item.input is not None or item.output is not None:
        return False
    summary = tuple([part.text for part in item.summary or ()])
    blobs = unseal(item.encrypted_content or "")
    reading.items.append(ReasoningItem(id=item.id or "", summary=summary, blobs=blobs))
    return True


_TAKERS: dict[str | None, Callable[[Reading, Usual], bool]] = {
    None: _take_message,
    "message": _take_message,
    "function_call": _take_call,
    "function_call_output": _take_result,
    "custom_tool_call": _take_call,
    "custom_tool_call_output": _take_result,
    "reasoning": _take_reasoning,
}


def _parts_of(content: str | list[_Part] | None) -> tuple[TextPart, ...]:
    if isinstance(content, list) and len(content) == 1:
        content = content[0].text
    if not isinstance(content, list):
        return (TextPart(text=content),) if content else ()
    return tuple([TextPart(text=part.text) for part in content]) if any(part.text for part in content) else ()


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
        reading.notes.append(_ODD_ROLE)
        _read_opaque(reading, raw, path)
        return
    if message.content is None and message.role != "assistant":
        raise missing(at(path, "content"))
    item = MessageItem(
        id=message.id or "",
        role=cast("Role", message.role),
        content=read_content(message.content or "", at(path, "content")),
        phase=message.phase,
        extra=extra_of(raw, *_Message.__struct_fields__, "status"),
    )
    reading.items.append(item)


def _read_call(reading: Reading, raw: msgspec.Raw, path: str) -> None:
    call = read(_call, raw, path)
    _add_call(reading, raw, call, "function", arguments_of(call.arguments, at(path, "arguments")))


def _read_custom_call(reading: Reading, raw: msgspec.Raw, path: str) -> None:
    call = read(_call, raw, path)
    _add_call(reading, raw, call, "custom", call.input or "")


def _add_call(reading: Reading, raw: msgspec.Raw, call: _Call, kind: CallKind, arguments: str) -> None:
    item = CallItem(
        id=call.id or "",
        call_id=call.call_id,
        name=flat_name(call.name, call.namespace),
        arguments=arguments,
        kind=kind,
        namespace=call.namespace,
        extra=extra_of(raw, *_Call.__struct_fields__, "status"),
    )
    _append_call(reading, item)


def _append_call(reading: Reading, item: CallItem) -> None:
    if reading.items and _is_empty_turn(reading.items[-1]):
        reading.items.pop()
        reading.notes.append(_ATTACHED)
    reading.items.append(item)


def _is_empty_turn(item: AnyItem) -> bool:
    return type(item) is MessageItem and item.role == "assistant" and not item.content


def _read_result(reading: Reading, raw: msgspec.Raw, path: str) -> None:
    _add_result(reading, raw, path, "function")


def _read_custom_result(reading: Reading, raw: msgspec.Raw, path: str) -> None:
    _add_result(reading, raw, path, "custom")


def _add_result(reading: Reading, raw: msgspec.Raw, path: str, kind: CallKind) -> None:
    result = read(_result, raw, path)
    # The protocol has no flag for a failed result; `incomplete` is the nearest word it has.
    is_error = result.status == "incomplete"
    name = flat_name(result.name, result.namespace) if result.name else ""
    item = ResultItem(
        id=result.id or "",
        call_id=_called(result, path),
        name=name,
        output=read_output(result.output, at(path, "output")),
        is_error=is_error,
        kind=kind,
        rc="failed" if is_error else "ok",
        extra=extra_of(raw, *_Result.__struct_fields__),
    )
    reading.items.append(item)
    reading.notes.append(_ADDED)


def _called(result: _Result, path: str) -> str:
    """Return the id of the call that a result answers."""
    if result.call_id is None:
        raise missing(at(path, "call_id"))
    return result.call_id


def _read_reasoning(reading: Reading, raw: msgspec.Raw, path: str) -> None:
    reasoning = read(_reasoning, raw, path)
    item = ReasoningItem(
        id=reasoning.id or "",
        summary=tuple(part.text for part in reasoning.summary or ()),
        text=tuple(part.text for part in reasoning.content or ()),
        blobs=unseal(reasoning.encrypted_content or ""),
        extra=extra_of(raw, *_Reasoning.__struct_fields__, "status"),
    )
    reading.items.append(item)


def _read_server_call(reading: Reading, raw: msgspec.Raw, path: str) -> None:
    """Read a call that a server ran: Treadle's own is a pair of items, one of the upstream's only it can read."""
    if is_own(raw, path, reading.servers):
        reading.items += read_server_call(raw, path)
    else:
        _read_opaque(reading, raw, path)


def _read_question(reading: Reading, raw: msgspec.Raw, path: str) -> None:
    """Read a question that is sent back: Treadle's own stands for its call, one of the upstream's only it can read."""
    if is_own(raw, path, reading.servers):
        reading.items.append(read_question(raw, path))
    else:
        _read_opaque(reading, raw, path)


def _read_answer(reading: Reading, raw: msgspec.Raw, path: str) -> None:
    """Read what a person decided; about a call of the upstream's own it is the upstream's to know."""
    answer = read(_answer, raw, path)
    asked = answer.approval_request_id
    is_known = any(isinstance(item, OpaqueItem) and item.id == asked for item in reading.items)
    if is_known or reading.servers or asked.startswith(_UPSTREAM_QUESTION):
        _read_opaque(reading, raw, path)
        return
    reading.approvals.append(
        Assent(
            approval_id=asked,
            approve=answer.approve,
            reason=answer.reason or "",
            field=at(path, "approval_request_id"),
        )
    )


def _read_tools(reading: Reading, raw: msgspec.Raw, path: str) -> None:
    reading.tools.append((at(path, "tools"), read(_tool_list, raw, path).tools))


def _read_reference(reading: Reading, raw: msgspec.Raw, path: str) -> None:
    item_id = read(_reference, raw, path).id
    of_picture = _OF_PICTURE.fullmatch(item_id)
    if of_picture is None:
        reading.items.append(ReferenceItem(id=item_id))
    elif of_picture["message"] not in reading.named:
        # An image is shown as an item of its own and kept as a part of its message.
        reading.named.add(of_picture["message"])
        reading.items.append(ReferenceItem(id=of_picture["message"]))


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
    "mcp_approval_request": _read_question,
    "mcp_approval_response": _read_answer,
    "additional_tools": _read_tools,
    "item_reference": _read_reference,
}
