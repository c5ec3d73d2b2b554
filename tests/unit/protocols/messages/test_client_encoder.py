import pytest

from stream.messages_oracle import COMPLETED, STARTED, encode, request
from stream.responses_runs import message, said
from treadle.core.events import ItemAdded, RunEnded, RunStarted, TextDelta
from treadle.core.ids import CountingIds
from treadle.core.json import read_json
from treadle.core.request import Request
from treadle.protocols.messages import Encoder


def test_each_frame_has_its_name() -> None:
    """The SDKs drop frames without an event line."""
    raw, _ = encode([STARTED, *message(0, "Hi"), COMPLETED])
    frames = raw.decode().split("\n\n")[:-1]
    assert all(frame.startswith("event: ") and "\ndata: {" in frame for frame in frames)
    assert len(frames) == 6


def test_nothing_is_sent_before_there_is_something_to_say() -> None:
    """So that a run that fails at once can be answered with a status; then text goes out as it comes."""
    encoder = Encoder(request(), CountingIds())
    assert encoder.feed(STARTED) == []
    assert encoder.feed(ItemAdded(index=0, item=said(""))) == []
    frames = encoder.feed(TextDelta(index=0, text="Hi"))
    assert [frame.split(b"\n")[0] for frame in frames] == [
        b"event: message_start",
        b"event: content_block_start",
        b"event: content_block_delta",
    ]


def test_the_message_has_the_id_of_the_run() -> None:
    """A thread goes on by it; only a run without one gets a new one."""
    started = RunStarted(run_id="run_1", response_id="", model="m", created_at=1.0)
    for event, expected in ((STARTED, "msg_1"), (started, "msg_0001")):
        encoder = Encoder(Request(protocol="messages", model="m"), CountingIds())
        encoder.feed(event)
        encoder.feed(COMPLETED)
        assert read_json(encoder.body())["id"] == expected


def test_a_body_before_the_end_is_a_mistake_of_the_caller() -> None:
    """There is no half of a message."""
    encoder = Encoder(request(), CountingIds())
    with pytest.raises(AssertionError):
        encoder.body()
    encoder.feed(STARTED)
    encoder.feed(RunEnded(status="completed"))
    assert encoder.feed(STARTED) == []
