"""Maps a provider's error response to the error that Treadle's client gets: status, message, code, hint, retry-after.

It is pure: status, headers and first bytes of the response in, one UpstreamStatus out. It must not pass on a key, not
even a masked one, nor a whole HTML page.
"""

import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any, cast

import msgspec

from treadle.core.errors import ErrorInfo, UpstreamStatus
from treadle.core.json import BadJson, cut_text, read_json
from treadle.providers.context_overflow import CONTEXT_OVERFLOW, find_context_overflow
from treadle.providers.provider_endpoint import Endpoint

MESSAGE_BYTES_MAX = 2_000
CODE_CHARS_MAX = 64
RETRY_AFTER_S_MAX = 3_600.0

_KEY_CODES = ("invalid_api_key", "authentication_error", "permission_error", "UNAUTHENTICATED", "PERMISSION_DENIED")
_KEY_REFUSED = "upstream_key_refused"
_CODE_OF_STATUS = {401: _KEY_REFUSED, 403: _KEY_REFUSED, 404: "model_not_found", 429: "rate_limit_exceeded"}
_OVERFLOW_STATUSES = (400, 413, 422, 500)
"""Statuses of requests that are too long: 413 is Groq's, 422 TGI's, 500 Ollama's and LM Studio's."""
_REQUEST_REFUSED = "upstream_refused_request"
_REQUEST_FAULTS = re.compile(
    r"failed to parse tool call arguments|image input is not supported|mmproj|failed to (?:load|decode) image"
    r"|jinja|chat template|conversation roles must alternate|roles must alternate|unsupported content\[\]\.type"
    r"|only user, assistant and tool roles|system message must be at the beginning|value is not callable"
    r"|json schema conversion failed|unrecognized schema|failed to parse grammar|unable to generate parser",
    re.IGNORECASE,
)
"""Texts of 500 responses that are the request's fault. All were seen with llama.cpp's server."""
_TOOLS_REFUSED = "tools_not_supported"
_TOOLS_WORDS = re.compile(
    r"no endpoints? (?:found )?that supports? tool|does not support (?:tools|tool use|tool calling|function calling)"
    r"|tools? (?:use )?(?:is|are) not supported",
    re.IGNORECASE,
)
_NO_TOOLS = "this model takes no tools there: ask another model, or send the request without tools"
_TOKEN = re.compile(r"\S+")


TOO_LARGE = "upstream_too_large"
_BOUNDS = {
    "the arguments of a call are over": "raise upstreams.arguments_bytes_max, if such calls are wanted",
    "is over": "raise upstreams.answer_bytes_max, if such answers are wanted",
}
"""Hints for answers over a bound, by the text of their error."""

LOADING = "upstream_loading"
"""The code for a local server that is still loading its model."""

_LOADING_WORDS = re.compile(r"loading (?:the )?model|model (?:is )?(?:still )?loading", re.IGNORECASE)
_LOADING_RETRY_S = 1.0


def read_failure(
    endpoint: Endpoint, status: int, headers: Mapping[str, str], body: bytes, *, now: float
) -> UpstreamStatus:
    """Return the client's error for an error response. `now` is the wall clock, for dates in headers."""
    error, message, code = _read_body(body)
    message = cut_text(_clean(endpoint, message), MESSAGE_BYTES_MAX)
    overflow = find_context_overflow(error, message) if status in _OVERFLOW_STATUSES else None
    code = CONTEXT_OVERFLOW if overflow else _code(status, code, message)
    detail = f": {message}" if message else " and said nothing more"
    answered = f"upstream '{endpoint.name}' answered {status}{detail}"
    return UpstreamStatus(
        overflow.message(answered) if overflow else answered,
        # 400, because it is the request's fault: then it is not retried, and not counted by the circuit breaker.
        status=400 if overflow or code == _REQUEST_REFUSED else status,
        code=code,
        hint=_NO_TOOLS if code == _TOOLS_REFUSED else _hint(endpoint, status),
        retry_after_s=_first(
            _first(read_retry_after(headers, now), _read_delay(error)), _LOADING_RETRY_S if code == LOADING else None
        ),
    )


