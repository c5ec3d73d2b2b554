"""What must hold for any input: no bytes make the decoder raise, and no cut of the deltas changes the message."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from stream.answers import check_contract, decode, merged, pieces
from stream.messages_oracle import COMPLETED, STARTED, encode, judge, request
from stream.messages_shapes import ALL_SHAPES, stream
from treadle.core.events import ArgumentsDelta, Failed, Finished, ItemAdded, ItemDone, RunEnded, RunEvent, TextDelta
from treadle.core.ids import CountingIds
from treadle.core.items import CallItem, MessageItem, TextPart
from treadle.protocols.messages import Decoder

leaves = st.none() | st.booleans() | st.integers(-2, 3) | st.text(max_size=4) | st.just("text_delta")
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
)
blocks = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "thinking", "redacted_thinking", "tool_use", "server_tool_use", None])},
    optional={"id": leaves, "name": leaves, "input": values, "text": leaves, "data": leaves, "citations": values},
)
deltas = st.fixed_dictionaries(
    {
        "type": st.sampled_from(
            ["text_delta", "thinking_delta", "signature_delta", "input_json_delta", "citations_delta", "x"]
        )
    },
    optional={
        "text": leaves,
        "thinking": leaves,
        "signature": leaves,
        "partial_json": leaves | st.sampled_from(['{"a"', ":1}", "{}"]),
        "citation": values,
        "content": values,
        "stop_reason": leaves | st.sampled_from(["end_turn", "tool_use"]),
    },
)
events = st.fixed_dictionaries(
    {
        "type": st.sampled_from(
            [
                "content_block_start",
                "content_block_delta",
                "content_block_delta",
                "content_block_stop",
                "message_start",
                "message_delta",
                "message_stop",
                "ping",
            ]
        )
    },
    optional={
        "index": st.integers(0, 2) | leaves,
        "content_block": blocks | values,
        "delta": deltas | deltas | values,
        "usage": values,
        "message": values,
    },
)


def _fed(body: bytes, size: int) -> list[Any]:
    return decode(Decoder(CountingIds(), provider="p"), body, size)


@given(body=st.binary(max_size=300), size=st.integers(1, 40))
def test_no_bytes_make_the_decoder_raise(body: bytes, size: int) -> None:
    """Exactly one terminal comes last, however the bytes are cut."""
    result = _fed(body, size)
    assert isinstance(result[-1], Finished | Failed)
    check_contract(result)


@given(body=st.lists(events, max_size=12).map(lambda values: stream(*values)), size=st.integers(1, 200))
@settings(max_examples=2 * settings.default.max_examples)
def test_no_order_of_events_makes_the_decoder_raise(body: bytes, size: int) -> None:
    """The contract of model events is kept, and the cut changes nothing."""
    result = _fed(body, size)
    check_contract(result)
    assert merged(result) == merged(_fed(body, 1 << 30))


@given(shape=st.sampled_from(ALL_SHAPES), data=st.data())
def test_bytes_changed_at_random_are_survived(shape: Any, data: st.DataObject) -> None:
    """A byte that is not what it was breaks no more than the answer."""
    body = bytearray(shape.body or b"data: {}\n\n")
    for place in data.draw(st.lists(st.integers(0, len(body) - 1), max_size=4)):
        body[place] = data.draw(st.integers(0, 255))
    check_contract(_fed(bytes(body), data.draw(st.integers(1, 300))))


@given(
    text=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30),
    arguments=st.dictionaries(st.text(max_size=5), values, min_size=1, max_size=3),
    size=st.integers(1, 9),
)
def test_no_cut_of_the_deltas_changes_the_message(text: str, arguments: dict[str, Any], size: int) -> None:
    """The SDK accumulates what the whole body says, whatever pieces the deltas come in."""
    given_text = json.dumps(arguments)
    spoken = MessageItem(id="msg_1", role="assistant", content=(TextPart(text=text),))
    called = CallItem(id="fc_1", call_id="call_1", name="f", arguments=given_text)
    run: list[RunEvent] = [ItemAdded(index=0, item=MessageItem(id="msg_1", role="assistant"))]
    run += [TextDelta(index=0, text=text[place : place + size]) for place in range(0, len(text), size)]
    run += [ItemDone(index=0, item=spoken), ItemAdded(index=1, item=CallItem(id="fc_1", call_id="call_1", name="f"))]
    cuts = range(0, len(given_text), size)
    run += [ArgumentsDelta(index=1, text=given_text[place : place + size]) for place in cuts]
    run += [ItemDone(index=1, item=called), RunEnded(status="requires_action", stop="calls")]
    content = judge(run).content
    assert content[0] == {"type": "text", "text": text}
    assert content[1]["input"] == arguments


@given(text=st.text(max_size=30), size=st.integers(1, 5))
def test_no_arguments_break_the_accumulator(text: str, size: int) -> None:
    """Whatever a model writes as arguments, the SDK reads the stream to its end."""
    text = text.encode("utf-8", "replace").decode()
    parts = [piece.decode("utf-8", "replace") for piece in pieces(text.encode(), size)]
    whole = CallItem(id="fc_1", call_id="call_1", name="f", arguments="".join(parts))
    run: list[RunEvent] = [ItemAdded(index=0, item=CallItem(id="fc_1", call_id="call_1", name="f"))]
    run += [ArgumentsDelta(index=0, text=part) for part in parts if part]
    judge([*run, ItemDone(index=0, item=whole), RunEnded(status="requires_action", stop="calls")])


@given(order=st.permutations([0, 0, 0, 1, 1, 1, 2, 2]))
def test_no_order_of_items_opens_two_blocks(order: list[int]) -> None:
    """However the pieces of three items are mixed, they come out whole and in order of appearance."""
    left = {index: ["a", "b", "c"][: order.count(index)] for index in range(3)}
    items = {index: MessageItem(id=f"msg_{index}", role="assistant") for index in range(3)}
    run: list[RunEvent] = [ItemAdded(index=index, item=items[index]) for index in range(3)]
    run += [TextDelta(index=index, text=left[index].pop(0)) for index in order]
    said = {0: "abc", 1: "abc", 2: "ab"}
    for index in reversed(range(3)):
        whole = MessageItem(id=f"msg_{index}", role="assistant", content=(TextPart(text=said[index]),))
        run.append(ItemDone(index=index, item=whole))
    raw, encoder = encode([STARTED, *run, COMPLETED], request())
    assert [block["text"] for block in json.loads(encoder.body())["content"]] == ["abc", "abc", "ab"]
    assert raw.count(b"event: content_block_start") == 3
