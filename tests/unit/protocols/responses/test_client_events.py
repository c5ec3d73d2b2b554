"""The frames of the stream: numbered, and the same whether an event is written whole or as one of many deltas."""

from typing import Any

import msgspec
import pytest

from treadle.protocols.responses.client_events import (
    CallEvent,
    EventOutput,
    LifecycleEvent,
    Refrain,
    StreamEvent,
    TextEvent,
)
from treadle.protocols.responses.client_response_object import EMPTY

PLACE: dict[str, Any] = {"item_id": 'a"delta":""\n0', "output_index": 0}
SHAPES: dict[str, tuple[type[StreamEvent], dict[str, Any]]] = {
    "text": (TextEvent, {"content_index": 0, "logprobs": EMPTY}),
    "summary": (TextEvent, {"summary_index": 2}),
    "call": (CallEvent, {}),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("text", ["word", "\n\n", '"delta":""', "\u2028\x00💥", '{"sequence_number":0}'])
def test_a_repeated_delta_is_written_as_a_whole_event_would_be(shape: str, text: str) -> None:
    """Byte for byte, whatever the text, the id and the number are."""
    kind, fields = SHAPES[shape]

    def delta(number: int, text: str) -> StreamEvent:
        return kind(type="response.x.delta", sequence_number=number, **PLACE, **fields, delta=text)  # pyright: ignore[reportCallIssue]

    out = EventOutput(streams=True, extended=False)
    refrain = Refrain(delta(0, ""))
    for number in (0, 7, 1_000_000):
        out.number = number
        out.send(delta(number, text))
        out.number = number
        assert out.repeat(refrain, text) == out.frames[-1]
        assert out.number == number + 1


def test_events_are_numbered_densely_and_one_sent_again_is_not_counted() -> None:
    """A number names one event for ever."""
    out = EventOutput(streams=True, extended=False)
    written = msgspec.Raw(b"{}")
    for kind in ("response.created", "response.in_progress"):
        out.send(LifecycleEvent(type=kind, sequence_number=out.number, response=written))
    out.send_again(LifecycleEvent(type="response.in_progress", sequence_number=out.number - 1, response=written))
    assert out.number == 2
    assert out.frames[1] == out.frames[2]
    assert out.frames[0] == (
        b'event: response.created\ndata: {"type":"response.created","sequence_number":0,"response":{}}\n\n'
    )


def test_a_line_break_in_what_is_echoed_does_not_tear_the_frame() -> None:
    """A client may have written its tools over several lines."""
    out = EventOutput(streams=True, extended=False)
    out.send(LifecycleEvent(type="response.created", sequence_number=0, response=msgspec.Raw(b'{\r\n"a":1}')))
    lines = out.frames[0].decode().removesuffix("\n\n").split("\n")
    assert [line.partition(": ")[0] for line in lines] == ["event", "data", "data"]
