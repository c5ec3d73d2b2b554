"""Calls that a server ran: Treadle's own, and those that a Responses upstream ran by itself.

On this wire such a call and its result are one item. Treadle's own becomes a pair of items. The upstream's only it
can read; upstreams of other protocols get it as a call and its result, and a generated image as an image.
"""

import re
from typing import Any, cast

import msgspec

from treadle.core.errors import ProtocolError
from treadle.core.items import AnyItem, CallItem, ImagePart, MessageItem, OpaqueItem, ResultItem
from treadle.protocols.field_reader import NULL, at
from treadle.protocols.field_reader import read_value as read
from treadle.protocols.responses.content_parts import PROTOCOL, text_parts
from treadle.protocols.translation.loose_values import image_url
from treadle.protocols.translation_notes import Notes

OWN_LABEL = "treadle"
_OWN_SOURCES: frozenset[str] = frozenset({OWN_LABEL, "python", "local", "workspace"})
"""Where Treadle's own tools come from, as their calls are labelled; any other source has a colon, and no label has."""

_UNFINISHED: frozenset[str] = frozenset({"in_progress", "calling", "incomplete"})
_STRANGE = re.compile(r"[^a-zA-Z0-9_-]")
_CHARS_MAX = 64


class _ServerCall(msgspec.Struct, kw_only=True):
    id: str
    name: str
    arguments: msgspec.Raw = NULL
    output: str | None = None
    error: msgspec.Raw = NULL
    status: str | None = None


class _Label(msgspec.Struct, kw_only=True):
    server_label: str | None = None


class _Head(_Label, kw_only=True):
    type: str = ""
    result: str | None = None
    output_format: str | None = None


class _Question(msgspec.Struct, kw_only=True):
    id: str
    name: str
    arguments: msgspec.Raw = NULL


_label = msgspec.json.Decoder(_Label)
_question = msgspec.json.Decoder(_Question)
_head = msgspec.json.Decoder(_Head)
_server_call = msgspec.json.Decoder(_ServerCall)
_string = msgspec.json.Decoder(str)
_any: msgspec.json.Decoder[Any] = msgspec.json.Decoder()


def is_own(raw: msgspec.Raw, path: str, servers: frozenset[str]) -> bool:
    """Return whether Treadle ran a call; `servers` are the labels of those that the upstream shall call.

    Raises: ProtocolError, naming the field.
    """
    label = read(_label, raw, path).server_label or OWN_LABEL
    return label not in servers and (label in _OWN_SOURCES or ":" in label)


def read_server_call(raw: msgspec.Raw, path: str) -> tuple[CallItem, ResultItem]:
    """Return the call and the result that are one item on this wire, paired by the item's own id.

    Raises: ProtocolError, naming the field.
    """
    call = read(_server_call, raw, path)
    error = _error_text(call.error, at(path, "error"))
    unfinished = error is None and call.output is None and call.status in _UNFINISHED
    made = CallItem(
        id=call.id,
        call_id=call.id,
        name=call.name,
        arguments=arguments_of(call.arguments, at(path, "arguments")),
        side="server",
    )
    gave = ResultItem(
        call_id=call.id,
        name=call.name,
        output=text_parts(call.output if error is None else error),
        is_error=error is not None or unfinished,
        rc="interrupted" if unfinished else "ok" if error is None else "failed",
    )
    return made, gave


def read_question(raw: msgspec.Raw, path: str) -> CallItem:
    """Return the call that a question is about, named by the question: the store knows the rest of it.

    Raises: ProtocolError, naming the field.
    """
    asked = read(_question, raw, path)
    arguments = arguments_of(asked.arguments, at(path, "arguments"))
    return CallItem(id=asked.id, call_id=asked.id, name=asked.name, arguments=arguments, side="server")


def arguments_of(raw: msgspec.Raw, path: str) -> str:
    """Return arguments as JSON text; some clients replay an object, null or nothing where a string belongs."""
    data = bytes(raw)
    if data.startswith(b'"'):
        return read(_string, raw, path) or "{}"
    return "{}" if raw == NULL else data.decode()


def spell_out(items: tuple[AnyItem, ...], notes: Notes) -> tuple[AnyItem, ...]:
    """Return the items with those spelled out that every upstream can read."""
    if not [item for item in items if type(item) is OpaqueItem]:
        return items
    spelled: list[AnyItem] = []
    for item in items:
        if isinstance(item, OpaqueItem) and item.protocol == PROTOCOL:
            spelled += _spelled(item, notes)
        else:
            spelled.append(item)
    return tuple(spelled)


def _spelled(item: OpaqueItem, notes: Notes) -> tuple[AnyItem, ...]:
    try:
        head = read(_head, item.raw)
        if head.type == "mcp_call":
            return _pair(item.raw, head.server_label or "", notes)
    except ProtocolError:
        return (item,)
    if head.type == "image_generation_call" and head.result:
        notes.add("image_told", "emulated", "a generated image is told as an image of the answer")
        image = ImagePart(url=image_url(head.result, head.output_format or ""))
        return (MessageItem(role="assistant", content=(image,)),)
    return (item,)


def _pair(raw: msgspec.Raw, label: str, notes: Notes) -> tuple[AnyItem, ...]:
    """Return the call and its result, under a name that shows whose tool it was."""
    call, result = read_server_call(raw, "")
    name = _STRANGE.sub("_", f"{label}__{call.name}" if label else call.name)[:_CHARS_MAX]
    call_id = _STRANGE.sub("_", call.call_id)[-_CHARS_MAX:]
    notes.add("mcp_call_told", "emulated", "a call that another upstream ran is told as a call and its result")
    return (
        msgspec.structs.replace(call, name=name, call_id=call_id),
        msgspec.structs.replace(result, name=name, call_id=call_id),
    )


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
