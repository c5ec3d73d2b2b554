"""The messages of a request as items: text first, then the calls of the same message, results paired with them.

Unknown roles and parts are kept; only what contradicts the protocol's types is refused.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, ClassVar, Literal

import msgspec

from treadle.core.items import (
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
from treadle.core.json import cut_text, type_errors
from treadle.protocols.chat.content_parts import PROTOCOL, read_content, read_part
from treadle.protocols.chat.provider_state import CALL_STATE, THOUGHT_STATE, take_back
from treadle.protocols.field_reader import LIST, TEXT, Fields, read_value, refusal, starts_with
from treadle.protocols.translation_notes import Notes
from treadle.protocols.turn_grouping import OpenCalls, open_calls

_EMPTY = (msgspec.Raw(b"[]"), msgspec.Raw(b"{}"))
"""What clients send back of an answer's fields that had nothing in them."""

_ROLES: dict[str, Role] = {"system": "system", "developer": "developer", "user": "user"}


class MessageReader:
    """Reads the messages one after the other and remembers which calls still want a result."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._items: list[AnyItem] = []
        self._calls: dict[str, CallItem] = {}
        self._open: OpenCalls | None = None
        self._made_ids: set[str] = set()

    def read(self, raw: msgspec.Raw, path: str) -> tuple[AnyItem, ...]:
        """Read a list of messages.

        Raises: ProtocolError.
        """
        return self.read_decoded([usual_message(each) or each for each in read_value(LIST, raw, path)], raw, path)

    def read_decoded(
        self, messages: Sequence["ChatMessage | msgspec.Raw"], raw: msgspec.Raw, path: str
    ) -> tuple[AnyItem, ...]:
        """Read messages, usual or not; `raw` are the same, for those in which a field does not fit the role.

        Raises: ProtocolError.
        """
        items = self._items
        raws: list[msgspec.Raw] = []
        for position, message in enumerate(messages):
            if isinstance(message, msgspec.Raw):
                self._read_odd(message, f"{path}[{position}]", position)
                continue
            # Most of a history is plain text: a call for each such message would cost as much as all the rest.
            if message.tool_calls is message.tool_call_id is message.reasoning_content is None:
                content, role = message.content, message.role
                if role != "tool" and not isinstance(content, list):
                    parts = (TextPart(text=content),) if content else ()
                    items.append(MessageItem(role=role, content=parts, name=message.name))
                    continue
            if not self._take(message, position):
                # What is decoded already is seldom gone through again.
                raws = raws or LIST.decode(raw)
                self._read_odd(raws[position], f"{path}[{position}]", position)
        return tuple(items)

    def _take(self, message: "ChatMessage", position: int) -> bool:
        """Read a message of the usual shape; false where its role has no such field."""
        role, content, calls, thought = message.role, message.content, message.tool_calls, message.reasoning_content
        parts = _text_parts(content) if isinstance(content, list) else (TextPart(text=content),) if content else ()
        if role == "tool":
            return self._take_result(message, parts)
        if message.tool_call_id is not None or (role != "assistant" and (calls or thought is not None)):
            return False
        if thought:
            self._items.append(ReasoningItem(text=(thought,)))
        if parts or not calls:
            self._items.append(MessageItem(role=role, content=parts, name=message.name))
        for place, made in enumerate(calls or ()):
            call_id, function = made.id or f"call_{position}_{place}", made.function
            self._add_call(CallItem(call_id=call_id, name=function.name, arguments=function.arguments or "{}"))
            if not made.id:
                self._made_ids.add(call_id)
        return True

    def _take_result(self, message: "ChatMessage", output: tuple[AnyPart, ...]) -> bool:
        call_id = message.tool_call_id
        if not call_id or message.tool_calls or message.reasoning_content is not None:
            return False
        call = self._calls.get(call_id)
        if call is None:
            result = ResultItem(call_id=call_id, name=message.name or "", output=output)
        else:
            result = ResultItem(call_id=call_id, name=call.name, output=output, kind=call.kind)
        self._items.append(result)
        if self._open is not None:
            self._open.take_id(call_id)
        return True

    def _add_call(self, call: CallItem) -> None:
        self._items.append(call)
        self._calls[call.call_id] = call
        if self._open is not None:
            self._open.add(call)

    def _read_odd(self, raw: msgspec.Raw, path: str, position: int) -> None:
        fields = Fields(raw, path)
        role = fields.need("role", TEXT)
        if role in _ROLES:
            self._read_plain(fields, _ROLES[role])
        elif role in self._readers:
            self._readers[role](self, fields, position)
        else:
            self._notes.add("unknown_role", "kept", f"a message of role {role!r}", fields.at("role"))
            self._items.append(OpaqueItem(protocol=PROTOCOL, raw=raw.copy()))

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
        for call in calls:
            self._add_call(call)

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
            made_id = f"call_{position}_{place}"
            calls.append(_read_call(call, made_id))
            if calls[-1].call_id == made_id:
                self._made_ids.add(made_id)
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
        if not call_id:
            call = self._take_oldest(name)
            # Servers that give calls no ids leave their clients none to send back; of other calls it is a guess.
            if call is None or call.call_id not in self._made_ids:
                open_id = f", such as {cut_text(call.call_id, 128)!r}" if call is not None else ""
                raise refusal(fields.at("tool_call_id"), f"a tool message needs the id of its call{open_id}")
            self._items.append(self._result(call, "", name, fields))
            return
        if self._open is not None:
            self._open.take_id(call_id)
        self._items.append(self._result(self._calls.get(call_id), call_id, name, fields))

    def _read_function(self, fields: Fields, position: int) -> None:
        name = fields.need("name", TEXT)
        call = self._take_oldest(name)
        self._items.append(self._result(call, f"call_{position}_unmatched", name, fields))

    def _take_oldest(self, name: str | None) -> CallItem | None:
        if self._open is None:
            self._open = open_calls(self._items)
        return self._open.take_name(name) if name else self._open.take_oldest()

    def _result(self, call: CallItem | None, call_id: str, name: str | None, fields: Fields) -> ResultItem:
        output = self._content(fields)
        if call is None:
            return ResultItem(call_id=call_id, name=name or "", output=output, extra=_extra(fields))
        return ResultItem(call_id=call.call_id, name=call.name, output=output, kind=call.kind, extra=_extra(fields))

    def _content(self, fields: Fields) -> tuple[AnyPart, ...]:
        return read_content(fields.raw("content"), fields.at("content"))

    _readers: ClassVar[dict[str, Callable[["MessageReader", Fields, int], None]]] = {
        "assistant": _read_assistant,
        "tool": _read_tool,
        "function": _read_function,
    }


class _Text(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    type: Literal["text"]
    text: str


class _Function(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    name: str
    arguments: str | None = None


class _Call(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    function: _Function
    id: str | None = None
    type: Literal["function"] | None = None
    index: int | None = None


class ChatMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """A message as clients usually send it, with the empty fields of an answer that some send back."""

    role: Literal["user", "assistant", "system", "developer", "tool"]
    content: str | list[_Text] | None = None
    tool_calls: list[_Call] | None = None
    tool_call_id: str | None = None
    name: str | None = None
    reasoning_content: str | None = None
    refusal: None = None
    audio: None = None
    function_call: None = None
    annotations: Annotated[list[None], msgspec.Meta(max_length=0)] | None = None


_message = msgspec.json.Decoder(ChatMessage)


def usual_message(raw: msgspec.Raw) -> ChatMessage | None:
    """Read a message of the usual shape; None for any other."""
    try:
        return _message.decode(raw)
    except type_errors:
        return None


def _text_parts(content: list[_Text]) -> tuple[TextPart, ...]:
    return tuple([TextPart(text=part.text) for part in content])


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
