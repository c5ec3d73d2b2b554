"""Reads one chunk of a Chat answer from JSON, and checks its leaves one by one.

Only the outer containers are typed: a value of the wrong type must not cost the rest of its chunk, and the fields of
a delta are not known beforehand. Nothing is remembered between chunks.
"""

import json
from collections.abc import Hashable
from typing import Annotated, Any, Literal, cast

import msgspec

from treadle.core.errors import ErrorInfo, UpstreamError, UpstreamStatus
from treadle.core.json import DEPTH_MAX, cut_text, type_errors
from treadle.core.usage import Usage
from treadle.protocols.decoding.json_values import LIST, OBJECT, as_list, as_object, is_bounded
from treadle.protocols.surrogates import has_half_escapes, mend_text, write_halves

CHECKED_CHARS = 65_536
"""Chunks beyond this are checked for nodes first, as those with many brackets are for depth."""

MESSAGE_BYTES_MAX = 2_000


class ChoiceIn(msgspec.Struct, frozen=True, gc=False):
    """One choice of a chunk: a delta where it is streamed, a message where it is whole.

    vLLM names the stop sequence that ended the answer in `stop_reason`, SGLang in `matched_stop`.
    """

    index: Any = 0
    delta: dict[str, Any] | None = None
    message: dict[str, Any] | None = None
    finish_reason: Any = None
    stop_reason: Any = None
    matched_stop: Any = None
    logprobs: Any = None
    usage: Any = None


class ChunkIn(msgspec.Struct, frozen=True, gc=False):
    """One chunk of a stream, or a whole answer. Choices that are null are none; those not there may be lost."""

    choices: list[ChoiceIn] | msgspec.UnsetType | None = msgspec.UNSET
    usage: Any = None
    error: Any = None
    object: Any = None
    message: Any = None
    detail: Any = None
    code: Any = None


