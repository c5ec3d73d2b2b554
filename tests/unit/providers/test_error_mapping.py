"""Refusals of providers, mapped as DESIGN 4b says."""

import pytest

from treadle.core.errors import ErrorInfo
from treadle.core.json import write_json
from treadle.providers.error_mapping import (
    MESSAGE_BYTES_MAX,
    RETRY_AFTER_S_MAX,
    clean_failure,
    read_failure,
    read_retry_after,
)
from treadle.providers.provider_endpoint import Endpoint, Secret
from treadle.providers.resilience.retry_backoff import is_endpoint_fault

KEY = "sk-very-secret-0001"
ENDPOINT = Endpoint(name="openai", base_url="https://api.example.org/v1", key=Secret(KEY), key_env="OPENAI_API_KEY")
NOW = 1_000_000_000.0


def fail(status: int, body: bytes = b'{"error":{"message":"no","code":null}}', **headers: str):
    """Return the error that an answer becomes."""
    return read_failure(ENDPOINT, status, {name.replace("_", "-"): v for name, v in headers.items()}, body, now=NOW)


@pytest.mark.parametrize(
    ("status", "http_status", "code", "is_retryable"),
    [
        (400, 400, "upstream_status", False),
        (401, 502, "upstream_key_refused", False),
        (403, 502, "upstream_key_refused", False),
        (404, 404, "model_not_found", False),
        (408, 504, "upstream_status", True),
        (413, 413, "upstream_status", False),
        (422, 400, "upstream_status", False),
        (429, 429, "rate_limit_exceeded", True),
        (500, 502, "upstream_status", True),
        (502, 502, "upstream_status", True),
        (503, 503, "upstream_status", True),
        (504, 504, "upstream_status", True),
        (529, 503, "upstream_status", True),
    ],
)
def test_each_status_keeps_its_meaning(status, http_status, code, is_retryable):
    """Every row of the table: the status the client sees, the code, whether to ask again."""
    info = fail(status).info
    assert (info.status, info.code, info.retryable) == (http_status, code, is_retryable)
    assert info.message == f"upstream 'openai' answered {status}: no"


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_key_is_said_to_be_treadle_s_own(status):
    """The client must not look for the fault in its own key, and the operator learns which variable to check."""
    error = fail(status, b'{"error":{"message":"Incorrect API key","code":"invalid_api_key"}}')
    assert error.hint == "the key of upstream 'openai' was refused, not the client's: check OPENAI_API_KEY"
    assert error.info.code == "upstream_key_refused"


def test_a_missing_key_is_said_to_be_missing():
    """Without any key the hint says how to name one."""
    bare = Endpoint(name="local", base_url="http://127.0.0.1:1/v1")
    error = read_failure(bare, 401, {}, b"", now=NOW)
    assert error.hint == "Treadle has no key for upstream 'local': name its environment variable as `key_env`"
    assert error.message == "upstream 'local' answered 401 and said nothing more"


def test_a_missing_model_hints_at_model_and_base_url():
    """A 404 is as often a wrong base URL as a wrong model."""
    assert fail(404).hint == "does api.example.org serve this model, and is base_url https://api.example.org/v1 right?"


@pytest.mark.parametrize(
    "said",
    [
        f"Incorrect API key provided: {KEY}.",
        "Incorrect API key provided: sk-ve***********0001.",
        'key "sk-v****0001" is wrong',
    ],
)
def test_a_key_in_the_provider_s_message_is_taken_out(said):
    """Neither the key nor its masked ends reach a client."""
    message = fail(401, write_json({"error": {"message": said}})).message
    assert "[redacted]" in message
    assert "0001" not in message
    assert "sk-v" not in message


@pytest.mark.parametrize(
    ("body", "message", "code"),
    [
        (b'{"object":"error","message":"bad","code":400}', "bad", "upstream_status"),
        (b'[{"error":{"message":"bad","code":400}}]', "bad", "upstream_status"),
        (b'{"error":"bad"}', "bad", "upstream_status"),
        (b'{"detail":"bad"}', "bad", "upstream_status"),
        (b'{"detail":[{"loc":["body"]}]}', "[{'loc': ['body']}]", "upstream_status"),
        (b'{"error":{"message":"bad","code":"tool_use_failed"}}', "bad", "tool_use_failed"),
        (b'{"error":{"message":"bad","code":"a\\nb"}}', "bad", "upstream_status"),
        (b'{"error":{"message":null,"code":null}}', '{"error":{"message":null,"code":null}}', "upstream_status"),
        (b"plain words", "plain words", "upstream_status"),
        (b"[]", "[]", "upstream_status"),
        (b"7", "7", "upstream_status"),
        (b"\xff\xfe", "\ufffd\ufffd", "upstream_status"),
        (b"<html><body>Bad gateway</body></html>", "an HTML page instead of an error", "upstream_status"),
    ],
)
def test_message_and_code_are_found_in_the_shapes_providers_use(body, message, code):
    """Whatever the envelope, the provider's own words and code are kept, and an HTML page is not."""
    error = fail(400, body)
    assert (error.message, error.info.code) == (f"upstream 'openai' answered 400: {message}", code)


