"""Writes an error in the envelope of each API. The HTTP status is the error's own."""

import functools
import math
from collections.abc import Callable
from typing import Any

from treadle.core.errors import BrokenStream, ErrorInfo
from treadle.core.json import write_json
from treadle.protocols.protocol_registry import CHAT, PROTOCOLS, Vendor

_OPENAI_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    429: "rate_limit_error",
}
_ANTHROPIC_TYPES = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}
CUT_CALL = BrokenStream("A call was cut off after it had begun; do not run it.").info
"""How a stream ends that has shown a beginning of a call and cannot take it back."""

_THREAD_CODES = "thread_"
"""Codes by which Anthropic's SDKs decide how to send a conversation again."""

RETRY_INFO = "type.googleapis.com/google.rpc.RetryInfo"
"""Where Google's clients look for when to come back: they read no header for that."""

_GEMINI_STATUSES = {
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ABORTED",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    501: "UNIMPLEMENTED",
    502: "UNAVAILABLE",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
    529: "UNAVAILABLE",
}


OWN_API = "treadle"
SHARED_MODELS = "models"
"""The envelope of the path that lists models, which three protocols share."""

_PATHS: tuple[tuple[str, str], ...] = (
    *((path, row.name) for row in PROTOCOLS.values() for path in row.paths),
    ("/v1/models", SHARED_MODELS),
    ("/models", SHARED_MODELS),
    ("/v1", CHAT),
)
"""Which API a path belongs to; the first prefix that fits counts."""


@functools.lru_cache(maxsize=256)
def envelope_of(path: str) -> str:
    """Return the protocol in whose form errors on a path are written, OWN_API or SHARED_MODELS."""
    return next((envelope for prefix, envelope in _PATHS if path.startswith(prefix)), OWN_API)


def write_refusal(envelope: str, error: ErrorInfo, request_id: str = "") -> bytes:
    """Write an error in an envelope; Treadle's own has a place for the hint."""
    if envelope != OWN_API:
        return write_error(CHAT if envelope == SHARED_MODELS else envelope, error, request_id)
    return write_json(
        {"error": {"code": error.code, "message": error.message, "hint": error.hint, "param": error.param}}
    )


def write_error(protocol: str, error: ErrorInfo, request_id: str = "") -> bytes:
    """Write the whole error body in the envelope of that protocol."""
    vendor = PROTOCOLS[protocol].vendor if protocol in PROTOCOLS else "openai"
    return write_json(_ENVELOPES[vendor](error, request_id))


def openai_error(error: ErrorInfo) -> dict[str, Any]:
    """Return the error object of the OpenAI APIs, as it stands in an envelope and in a stream."""
    return {
        "message": error_text(error),
        "type": openai_type(error.status),
        "param": error.param,
        "code": error.code,
    }


def openai_type(status: int) -> str:
    """Return the error type that the OpenAI APIs use for that status."""
    return _OPENAI_TYPES.get(status) or ("server_error" if status >= 500 else "invalid_request_error")


def error_text(error: ErrorInfo) -> str:
    """Return the message with its hint, since no envelope has a place of its own for a hint."""
    if not error.hint:
        return error.message
    end = "" if error.message.endswith((".", "!", "?", "…")) else "."
    return f"{error.message}{end} {error.hint[:1].upper()}{error.hint[1:]}"


def _openai(error: ErrorInfo, request_id: str) -> dict[str, Any]:
    return {"error": openai_error(error)}


def _anthropic(error: ErrorInfo, request_id: str) -> dict[str, Any]:
    kind = _ANTHROPIC_TYPES.get(error.status) or ("api_error" if error.status >= 500 else "invalid_request_error")
    inner: dict[str, Any] = {"type": kind, "message": error_text(error)}
    if error.code.startswith(_THREAD_CODES):
        inner["details"] = {"error_code": error.code}
    body: dict[str, Any] = {"type": "error", "error": inner}
    return {**body, "request_id": request_id} if request_id else body


def _google(error: ErrorInfo, request_id: str) -> dict[str, Any]:
    status = _GEMINI_STATUSES.get(error.status) or ("INTERNAL" if error.status >= 500 else "INVALID_ARGUMENT")
    details: list[dict[str, Any]] = []
    if error.retry_after_s is not None:
        details.append({"@type": RETRY_INFO, "retryDelay": f"{math.ceil(max(0.0, error.retry_after_s))}s"})
    return {"error": {"code": error.status, "message": error_text(error), "status": status, "details": details}}


_ENVELOPES: dict[Vendor, Callable[[ErrorInfo, str], dict[str, Any]]] = {
    "openai": _openai,
    "anthropic": _anthropic,
    "google": _google,
}
