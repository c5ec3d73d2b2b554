"""The error of a request that is too long, in the words of every common server, becomes one that clients act on."""

import json
from pathlib import Path
from typing import Any

import pytest

from treadle.core.errors import ErrorInfo
from treadle.core.json import write_json
from treadle.providers.context_overflow import find_context_overflow
from treadle.providers.error_mapping import clean_failure, read_failure
from treadle.providers.provider_endpoint import Endpoint
from treadle.providers.resilience.retry_backoff import is_endpoint_fault

ENDPOINT = Endpoint(name="local", base_url="http://127.0.0.1:8080/v1")

ANSWERS: dict[str, Any] = json.loads(Path(__file__).with_name("context_overflows.json").read_bytes())
"""What each server answers, and the sizes in it."""


def words(used: int | None, limit: int | None) -> str:
    """Return how the error has to begin."""
    return "prompt is too long: " + ("" if used is None else f"{used} tokens > {limit} maximum")


@pytest.mark.parametrize("server", ANSWERS)
def test_an_overflow_is_one_error_for_clients_with_the_sizes_that_the_server_named(server: str) -> None:
    """Code and words are those by which codex, Claude Code and opencode compact; the endpoint is not to blame."""
    status, body, used, limit = ANSWERS[server].values()
    error = read_failure(ENDPOINT, status, {}, write_json(body), now=0.0)
    assert (error.info.code, error.http_status, error.is_retryable) == ("context_length_exceeded", 400, False)
    assert not is_endpoint_fault(error)
    assert error.message.startswith(words(used, limit))
    assert f"Upstream 'local' answered {status}: " in error.message


@pytest.mark.parametrize("server", ANSWERS)
def test_an_overflow_amid_an_answer_is_the_same_error(server: str) -> None:
    """Some servers answer 200 first and say so in the stream, with any status."""
    _, body, used, limit = ANSWERS[server].values()
    inner = body.get("error", body)
    said = inner if isinstance(inner, str) else inner["message"]
    cleaned = clean_failure(ENDPOINT, ErrorInfo(code="upstream_error", message=said, status=500))
    assert (cleaned.code, cleaned.status) == ("context_length_exceeded", 400)
    assert cleaned.message.startswith(words(used, limit))
    assert cleaned.message.lower().endswith(said.lower())


def test_the_sizes_are_such_that_the_request_does_not_fit() -> None:
    """Clients reckon with them how much to leave out: what the answer may use counts where the server counts it."""
    sizes = {server: (row["used"], row["limit"]) for server, row in ANSWERS.items() if row["used"] and row["limit"]}
    assert len(sizes) > 30
    assert {server: pair for server, pair in sizes.items() if pair[0] < pair[1]} == {}


@pytest.mark.parametrize(
    "said",
    [
        "max_tokens=140000 cannot be greater than max_model_len=max_total_tokens=131072. Please request fewer tokens.",
        "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]",
        "too many tokens: max tokens must be less than or equal to 4096, the maximum output for this model",
        "Request too large for gpt-4.1 in organization org-1 on tokens per min (TPM): Limit 30000, Requested 41000.",
        "Rate limit reached: 8192 tokens per minute exceeds the maximum number of tokens allowed",
        "the file is too large",
        "max_tokens must be at least 1",
        "tool name is too long",
    ],
)
def test_quotas_and_other_sizes_are_not_overflows(said: str) -> None:
    """A client that compacts for one of these would lose its conversation for nothing."""
    assert find_context_overflow({"message": said}, said) is None


def test_an_overflow_that_another_treadle_reported_is_not_worded_twice() -> None:
    """The sizes come once, however many gateways they pass."""
    said = "prompt is too long: 9412 tokens > 8192 maximum. Upstream 'x' answered 400: too long"
    assert clean_failure(ENDPOINT, ErrorInfo(code="context_length_exceeded", message=said)).message == said
