"""The messages of a request as items: text first, then the calls of the same message, results paired with them.

Unknown roles and parts are kept; only what contradicts the protocol's types is refused.
"""

from collections.abc import Callable
from typing import Literal

import msgspec

from treadle.canon.items import (
    AnyItem,
    AnyPart,
    Blob,
    CallItem,
    CallKind,
    Extra,
    MessageItem,
    OpaqueItem,
    ReasoningItem,
    RefusalPart,
    ResultItem,
    Role,
    TextPart,
)
from treadle.canon.json import type_errors
from treadle.wire.chat.parts import PROTOCOL, read_content, read_part
from treadle.wire.chat.state import CALL_STATE, THOUGHT_STATE, take_back
from treadle.wire.fields import LIST, TEXT, Fields, read_value, refusal, starts_with
from treadle.wire.notes import Notes
from treadle.wire.turns import OpenCalls

_EMPTY = (msgspec.Raw(b"[]"), msgspec.Raw(b"{}"))
"""What clients send back of an answer's fields that had nothing in them."""

_ROLES: dict[str, Role] = {"system": "system", "developer": "developer", "user": "user"}


class MessageReader:
    """Reads the messages one after the other and remembers which calls still want a result."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._items: list[AnyItem] = []
        self._open = OpenCalls()
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
            if (plain := _read_said(raw)) is not None:
                self._items.append(plain)
                continue
            fields = Fields(raw, f"{path}[{position}]")
            role = fields.need("role", TEXT)
            if role in _ROLES:
                self._read_plain(fields, _ROLES[role])
            elif role in self._readers:
                self._readers[role](fields, position)
            else:
                self._notes.add("unknown_role", "kept", f"a message of role {role!r}", fields.at("role"))
                self._items.append(OpaqueItem(protocol=PROTOCOL, raw=raw.copy()))
        return tuple(self._items)

    def _read_plain(self, fields: Fields, role: Role) -> None:
        content = self._content(fields)
        name = fields.get("name", TEXT)
        self._items.append(MessageItem(role=role, content=content, name=name, extra=_extra(fields)))

    def _read_assistant(self, fields: Fields, position: int) -> None:
        self._read_reasoning(fields)
        content = self._content(fields)
        declined = fields.get("refusal", TEXT)
        if declined:
            content = (*content, RefusalPart(text=declined))
        content = (*content, *_read_images(fields))
        calls = self._read_calls(fields, position)
        name = fields.get("name", TEXT)
        extra = _extra(fields)
        if content or extra or not calls:
            self._items.append(MessageItem(role="assistant", content=content, name=name, extra=extra))
        self._items += calls
        for call in calls:
            self._open.add(call)
            self._calls[call.call_id] = call

    def _read_reasoning(self, fields: Fields) -> None:
        thoughts = [fields.get("reasoning_content", TEXT), fields.get("reasoning", TEXT)]
        text = next((thought for thought in thoughts if thought), None)
        blob = _take_back(fields, THOUGHT_STATE)
        if text or blob:
            self._items.append(ReasoningItem(text=(text,) if text else (), blobs=(blob,) if blob else ()))

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
        if call_id:
            self._open.take_id(call_id)
        call = self._calls.get(call_id) if call_id else self._take_oldest(name)
        if not call_id and call is None:
            raise refusal(fields.at("tool_call_id"), "a tool message needs the id of its call")
        self._close(call, call_id or "", name, fields)

    def _read_function(self, fields: Fields, position: int) -> None:
        name = fields.need("name", TEXT)
        call = self._take_oldest(name)
        self._close(call, f"call_{position}_unmatched", name, fields)

    def _take_oldest(self, name: str | None) -> CallItem | None:
        return self._open.take_name(name) if name else self._open.take_oldest()

    def _close(self, call: CallItem | None, call_id: str, name: str | None, fields: Fields) -> None:
        output = self._content(fields)
        if call is None:
            self._items.append(ResultItem(call_id=call_id, name=name or "", output=output, extra=_extra(fields)))
            return
        self._items.append(
            ResultItem(call_id=call.call_id, name=call.name, output=output, kind=call.kind, extra=_extra(fields))
        )

    def _content(self, fields: Fields) -> tuple[AnyPart, ...]:
        return read_content(fields.raw("content"), fields.at("content"))


class _Said(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    role: Literal["user", "assistant", "system", "developer"]
    content: str


_said = msgspec.json.Decoder(_Said)


def _read_said(raw: msgspec.Raw) -> MessageItem | None:
    """Read what nearly every message of a history is: somebody said a text. None for any other."""
    try:
        said = _said.decode(raw)
    except type_errors:
        return None
    return MessageItem(role=said.role, content=(TextPart(text=said.content),)) if said.content else None


def _read_call(fields: Fields, default_id: str) -> CallItem:
    kind: CallKind = "custom" if fields.get("type", TEXT) == "custom" else "function"
    call_id = fields.get("id", TEXT) or default_id
    body = fields.object(kind)
    if body is None:
        raise refusal(fields.at(kind), "a call needs it", "missing_required_parameter")
    text = (body.get("input", TEXT) or "") if kind == "custom" else _arguments(body, "arguments")
    blob = _take_back(fields, CALL_STATE)
    # Clients that put a stream together leave it in; no request has it.
    fields.raw("index")
    return CallItem(
        call_id=call_id,
        name=body.need("name", TEXT),
        arguments=text,
        kind=kind,
        blobs=(blob,) if blob else (),
        extra=_extra(fields),
    )


def _read_images(fields: Fields) -> list[AnyPart]:
    """Read the images of an earlier answer, which have a field of their own there."""
    raws = fields.get("images", LIST) or []
    parts = [read_part(raw, f"{fields.at('images')}[{position}]") for position, raw in enumerate(raws)]
    # Their places are written anew.
    return [msgspec.structs.replace(part, extra=None) for part in parts]


def _take_back(fields: Fields, name: str) -> Blob | None:
    """Take opaque state that Treadle itself showed the client; a field of another origin stays where it is."""
    raw = fields.peek(name)
    blob = None if raw is None else take_back(name, raw)
    if blob is not None:
        fields.raw(name)
    return blob


def _extra(fields: Fields) -> Extra | None:
    rest = {name: raw for name, raw in fields.rest().items() if raw not in _EMPTY}
    return Extra(protocol=PROTOCOL, fields=rest) if rest else None


def _arguments(fields: Fields, name: str) -> str:
    raw = fields.raw(name)
    if raw is None:
        return "{}"
    if starts_with(raw, "{"):
        return bytes(raw).decode()
    return read_value(TEXT, raw, fields.at(name)) or "{}"
