import json
from typing import Any

import msgspec
import pytest

from treadle.core.usage import Usage
from treadle.protocols.responses.upstream_event import (
    NULL,
    EventIn,
    index_of,
    list_of,
    read_event,
    read_failure,
    read_reason,
    read_usage,
    text_of,
    word_of,
)


def raw(value: Any) -> msgspec.Raw:
    """Return a value as it stands on the wire."""
    return msgspec.Raw(json.dumps(value).encode())


@pytest.mark.parametrize(
    ("value", "text", "word", "index"),
    [
        ("é", "é", "é", None),
        ("", "", "", None),
        (None, "", "", None),
        (7, "7", "7", 7),
        (-1, "-1", "-1", -1),
        (1.5, "1.5", "", None),
        (True, "true", "", None),
        ({"a": [1, 2]}, '{"a":[1,2]}', "", None),
        ("a\ud83d", "a\ud83d", "a?", None),
        (10**30, str(10**30), str(10**30), 10**30),
    ],
)
def test_leaves_of_any_kind_are_judged_one_by_one(value: Any, text: str, word: str, index: int | None) -> None:
    """As text, as a name, as a number: a wrong kind is none, and costs only itself."""
    leaf = raw(value)
    assert (text_of(leaf), word_of(leaf), index_of(leaf)) == (text, word, index)


def test_a_list_beyond_the_bounds_has_no_elements() -> None:
    """A list of millions is not built."""
    assert [json.loads(bytes(each)) for each in list_of(raw([1, {"a": 2}]))] == [1, {"a": 2}]
    assert list_of(raw({"a": 1})) == []
    assert list_of(msgspec.Raw(b"[" + b"0," * 300_000 + b"0]")) == []


def test_an_event_with_halves_of_a_pair_is_read() -> None:
    """A half stays in a piece of text, where its other half may follow, and is mended in a whole item."""
    event = read_event('{"type":"t","delta":"a\\ud83d","item":{"id":"\\ud83d"},"other":1,"output_index":2}')
    assert event is not None
    assert (event.type, text_of(event.delta), index_of(event.output_index)) == ("t", "a\ud83d", 2)
    assert json.loads(bytes(event.item)) == {"id": "\ufffd"}


@pytest.mark.parametrize("data", ["x", "[]", "3", '{"type":3}', '{"a":"\\ud83d"', '["\\ud83d"]', "[" * 100_000])
def test_what_is_no_event_is_none(data: str) -> None:
    """Half a document, a list, a type that is no text."""
    assert read_event(data) is None


def test_a_type_with_halves_of_a_wrong_kind_is_no_type() -> None:
    """The rest of such an event is still read."""
    assert read_event('{"type":3,"delta":"\\ud83d"}') == EventIn(delta=msgspec.Raw(b'"\\ud83d"'))


def test_usage_has_all_its_details() -> None:
    """What is said is kept, what is not is zero, nonsense is nothing."""
    said = {
        "input_tokens": 5,
        "output_tokens": 3,
        "input_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 1},
        "output_tokens_details": {"reasoning_tokens": 1},
    }
    used = Usage(input_tokens=5, output_tokens=3, cached_tokens=2, cache_write_tokens=1, reasoning_tokens=1)
    assert read_usage(raw(said)) == used
    assert read_usage(raw({"output_tokens": 3, "input_tokens_details": 7})) == Usage(output_tokens=3)
    for nonsense in (None, [], {}, {"input_tokens": -1}, {"input_tokens": "5"}):
        assert read_usage(raw(nonsense)) is None


def test_why_a_response_is_incomplete() -> None:
    """A reason is a word; anything else says nothing."""
    assert read_reason(raw({"reason": "content_filter"})) == "content_filter"
    assert [read_reason(raw(value)) for value in (None, {}, 3, {"reason": []})] == ["", "", "", ""]


@pytest.mark.parametrize(
    ("error", "code", "status"),
    [
        ({"code": "rate_limit_exceeded", "message": "slow"}, "rate_limit_exceeded", 429),
        ({"type": "server_error", "message": "x"}, "server_error", 502),
        ("out of memory", "upstream_error", 502),
        ({"message": "x", "status": 400}, "upstream_status", 400),
    ],
)
def test_failures_in_any_shape(error: Any, code: str, status: int) -> None:
    """The upstream's code and meaning are kept."""
    info = read_failure(raw(error))
    assert (info.code, info.status) == (code, status)


def test_flat_and_unreadable_failures() -> None:
    """The flat form has its words beside the type; what nests too deep is cut and quoted."""
    flat = read_failure(NULL, raw("server_error"), raw("boom"))
    assert (flat.code, flat.message) == ("server_error", "boom")
    deep = read_failure(msgspec.Raw(b"[" * 200 + b"]" * 200))
    assert deep.code == "upstream_error"
    assert deep.message.startswith("[[[")