def read_retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Return the seconds to wait from the headers, at most an hour; None if there are none or they are invalid."""
    seconds = _number(headers.get("retry-after-ms", ""), 0.001)
    value = headers.get("retry-after", "").strip()
    if seconds is None:
        seconds = _number(value, 1.0)
    if seconds is None and value:
        seconds = _seconds_until(value, now)
    return _bounded(seconds)


def _read_delay(error: dict[str, Any]) -> float | None:
    """Return the seconds to wait from the error object, where Google's APIs put them."""
    details = error.get("details")
    for detail in cast("list[Any]", details) if isinstance(details, list) else ():
        delay = cast("dict[str, Any]", detail).get("retryDelay") if isinstance(detail, dict) else None
        if isinstance(delay, str) and delay.endswith("s"):
            return _bounded(_number(delay[:-1], 1.0))
    return None


def _bounded(seconds: float | None) -> float | None:
    return min(seconds, RETRY_AFTER_S_MAX) if seconds is not None and seconds >= 0 else None


def _first(value: float | None, fallback: float | None) -> float | None:
    return fallback if value is None else value


def _number(value: str, unit_s: float) -> float | None:
    try:
        return float(value) * unit_s
    except ValueError:
        return None


def _seconds_until(date: str, now: float) -> float | None:
    try:
        return parsedate_to_datetime(date).timestamp() - now
    except (ValueError, OverflowError):
        return None


def _read_body(body: bytes) -> tuple[dict[str, Any], str, str | None]:
    """Find error, message and code in the formats of providers: OpenAI's, bare, FastAPI's `detail`, text, HTML."""
    text = body.decode("utf-8", "replace").strip()
    try:
        value: Any = read_json(body)
    except BadJson:
        return {}, ("an HTML page instead of an error" if text[:1] == "<" else text), None
    if isinstance(value, list) and value:
        value = cast("list[Any]", value)[0]
    if not isinstance(value, dict):
        return {}, text, None
    outer = cast("dict[str, Any]", value)
    error = outer.get("error", outer)
    if not isinstance(error, dict):
        return {}, str(error), None
    inner = cast("dict[str, Any]", error)
    message = inner.get("message") or inner.get("detail") or text
    code = inner.get("code")
    return inner, (message if isinstance(message, str) else str(message)), (code if isinstance(code, str) else None)


def clean_failure(endpoint: Endpoint, error: ErrorInfo) -> ErrorInfo:
    """Return an error from inside a stream without the key, and with a code that does not blame the client's key."""
    message = _clean(endpoint, error.message)
    hint = None if error.hint is None else _clean(endpoint, error.hint)
    if overflow := find_context_overflow({"code": error.code}, message):
        return ErrorInfo(code=CONTEXT_OVERFLOW, message=overflow.message(message), status=400, hint=hint)
    if hint is None and error.code == TOO_LARGE:
        hint = next((hint for words, hint in _BOUNDS.items() if words in message), None)
    code = _KEY_REFUSED if error.code in _KEY_CODES or error.status in (401, 403) else error.code
    return msgspec.structs.replace(error, message=message, code=code, hint=hint)


def _clean(endpoint: Endpoint, message: str) -> str:
    """Remove the key, and anything that looks like a masked one: its visible ends identify it."""
    return _TOKEN.sub(lambda token: "[redacted]" if "***" in token[0] else token[0], endpoint.redact(message))


def _code(status: int, code: str | None, message: str) -> str | None:
    """Return the client's code: the provider's, unless it would blame the client's own key."""
    if status in (401, 403):
        return _KEY_REFUSED
    if status in (400, 404, 422) and _TOOLS_WORDS.search(message):
        return _TOOLS_REFUSED
    if status == 503 and _LOADING_WORDS.search(message):
        return LOADING
    if status == 500 and _REQUEST_FAULTS.search(message):
        return _REQUEST_REFUSED
    if code and len(code) <= CODE_CHARS_MAX and code.isascii() and code.isprintable():
        return code
    return _CODE_OF_STATUS.get(status)


def _hint(endpoint: Endpoint, status: int) -> str | None:
    if status in (401, 403):
        if endpoint.key is None and endpoint.key_env is None:
            return f"Treadle has no key for upstream '{endpoint.name}': name its environment variable as `key_env`"
        if endpoint.key is None:
            return f"the variable {endpoint.key_env} is not set where Treadle runs: export {endpoint.key_env}=…"
        key = endpoint.key_env or "its key"
        return f"the key of upstream '{endpoint.name}' was refused, not the client's: check {key}"
    if status == 404:
        return f"does {endpoint.host} serve this model, and is base_url {endpoint.base_url} right?"
    return None
