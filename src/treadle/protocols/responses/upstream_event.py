"""Reads one event of a Responses answer, and checks its leaves one by one.

Only the envelope is typed: every leaf stays raw JSON until it is used, so that a leaf of the wrong type costs nothing
but itself and one that is not used is never built. Nothing is remembered between events.
"""

import json
from typing import Any, TypeVar, cast

import msgspec

from treadle.core.errors import ErrorInfo
from treadle.core.json import BadJson, check_bounds, cut_text, read_json, type_errors
from treadle.core.usage import Usage
from treadle.protocols.chat.upstream_chunk import MESSAGE_BYTES_MAX, read_error
from treadle.protocols.surrogates import has_half_escapes, mend_escapes

NULL = msgspec.Raw(b"null")
CHECKED_BYTES = 65_536
"""Lists beyond this are checked for depth and nodes first: a small one cannot hold many."""

T = TypeVar("T")


class EventIn(msgspec.Struct, frozen=True):
    """Any event, or a whole response object."""

    type: str = ""
    sequence_number: msgspec.Raw = NULL
    output_index: msgspec.Raw = NULL
    item_id: msgspec.Raw = NULL
    content_index: msgspec.Raw = NULL
    summary_index: msgspec.Raw = NULL
    delta: msgspec.Raw = NULL
    text: msgspec.Raw = NULL
    refusal: msgspec.Raw = NULL
    arguments: msgspec.Raw = NULL
    input: msgspec.Raw = NULL
    name: msgspec.Raw = NULL
    call_id: msgspec.Raw = NULL
    annotation: msgspec.Raw = NULL
    logprobs: msgspec.Raw = NULL
    part: msgspec.Raw = NULL
    item: msgspec.Raw = NULL
    response: msgspec.Raw = NULL
    error: msgspec.Raw = NULL
    code: msgspec.Raw = NULL
    message: msgspec.Raw = NULL
    detail: msgspec.Raw = NULL


class PieceIn(msgspec.Struct, frozen=True, gc=False):
    """What nearly every event is: a piece of a text or of arguments, with every leaf as it should be."""

    type: str
    delta: str
    item_id: str
    output_index: int | None = None
    content_index: int = 0
    summary_index: int = 0
    logprobs: tuple[()] | None = None
    sequence_number: int | None = None


class ItemIn(msgspec.Struct, frozen=True, rename={"is_async": "async"}):
    """An output item."""

    type: str = ""
    id: msgspec.Raw = NULL
    call_id: msgspec.Raw = NULL
    name: msgspec.Raw = NULL
    namespace: msgspec.Raw = NULL
    arguments: msgspec.Raw = NULL
    input: msgspec.Raw = NULL
    phase: msgspec.Raw = NULL
    content: msgspec.Raw = NULL
    summary: msgspec.Raw = NULL
    encrypted_content: msgspec.Raw = NULL
    status: msgspec.Raw = NULL
    caller: msgspec.Raw = NULL
    is_async: msgspec.Raw = NULL


class PartIn(msgspec.Struct, frozen=True):
    """A part of a message or of reasoning."""

    type: str = ""
    text: msgspec.Raw = NULL
    refusal: msgspec.Raw = NULL
    annotations: msgspec.Raw = NULL
    logprobs: msgspec.Raw = NULL


class ResponseIn(msgspec.Struct, frozen=True):
    """The response object."""

    object: msgspec.Raw = NULL
    status: msgspec.Raw = NULL
    output: msgspec.Raw = NULL
    usage: msgspec.Raw = NULL
    error: msgspec.Raw = NULL
    incomplete_details: msgspec.Raw = NULL


class _Reason(msgspec.Struct, frozen=True):
    reason: msgspec.Raw = NULL


_TRUE = msgspec.Raw(b"true")


class _Usage(msgspec.Struct, frozen=True):
    input_tokens: msgspec.Raw = NULL
    output_tokens: msgspec.Raw = NULL
    input_tokens_details: msgspec.Raw = NULL
    output_tokens_details: msgspec.Raw = NULL
    unknown: msgspec.Raw = NULL


class _Details(msgspec.Struct, frozen=True):
    cached_tokens: msgspec.Raw = NULL
    cache_write_tokens: msgspec.Raw = NULL
    reasoning_tokens: msgspec.Raw = NULL


_NO_DETAILS = _Details()

EVENT: msgspec.json.Decoder[EventIn] = msgspec.json.Decoder(EventIn)
PIECE: msgspec.json.Decoder[PieceIn] = msgspec.json.Decoder(PieceIn)
ITEM: msgspec.json.Decoder[ItemIn] = msgspec.json.Decoder(ItemIn)
PART: msgspec.json.Decoder[PartIn] = msgspec.json.Decoder(PartIn)
RESPONSE: msgspec.json.Decoder[ResponseIn] = msgspec.json.Decoder(ResponseIn)
_reason: msgspec.json.Decoder[_Reason] = msgspec.json.Decoder(_Reason)
_usage: msgspec.json.Decoder[_Usage] = msgspec.json.Decoder(_Usage)
_details: msgspec.json.Decoder[_Details] = msgspec.json.Decoder(_Details)
_text: msgspec.json.Decoder[str] = msgspec.json.Decoder(str)
_integer: msgspec.json.Decoder[int] = msgspec.json.Decoder(int)
_list: msgspec.json.Decoder[list[msgspec.Raw]] = msgspec.json.Decoder(list[msgspec.Raw])


