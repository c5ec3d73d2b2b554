"""Messages and journal entries: the conversation as it is kept and as a person reads it.

A message has a `kind`, human `content` and structured `data` (S3's shape, byte for byte where it names a field).
An entry is a message, or a piece of bookkeeping, with its place in a run. Items and entries translate both ways
without loss.
"""

from typing import Any, Literal, cast

import msgspec

from treadle.canon.items import (
    AnyItem,
    CallItem,
    MessageItem,
    ReasoningItem,
    ResultItem,
    TextPart,
    text_of,
)
from treadle.canon.json import BadJson, OptionalRaw, cut_text, read_json, write_json

MessageKind = Literal["system", "user", "assistant", "tool_call", "tool_result"]
EntryKind = Literal[
    "system",
    "user",
    "assistant",
    "tool_call",
    "tool_result",
    "reasoning",
    "other",
    "frame",
    "plan",
    "reply",
    "void",
    "tool_early",
    "tool_start",
    "approval_request",
    "approval_decision",
    "status",
    "note",
    "error",
]
"""Beside the items: how the run was set up (`frame`), the surface of each model call (`plan`), how that call ended and
in which pieces it came (`reply`), items that no model shall read again (`void`), start marks, what was asked of a
person and what the answer was (`approval_…`), status and notes."""
ITEM_KINDS: frozenset[str] = frozenset(
    {"system", "user", "assistant", "tool_call", "tool_result", "reasoning", "other"}
)
CONTENT_BYTES_MAX = 2_000
_KIND_OF_ROLE: dict[str, MessageKind] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
}


class Entry(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """One line of the journal of a run. `seq` is dense from 1; zero until the journal gives it one."""

    kind: EntryKind
    at: float
    seq: int = 0
    content: str | None = None
    data: OptionalRaw = None
    name: str | None = None
    call_id: str | None = None
    item_id: str | None = None
    is_input: bool = False


def entry_of_item(item: AnyItem, *, at: float, is_input: bool = False, extra: dict[str, Any] | None = None) -> Entry:
    """Write an item as an entry; `extra` adds bookkeeping to the data of a call or result."""
    item_id = item.id or None
    if type(item) is MessageItem:
        kind, plain = _KIND_OF_ROLE[item.role], _plain_text(item)
        if plain is not None:
            return Entry(kind=kind, content=plain, name=item.name, item_id=item_id, at=at, is_input=is_input)
        return Entry(
            kind=kind,
            content=text_of(item.content),
            data=_raw({"item": _without_id(item)}),
            name=item.name,
            item_id=item_id,
            at=at,
            is_input=is_input,
        )
    if type(item) is CallItem:
        function = {"name": item.name, "arguments": item.arguments}
        return Entry(
            kind="tool_call",
            content=call_summary(item.name, item.arguments),
            data=_told({"id": item.call_id, "type": item.kind, "function": function}, extra, item),
            name=item.name,
            call_id=item.call_id,
            item_id=item_id,
            at=at,
            is_input=is_input,
        )
    if type(item) is ResultItem:
        output = text_of(item.output)
        data = {"tool_call_id": item.call_id, "name": item.name, "output": output, "success": not item.is_error}
        return Entry(
            kind="tool_result",
            content=item.summary or cut_text(output, CONTENT_BYTES_MAX),
            data=_told(data, extra, item),
            name=item.name,
            call_id=item.call_id,
            item_id=item_id,
            at=at,
            is_input=is_input,
        )
    content = "\n\n".join(item.summary or item.text) if type(item) is ReasoningItem else None
    return Entry(
        kind="other" if content is None else "reasoning",
        content=content or None,
        data=_raw({"item": _without_id(item)}),
        item_id=item_id,
        at=at,
        is_input=is_input,
    )


def item_of_entry(entry: Entry) -> AnyItem:
    """Read the item back from its entry. The entry must be of an item's kind."""
    assert entry.kind in ITEM_KINDS, entry.kind
    if entry.data is None:
        role = cast("Any", entry.kind)
        parts = (TextPart(text=entry.content),) if entry.content else ()
        return MessageItem(id=entry.item_id or "", role=role, content=parts, name=entry.name)
    item = _envelope.decode(entry.data).item
    return msgspec.structs.replace(item, id=entry.item_id or "")


def call_summary(name: str, arguments: str) -> str:
    """Write a call for a person: `glob(pattern="*.c", path="src/")`."""
    try:
        values: Any = read_json(arguments) if arguments.strip() else {}
    except BadJson:
        values = None
    if not isinstance(values, dict):
        return f"{name}({cut_text(arguments, CONTENT_BYTES_MAX)})"
    pairs = cast("dict[str, Any]", values)
    inner = ", ".join([f"{key}={write_json(value).decode()}" for key, value in pairs.items()])
    return f"{name}({cut_text(inner, CONTENT_BYTES_MAX)})"


class _Kept(msgspec.Struct):
    item: AnyItem


_envelope: msgspec.json.Decoder[_Kept] = msgspec.json.Decoder(_Kept)


def _told(data: dict[str, Any], extra: dict[str, Any] | None, item: AnyItem) -> msgspec.Raw:
    """Return the data of a call or a result: in S3's words, then what is kept of it, then the item itself."""
    return _raw({**data, **(extra or {}), "item": _without_id(item)})


def _plain_text(item: MessageItem) -> str | None:
    """Return the text of a message of which kind, content and name say everything: `data` can stay empty as in S3."""
    if item.role == "developer" or item.is_partial or item.blobs or len(item.content) > 1:
        return None
    if item.extra is not None or item.phase is not None:
        return None
    if not item.content:
        return ""
    part = item.content[0]
    if type(part) is not TextPart or not part.text:
        return None
    return part.text if part.extra is part.annotations is part.logprobs is None else None


def _without_id(item: AnyItem) -> AnyItem:
    return msgspec.structs.replace(item, id="") if item.id else item


def _raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(write_json(value))
