import json

import pytest

from treadle.core.errors import ErrorInfo
from treadle.protocols.error_envelopes import write_error


def _error(status: int) -> ErrorInfo:
    return ErrorInfo(code="some_code", message="It broke.", status=status, param="messages[0]", hint="Try again.")


@pytest.mark.parametrize("protocol", ["chat", "responses", "treadle"])
@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (409, "conflict_error"),
        (413, "invalid_request_error"),
        (429, "rate_limit_error"),
        (500, "server_error"),
        (504, "server_error"),
    ],
)
def test_openai_envelope(protocol: str, status: int, kind: str) -> None:
    """Message with hint, type from the status, param and code."""
    assert json.loads(write_error(protocol, _error(status), "req_1")) == {
        "error": {"message": "It broke. Try again.", "type": kind, "param": "messages[0]", "code": "some_code"}
    }


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (402, "billing_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (413, "request_too_large"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (502, "api_error"),
        (503, "overloaded_error"),
        (504, "timeout_error"),
        (529, "overloaded_error"),
    ],
)
def test_anthropic_envelope(status: int, kind: str) -> None:
    """Type, message and the request id."""
    error = {"type": kind, "message": "It broke. Try again."}
    assert json.loads(write_error("messages", _error(status), "req_1")) == {
        "type": "error",
        "error": error,
        "request_id": "req_1",
    }
    assert json.loads(write_error("messages", _error(status))) == {"type": "error", "error": error}


def test_anthropics_thread_codes_stand_in_the_details() -> None:
    """The SDK reads them there to decide how to send the conversation again."""
    error = ErrorInfo(code="thread_not_found", message="Lost.", status=404)
    assert json.loads(write_error("messages", error))["error"] == {
        "type": "not_found_error",
        "message": "Lost.",
        "details": {"error_code": "thread_not_found"},
    }


@pytest.mark.parametrize(
    ("status", "word"),
    [
        (400, "INVALID_ARGUMENT"),
        (401, "UNAUTHENTICATED"),
        (403, "PERMISSION_DENIED"),
        (404, "NOT_FOUND"),
        (429, "RESOURCE_EXHAUSTED"),
        (500, "INTERNAL"),
        (502, "UNAVAILABLE"),
        (504, "DEADLINE_EXCEEDED"),
    ],
)
def test_gemini_envelope(status: int, word: str) -> None:
    """The HTTP status as code, and Google's word for it."""
    assert json.loads(write_error("gemini", _error(status))) == {
        "error": {"code": status, "message": "It broke. Try again.", "status": word, "details": []}
    }


def test_without_a_hint_the_message_stands_alone() -> None:
    """Missing param is null, as the API writes it."""
    info = ErrorInfo(code="c", message="m", status=400)
    assert json.loads(write_error("chat", info))["error"] == {
        "message": "m",
        "type": "invalid_request_error",
        "param": None,
        "code": "c",
    }
