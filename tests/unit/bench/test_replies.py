"""The benchmark's provider says what a real one would: Treadle's own decoder reads it."""

import json

import pytest
from bench.rig.driver import Reader
from bench.rig.replies import DONE, burst, reply, text_stream

from treadle.core.events import Finished, ItemDone, TextDelta
from treadle.core.ids import CountingIds
from treadle.core.items import CallItem
from treadle.protocols.protocol_registry import PROTOCOLS


def asked(model: str, *, stream: bool = True, results: int = 0) -> bytes:
    """A request for a model, with results of tools in its history."""
    messages = [{"role": "user", "content": "go"}, *[{"role": "tool", "content": "1"}] * results]
    return json.dumps({"model": model, "stream": stream, "messages": messages}).encode()


def events(answer: bytes) -> list:
    """What the chat decoder makes of a streamed answer."""
    reader = Reader()
    assert reader.feed(answer)
    frames = b"".join(piece for piece in reader.body.split(b"\r\n") if piece.startswith(b"data:"))
    decoder = PROTOCOLS["chat"].codec.decoder(CountingIds(namespace="t"))
    return [*decoder.feed(frames), *decoder.finish()]


@pytest.mark.parametrize("count", [1, 10, 1000])
def test_a_stream_has_as_many_deltas_as_its_model_says(count: int) -> None:
    """And ends with the mark that the load generator looks for."""
    told = events(reply(asked(f"bench-{count}")))
    said = [event.text for event in told if isinstance(event, TextDelta)]
    assert len(said) == count
    assert said[-1] == DONE
    assert isinstance(told[-1], Finished)


@pytest.mark.parametrize("count", [1, 100])
def test_a_burst_is_the_same_stream_in_pieces_of_one_event(count: int) -> None:
    """The beginning and the end have theirs; no other model is a burst."""
    pieces = burst(f"bench-burst-{count}".encode())
    assert b"".join(pieces) == text_stream(count)
    assert [piece.count(b"data: ") for piece in pieces] == [1] * (count + 1) + [2]
    assert [burst(model) for model in (b"bench-100", b"bench-plain", b"bench-burst-", b"")] == [()] * 4


def test_tool_rounds_are_asked_for_one_by_one_and_then_end() -> None:
    """The results in the request say which round it is."""
    for done in range(2):
        [call] = [
            each.item for each in events(reply(asked("bench-tools-2", results=done))) if isinstance(each, ItemDone)
        ]
        assert isinstance(call, CallItem)
        assert json.loads(call.arguments) == {"a": done, "b": 1}
    assert DONE.encode() in reply(asked("bench-tools-2", results=2))


def test_an_answer_that_is_not_streamed_is_one_document() -> None:
    """With a call in it while there are rounds left."""
    bodies = [json.loads(reply(asked("bench-tools-1", stream=False, results=n)).split(b"\r\n\r\n")[1]) for n in (0, 1)]
    assert [body["choices"][0]["finish_reason"] for body in bodies] == ["tool_calls", "stop"]


def test_a_model_that_thinks_says_so_with_each_call_and_ends() -> None:
    """As a reasoning model behind a chat endpoint does; by it the growth of remembered turns is measured."""
    answers = [
        json.loads(reply(asked("bench-thinks-2", stream=False, results=count)).partition(b"\r\n\r\n")[2])
        for count in range(3)
    ]
    messages = [answer["choices"][0]["message"] for answer in answers]
    assert all(message["reasoning_content"] for message in messages)
    assert [[call["id"] for call in message.get("tool_calls", ())] for message in messages] == [
        ["call_0"],
        ["call_1"],
        [],
    ]
    assert messages[-1]["content"] == DONE


@pytest.mark.parametrize("model", ["", "gpt", "bench-", "bench-x", "bench-tools-"])
def test_a_model_that_is_not_known_is_refused(model: str) -> None:
    """A typing error in a benchmark must not measure the error's path."""
    assert reply(asked(model)).startswith(b"HTTP/1.1 404 ")