def read_event(data: str) -> EventIn | None:
    """Read an event; None where the data is something else."""
    event = read(EVENT, data)
    return _read_halves(data) if event is None and has_half_escapes(data) else event


def read(decoder: msgspec.json.Decoder[T], data: str | msgspec.Raw) -> T | None:
    """Decode, or return None where the data is something else."""
    try:
        return decoder.decode(data)
    except type_errors:
        return None


def is_null(raw: msgspec.Raw) -> bool:
    """Whether a leaf is missing or null."""
    return memoryview(raw)[0] == 0x6E


def is_text(raw: msgspec.Raw) -> bool:
    """Whether a leaf is a text."""
    return memoryview(raw)[0] == 0x22


def is_list(raw: msgspec.Raw) -> bool:
    """Whether a leaf is a list, or missing."""
    return memoryview(raw)[0] in b"[n"


def is_object(raw: msgspec.Raw) -> bool:
    """Whether a leaf is an object."""
    return memoryview(raw)[0] == 0x7B


def text_of(raw: msgspec.Raw) -> str:
    """Return a leaf as text, whatever it came as; halves of surrogate pairs stay as they are."""
    first = memoryview(raw)[0]
    if first == 0x22:
        try:
            return _text.decode(raw)
        except type_errors:
            return _halved_text(raw)
    return "" if first == 0x6E else _compact(raw).decode("utf-8", "replace")


def word_of(raw: msgspec.Raw) -> str:
    """Return an id, a name or a status as text; anything but text and whole numbers is none."""
    if raw is NULL:
        return ""
    first = memoryview(raw)[0]
    if first == 0x22:
        text = text_of(raw)
        return text if text.isascii() else text.encode("utf-8", "replace").decode()
    return "" if first == 0x6E or index_of(raw) is None else bytes(raw).decode()


def index_of(raw: msgspec.Raw) -> int | None:
    """Return a whole number, or None."""
    first = memoryview(raw)[0]
    if first != 0x2D and not 0x30 <= first <= 0x39:
        return None
    try:
        return _integer.decode(raw)
    except type_errors:
        return None


def list_of(raw: msgspec.Raw) -> list[msgspec.Raw]:
    """Return the elements of a list; anything else, and a list beyond the bounds, has none."""
    if raw is NULL or memoryview(raw)[0] != 0x5B:
        return []
    if len(memoryview(raw)) > CHECKED_BYTES:
        try:
            check_bounds(bytes(raw))
        except BadJson:
            return []
    return read(_list, raw) or []


def read_reason(raw: msgspec.Raw) -> str:
    """Return why a response is incomplete, if it has a reason."""
    details = read(_reason, raw)
    return "" if details is None else word_of(details.reason)


def read_usage(raw: msgspec.Raw) -> Usage | None:
    """Return the tokens used; None where they are missing, cannot be true, or are marked as unknown by a Treadle."""
    usage = read(_usage, raw)
    if usage is None:
        return None
    spent, made = _count(usage.input_tokens), _count(usage.output_tokens)
    if (spent is None and made is None) or usage.unknown == _TRUE:
        return None
    asked, answered = usage.input_tokens_details, usage.output_tokens_details
    before = _NO_DETAILS if asked is NULL else read(_details, asked) or _NO_DETAILS
    after = _NO_DETAILS if answered is NULL else read(_details, answered) or _NO_DETAILS
    return Usage(
        input_tokens=spent or 0,
        output_tokens=made or 0,
        cached_tokens=_count(before.cached_tokens) or 0,
        cache_write_tokens=_count(before.cache_write_tokens) or 0,
        reasoning_tokens=_count(after.reasoning_tokens) or 0,
    )


def read_failure(error: msgspec.Raw, code: msgspec.Raw = NULL, message: msgspec.Raw = NULL) -> ErrorInfo:
    """Return what an upstream says went wrong: an error object, or the flat form."""
    if is_null(error):
        return read_error({"message": text_of(message), "code": word_of(code)})
    value: Any
    try:
        value = read_json(bytes(error))
    except BadJson:
        value = cut_text(bytes(error).decode("utf-8", "replace"), MESSAGE_BYTES_MAX)
    return read_error(value)


def _compact(raw: msgspec.Raw) -> bytes:
    try:
        return msgspec.json.format(bytes(raw), indent=-1)
    except type_errors:
        return bytes(raw)


def _count(raw: msgspec.Raw) -> int | None:
    value = None if raw is NULL else index_of(raw)
    return value if value is not None and value >= 0 else None


def _read_halves(data: str) -> EventIn | None:
    """Read JSON that holds halves of surrogate pairs: msgspec refuses it, but the other half may be on its way."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    fields = cast("dict[str, Any]", value)
    kind = fields.pop("type", "")
    leaves = {name: json.dumps(leaf).encode() for name, leaf in fields.items() if name in EventIn.__struct_fields__}
    # Only a piece of text can have its other half elsewhere; all else is read by msgspec again.
    raws = {name: mend_escapes(leaf)[0] if leaf[:1] in b"{[" else leaf for name, leaf in leaves.items()}
    return EventIn(type=kind if isinstance(kind, str) else "", **{k: msgspec.Raw(raw) for k, raw in raws.items()})


def _halved_text(raw: msgspec.Raw) -> str:
    """Read text with halves of surrogate pairs."""
    try:
        value = json.loads(bytes(raw))
    except ValueError:
        return ""
    return value if isinstance(value, str) else ""
