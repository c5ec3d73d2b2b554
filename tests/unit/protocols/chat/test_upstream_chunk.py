from typing import Any

import pytest

from stream.answers import decode
from stream.shapes import DONE, chunk, stream
from treadle.core.errors import ErrorInfo
from treadle.core.events import Finished
from treadle.core.ids import CountingIds
from treadle.core.usage import Usage
from treadle.protocols.chat import Decoder
from treadle.protocols.chat.upstream_chunk import as_arguments, as_id, as_index, read_chunk, read_error, read_usage
from treadle.protocols.decoding.json_values import as_list, as_object

_THOUGHTFUL = Usage(output_tokens=2, reasoning_tokens=1)


@pytest.mark.parametrize(
    "data",
    [
        "",
        "x",
        "null",
        "5",
        "[]",
        "[5]",
        '{"choices":{}}',
        '{"choices":[{"delta":"x"}]}',
        "[" * 5_000,
        '{"a":"\\ud83d',
        "NaN",
    ],
)
def test_what_is_not_a_chunk_is_none(data: str) -> None:
    """Broken JSON, wrong containers and endless nesting raise nothing."""
    assert read_chunk(data) is None


def test_a_chunk_with_too_many_or_too_deep_values_is_none() -> None:
    """A big chunk is checked before anything is built from it, and one with many brackets for its depth."""
    assert read_chunk('{"choices":[],"deep":' + "[" * 80 + "]" * 80 + "}") is None
    many = '{"choices":[' + "{}," * 300_000 + '{}],"a":"\\ud83d"}'
    assert read_chunk(many) is None
    assert read_chunk('{"choices":[],"pad":"' + "x" * 100_000 + '"}') is not None


def test_halves_of_surrogate_pairs_survive_the_reading() -> None:
    """The chunk is not lost because its string cannot be encoded yet."""
    chunk = read_chunk('{"choices":[{"delta":{"content":"\\ud83d"}}]}')
    assert chunk is not None
    assert chunk.choices is not None
    assert chunk.choices[0].delta == {"content": "\ud83d"}


@pytest.mark.parametrize(
    ("value", "usage"),
    [
        (None, None),
        (5, None),
        ({}, None),
        ({"prompt_tokens": -1, "completion_tokens": True}, None),
        ({"prompt_tokens": 3}, Usage(input_tokens=3)),
        ({"prompt_tokens": 0, "completion_tokens": 0}, Usage()),
        (
            {
                "prompt_tokens": 9,
                "completion_tokens": 8,
                "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 1},
                "completion_tokens_details": {"reasoning_tokens": -2},
            },
            Usage(input_tokens=9, output_tokens=8, cached_tokens=4, cache_write_tokens=1),
        ),
        ({"prompt_tokens": 1, "prompt_tokens_details": None}, Usage(input_tokens=1)),
        ({"completion_tokens": 2, "completion_tokens_details": {"reasoning_tokens": 1}}, _THOUGHTFUL),
        ({"prompt_tokens": 1.0, "completion_tokens": "2"}, None),
        ({"prompt_tokens": 1, "prompt_tokens_details": {"cached_tokens": None}}, Usage(input_tokens=1)),
    ],
)
def test_usage_is_read_where_it_can_be_true(value: Any, usage: Usage | None) -> None:
    """Zero is a number, negative ones and other types are not; said as it should be, it is typed and the same."""
    assert read_usage(value) == usage
    body = stream(chunk({"content": "a"}, "stop", usage=value), DONE)
    last = decode(Decoder(CountingIds()), body)[-1]
    assert isinstance(last, Finished)
    assert last.usage == usage


@pytest.mark.parametrize(
    ("value", "info"),
    [
        ("boom", ErrorInfo(code="upstream_error", message="boom", status=502, retryable=True)),
        ({}, ErrorInfo(code="upstream_error", message="the upstream reported an error", status=502, retryable=True)),
        (
            {"message": "slow", "code": 429},
            ErrorInfo(code="upstream_status", message="slow", status=429, retryable=True),
        ),
        (
            {"message": "key", "type": "auth", "code": "401"},
            ErrorInfo(code="auth", message="key", status=502),
        ),
        (
            {"message": "long", "code": "context_length_exceeded"},
            ErrorInfo(code="context_length_exceeded", message="long", status=400),
        ),
        (
            {"message": {"deep": 1}, "type": "overloaded_error"},
            ErrorInfo(code="overloaded_error", message='{"deep":1}', status=503, retryable=True),
        ),
    ],
)
def test_errors_keep_code_message_and_status(value: Any, info: ErrorInfo) -> None:
    """A status is mapped as DESIGN 4b says: the upstream's 401 is our key, not the client's."""
    assert read_error(value) == info


def test_an_endless_error_message_is_cut() -> None:
    """Messages reach clients and logs, so they are bounded."""
    assert len(read_error("x" * 10_000).message) == 2_000


def test_leaves_of_any_type_are_judged() -> None:
    """Text from objects, ids from numbers, indexes from anything that can be looked up."""
    assert [as_arguments(value) for value in (None, "a", {"b": [1]}, 5)] == ["", "a", '{"b":[1]}', "5"]
    assert [as_arguments({"a": text}) for text in ("\ud83d", "\ud83d\ude00")] == [
        '{"a":"\\ufffd"}',
        '{"a":"\\ud83d\\ude00"}',
    ]
    assert [as_object(value) for value in ({"a": 1}, [], None)] == [{"a": 1}, {}, {}]
    assert [as_list(value) for value in ([1], {}, None)] == [[1], [], []]
    assert [as_id(value) for value in ("a", 5, True, None, [])] == ["a", "5", "", "", ""]
    assert [as_index(value) for value in (0, "1", -2, True, None, {})] == [0, "1", -2, None, None, None]
