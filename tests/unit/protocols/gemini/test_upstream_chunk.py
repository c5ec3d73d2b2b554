import json
from typing import Any

import pytest

from treadle.core.errors import ErrorInfo
from treadle.core.usage import Usage
from treadle.protocols.decoding.json_values import as_word, json_text
from treadle.protocols.gemini.upstream_chunk import CHECKED_CHARS, STOPS, read_chunks, read_error, read_usage


@pytest.mark.parametrize(
    ("data", "chunks"),
    [
        ('{"a":1}', [{"a": 1}]),
        ('[{"a":1},{"b":2}]', [{"a": 1}, {"b": 2}]),
        ("[]", []),
        ("5", None),
        ("[5]", None),
        ("{", None),
        ("null", None),
        ('{"a":"\\ud83d"}', [{"a": "\ud83d"}]),
        ('{"a":"\\ud83d"', None),
        ("[" * 1000, None),
        ('{"a":"' + "x" * CHECKED_CHARS + '"}', [{"a": "x" * CHECKED_CHARS}]),
    ],
    ids=lambda value: "",
)
def test_one_object_or_a_list_of_objects_is_read(data: str, chunks: Any) -> None:
    """Anything else is none, however deep or broken."""
    assert read_chunks(data) == chunks


@pytest.mark.parametrize(
    ("value", "usage"),
    [
        (None, None),
        ({}, None),
        ({"totalTokenCount": 5}, None),
        ({"promptTokenCount": -1}, None),
        ({"promptTokenCount": True}, None),
        ({"promptTokenCount": 0}, Usage()),
        ({"promptTokenCount": 3}, Usage(input_tokens=3)),
        ({"promptTokenCount": 3, "totalTokenCount": 5}, Usage(input_tokens=3, output_tokens=2)),
        (
            {"prompt_token_count": 3, "candidates_token_count": 2, "thoughts_token_count": 4},
            Usage(input_tokens=3, output_tokens=6, reasoning_tokens=4),
        ),
        (
            {"promptTokenCount": 3, "thoughtsTokenCount": 4, "totalTokenCount": 7, "cachedContentTokenCount": 1},
            Usage(input_tokens=3, output_tokens=4, reasoning_tokens=4, cached_tokens=1),
        ),
    ],
    ids=lambda value: "",
)
def test_usage_is_what_was_said(value: Any, usage: Usage | None) -> None:
    """Zero is not missing, thoughts are output, prompts of Google's own tools are input."""
    assert read_usage(value) == usage


@pytest.mark.parametrize(
    ("value", "info"),
    [
        (
            {"code": 429, "message": "slow", "status": "RESOURCE_EXHAUSTED"},
            ErrorInfo(code="resource_exhausted", message="slow", status=429, retryable=True),
        ),
        (
            {"message": "key", "status": "UNAUTHENTICATED"},
            ErrorInfo(code="unauthenticated", message="key", status=502),
        ),
        ({"code": 400}, ErrorInfo(code="upstream_status", message="the upstream reported an error", status=400)),
        ("boom", ErrorInfo(code="upstream_error", message="boom", status=502, retryable=True)),
        (
            {"code": 99, "message": {"a": 1}, "status": 5},
            ErrorInfo(code="upstream_error", message='{"a":1}', status=502, retryable=True),
        ),
    ],
    ids=lambda value: "",
)
def test_an_error_keeps_its_meaning(value: Any, info: ErrorInfo) -> None:
    """By its code, else by its word."""
    assert read_error(value) == info


def test_every_documented_finish_reason_is_judged() -> None:
    """The 20 of the SDK: in the table, malformed, broken off or unspecified."""
    from google.genai import types

    from treadle.protocols.gemini.upstream_chunk import BROKEN_OFF, MALFORMED_CALLS, UNSPECIFIED

    words = {reason.value for reason in types.FinishReason}
    assert words == STOPS.keys() | MALFORMED_CALLS | BROKEN_OFF | {UNSPECIFIED}
    assert len(words) == 20


def test_halves_never_leave() -> None:
    """A pair is joined, a lone half replaced, in words and in JSON."""
    assert as_word("a\ud83d\ude00\ud83d") == "a😀\ufffd"
    assert as_word(5) == ""
    assert json.loads(json_text({"a": "\ud83d"})) == {"a": "\ufffd"}
