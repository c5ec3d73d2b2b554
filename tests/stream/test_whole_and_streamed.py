"""A reply means the same whether it comes whole or as a stream."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream import responses_shapes as responses
from stream.answers import decode
from stream.replies import REPLIES, Reply, messages_stream, responses_stream
from treadle.core.errors import BrokenStream
from treadle.core.events import Failed, Finished, ItemDone, ModelEvent
from treadle.core.ids import CountingIds
from treadle.protocols.protocol_registry import PROTOCOLS


def meant(protocol: str, body: bytes) -> tuple[Any, ...]:
    """Return what a reply amounts to: its items with the ids that were drawn, and how it ended.

    Of an answer that failed the items say nothing: those of a stream were told before anybody knew.
    """
    events: list[ModelEvent] = decode(PROTOCOLS[protocol].codec.decoder(CountingIds()), body)  # type: ignore[arg-type]
    end = events[-1]
    if isinstance(end, Failed):
        return (end.error.code, "" if end.error.code == BrokenStream.code else end.error.message)
    assert isinstance(end, Finished)
    items = [event.item for event in events if isinstance(event, ItemDone)]
    return (*(json.loads(msgspec.json.encode(item)) for item in items), end)


def agree(whole: tuple[Any, ...], streamed: tuple[Any, ...]) -> bool:
    """Tell whether two readings are the same; a stream shows damage before it says that it failed anyway."""
    failed = {answer[0] for answer in (whole, streamed) if isinstance(answer[0], str)}
    return whole == streamed or (BrokenStream.code in failed and None not in map(_failure, (whole, streamed)))


def _failure(answer: tuple[Any, ...]) -> str | None:
    return answer[0] if isinstance(answer[0], str) else None


@pytest.mark.parametrize("protocol", REPLIES)
@settings(max_examples=150)
@given(data=st.data())
def test_a_reply_is_the_same_whole_and_streamed(protocol: str, data: st.DataObject) -> None:
    """Nameless calls, texts and parts, missing ids, empty arguments, refusals, unknown parts, several choices."""
    replies, stream = REPLIES[protocol]
    reply: Reply = data.draw(replies)
    whole = meant(protocol, json.dumps(reply).encode())
    streamed = meant(protocol, stream(reply, data.draw(st.sampled_from([1, 3, 100]), label="size")))
    assert agree(whole, streamed), (whole, streamed)


BROKEN = (BrokenStream.code, "")
TEXT = {"type": "text", "text": "Hi"}


@pytest.mark.parametrize(
    ("protocol", "reply"),
    [
        ("chat", {"choices": [{"message": {"content": "A"}, "finish_reason": "stop"}] * 2}),
        ("chat", {"choices": [{"message": {"content": "A"}, "finish_reason": None}] * 2}),
        (
            "chat",
            {"choices": [{"message": {"tool_calls": [{"function": {"arguments": "{}"}}]}, "finish_reason": "stop"}]},
        ),
        (
            "chat",
            {
                "choices": [
                    {
                        "message": {
                            "tool_calls": [
                                {"id": "a", "type": "custom", "custom": {"name": "f", "input": ""}},
                                {"id": "a", "type": "custom", "custom": {"input": "x"}},
                            ]
                        },
                        "finish_reason": "stop",
                    }
                ]
            },
        ),
        ("messages", {"content": [{"type": "tool_use", "id": "a", "input": {}}], "stop_reason": "tool_use"}),
        ("messages", {"content": [TEXT, 7], "stop_reason": "end_turn"}),
        ("messages", {"content": [TEXT, {"text": "Hi"}], "stop_reason": "end_turn"}),
        ("gemini", {"candidates": [{"content": "A", "finishReason": "STOP"}]}),
        ("gemini", {"candidates": [{"content": {"parts": "A"}, "finishReason": "STOP"}]}),
        ("responses", {"status": "completed", "output": [{"type": "function_call", "arguments": "{}"}]}),
        ("responses", {"status": "completed", "output": [responses.message("A"), {"id": "it_1"}]}),
        ("gemini", {"candidates": [{"content": {"parts": [{"functionCall": {"args": {}}}]}, "finishReason": "STOP"}]}),
        ("gemini", {"candidates": [{"content": {"parts": [{"functionCall": "f"}]}, "finishReason": "STOP"}]}),
        (
            "gemini",
            {
                "candidates": [
                    {"index": index, "content": {"parts": [TEXT]}, "finishReason": "STOP"} for index in (0, 1)
                ]
            },
        ),
    ],
)
def test_what_no_healthy_server_sends_breaks_a_whole_reply_as_it_breaks_a_stream(protocol: str, reply: Reply) -> None:
    """A call without a name, a choice that was not asked for, a part that is none: nothing of it is guessed."""
    for index, choice in enumerate(reply.get("choices", ())):
        reply["choices"][index] = {"index": index, **choice}
    assert meant(protocol, json.dumps(reply).encode()) == BROKEN


@pytest.mark.parametrize("given", [{}, {"city": "Paris"}])
def test_a_call_that_only_began_when_its_message_was_cut_is_none(given: dict[str, Any]) -> None:
    """`{}` is how every call begins: it is a call without arguments only where something follows it."""
    call = {"type": "tool_use", "id": "toolu_1", "name": "pay", "input": given}
    reply = {"content": [TEXT, call], "stop_reason": "max_tokens", "usage": {}}
    whole, streamed = meant("messages", json.dumps(reply).encode()), meant("messages", messages_stream(reply, 3))
    # What a whole message has of a cut call was mended into an object by its server: that shows nothing.
    assert [item["type"] for item in whole[:-1]] == ["message"]
    assert [item["type"] for item in streamed[:-1]] == ["message", *(["call"] if given else [])]
    reply["stop_reason"] = "tool_use"
    assert [item["type"] for item in meant("messages", messages_stream(reply, 3))[:-1]] == ["message", "call"]


def test_a_part_that_treadle_does_not_know_is_kept_of_a_streamed_message() -> None:
    """It comes only with the whole item."""
    part = {"type": "output_audio", "data": "x"}
    item = {"type": "message", "id": "msg_1", "role": "assistant", "content": [part]}
    (message, _) = meant("responses", responses_stream(responses.response("completed", [item]), 3))
    assert message["content"] == [{"type": "opaque", "protocol": "responses", "raw": part}]
