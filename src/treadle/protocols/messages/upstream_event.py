"""Reads one event of a Messages answer from JSON, and checks its leaves one by one.

Only the containers are typed: a number or a string of the wrong kind must not cost the rest of its event, so the
leaves are taken as they come and judged one by one. Nothing is remembered between events.
"""

import json
from typing import Any, cast

import msgspec

from treadle.core.errors import ErrorInfo, UpstreamError, UpstreamStatus
from treadle.core.json import cut_text, type_errors
from treadle.core.usage import Usage
from treadle.protocols.decoding.json_values import is_bounded, json_text
from treadle.protocols.field_reader import is_null
from treadle.protocols.surrogates import has_half_escapes, mend_escapes

CHECKED_CHARS = 65_536
"""Events beyond this are checked for depth and nodes first: a small one cannot hold many."""

MESSAGE_BYTES_MAX = 2_000
NOTHING = msgspec.Raw(b"")


class DeltaIn(msgspec.Struct, frozen=True):
    """A piece of a block, or how the message ends."""

    type: Any = None
    text: Any = None
    thinking: Any = None
    signature: Any = None
    partial_json: Any = None
    citation: Any = None
    content: Any = None
    encrypted_content: Any = None
    stop_reason: Any = None
    stop_sequence: Any = None
    stop_details: Any = None
    container: Any = None


class BlockIn(msgspec.Struct, frozen=True):
    """A block as it begins, or all of it where nothing was streamed."""

    type: Any = None
    id: Any = None
    name: Any = None
    input: msgspec.Raw = NOTHING
    text: Any = None
    thinking: Any = None
    signature: Any = None
    data: Any = None
    citations: Any = None


class MessageIn(msgspec.Struct, frozen=True):
    """The message that begins."""

    content: list[msgspec.Raw] | None = None
    usage: Any = None
    stop_reason: Any = None


class EventIn(msgspec.Struct, frozen=True):
    """One event of a stream, or a whole message."""

    type: Any = None
    index: Any = None
    delta: DeltaIn | None = None
    content_block: msgspec.Raw = NOTHING
    message: MessageIn | str | None = None
    usage: Any = None
    error: Any = None
    detail: Any = None
    content: list[msgspec.Raw] | None = None
    stop_reason: Any = None
    stop_sequence: Any = None


_event = msgspec.json.Decoder(EventIn)
_block = msgspec.json.Decoder(BlockIn)

_STATUS_OF_TYPE = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "conflict_error": 409,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
_COUNTS = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


def read_event(data: str) -> EventIn | None:
    """Read an event, or a whole message; None where it is neither."""
    if len(data) > CHECKED_CHARS and not is_bounded(data):
        return None
    try:
        return _event.decode(data)
    except type_errors:
        return _read_halves(data) if has_half_escapes(data) else None


def read_block(raw: msgspec.Raw) -> BlockIn | None:
    """Read a block; None where it is not one."""
    if raw == NOTHING or is_null(raw):
        return None
    try:
        return _block.decode(raw)
    except type_errors:
        return None


def read_counts(value: Any) -> dict[str, int]:
    """Return the tokens that a usage names; what is null or cannot be true is left out."""
    if not isinstance(value, dict):
        return {}
    usage = cast("dict[str, Any]", value)
    counts = {name: usage.get(name) for name in _COUNTS}
    details = usage.get("output_tokens_details")
    if isinstance(details, dict):
        counts["thinking_tokens"] = cast("dict[str, Any]", details).get("thinking_tokens")
    return {name: count for name, count in counts.items() if type(count) is int and count >= 0}


def usage_of(counts: dict[str, int]) -> Usage | None:
    """Return the usage that the counts amount to: this API counts cached input apart from the rest."""
    if not counts:
        return None
    read, written = counts.get("cache_read_input_tokens", 0), counts.get("cache_creation_input_tokens", 0)
    return Usage(
        input_tokens=counts.get("input_tokens", 0) + read + written,
        output_tokens=counts.get("output_tokens", 0),
        cached_tokens=read,
        cache_write_tokens=written,
        reasoning_tokens=counts.get("thinking_tokens", 0),
    )


def read_error(value: Any) -> ErrorInfo:
    """Read the error that an upstream reports."""
    error = cast("dict[str, Any]", value if isinstance(value, dict) else {"message": value})
    message = error.get("message") or "the upstream reported an error"
    message = cut_text(message if isinstance(message, str) else json_text(message), MESSAGE_BYTES_MAX)
    words = [word for word in (error.get("type"), error.get("code")) if isinstance(word, str) and word]
    status = next((_STATUS_OF_TYPE[word] for word in words if word in _STATUS_OF_TYPE), None)
    code = words[0] if words else None
    if status is None:
        return UpstreamError(message, code=code).info
    return UpstreamStatus(message, status=status, code=code).info


def _read_halves(data: str) -> EventIn | None:
    """Read JSON that holds halves of surrogate pairs: msgspec refuses it, but its other half may be on its way.

    Only deltas are cut in pieces; in a block that came whole a half is a lone one.
    """
    try:
        raw, _ = mend_escapes(data.encode())
        mended = _event.decode(raw)
        delta = json.loads(data).get("delta")
        return msgspec.structs.replace(mended, delta=msgspec.convert(delta, DeltaIn | None))
    except (ValueError, RecursionError, AttributeError, msgspec.ValidationError, msgspec.DecodeError):
        return None
