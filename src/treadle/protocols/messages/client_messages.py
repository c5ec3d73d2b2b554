"""Reads the messages of a request as items, in order: texts, thoughts, calls and results.

Every role may stand anywhere. Blocks that Treadle does not know are kept; only what contradicts the protocol's types
is refused, with the path as the API writes it (`messages.1.content.0.text`).
"""

from collections.abc import Callable, Sequence
from typing import ClassVar

import msgspec

from treadle.core.items import (
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
    text_message,
)
from treadle.core.json import DEPTH_MAX, opens_less, type_errors
from treadle.protocols.field_reader import FLAG, LIST, NULL, TEXT, Fields, is_null, read_value
from treadle.protocols.messages.content_blocks import CONTENT, extra_of, open_block, read_content, read_part
from treadle.protocols.messages.provider_state import PROTOCOL, REDACTED, SIGNATURE, read_reasoning, real_id
from treadle.protocols.translation_notes import HISTORY, Notes
from treadle.protocols.turn_grouping import result_text

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

    def read(self, raw: msgspec.Raw, path: str) -> tuple[AnyItem, ...]:
        """Read a list of messages.

        Raises: ProtocolError.
        """
        return self.read_decoded([usual_message(each) or each for each in read_value(LIST, raw, path)], path)

    def read_decoded(self, messages: Sequence["Message | msgspec.Raw"], path: str) -> tuple[AnyItem, ...]:
        """Read messages, usual or not.

        Raises: ProtocolError.
        """
        for position, message in enumerate(messages):
            if isinstance(message, msgspec.Raw):
                self._read_odd(message, path, position)
            else:
                self._take(message, path, position)
        return tuple(self._items)

    def _take(self, message: "Message", path: str, number: int) -> None:
        """Read a message of the usual shape."""
        content, role, items = message.content, message.role, self._items
        if not isinstance(content, list):
            items.append(MessageItem(role=role, content=(TextPart(text=content),) if content else ()))
            return
        if len(content) == 1:
            block = content[0]
            if type(block) is _Text:
                items.append(MessageItem(role=role, content=(_part(block),)))
            else:
                items.append(self._taken(block, path, number, 0))
            return
        parts: list[AnyPart] = []
        for position, block in enumerate(content):
            if type(block) is _Text:
                parts.append(_part(block))
                continue
            self._end_message(role, parts)
            items.append(self._taken(block, path, number, position))
        if parts or not content:
            items.append(MessageItem(role=role, content=tuple(parts)))

    def _taken(self, block: "_Block", path: str, number: int, position: int) -> AnyItem:
        if type(block) is _Use:
            call_id = real_id(block.id or "") or f"call_{path}_{number}_content_{position}"
            self._names[call_id] = block.name
            raw = block.input
            arguments = _object_text(raw) or _read_text(raw, f"{path}.{number}.content.{position}.input")
            extra = None if block.cache_control is NULL else _extra(block.cache_control)
            return CallItem(call_id=call_id, name=block.name, arguments=arguments, extra=extra)
        if type(block) is _Result:
            call_id, content = real_id(block.tool_use_id), block.content
            if isinstance(content, list):
                output = tuple([_part(each) for each in content])
            else:
                output = (TextPart(text=content),) if content else ()
            return ResultItem(
                call_id=call_id,
                name=self._names.get(call_id, ""),
                output=output,
                is_error=block.is_error is True,
                extra=None if block.cache_control is NULL else _extra(block.cache_control),
            )
        assert type(block) is _Thinking
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
            texts = (TextPart(text=content),) if content else ()
            self._items.append(MessageItem(role=role, content=texts))
            return
        parts: list[AnyPart] = []
        count = len(self._items)
        for position, block in enumerate(content):
            self._read_block(block, f"{path}.{position}", role, parts)
        self._end_message(role, parts)
        if len(self._items) == count:
            self._items.append(MessageItem(role=role))

    def _read_block(self, raw: msgspec.Raw, path: str, role: Role, parts: list[AnyPart]) -> None:
        fields = open_block(raw, path)
        kind = fields.need("type", TEXT)
        reader = self._readers.get(kind)
        if reader is None and (kind in _PARTS or role != "assistant"):
            if kind == "tool_addition":
                self._read_addition(fields)
            parts.append(read_part(raw, fields, kind))
            return
        item = None if reader is None else reader(self, fields)
        self._end_message(role, parts)
        self._items.append(OpaqueItem(protocol=PROTOCOL, raw=raw.copy()) if item is None else item)

    def _end_message(self, role: Role, parts: list[AnyPart]) -> None:
        if parts:
            self._items.append(MessageItem(role=role, content=tuple(parts)))
            parts.clear()

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
        raw = fields.raw("input") or NULL
        arguments = _object_text(raw) or _read_text(raw, fields.at("input"))
        return CallItem(call_id=call_id, name=name, arguments=arguments, extra=extra_of(fields))

    def _read_result(self, fields: Fields) -> AnyItem:
        return self._result(fields, real_id(fields.need("tool_use_id", TEXT)))

    def _result(self, fields: Fields, call_id: str) -> ResultItem:
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
        if shown in self._foreign:
            return None
        result = self._result(fields, real_id(shown))
        if result.call_id in self._names:
            return result
        # Clients that know only some kinds of blocks drop the call of a server and send back what it gave.
        self._notes.add("orphan_result", "repaired", "a result without its call became a user's text", HISTORY)
        return text_message("user", f"[result without its call] {result_text(result.output)}")

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
    cache_control: ClassVar[msgspec.Raw] = NULL


