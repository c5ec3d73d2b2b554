import msgspec

from treadle.core.events import ArgumentsDelta, ReasoningDelta, TextDelta
from treadle.core.items import CallItem, MessageItem, OpaqueItem, ReasoningItem, TextPart, text_message
from treadle.protocols.messages.client_block_writers import (
    BlockOutput,
    CallBlockWriter,
    OpaqueBlockWriter,
    ReasoningBlockWriter,
    TextBlockWriter,
)


def _outlet() -> BlockOutput:
    return BlockOutput(streams=False)


def test_writers_take_only_what_is_theirs() -> None:
    """A delta or an item of another kind changes nothing."""
    out = _outlet()
    text, thought, opaque = TextBlockWriter(out), ReasoningBlockWriter(out), OpaqueBlockWriter(out)
    for writer in (text, thought, opaque):
        writer.feed(ArgumentsDelta(index=0, text="{}"))
        writer.settle(CallItem(call_id="a", name="f"))
        writer.close()
    assert out.content == []
    call = CallBlockWriter(out, CallItem(call_id="a", name="f"))
    call.feed(TextDelta(index=0, text="x"))
    call.settle(text_message("assistant", "x"))
    call.close()
    assert out.content == []
    call.settle(CallItem(call_id="a", name="f"))
    call.close()
    assert out.content == [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]


def test_an_outlet_that_does_not_stream_only_folds() -> None:
    """There is one path, and no frames."""
    out = _outlet()
    writer = TextBlockWriter(out)
    writer.feed(TextDelta(index=0, text="a"))
    writer.settle(MessageItem(role="assistant", content=(TextPart(text="ab"), TextPart(text=""), TextPart(text="c"))))
    writer.close()
    assert out.content == [{"type": "text", "text": "ab"}, {"type": "text", "text": "c"}]
    assert out.frames == []


def test_what_differs_from_what_was_sent_is_not_sent_again() -> None:
    """A stream cannot take anything back."""
    out = _outlet()
    text, thought = TextBlockWriter(out), ReasoningBlockWriter(out)
    text.feed(TextDelta(index=0, text="a"))
    text.settle(text_message("assistant", "b"))
    text.close()
    thought.feed(ReasoningDelta(index=0, text="x"))
    thought.settle(ReasoningItem(text=("y",)))
    thought.close()
    call = CallBlockWriter(out, CallItem(call_id="a", name="f"))
    call.feed(ArgumentsDelta(index=0, text='{"a":1}'))
    call.settle(CallItem(call_id="a", name="f", arguments='{"b":2}'))
    assert [msgspec.to_builtins(block) for block in out.content[:2]] == [
        {"type": "text", "text": "a"},
        {"type": "thinking", "thinking": "x", "signature": ""},
    ]
    assert msgspec.json.decode(msgspec.json.encode(out.content[2]))["input"] == {"a": 1}


def test_an_opaque_block_that_was_cut_is_not_shown() -> None:
    """Half of something unknown helps nobody."""
    out = _outlet()
    OpaqueBlockWriter(out).close()
    assert out.content == []
    raw = msgspec.Raw(b'{"type":"x"}')
    OpaqueBlockWriter(out).settle(OpaqueItem(protocol="messages", raw=raw))
    assert out.content == [raw]
