"""Reads one response object of a Gemini answer from JSON, and checks its fields one by one.

Nothing is typed: a value of the wrong type must not cost the rest of its chunk, and gateways spell fields either way.
Nothing is remembered between chunks.
"""

import json
from typing import Any

import msgspec

from treadle.core.errors import ErrorInfo, UpstreamError, UpstreamStatus
from treadle.core.events import Stop
from treadle.core.json import DEPTH_MAX, cut_text, type_errors
from treadle.core.usage import Usage
from treadle.protocols.decoding.json_values import LIST, OBJECT, as_list, as_object, as_word, is_bounded, json_text
from treadle.protocols.gemini.field_spelling import documented
from treadle.protocols.surrogates import has_half_escapes

CHECKED_CHARS = 65_536
"""Chunks beyond this are checked for nodes first, as those with many brackets are for depth."""

MESSAGE_BYTES_MAX = 2_000

STOPS: dict[str, Stop] = {
    "STOP": "done",
    "MAX_TOKENS": "length",
    "CONTINUATION": "length",
    "SAFETY": "filtered",
    "RECITATION": "filtered",
    "LANGUAGE": "filtered",
    "BLOCKLIST": "filtered",
    "PROHIBITED_CONTENT": "filtered",
    "SPII": "filtered",
    "OTHER": "filtered",
    "IMAGE_SAFETY": "filtered",
    "IMAGE_PROHIBITED_CONTENT": "filtered",
    "IMAGE_RECITATION": "filtered",
    "IMAGE_OTHER": "filtered",
    "NO_IMAGE": "filtered",
}
"""How an answer ended. OTHER is Google's word for what it does not explain: the answer is not whole."""

MALFORMED_CALLS = frozenset({"MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL"})
"""The model called something that Gemini could not read: `finishMessage` has what it wrote."""

BROKEN_OFF = frozenset({"MALFORMED_RESPONSE", "TOO_MANY_TOOL_CALLS"})
UNSPECIFIED = "FINISH_REASON_UNSPECIFIED"

_STATUS_OF_WORD = {
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "OUT_OF_RANGE": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "ABORTED": 409,
    "RESOURCE_EXHAUSTED": 429,
    "INTERNAL": 500,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}

_decoder = msgspec.json.Decoder()


def read_chunks(data: str) -> list[dict[str, Any]] | None:
    """Read one response object, or a list of them; None where it is neither."""
    is_small = len(data) <= CHECKED_CHARS and data.count("{") + data.count("[") <= DEPTH_MAX
    if not is_small and not is_bounded(data):
        return None
    value: Any
    try:
        value = _decoder.decode(data)
    except type_errors:
        value = _read_halves(data) if has_half_escapes(data) else None
    if isinstance(value, OBJECT):
        return [value]
    if isinstance(value, LIST) and all(isinstance(each, dict) for each in value):
        return value
    return None


def misshapen(chunk: dict[str, Any]) -> str:
    """Return what is malformed in a streamed response, so that no parts can be found in it."""
    candidates = chunk.get("candidates")
    if not isinstance(candidates, LIST | None):
        return "the candidates of a response are no list"
    for candidate in as_list(candidates):
        content = candidate.get("content") if isinstance(candidate, OBJECT) else candidate
        if not isinstance(content, OBJECT | None):
            return "a candidate has no content"
        parts = as_object(content).get("parts")
        if not isinstance(parts, LIST | None) or not all(isinstance(part, OBJECT) for part in as_list(parts)):
            return "the parts of a candidate are none"
    return ""


def read_usage(value: Any) -> Usage | None:
    """Read the tokens used; None where they are missing or cannot be true."""
    counts = {name: count for name, count in documented(as_object(value)).items() if type(count) is int and count >= 0}
    prompt, answer = counts.get("promptTokenCount"), counts.get("candidatesTokenCount")
    if prompt is None and answer is None:
        return None
    thoughts = counts.get("thoughtsTokenCount", 0)
    spent = (prompt or 0) + counts.get("toolUsePromptTokenCount", 0)
    if answer is None and not thoughts:
        # Some gateways give the sum alone; Gemini itself leaves out what is zero.
        answer = max(0, (counts.get("totalTokenCount") or spent) - spent)
    return Usage(
        input_tokens=spent,
        output_tokens=(answer or 0) + thoughts,
        cached_tokens=counts.get("cachedContentTokenCount", 0),
        reasoning_tokens=thoughts,
    )


def read_error(value: Any) -> ErrorInfo:
    """Read the error that an upstream reports."""
    error = as_object(value) if isinstance(value, dict) else {"message": value}
    value = error.get("message") or "the upstream reported an error"
    message = cut_text(as_word(value) or json_text(value), MESSAGE_BYTES_MAX)
    word, status = as_word(error.get("status")), error.get("code")
    if not (isinstance(status, int) and 400 <= status <= 599):
        status = _STATUS_OF_WORD.get(word)
    code = word.lower() or None
    if status is None:
        return UpstreamError(message, code=code).info
    return UpstreamStatus(message, status=status, code=code).info


def _read_halves(data: str) -> Any:
    """Read JSON that holds halves of surrogate pairs: msgspec refuses it, but its other half may be on its way."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None
