"""The messages of a request as items, in order: what was said, thought, called and returned.

Every role may stand anywhere. Blocks that Treadle does not know are kept; only what contradicts the protocol's types
is refused, with the path as the API writes it (`messages.1.content.0.text`).
"""

from collections.abc import Callable

import msgspec

from treadle.canon.items import (
    AnyItem,
    AnyPart,
    CallItem,
    MessageItem,
    OpaqueItem,
    ReasoningItem,
    ResultItem,
    Role,
    TextPart,
)
from treadle.wire.fields import FLAG, TEXT, Fields, read_value, starts_with
from treadle.wire.messages.parts import CONTENT, extra_of, open_block, read_content, read_part
from treadle.wire.messages.seal import PROTOCOL, REDACTED, SIGNATURE, read_reasoning, real_id
from treadle.wire.notes import Notes

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
        self._readers: dict[str, Callable[[Fields], AnyItem | None]] = {
            "thinking": _read_thinking,
            "redacted_thinking": _read_redacted,
            "tool_use": self._read_call,
            "tool_result": self._read_result,
            "mcp_tool_use": self._read_server_call,
            "mcp_tool_result": self._read_server_result,
        }

    def read(self, raws: list[msgspec.Raw], path: str) -> tuple[AnyItem, ...]:
        """Read all messages.

        Raises: ProtocolError.
        """
        for position, raw in enumerate(raws):
            fields = Fields(raw, f"{path}.{position}")
            role = fields.need("role", TEXT)
            if role not in _ROLES:
                self._notes.add("unknown_role", "kept", f"a message of role {role!r}", fields.at("role"))
                self._items.append(OpaqueItem(protocol=PROTOCOL, raw=raw.copy()))
                continue
            self._read_message(fields, _ROLES[role])
            for name in fields.rest():
                self._notes.add("field_dropped", "dropped", f"the field {name!r} of a message", f"{path}.{name}")
        return tuple(self._items)

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
        item = None if reader is None else reader(fields)
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