_Block = _Text | _Use | _Result | _Thinking


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """A message as clients usually send it."""

    role: Role
    content: str | list[_Block] | None = None


_message = msgspec.json.Decoder(Message)


def are_shallow(messages: list[Message]) -> bool:
    """Return whether no message can nest too deep: neither texts nor short values can."""
    for message in messages:
        if isinstance(message.content, list):
            for block in message.content:
                if block.cache_control is not NULL and not opens_less(block.cache_control, _ROOM):
                    return False
                if type(block) is _Use and len(block.input) >= _ROOM and not opens_less(block.input, _ROOM):
                    return False
                if type(block) is _Result and isinstance(block.content, list) and not _are_shallow(block.content):
                    return False
    return True


def _are_shallow(texts: list[_Text]) -> bool:
    return all(each.cache_control is NULL or opens_less(each.cache_control, _ROOM) for each in texts)


_ROOM = DEPTH_MAX - 8
"""How deep a value in a block may nest: the block itself stands less deep than the difference."""


def usual_message(raw: msgspec.Raw) -> Message | None:
    """Read a message of the usual shape; None for any other."""
    try:
        return _message.decode(raw)
    except type_errors:
        return None


def _part(block: _Text) -> TextPart:
    if block.cache_control is NULL:
        return TextPart(text=block.text)
    return TextPart(text=block.text, extra=_extra(block.cache_control))


def _extra(cache_control: msgspec.Raw) -> Extra | None:
    return None if is_null(cache_control) else Extra(protocol=PROTOCOL, fields={"cache_control": cache_control.copy()})


def _read_thinking(fields: Fields) -> ReasoningItem:
    return read_reasoning(fields.get("thinking", TEXT) or "", fields.get("signature", TEXT) or "", SIGNATURE)


def _read_redacted(fields: Fields) -> ReasoningItem:
    return read_reasoning("", fields.need("data", TEXT), REDACTED)


def _object_text(raw: msgspec.Raw) -> str | None:
    """Return an input as the canonical text, whatever spacing the model used; None for one that is no object."""
    text = msgspec.json.format(raw, indent=-1).decode()
    return text if text[0] == "{" else "{}" if text == "null" else None


def _read_text(raw: msgspec.Raw, path: str) -> str:
    """Read an input that is the text of an object."""
    return read_value(TEXT, raw, path) or "{}"
