"""Every stream shape of a Messages upstream × every chunk size, and what Treadle's own stream of it is to the SDK."""

import json
from typing import Any

import anthropic
import msgspec
import pytest

from stream.answers import answer, as_run, decode, unsteady
from stream.messages_oracle import client, encode, judge, request
from stream.messages_shapes import ALL_SHAPES, SHAPES, Shape
from treadle.core.events import ItemDone, RunStarted
from treadle.core.ids import CountingIds
from treadle.core.items import Blob, ReasoningItem
from treadle.protocols.messages import Decoder
from treadle.protocols.messages.upstream_decoder import KEPT_REASONS

BY_NAME = pytest.mark.parametrize("shape", ALL_SHAPES, ids=lambda shape: shape.name)
NO_OBJECTS = ("malformed_arguments", "two_objects_in_one_call")
GOOD = pytest.mark.parametrize(
    "shape",
    [shape for shape in ALL_SHAPES if shape.expected.error is None and shape.name not in NO_OBJECTS],
    ids=lambda shape: shape.name,
)
BAD = pytest.mark.parametrize(
    "shape", [shape for shape in ALL_SHAPES if shape.expected.error is not None], ids=lambda shape: shape.name
)
STOP_REASONS = {
    "done": "end_turn",
    "stop_sequence": "stop_sequence",
    "calls": "tool_use",
    "length": "max_tokens",
    "filtered": "refusal",
}


def _events(shape: Shape, size: int = 1 << 30) -> list[Any]:
    return decode(Decoder(CountingIds(), provider="anthropic", model="up"), shape.body, size)


def test_the_table_holds_the_23_shapes_once_each() -> None:
    """The numbers of BUGS.md are all there, and names are unique."""
    assert [shape.number for shape in SHAPES] == list(range(1, 24))
    assert len({shape.name for shape in ALL_SHAPES}) == len(ALL_SHAPES)


@BY_NAME
def test_a_shape_amounts_to_what_it_should(shape: Shape) -> None:
    """Items, stop, usage, error and notes are those of the table."""
    assert answer(_events(shape)) == shape.expected


@BY_NAME
def test_chunking_changes_nothing(shape: Shape) -> None:
    """However the bytes are cut, the events are the same but for where deltas are cut."""
    assert unsteady(lambda size: _events(shape, size)) == {}


@GOOD
def test_the_sdk_accepts_our_stream_of_a_shape(shape: Shape) -> None:
    """The SDK's accumulators see the same text, calls, thoughts, reason and usage, streamed and whole."""
    run = as_run(_events(shape), "msg_1")
    assert isinstance(run[0], RunStarted)
    verdict = judge(run[1:])
    expected = shape.expected
    calls = [block for block in verdict.content if block["type"] == "tool_use"]
    assert [block["name"] for block in calls] == [item[1] for item in expected.items if item[0] == "call"]
    for block, item in zip(calls, (item for item in expected.items if item[0] == "call"), strict=True):
        assert block["input"] == json.loads(item[2])
    ids = [block["id"] for block in calls]
    assert len(set(ids)) == len(ids)
    assert verdict.text == "".join(item[1] for item in expected.items if item[0] == "text")
    thoughts = "".join(block["thinking"] for block in verdict.content if block["type"] == "thinking")
    assert thoughts == "".join(item[1] for item in expected.items if item[0] == "reasoning")
    kept = [code for code in expected.notes if code in KEPT_REASONS]
    reason = kept[0] if kept else STOP_REASONS[expected.stop or ""]
    assert verdict.final["stop_reason"] == reason
    usage = expected.usage
    assert usage is not None
    assert verdict.final["usage"]["output_tokens"] == usage.output_tokens
    assert verdict.final["usage"]["cache_read_input_tokens"] == usage.cached_tokens


@pytest.mark.parametrize("name", NO_OBJECTS)
def test_a_call_whose_arguments_are_no_object_is_an_error_for_the_sdk(name: str) -> None:
    """Its accumulator would make an object of the beginning; a client that waits gets the whole text under a key."""
    (shape,) = (each for each in ALL_SHAPES if each.name == name)
    raw, _ = encode(as_run(_events(shape), "msg_1"), request())
    with (
        client(raw) as sdk,
        pytest.raises(anthropic.APIStatusError),
        sdk.messages.stream(model="m", max_tokens=1, messages=[{"role": "user", "content": "hi"}]) as stream,
    ):
        stream.until_done()
    quiet = msgspec.structs.replace(request(), surface=msgspec.structs.replace(request().surface, stream=False))
    _, folded = encode(as_run(_events(shape), "msg_1"), quiet)
    (call,) = json.loads(folded.body())["content"]
    assert call["input"] == {"INVALID_JSON": shape.expected.items[0][2]}


@BAD
def test_a_broken_stream_is_an_error_for_the_sdk(shape: Shape) -> None:
    """It comes as an error event, never with a stop reason; the whole body is the error envelope."""
    raw, encoder = encode(as_run(_events(shape), "msg_1"), request())
    assert b"message_stop" not in raw
    assert b"[DONE]" not in raw
    with (
        client(raw) as sdk,
        pytest.raises(anthropic.APIStatusError),
        sdk.messages.stream(model="m", max_tokens=1, messages=[{"role": "user", "content": "hi"}]) as stream,
    ):
        stream.until_done()
    assert json.loads(encoder.body())["type"] == "error"


def test_signatures_are_kept_with_their_owner() -> None:
    """Thinking and redacted thinking bring blobs that name provider and model."""
    shapes = {shape.name: shape for shape in ALL_SHAPES}
    owner = {"provider": "anthropic", "model": "up"}
    expected = {
        "thinking_then_call": Blob(kind="signature", data="c2ln", **owner),
        "thinking_without_text": Blob(kind="signature", data="c2ln", **owner),
        "redacted_thinking": Blob(kind="redacted", data="c2VjcmV0", **owner),
    }
    for name, blob in expected.items():
        done = [event.item for event in _events(shapes[name]) if isinstance(event, ItemDone)]
        assert isinstance(done[0], ReasoningItem)
        assert done[0].blobs == (blob,)
