"""Reads one response object of a Gemini answer from JSON, and checks its fields one by one.

Nothing is typed: a value of the wrong type must not cost the rest of its chunk, and gateways spell fields either way.
Nothing is remembered between chunks.
"""

import json
from typing import Any

import msgspec

from treadle.core.errors import ErrorInfo, UpstreamError, UpstreamStatus
from treadle.core.events import Stop
from treadle.core.json import DEPTH_MAX, BadJson, check_bounds, cut_text, type_errors, write_json
from treadle.core.usage import Usage
from treadle.protocols.gemini.field_spelling import documented
from treadle.protocols.surrogates import has_half_escapes, mend_escapes, mend_text

CHECKED_CHARS = 65_536
"""Chunks beyond this are checked for nodes first, as those with many brackets are for depth."""

MESSAGE_BYTES_MAX = 2_000

_OBJECT: Any = dict
_LIST: Any = list
"""The containers of JSON, typed so that what is in them stays Any."""

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
    if not is_small and not _is_bounded(data):
        return None
    value: Any
    try:
        value = _decoder.decode(data)
    except type_errors:
        value = _read_halves(data) if has_half_escapes(data) else None
    if isinstance(value, _OBJECT):
        return [value]
    if isinstance(value, _LIST) and all(isinstance(each, dict) for each in value):
        return value
    return None


def misshapen(chunk: dict[str, Any]) -> str:
    """Return what is malformed in a streamed response, so that no parts can be found in it."""
    candidates = chunk.get("candidates")
    if not isinstance(candidates, _LIST | None):
        return "the candidates of a response are no list"
    for candidate in as_list(candidates):
        content = candidate.get("content") if isinstance(candidate, _OBJECT) else candidate
        if not isinstance(content, _OBJECT | None):
            return "a candidate has no content"
        parts = as_object(content).get("parts")
        if not isinstance(parts, _LIST | None) or not all(isinstance(part, _OBJECT) for part in as_list(parts)):
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


def json_text(value: Any) -> str:
    """Write a value as JSON; halves of surrogate pairs, which UTF-8 cannot encode, become U+FFFD."""
    try:
        return write_json(value).decode()
    except UnicodeEncodeError:
        return mend_escapes(json.dumps(value, separators=(",", ":")).encode())[0].decode()


def as_object(value: Any) -> dict[str, Any]:
    """Return an object; anything else is an empty one."""
    return value if isinstance(value, _OBJECT) else {}


def as_list(value: Any) -> list[Any]:
    """Return a list; anything else is an empty one."""
    return value if isinstance(value, _LIST) else []


def as_text(value: Any) -> str:
    """Return a text; anything else is an empty one."""
    return value if isinstance(value, str) else ""


def as_word(value: Any) -> str:
    """Return a text that stands for itself, an id or a name: nothing of it is still on its way."""
    return mend_text(value) if isinstance(value, str) else ""


def _is_bounded(data: str) -> bool:
    try:
        check_bounds(data.encode())
    except BadJson:
        return False
    return True


def _read_halves(data: str) -> Any:
    """Read JSON that holds halves of surrogate pairs: msgspec refuses it, but its other half may be on its way."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None
