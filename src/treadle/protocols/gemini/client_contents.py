"""The contents of a request as items.

Clients replay every chunk of a stream as a content of its own, and answer calls without saying which: consecutive
contents of the model are one turn, and results without an id belong to the open calls by name and order.
"""

from collections.abc import Sequence
from typing import Generic, Literal, TypeVar, cast

import msgspec

from treadle.core.items import (
    AnyItem,
    AnyPart,
    Blob,
    CallItem,
    MessageItem,
    OpaqueItem,
    ReasoningItem,
    ResultItem,
    TextPart,
)
from treadle.core.json import DEPTH_MAX, opens_less, type_errors
from treadle.protocols.field_reader import FLAG, LIST, NULL, TEXT, Shape, is_null, read_value, starts_with
from treadle.protocols.gemini.content_parts import call_named, extra, read_arguments, read_part, read_response, unseal
from treadle.protocols.gemini.field_spelling import PROTOCOL, CamelFields
from treadle.protocols.translation_notes import Notes
from treadle.protocols.turn_grouping import OpenCalls

_MODEL = frozenset({"model", "assistant"})
_USER = frozenset({"user", "function", "tool"})


class ContentReader:
    """Reads the contents one after the other and remembers which calls still want a result."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._items: list[AnyItem] = []
        self._turn = _ModelTurn()
        self._calls: dict[str, CallItem] = {}
        self._open = OpenCalls()
        self._place = ""

    def read(self, raws: list[msgspec.Raw], path: str) -> tuple[AnyItem, ...]:
        """Read all contents.

        Raises: ProtocolError.
        """
        for position, raw in enumerate(raws):
            content = _usual_of(raw)
            self._place = f"call_{position}"
            if content is None:
                self._read_odd(raw, CamelFields(raw, f"{path}[{position}]"))
            else:
                self._take(content, f"{path}[{position}].parts")
        self._end_turn()
        return tuple(self._items)

    def read_decoded(self, contents: Sequence["AnyItem | _Usual"], path: str) -> tuple[AnyItem, ...]:
        """Read contents that are all of a usual shape.

        Raises: ProtocolError.
        """
        if contents and type(contents[0]) is MessageItem:
            return tuple(cast("list[AnyItem]", contents))
        for position, content in enumerate(cast("list[_Usual]", contents)):
            self._place = f"call_{position}"
            self._take(content, f"{path}[{position}].parts")
        self._end_turn()
        return tuple(self._items)

    def _take(self, content: "_Usual", path: str) -> None:
        """Read a content of the usual shape."""
        if content.role == "model":
            for place, part in enumerate(content.parts):
                self._take_model(part, f"{path}[{place}].functionCall", place)
            return
        self._end_turn()
        shown: list[AnyPart] = []
        for place, part in enumerate(content.parts):
            if not is_null(part.functionResponse):
                response = CamelFields(part.functionResponse, f"{path}[{place}].functionResponse")
                self._items.append(self._read_result(response, f"{self._place}_{place}_unmatched"))
            elif part.text is not None:
                shown.append(TextPart(text=part.text))
        if shown:
            self._items.append(MessageItem(role="user", content=tuple(shown)))

    def _take_model(self, part: "_Part", path: str, place: int) -> None:
        blobs = unseal(part.thoughtSignature or "")
        if not is_null(part.functionCall):
            self._read_call(CamelFields(part.functionCall, path), f"{self._place}_{place}", blobs)
        elif part.thought:
            self._turn.think(part.text or "", blobs)
        else:
            self._turn.add_part(None if part.text is None else TextPart(text=part.text), blobs)

    def _read_odd(self, raw: msgspec.Raw, content: CamelFields) -> None:
        role = content.get("role", TEXT) or "user"
        if role in _MODEL:
            self._read_model(content)
            return
        self._end_turn()
        if role in _USER:
            self._read_user(content)
        elif role == "system":
            self._items.append(MessageItem(role="system", content=_shown(read_parts(content))))
        else:
            self._notes.add("unknown_role", "kept", f"a content of role {role!r}", content.at("role"))
            self._items.append(OpaqueItem(protocol=PROTOCOL, raw=raw.copy()))

    def _read_model(self, content: CamelFields) -> None:
        for place, part in enumerate(read_parts(content)):
            is_thought = part.get("thought", FLAG) is True
            blobs = unseal(part.get("thoughtSignature", TEXT) or "")
            call = part.object("functionCall")
            if call is not None:
                self._read_call(call, f"{self._place}_{place}", blobs)
            elif is_thought:
                self._turn.think(part.get("text", TEXT) or "", blobs)
            else:
                self._turn.add_part(read_part(part), blobs)

    def _read_call(self, fields: CamelFields, made_id: str, blobs: tuple[Blob, ...]) -> None:
        sealed, blobs = call_named(blobs)
        given, name = fields.get("id", TEXT) or sealed, fields.get("name", TEXT)
        if not name:
            self._notes.add("call_without_name", "dropped", "a call of nothing", fields.at("name"))
            return
        call_id = given if given and given not in self._calls else made_id
        call = CallItem(
            call_id=call_id,
            name=name,
            arguments=read_arguments(fields.json_object("args")),
            upstream_id=given if given != call_id and given else None,
            blobs=blobs,
            extra=extra(fields.rest()),
        )
        self._calls[call_id] = call
        self._turn.call(call)

    def _end_turn(self) -> None:
        items = self._turn.end()
        calls = [item for item in items if type(item) is CallItem]
        if items:
            # An unanswered call of an earlier turn must not take a result that is meant for a later one.
            self._open = OpenCalls(calls)
        self._items += items

    def _read_user(self, content: CamelFields) -> None:
        shown: list[CamelFields] = []
        for place, part in enumerate(read_parts(content)):
            response = part.object("functionResponse")
            if response is None:
                shown.append(part)
            else:
                self._items.append(self._read_result(response, f"{self._place}_{place}_unmatched"))
        parts = _shown(shown)
        if parts:
            self._items.append(MessageItem(role="user", content=parts))

    def _read_result(self, fields: CamelFields, made_id: str) -> ResultItem:
        given, name = fields.get("id", TEXT) or "", fields.get("name", TEXT) or ""
        call = self._answered(given, name)
        text, is_error = read_response(fields.json_object("response"))
        attached = _shown(read_parts(fields))
        return ResultItem(
            call_id=call.call_id if call else given or made_id,
            name=call.name if call else name,
            output=(TextPart(text=text), *attached) if text or not attached else attached,
            is_error=is_error,
            rc="failed" if is_error else "ok",
            extra=extra(fields.rest()),
        )

    def _answered(self, given: str, name: str) -> CallItem | None:
        """Return the call that a result answers: by id, else the oldest open one of that name, else the oldest."""
        if given:
            return self._open.take_id(given) or self._calls.get(given) or self._open.take_name(name)
        return self._open.take_name(name) or self._open.take_oldest()


class _Text(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    text: str


class _Said(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    parts: list[_Text]
    role: Literal["user", "model"] | None = None


C = TypeVar("C")


class _Body(msgspec.Struct, Generic[C], gc=False):
    contents: C


_said = msgspec.json.Decoder(_Body[list[_Said]])


def _taking_turns(data: bytes) -> list[AnyItem] | None:
    """Read contents of one text each, between which the model never goes on with its own; None for any others."""
    items: list[AnyItem] = []
    was_model = False
    for content in _said.decode(data).contents:
        is_model = content.role == "model"
        if len(content.parts) != 1 or (is_model and (was_model or not content.parts[0].text)):
            return None
        was_model = is_model
        text = TextPart(text=content.parts[0].text)
        items.append(MessageItem(role="assistant" if is_model else "user", content=(text,)))
    return items


class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    text: str | None = None
    functionCall: msgspec.Raw = NULL
    functionResponse: msgspec.Raw = NULL
    thoughtSignature: str | None = None
    thought: bool | None = None


class _Usual(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """A content as most are: text, thoughts and calls of the model, or text and results of a user."""

    parts: list[_Part]
    role: Literal["user", "model"] | None = None


_usual = msgspec.json.Decoder(_Usual)
_usuals = msgspec.json.Decoder(_Body[list[_Usual]])
_ROOM = DEPTH_MAX - 8
"""How deep a call or a result may nest: the part that holds it stands less deep than the difference."""


def _shaped(data: bytes) -> list[_Usual] | None:
    """Decode contents of the usual shape; None if one has a part that its role does not have, or a deep one."""
    contents = _usuals.decode(data).contents
    return contents if all(map(_fits, contents)) else None


SHAPES: tuple[Shape[Sequence[AnyItem | _Usual]], ...] = (_taking_turns, _shaped)
"""The usual shapes of all contents, the plainest first."""


def _usual_of(raw: msgspec.Raw) -> _Usual | None:
    try:
        content = _usual.decode(raw)
    except type_errors:
        return None
    return content if _fits(content) else None


def _fits(content: _Usual) -> bool:
    is_model = content.role == "model"
    for part in content.parts:
        call, response = part.functionCall, part.functionResponse
        if call is response is NULL and part.thought is part.thoughtSignature is None:
            continue
        if is_null(call) and is_null(response):
            if not is_model:
                return False
        elif is_null(call) == is_model or not (opens_less(call, _ROOM) and opens_less(response, _ROOM)):
            return False
    return True


def read_parts(content: CamelFields) -> list[CamelFields]:
    """Take the parts of a content; a single one may stand there without a list.

    Raises: ProtocolError.
    """
    path = content.at("parts")
    raw = content.raw("parts")
    if raw is None:
        return []
    if starts_with(raw, "{"):
        return [CamelFields(raw, path)]
    return [CamelFields(each, f"{path}[{place}]") for place, each in enumerate(read_value(LIST, raw, path))]


def _shown(parts: list[CamelFields]) -> tuple[AnyPart, ...]:
    read = (read_part(part) for part in parts)
    return tuple(part for part in read if part is not None)


class _ModelTurn:
    """One turn of the model, put together from as many contents as its stream had chunks."""

    def __init__(self) -> None:
        self._items: list[AnyItem] = []
        self._texts: list[str] = []
        self._parts: list[AnyPart] = []
        self._thoughts: list[str] = []
        self._blobs: tuple[Blob, ...] = ()

    def add_part(self, part: AnyPart | None, blobs: tuple[Blob, ...]) -> None:
        """Add what is shown; the pieces of a text are one text."""
        if part is not None:
            self._end_thought()
        if isinstance(part, TextPart) and part.extra is None:
            self._texts.append(part.text)
        elif part is not None:
            self._end_text()
            self._parts.append(part)
        self._blobs += blobs

    def think(self, text: str, blobs: tuple[Blob, ...]) -> None:
        """Add to the thoughts; a signature ends one."""
        self._end_message()
        self._thoughts.append(text)
        if blobs:
            self._end_thought(blobs)

    def call(self, call: CallItem) -> None:
        """Add a call."""
        self._end_message()
        self._end_thought()
        self._items.append(call)

    def end(self) -> list[AnyItem]:
        """Return the items of the turn and begin another one."""
        self._end_message()
        self._end_thought()
        items, self._items = self._items, []
        return items

    def _end_text(self) -> None:
        text, self._texts = "".join(self._texts), []
        if text:
            self._parts.append(TextPart(text=text))

    def _end_message(self) -> None:
        self._end_text()
        if self._parts:
            self._items.append(MessageItem(role="assistant", content=tuple(self._parts), blobs=self._blobs))
        self._parts, self._blobs = [], ()

    def _end_thought(self, blobs: tuple[Blob, ...] = ()) -> None:
        text, self._thoughts = "".join(self._thoughts), []
        if text or blobs:
            self._items.append(ReasoningItem(text=(text,) if text else (), blobs=blobs))
