"""The messages of a request as items, in order: what was said, thought, called and returned.

Every role may stand anywhere. Blocks that Treadle does not know are kept; only what contradicts the protocol's types
is refused, with the path as the API writes it (`messages.1.content.0.text`).
"""

from collections.abc import Callable, Sequence
from typing import ClassVar, cast

import msgspec

from treadle.canon.items import (
    AnyItem,
    AnyPart,
    CallItem,
    Extra,
    MessageItem,
    OpaqueItem,
    ReasoningItem,
    ResultItem,
    Role,
    TextPart,
)
from treadle.canon.json import DEPTH_MAX, opens_less, type_errors
from treadle.wire.fields import FLAG, LIST, NULL, TEXT, Fields, Shape, at, is_null, read_value, starts_with
from treadle.wire.messages.parts import CONTENT, extra_of, open_block, read_content, read_part
from treadle.wire.messages.seal import PROTOCOL, REDACTED, SIGNATURE, read_reasoning, real_id
from treadle.wire.notes import Notes
from treadle.wire.turns import SAID, Said, read_said

_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system", "developer": "developer"}
_PARTS = frozenset({"text", "image", "document"})


class HistoryReader:
    """Reads the messages one after the other. `servers` are the MCP servers that the upstream itself shall call."""

    def __init__(self, notes: Notes, servers: frozenset[str] = frozenset()) -> None:
        self.definitions: list[tuple[str, msgspec.Raw]] = []
        self._notes = notes
        self._servers = servers
        self._items: list[AnyItem] = []
        self._names: dict[str, str] = {}
        self._foreign: set[str] = set()

    def read(self, raw: msgspec.Raw, path: str, told: Sequence["Said | _Message"] | None = None) -> tuple[AnyItem, ...]:
        """Read a list of messages; `told` are the same ones, if all of them have a usual shape.

        Raises: ProtocolError.
        """
        if told and isinstance(told[0], Said):
            return read_said(cast("list[Said]", told))
        if told is not None:
            for position, message in enumerate(cast("list[_Message]", told)):
                self._take(message, path, position)
            return tuple(self._items)
        for position, each in enumerate(read_value(LIST, raw, path)):
            message = _usual(each)
            if message is None:
                self._read_odd(each, path, position)
            else:
                self._take(message, path, position)
        return tuple(self._items)

    def _take(self, message: "_Message", path: str, number: int) -> None:
        """Read a message of the usual shape."""
        content, role = message.content, message.role
        if not isinstance(content, list):
            self._items.append(MessageItem(role=role, content=(TextPart(text=content),) if content else ()))
            return
        said: list[AnyPart] = []
        for position, block in enumerate(content):
            if type(block) is _Text:
                extra = None if block.cache_control is NULL else _extra(block.cache_control)
                said.append(TextPart(text=block.text, extra=extra))
                continue
            self._end_message(role, said)
            self._items.append(self._taken(block, path, number, position))
        if said or not content:
            self._items.append(MessageItem(role=role, content=tuple(said)))

    def _taken(self, block: "_Block", path: str, number: int, position: int) -> AnyItem:
        if type(block) is _Use:
            place = f"{path}.{number}.content.{position}"
            call_id = real_id(block.id or "") or f"call_{place.replace('.', '_')}"
            self._names[call_id] = block.name
            raw = None if is_null(block.input) else block.input
            arguments = _arguments(raw, at(place, "input"))
            extra = _extra(block.cache_control)
            return CallItem(call_id=call_id, name=block.name, arguments=arguments, extra=extra)
        if type(block) is _Result:
            call_id = real_id(block.tool_use_id)
            return ResultItem(
                call_id=call_id,
                name=self._names.get(call_id, ""),
                output=_parts(block.content),
                is_error=block.is_error is True,
                extra=_extra(block.cache_control),
            )
        assert isinstance(block, _Thinking)
        return read_reasoning(block.thinking or "", block.signature or "", SIGNATURE)

    def _read_odd(self, raw: msgspec.Raw, path: str, position: int) -> None:
        fields = Fields(raw, f"{path}.{position}")
        role = fields.need("role", TEXT)
        if role not in _ROLES:
            self._notes.add("unknown_role", "kept", f"a message of role {role!r}", fields.at("role"))
            self._items.append(OpaqueItem(protocol=PROTOCOL, raw=raw.copy()))
            return
        self._read_message(fields, _ROLES[role])
        for name in fields.rest():
            self._notes.add("field_dropped", "dropped", f"the field {name!r} of a message", f"{path}.{name}")

    def _read_message(self, fields: Fields, role: Role) -> None:
        raw, path = fields.raw("content"), fields.at("content")
        content = [] if raw is None else read_value(CONTENT, raw, path)
        if isinstance(content, str):
            parts = (TextPart(text=content),) if content else ()
            self._items.append(MessageItem(role=role, content=parts))
            return
        said: list[AnyPart] = []
        count = len(self._items)
        for position, block in enumerate(content):
            self._read_block(block, f"{path}.{position}", role, said)
        self._end_message(role, said)
        if len(self._items) == count:
            self._items.append(MessageItem(role=role))

    def _read_block(self, raw: msgspec.Raw, path: str, role: Role, said: list[AnyPart]) -> None:
        fields = open_block(raw, path)
        kind = fields.need("type", TEXT)
        reader = self._readers.get(kind)
        if reader is None and (kind in _PARTS or role != "assistant"):
            if kind == "tool_addition":
                self._read_addition(fields)
            said.append(read_part(raw, fields, kind))
            return
        item = None if reader is None else reader(self, fields)
        self._end_message(role, said)
        self._items.append(OpaqueItem(protocol=PROTOCOL, raw=raw.copy()) if item is None else item)

    def _end_message(self, role: Role, said: list[AnyPart]) -> None:
        if said:
            self._items.append(MessageItem(role=role, content=tuple(said)))
            said.clear()

    def _read_addition(self, fields: Fields) -> None:
        """Remember a tool that is defined in the middle of the conversation, so that it can be offered."""
        tool = fields.object("tool")
        definition = None if tool is None else tool.raw("definition")
        if tool is not None and definition is not None:
            self.definitions.append((tool.at("definition"), definition))

    def _read_call(self, fields: Fields) -> AnyItem:
        call_id = real_id(fields.get("id", TEXT) or "") or f"call_{fields.path.replace('.', '_')}"
        name = fields.need("name", TEXT)
        self._names[call_id] = name
        arguments = _arguments(fields.raw("input"), fields.at("input"))
        return CallItem(call_id=call_id, name=name, arguments=arguments, extra=extra_of(fields))

    def _read_result(self, fields: Fields) -> AnyItem:
        return self._result(fields, real_id(fields.need("tool_use_id", TEXT)))

    def _result(self, fields: Fields, call_id: str) -> AnyItem:
        output = read_content(fields.raw("content"), fields.at("content"))
        return ResultItem(
            call_id=call_id,
            name=self._names.get(call_id, ""),
            output=output,
            is_error=fields.get("is_error", FLAG) is True,
            extra=extra_of(fields),
        )

    def _read_server_call(self, fields: Fields) -> AnyItem | None:
        """Read a call that Treadle ran; one that the upstream ran on a server of the request is the upstream's own."""
        if fields.get("server_name", TEXT) in self._servers:
            self._foreign.add(fields.get("id", TEXT) or "")
            return None
        call = self._read_call(fields)
        return msgspec.structs.replace(call, side="server")

    def _read_server_result(self, fields: Fields) -> AnyItem | None:
        shown = fields.need("tool_use_id", TEXT)
        return None if shown in self._foreign else self._result(fields, real_id(shown))

    def _read_thought(self, fields: Fields) -> AnyItem:
        return _read_thinking(fields)

    def _read_hidden(self, fields: Fields) -> AnyItem:
        return _read_redacted(fields)

    _readers: ClassVar[dict[str, Callable[["HistoryReader", Fields], AnyItem | None]]] = {
        "thinking": _read_thought,
        "redacted_thinking": _read_hidden,
        "tool_use": _read_call,
        "tool_result": _read_result,
        "mcp_tool_use": _read_server_call,
        "mcp_tool_result": _read_server_result,
    }