@pytest.mark.parametrize(
    "said",
    [
        "Failed to parse tool call arguments as JSON: [json.exception.parse_error.101] parse error at line 1, column 2",
        "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj",
        "JSON schema conversion failed:\\nUnrecognized schema: true",
        "Failed to initialize samplers: failed to parse grammar",
        "Unable to generate parser for this template. Automatic parser generation failed",
        "Value is not callable: null at row 1, column 72",
        "Jinja Exception: Conversation roles must alternate user/assistant/user/assistant/...",
    ],
)
def test_a_500_that_follows_from_the_request_is_the_request_s_fault(said):
    """llama.cpp answers so. It is neither retried nor held against the endpoint, and the client hears 400."""
    error = fail(500, write_json({"error": {"code": 500, "message": said, "type": "server_error"}}))
    assert (error.http_status, error.is_retryable, is_endpoint_fault(error)) == (400, False, False)
    assert (error.info.code, error.message) == ("upstream_refused_request", f"upstream 'openai' answered 500: {said}")


def test_a_long_message_is_cut():
    """An error of a megabyte does not travel on to the client."""
    assert len(fail(500, b"x" * 100_000).message) < MESSAGE_BYTES_MAX + 100


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": " 1.5 "}, 1.5),
        ({"retry-after-ms": "250", "retry-after": "7"}, 0.25),
        ({"retry-after": "Sun, 09 Sep 2001 01:47:10 GMT"}, 30.0),
        ({"retry-after": "Sun, 09 Sep 2001 01:46:10 GMT"}, None),
        ({"retry-after": "1e9"}, RETRY_AFTER_S_MAX),
        ({"retry-after": "inf"}, RETRY_AFTER_S_MAX),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Fri, 99 Foo 2001"}, None),
        ({"retry-after": "9" * 400}, RETRY_AFTER_S_MAX),
    ],
)
def test_retry_after_is_read_as_seconds_or_date_and_bounded(headers, seconds):
    """Seconds, milliseconds and dates are understood; nonsense and the past are ignored, eternity is capped."""
    assert read_retry_after(headers, NOW) == seconds


@pytest.mark.parametrize("status", [400, 401, 403, 404, 408, 409, 413, 425, 429, 500, 502, 503, 504, 529])
def test_retry_after_travels_with_every_error(status):
    """Whatever the status, a provider that says when to come back is believed, within an hour."""
    assert fail(status, retry_after="12").info.retry_after_s == 12.0
    assert fail(status, retry_after="1e9").info.retry_after_s == RETRY_AFTER_S_MAX


@pytest.mark.parametrize(
    ("details", "seconds"),
    [
        ([{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"}], 34.5),
        ([5, {"@type": "x"}, {"retryDelay": "7s"}], 7.0),
        ([{"retryDelay": "99999999s"}], RETRY_AFTER_S_MAX),
        ([{"retryDelay": "-1s"}], None),
        ([{"retryDelay": "nans"}], None),
        ([{"retryDelay": "soon"}], None),
        ([{"retryDelay": 7}], None),
        ({"retryDelay": "7s"}, None),
        (None, None),
    ],
)
def test_a_delay_inside_the_error_is_read_too(details, seconds):
    """Gemini sends no header; one that is there counts more."""
    body = write_json({"error": {"message": "quota", "code": 429, "status": "RESOURCE_EXHAUSTED", "details": details}})
    assert fail(429, body).info.retry_after_s == seconds
    assert fail(429, body, retry_after="3").info.retry_after_s == 3.0


def test_an_error_inside_an_answer_shows_no_key_and_blames_no_client():
    """Providers quote the key in a 200 or in mid-stream too."""
    endpoint = Endpoint(name="openai", base_url="https://api.openai.com/v1", key=Secret("sk-secret-0123456789"))
    error = ErrorInfo(code="invalid_api_key", message="Incorrect API key provided: sk-secret-0123456789", status=502)
    cleaned = clean_failure(endpoint, error)
    assert (cleaned.code, cleaned.message) == ("upstream_key_refused", "Incorrect API key provided: [redacted]")
