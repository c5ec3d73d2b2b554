"""The entries of a run's journal, and the lossless translation between items and entries.

An entry has a `kind`, readable `content` and structured `data`. It is an item of the conversation, or bookkeeping such
as a plan, a start mark or a status.
"""

from typing import Any, Literal, cast

import msgspec

from treadle.core.items import (
    AnyItem,
    CallItem,
    MessageItem,
    ReasoningItem,
    ResultItem,
    TextPart,
    text_of,
)
from treadle.core.json import BadJson, OptionalRaw, cut_text, read_json, write_json

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
"""Beside the items: what the loop was built from (`frame`), the input of each model call (`plan`), how that call ended
with its delta log (`reply`), items that were voided (`void`), start marks, approval requests and decisions
(`approval_…`), status and notes."""
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


def entry_of_item(
    item: AnyItem, *, at: float, is_input: bool = False, extra: dict[str, Any] | None = None, name: str | None = None
) -> Entry:
    """Return an item as an entry. `name` is used as its id if it has none; `extra` adds fields to the data of a call
    or result."""
    item_id = item.id or name
    if type(item) is MessageItem:
        role, content = item.role, item.content
        if item.extra is None and item.phase is None and not item.blobs and not item.is_partial and role != "developer":
            # Most messages are fully described by kind, content and name, so `data` stays empty.
            if not content:
                return Entry(kind=role, content="", name=item.name, item_id=item_id, at=at, is_input=is_input)
            part = content[0]
            if type(part) is TextPart and part.extra is None and part.annotations is None and part.logprobs is None:
                text = part.text
                if text and len(content) == 1:
                    return Entry(kind=role, content=text, name=item.name, item_id=item_id, at=at, is_input=is_input)
        return Entry(
            kind=_KIND_OF_ROLE[role],
            content=text_of(content),
            data=_item_data(item),
            name=item.name,
            item_id=item_id,
            at=at,
            is_input=is_input,
        )
    if type(item) is CallItem:
        call_id, tool, arguments = item.call_id, item.name, item.arguments
        data = _CallEntryData(call_id, item.kind, _Function(tool, arguments), _without_id(item))
        return Entry(
            kind="tool_call",
            content=call_summary(tool, arguments),
            data=_entry_data(data, extra),
            name=tool,
            call_id=call_id,
            item_id=item_id,
            at=at,
            is_input=is_input,
        )
    if type(item) is ResultItem:
        call_id, tool, output = item.call_id, item.name, text_of(item.output)
        data = _ResultEntryData(call_id, tool, output, not item.is_error, _without_id(item))
        return Entry(
            kind="tool_result",
            content=item.summary or cut_text(output, CONTENT_BYTES_MAX),
            data=_entry_data(data, extra),
            name=tool,
            call_id=call_id,
            item_id=item_id,
            at=at,
            is_input=is_input,
        )
    content = "\n\n".join(item.summary or item.text) if type(item) is ReasoningItem else None
    return Entry(
        kind="other" if content is None else "reasoning",
        content=content or None,
        data=_item_data(item),
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
    """Return a call as readable text: `glob(pattern="*.c", path="src/")`."""
    try:
        values: Any = read_json(arguments) if arguments.strip() else {}
    except BadJson:
        values = None
    if not isinstance(values, dict):
        return f"{name}({cut_text(arguments, CONTENT_BYTES_MAX)})"
    pairs = cast("dict[str, Any]", values)
    inner = ", ".join([f"{key}={write_json(_cut_value(value)).decode()}" for key, value in pairs.items()])
    return f"{name}({cut_text(inner, CONTENT_BYTES_MAX)})"


def _cut_value(value: Any) -> Any:
    """Return as much of a value as is shown: a text may be a whole file."""
    return value[: CONTENT_BYTES_MAX + 1] if type(value) is str else value


class _ItemData(msgspec.Struct):
    item: AnyItem


_envelope: msgspec.json.Decoder[_ItemData] = msgspec.json.Decoder(_ItemData)


class _Function(msgspec.Struct, gc=False):
    name: str
    arguments: str


class _CallEntryData(msgspec.Struct, gc=False):
    """The data of a `tool_call` entry: the call in the Chat API's shape, then the item itself."""

    id: str
    type: str
    function: _Function
    item: AnyItem


class _ResultEntryData(msgspec.Struct, gc=False):
    """The data of a `tool_result` entry: the result in plain fields, then the item itself."""

    tool_call_id: str
    name: str
    output: str
    success: bool
    item: AnyItem


def _entry_data(data: _CallEntryData | _ResultEntryData, extra: dict[str, Any] | None) -> msgspec.Raw:
    """Return the data of a call or a result, with the extra fields before the item."""
    if extra is None:
        return msgspec.Raw(write_json(data))
    fields = msgspec.structs.asdict(data)
    item = fields.pop("item")
    return msgspec.Raw(write_json({**fields, **extra, "item": item}))


def _without_id(item: AnyItem) -> AnyItem:
    return msgspec.structs.replace(item, id="") if item.id else item


def _item_data(item: AnyItem) -> msgspec.Raw:
    return msgspec.Raw(write_json({"item": _without_id(item)}))
