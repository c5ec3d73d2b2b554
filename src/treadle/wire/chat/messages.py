"""The messages of a request as items: text first, then the calls of the same message, results paired with them.

Unknown roles and parts are kept; only what contradicts the protocol's types is refused.
"""

from collections.abc import Callable

import msgspec

from treadle.canon.items import (
    AnyItem,
    AnyPart,
    CallItem,
    CallKind,
    MessageItem,
    OpaqueItem,
    ReasoningItem,
    RefusalPart,
    ResultItem,
    Role,
)
from treadle.wire.chat.parts import PROTOCOL, read_content
from treadle.wire.fields import LIST, TEXT, Fields, read_value, refusal, starts_with
from treadle.wire.notes import Notes

_ROLES: dict[str, Role] = {"system": "system", "developer": "developer", "user": "user"}


class MessageReader:
    """Reads the messages one after the other and remembers which calls still want a result."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._items: list[AnyItem] = []
        self._open: list[CallItem] = []
        self._calls: dict[str, CallItem] = {}
        self._readers: dict[str, Callable[[Fields, int], None]] = {
            "assistant": self._read_assistant,
            "tool": self._read_tool,
            "function": self._read_function,
        }

    def read(self, raws: list[msgspec.Raw], path: str) -> tuple[AnyItem, ...]:
        """Read all messages.

        Raises: ProtocolError.
        """
        for position, raw in enumerate(raws):
            fields = Fields(raw, f"{path}[{position}]")
            role = fields.need("role", TEXT)
            if role in _ROLES:
                self._read_plain(fields, _ROLES[role])
            elif role in self._readers:
                self._readers[role](fields, position)
            else:
                self._notes.add("unknown_role", "kept", f"a message of role {role!r}", fields.at("role"))
                self._items.append(OpaqueItem(protocol=PROTOCOL, raw=raw.copy()))
                continue
            for name in fields.rest():
                self._notes.add("field_dropped", "dropped", f"the field {name!r} of a message", f"{path}.{name}")
        return tuple(self._items)

    def _read_plain(self, fields: Fields, role: Role) -> None:
        content = self._content(fields)
        self._items.append(MessageItem(role=role, content=content, name=fields.get("name", TEXT)))

    def _read_assistant(self, fields: Fields, position: int) -> None:
        thoughts = [fields.get("reasoning_content", TEXT), fields.get("reasoning", TEXT)]
        reasoning = next((thought for thought in thoughts if thought), None)
        if reasoning:
            self._items.append(ReasoningItem(text=(reasoning,)))
        content = self._content(fields)
        declined = fields.get("refusal", TEXT)
        if declined:
            content = (*content, RefusalPart(text=declined))
        calls = self._read_calls(fields, position)
        name = fields.get("name", TEXT)
        if content or not calls:
            self._items.append(MessageItem(role="assistant", content=content, name=name))
        self._items += calls
        self._open += calls
        self._calls.update((call.call_id, call) for call in calls)
        for empty in ("audio", "annotations"):
            raw = fields.raw(empty)
            if raw is not None and raw != msgspec.Raw(b"[]"):
                self._notes.add("field_dropped", "dropped", f"{empty} of an earlier answer", fields.at(empty))

    def _read_calls(self, fields: Fields, position: int) -> list[CallItem]:
        calls: list[CallItem] = []
        for place, raw in enumerate(fields.get("tool_calls", LIST) or ()):
            call = Fields(raw, f"{fields.at('tool_calls')}[{place}]")
            calls.append(_read_call(call, f"call_{position}_{place}"))
        legacy = fields.object("function_call")
        if legacy is not None and not calls:
            calls.append(
                CallItem(
                    call_id=f"call_{position}_legacy",
                    name=legacy.need("name", TEXT),
                    arguments=_arguments(legacy, "arguments"),
                )
            )
        return calls

    def _read_tool(self, fields: Fields, position: int) -> None:
        call_id = fields.get("tool_call_id", TEXT)
        name = fields.get("name", TEXT)
        call = self._calls.get(call_id) if call_id else self._oldest_open(name)
        if not call_id and call is None:
            raise refusal(fields.at("tool_call_id"), "a tool message needs the id of its call")
        self._close(call, call_id or "", name, self._content(fields))

    def _read_function(self, fields: Fields, position: int) -> None:
        name = fields.need("name", TEXT)
        call = self._oldest_open(name)
        self._close(call, f"call_{position}_unmatched", name, self._content(fields))

    def _oldest_open(self, name: str | None) -> CallItem | None:
        return next((call for call in self._open if not name or call.name == name), None)

    def _close(self, call: CallItem | None, call_id: str, name: str | None, output: tuple[AnyPart, ...]) -> None:
        if call is None:
            self._items.append(ResultItem(call_id=call_id, name=name or "", output=output))
            return
        if call in self._open:
            self._open.remove(call)
        self._items.append(ResultItem(call_id=call.call_id, name=call.name, output=output, kind=call.kind))

    def _content(self, fields: Fields) -> tuple[AnyPart, ...]:
        return read_content(fields.raw("content"), fields.at("content"), self._notes)


def _read_call(fields: Fields, default_id: str) -> CallItem:
    kind: CallKind = "custom" if fields.get("type", TEXT) == "custom" else "function"
    call_id = fields.get("id", TEXT) or default_id
    body = fields.object(kind)
    if body is None:
        raise refusal(fields.at(kind), "a call needs it", "missing_required_parameter")
    text = (body.get("input", TEXT) or "") if kind == "custom" else _arguments(body, "arguments")
    return CallItem(call_id=call_id, name=body.need("name", TEXT), arguments=text, kind=kind)


def _arguments(fields: Fields, name: str) -> str:
    raw = fields.raw(name)
    if raw is None:
        return "{}"
    if starts_with(raw, "{"):
        return bytes(raw).decode()
    return read_value(TEXT, raw, fields.at(name)) or "{}"