class TextIn(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """A delta that holds nothing but text, whatever fields it names."""

    content: str | None = None
    role: str | None = None
    refusal: None = None
    reasoning_content: None = None
    reasoning: None = None
    tool_calls: None = None
    function_call: None = None


class TextChoiceIn(msgspec.Struct, frozen=True, gc=False):
    """The only choice of a chunk of text."""

    delta: TextIn
    index: Literal[0] | None = 0
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    matched_stop: str | int | None = None
    logprobs: None = None
    usage: None = None
    message: dict[str, Any] | None = None


_Count = Annotated[int, msgspec.Meta(ge=0)] | None


class DetailsIn(msgspec.Struct, frozen=True, gc=False):
    """Details of the tokens used."""

    cached_tokens: _Count = None
    cache_write_tokens: _Count = None
    reasoning_tokens: _Count = None


class UsageIn(msgspec.Struct, frozen=True, gc=False):
    """The tokens used, in the documented types."""

    prompt_tokens: _Count = None
    completion_tokens: _Count = None
    prompt_tokens_details: DetailsIn | None = None
    completion_tokens_details: DetailsIn | None = None


class TextChunkIn(msgspec.Struct, frozen=True, gc=False):
    """What nearly every chunk of a stream is: a piece of text, nothing, or the end."""

    choices: tuple[TextChoiceIn]
    usage: UsageIn | None = None
    error: None = None
    object: Literal["chat.completion.chunk", "chat.completion", ""] | None = None


TEXT_CHUNK: msgspec.json.Decoder[TextChunkIn] = msgspec.json.Decoder(TextChunkIn)
_decoder: msgspec.json.Decoder[ChunkIn] = msgspec.json.Decoder(ChunkIn)
_lists: msgspec.json.Decoder[list[msgspec.Raw]] = msgspec.json.Decoder(list[msgspec.Raw])

_PIECES = frozenset({"delta", "message", "content", "tool_calls", "function", "arguments", "reasoning_content"})
"""Fields in which an answer comes."""

_STATUS_OF_CODE = {
    "context_length_exceeded": 400,
    "invalid_request_error": 400,
    "model_not_found": 404,
    "rate_limit_exceeded": 429,
    "rate_limit_error": 429,
    "insufficient_quota": 429,
    "overloaded_error": 529,
}


def read_chunk(data: str) -> ChunkIn | None:
    """Read a chunk, or a whole answer; None where it is not one."""
    is_small = len(data) <= CHECKED_CHARS and data.count("{") + data.count("[") <= DEPTH_MAX
    if not is_small and not is_bounded(data):
        return None
    try:
        if data.startswith("["):
            # Some gateways wrap an error in a list of one; nothing else comes in a list.
            listed = _lists.decode(data)
            chunk = _decoder.decode(listed[0]) if len(listed) == 1 else None
            return chunk if chunk is not None and chunk.error else None
        return _decoder.decode(data)
    except type_errors:
        return _read_halves(data) if has_half_escapes(data) else None


def usage_of(usage: UsageIn) -> Usage | None:
    """Return the tokens used; None where they are missing."""
    spent, made = usage.prompt_tokens, usage.completion_tokens
    if spent is made is None:
        return None
    asked, answered = usage.prompt_tokens_details, usage.completion_tokens_details
    return Usage(
        input_tokens=spent or 0,
        output_tokens=made or 0,
        cached_tokens=asked.cached_tokens or 0 if asked else 0,
        cache_write_tokens=asked.cache_write_tokens or 0 if asked else 0,
        reasoning_tokens=answered.reasoning_tokens or 0 if answered else 0,
    )


def read_usage(value: Any) -> Usage | None:
    """Read the tokens used; None where they are missing or cannot be true."""
    usage: dict[str, Any] = value if isinstance(value, OBJECT) else {}
    spent, made = usage.get("prompt_tokens"), usage.get("completion_tokens")
    spent = spent if type(spent) is int and spent >= 0 else None
    made = made if type(made) is int and made >= 0 else None
    if spent is None and made is None:
        return None
    asked, answered = usage.get("prompt_tokens_details"), usage.get("completion_tokens_details")
    return Usage(
        input_tokens=spent or 0,
        output_tokens=made or 0,
        cached_tokens=_detail(asked, "cached_tokens") if asked else 0,
        cache_write_tokens=_detail(asked, "cache_write_tokens") if asked else 0,
        reasoning_tokens=_detail(answered, "reasoning_tokens") if answered else 0,
    )


def read_error(value: Any) -> ErrorInfo:
    """Read the error that an upstream reports, in any of the shapes it may have."""
    error = cast("dict[str, Any]", value if isinstance(value, dict) else {"message": value})
    message = error.get("message") or error.get("detail") or "the upstream reported an error"
    text = mend_text(message) if isinstance(message, str) else write_halves(message).decode()
    message = cut_text(text, MESSAGE_BYTES_MAX)
    words = [mend_text(word) for word in (error.get("code"), error.get("type")) if isinstance(word, str) and word]
    code = next((word for word in words if not word.isdigit()), None)
    status = _status(error, words)
    if status is None:
        return UpstreamError(message, code=code).info
    return UpstreamStatus(message, status=status, code=code).info


def as_arguments(value: Any) -> str:
    """Return arguments as text, whatever they came as."""
    if value is None:
        return ""
    return value if isinstance(value, str) else write_halves(value).decode()


def as_id(value: Any) -> str:
    """Return an id or a name as text; anything but text and numbers is none."""
    if isinstance(value, str):
        return value if value.isascii() else mend_text(value)
    return str(value) if type(value) is int else ""


def as_index(value: Any) -> Hashable:
    """Return an index as a lookup key; anything but text and numbers is None."""
    return value if isinstance(value, int | str | float) and not isinstance(value, bool) else None


def holds_piece(value: Any, depth: int = 4) -> bool:
    """Whether a field that is not known holds what looks like a piece of an answer: its name was garbled."""
    if isinstance(value, LIST):
        return any(holds_piece(each, depth) for each in value)
    if not isinstance(value, OBJECT) or not depth:
        return False
    fields: dict[str, Any] = value
    return not _PIECES.isdisjoint(fields) or any(holds_piece(each, depth - 1) for each in fields.values())


def hides_piece(data: str) -> bool:
    """Whether a chunk without a piece has one under a name that is not known, itself or in a choice."""
    try:
        fields: dict[str, Any] = as_object(json.loads(data))
    except (ValueError, RecursionError):
        return False
    choices = [as_object(choice) for choice in as_list(fields.get("choices"))]
    known = _PIECES | {"choices", "usage"}
    strange = [*fields.items(), *(field for choice in choices for field in choice.items())]
    return any(holds_piece(value) for name, value in strange if name not in known)


def _read_halves(data: str) -> ChunkIn | None:
    """Read JSON that holds halves of surrogate pairs: msgspec refuses it, but its other half may be on its way."""
    try:
        return msgspec.convert(json.loads(data), ChunkIn)
    except (ValueError, RecursionError, msgspec.ValidationError):
        return None


def _status(error: dict[str, Any], words: list[str]) -> int | None:
    for value in (error.get("status"), error.get("status_code"), error.get("code")):
        number = int(value) if isinstance(value, str) and value.isdecimal() and len(value) == 3 else value
        if isinstance(number, int) and 400 <= number <= 599:
            return number
    return next((_STATUS_OF_CODE[word] for word in words if word in _STATUS_OF_CODE), None)


def _detail(details: Any, name: str) -> int:
    value = as_object(details).get(name)
    return value if type(value) is int and value >= 0 else 0
