"""Stray shapes: that each really is on the wire, so that surviving it means something."""

from typing import Any

import msgspec
import pytest

from treadle.core.json import read_json
from treadle.core.usage import Usage
from treadle.protocols.sse import SseReader
from treadle.providers.fakes.reply_rendering import cut, write_body, write_frames
from treadle.providers.fakes.scripted_reply import Faults, Reply, ReplyCall
from treadle.providers.fakes.stream_faults import SHAPES

CALLS = (ReplyCall(name="a", args={"city": "Paris, France"}, id="c1"), ReplyCall(name="b", args={"n": 1}, id="c2"))
USAGE = Usage(input_tokens=1, output_tokens=2)


def data_of(*, calls: tuple[ReplyCall, ...] = CALLS, **faults: bool) -> list[str]:
    """Return the data lines of a stream of two calls with these faults."""
    frames = write_frames(Reply(calls=calls, usage=USAGE, faults=Faults(**faults)), model="m")
    return [frame.data for frame in SseReader().feed(b"".join(frames))]


def calls_of(**faults: bool) -> list[dict[str, Any]]:
    """Return the call deltas of all chunks, in order."""
    chunks = [read_json(data) for data in data_of(**faults) if data != "[DONE]"]
    return [call for chunk in chunks for choice in chunk["choices"] for call in choice["delta"].get("tool_calls", [])]


def test_without_faults_each_call_is_opened_once_with_its_index():
    """The clean stream that the faults are measured against."""
    calls = calls_of()
    assert [(call["index"], call["id"]) for call in calls if "id" in call] == [(0, "c1"), (1, "c2")]
    assert data_of()[-1] == "[DONE]"


def test_no_index_leaves_every_index_out():
    """Some compatible servers send none."""
    assert all("index" not in call for call in calls_of(no_index=True))


def test_index_zero_gives_every_call_the_same():
    """Others send 0 for each."""
    assert {call["index"] for call in calls_of(index_zero=True)} == {0}


def test_no_id_leaves_every_id_out():
    """Others name no id."""
    assert all("id" not in call for call in calls_of(no_id=True))


def test_name_after_args_sends_arguments_before_the_name_is_known():
    """The arguments of a call stand before the chunk with its id and name."""
    seen = [
        (call["index"], bool(call["function"].get("arguments")), call["function"].get("name"))
        for call in calls_of(name_after_args=True)
    ]
    assert [entry for entry in seen if entry[2]] == [(0, False, "a"), (1, False, "b")]
    assert seen[0] == (0, True, None)
    assert seen.index((0, False, "a")) > max(place for place, entry in enumerate(seen) if entry == (0, True, None))


def test_args_as_object_sends_one_object_per_call():
    """The arguments are a JSON object instead of its text, all at once."""
    assert [call["function"]["arguments"] for call in calls_of(args_as_object=True)] == [
        {"city": "Paris, France"},
        {"n": 1},
    ]


def test_args_as_object_leaves_broken_arguments_as_text():
    """What is no JSON cannot be sent as a value."""
    broken = (ReplyCall(name="a", raw='{"x":', id="c1"),)
    chunks = [read_json(data) for data in data_of(calls=broken, args_as_object=True) if data != "[DONE]"]
    (call,) = chunks[0]["choices"][0]["delta"]["tool_calls"]
    assert call["function"]["arguments"] == '{"x":'


def test_dup_chunk_repeats_finish_and_usage_but_no_content():
    """What is doubled is what must count once; doubled arguments would be another answer."""
    clean, doubled = data_of(), data_of(dup_chunk=True)
    assert [one for one in doubled if doubled.count(one) == 2] == [clean[-3], clean[-3], clean[-2], clean[-2]]
    assert sorted(set(doubled)) == sorted(set(clean))


def test_empty_final_adds_a_chunk_without_choices():
    """The last chunk before [DONE] says nothing."""
    last = read_json(data_of(empty_final=True)[-2])
    assert (last["choices"], last["usage"]) == ([], None)


def test_no_done_leaves_the_terminator_out():
    """The stream just ends after its last chunk."""
    assert data_of(no_done=True) == data_of()[:-1]


def test_a_body_is_the_same_reply_whole():
    """The encoder's own fold, not a second spelling."""
    body = read_json(write_body(Reply(text="Hi there", calls=CALLS, usage=USAGE), model="m"))
    (choice,) = body["choices"]
    assert (body["object"], body["model"], choice["finish_reason"]) == ("chat.completion", "m", "tool_calls")
    assert choice["message"]["content"] == "Hi there"
    assert [call["id"] for call in choice["message"]["tool_calls"]] == ["c1", "c2"]


def test_an_empty_reply_still_ends():
    """A model that says nothing stops normally."""
    *_, finish, done = write_frames(Reply(), model="m")
    assert b'"finish_reason":"stop"' in finish
    assert done == b"data: [DONE]\n\n"


@pytest.mark.parametrize(
    ("data", "chunk_bytes", "chunks"),
    [
        (b"abcde", None, [b"abcde"]),
        (b"abcde", 2, [b"ab", b"cd", b"e"]),
        (b"ab", 9, [b"ab"]),
        (b"", None, []),
        (b"", 3, []),
    ],
)
def test_cut_gives_reads_of_one_size(data, chunk_bytes, chunks):
    """All bytes, in order, none empty."""
    assert cut(data, chunk_bytes) == chunks


@pytest.mark.parametrize(("protocol", "fault"), [(name, fault) for name, shapes in SHAPES.items() for fault in shapes])
def test_every_shape_changes_the_stream_of_its_protocol(protocol, fault):
    """A fault that changed nothing would test nothing."""
    plain = write_frames(Reply(text="a b", calls=CALLS, usage=USAGE), model="m", protocol=protocol)
    faults = Faults(**{fault: True})
    spoiled = write_frames(Reply(text="a b", calls=CALLS, usage=USAGE, faults=faults), model="m", protocol=protocol)
    assert spoiled != plain


@pytest.mark.parametrize("protocol", ["responses", "messages", "gemini"])
def test_a_fault_that_a_protocol_cannot_have_changes_nothing(protocol):
    """Only Chat has a [DONE] to leave out; elsewhere the frames stay the same bytes."""
    faults = Faults(**{name: True for name in Faults().__struct_fields__ if name in SHAPES["chat"]} | {"no_done": True})
    absent = msgspec.structs.replace(faults, **dict.fromkeys(SHAPES[protocol], False))
    plain = write_frames(Reply(calls=CALLS), model="m", protocol=protocol)
    assert write_frames(Reply(calls=CALLS, faults=absent), model="m", protocol=protocol) == plain