class _Text(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False, tag_field="type", tag="text"):
    text: str
    cache_control: msgspec.Raw = NULL


class _Use(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False, tag_field="type", tag="tool_use"):
    name: str
    id: str | None = None
    input: msgspec.Raw = NULL
    cache_control: msgspec.Raw = NULL


class _Result(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False, tag_field="type", tag="tool_result"):
    tool_use_id: str
    content: str | list[_Text] | None = None
    is_error: bool | None = None
    cache_control: msgspec.Raw = NULL


class _Thinking(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False, tag_field="type", tag="thinking"):
    thinking: str | None = None
    signature: str | None = None


_Block = _Text | _Use | _Result | _Thinking


class _Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """A message as clients usually send it."""

    role: Role
    content: str | list[_Block] | None = None


_message = msgspec.json.Decoder(_Message)
_messages: msgspec.json.Decoder[list[_Message]] = msgspec.json.Decoder(list[_Message])


def _shaped(raw: msgspec.Raw) -> list[_Message] | None:
    """Decode a history of usual messages; None if what stands in one may nest too deep."""
    told = _messages.decode(raw)
    for message in told:
        if isinstance(message.content, list) and not all(map(_is_shallow, message.content)):
            return None
    return told


def _is_shallow(block: _Block) -> bool:
    if type(block) is _Text:
        return block.cache_control is NULL or opens_less(block.cache_control, _ROOM)
    if type(block) is _Use:
        return opens_less(block.input, _ROOM) and opens_less(block.cache_control, _ROOM)
    if type(block) is _Result:
        parts = block.content if isinstance(block.content, list) else ()
        return all(map(_is_shallow, parts)) and opens_less(block.cache_control, _ROOM)
    return True


