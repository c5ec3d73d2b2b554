import json
from typing import Any

import msgspec
import pytest

from treadle.core.usage import Usage
from treadle.protocols.decoding.json_values import as_text, json_text
from treadle.protocols.messages.upstream_event import read_block, read_counts, read_error, read_event, usage_of


def test_an_event_is_read_however_its_leaves_are() -> None:
    """A leaf of the wrong kind costs only itself."""
    event = read_event('{"type":"content_block_delta","index":"x","delta":{"type":7,"text":["no"]}}')
    assert event is not None
    assert event.delta is not None
    assert (event.index, event.delta.type, event.delta.text) == ("x", 7, ["no"])


@pytest.mark.parametrize("data", ["", "x", "[]", "5", '{"delta":5}', '{"type":', '"' + "\\ud83d" + '"', "{" * 70_000])
def test_what_is_no_event_is_none(data: str) -> None:
    """Never an error."""
    assert read_event(data) is None


def test_halves_are_kept_in_deltas_and_mended_in_blocks() -> None:
    """Only a delta's other half may be on its way."""
    event = read_event(json.dumps({"delta": {"text": "a\ud83d"}, "content_block": {"text": "b\ud83d"}}))
    assert event is not None
    assert event.delta is not None
    assert event.delta.text == "a\ud83d"
    assert bytes(event.content_block) == b'{"text": "b\\ufffd"}'


def test_a_block_is_none_where_there_is_none() -> None:
    """Missing, null, or not an object."""
    for raw in (b"", b"null", b"5"):
        assert read_block(msgspec.Raw(raw)) is None


@pytest.mark.parametrize(
    ("value", "counts"),
    [
        (None, {}),
        ({"input_tokens": None, "output_tokens": -1, "cache_read_input_tokens": True}, {}),
        ({"input_tokens": 0}, {"input_tokens": 0}),
        (
            {"output_tokens": 5, "output_tokens_details": {"thinking_tokens": 2}},
            {"output_tokens": 5, "thinking_tokens": 2},
        ),
        ({"output_tokens": 5, "output_tokens_details": {"thinking_tokens": "2"}}, {"output_tokens": 5}),
    ],
)
def test_only_what_is_said_is_counted(value: Any, counts: dict[str, int]) -> None:
    """Null is not zero, and zero is not missing."""
    assert read_counts(value) == counts


def test_usage_adds_the_cache_to_the_input() -> None:
    """Unknown stays unknown."""
    counts = {"input_tokens": 1, "cache_read_input_tokens": 10, "cache_creation_input_tokens": 100, "output_tokens": 5}
    assert usage_of(counts) == Usage(input_tokens=111, output_tokens=5, cached_tokens=10, cache_write_tokens=100)
    assert usage_of({}) is None


@pytest.mark.parametrize(
    ("value", "code", "status", "retryable"),
    [
        ({"type": "overloaded_error", "message": "m"}, "overloaded_error", 503, True),
        ({"type": "rate_limit_error", "message": "m"}, "rate_limit_error", 429, True),
        ({"type": "invalid_request_error", "message": "m"}, "invalid_request_error", 400, False),
        ({"type": "authentication_error", "message": "m"}, "authentication_error", 502, False),
        ({"type": "api_error", "message": "m"}, "api_error", 502, True),
        ({"type": "odd", "message": "m"}, "odd", 502, True),
        ({"message": {"a": 1}}, "upstream_error", 502, True),
        ("boom", "upstream_error", 502, True),
        (None, "upstream_error", 502, True),
    ],
)
def test_an_error_keeps_its_type_and_meaning(value: Any, code: str, status: int, retryable: bool) -> None:
    """The status is the one that the upstream's type stands for, as the client should see it."""
    error = read_error(value)
    assert (error.code, error.status, error.retryable) == (code, status, retryable)
    assert error.message


def test_values_become_text() -> None:
    """Whatever they are."""
    assert json_text({"a": "\ud83d"}) == '{"a":"\\ufffd"}'
    assert as_text(5) == ""