SHAPES: tuple[Shape, ...] = (SAID.decode, _shaped)
"""The usual shapes of a whole history, the plainest first."""

_ROOM = DEPTH_MAX - 8
"""How deep a value in a block may nest: the block itself stands less deep than the difference."""


def _usual(raw: msgspec.Raw) -> _Message | None:
    """Read a message of the usual shape; None for any other."""
    try:
        return _message.decode(raw)
    except type_errors:
        return None


def _parts(content: str | list[_Text] | None) -> tuple[AnyPart, ...]:
    if isinstance(content, list):
        return tuple([TextPart(text=part.text, extra=_extra(part.cache_control)) for part in content])
    return (TextPart(text=content),) if content else ()


def _extra(cache_control: msgspec.Raw) -> Extra | None:
    if cache_control is NULL or is_null(cache_control):
        return None
    return Extra(protocol=PROTOCOL, fields={"cache_control": cache_control.copy()})


def _read_thinking(fields: Fields) -> ReasoningItem:
    return read_reasoning(fields.get("thinking", TEXT) or "", fields.get("signature", TEXT) or "", SIGNATURE)


def _read_redacted(fields: Fields) -> ReasoningItem:
    return read_reasoning("", fields.need("data", TEXT), REDACTED)


def _arguments(raw: msgspec.Raw | None, path: str) -> str:
    """Return the input as the canonical text: clients send an object, whatever spacing the model used."""
    if raw is None:
        return "{}"
    if starts_with(raw, "{"):
        return bytes(msgspec.json.format(raw, indent=-1)).decode()
    return read_value(TEXT, raw, path) or "{}"
