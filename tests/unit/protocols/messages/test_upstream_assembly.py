from typing import Any

import msgspec
import pytest

from stream.answers import answer, decode
from stream.messages_shapes import args, begin, called, end, start, stop, stream, text, use
from treadle.core.events import Finished, ItemDone
from treadle.core.ids import CountingIds
from treadle.core.items import CallItem, OpaqueItem
from treadle.protocols.decoding.answer_meter import AnswerBounds
from treadle.protocols.decoding.item_drafts import BlobFactory
from treadle.protocols.messages import Decoder
from treadle.protocols.messages.upstream_assembly import MessagesAssembly
from treadle.protocols.messages.upstream_event import BlockIn, DeltaIn
from unit.protocols.work import Counted

BOUNDS = AnswerBounds(text_bytes_max=1_000, arguments_bytes_max=1_000)
OWNER = BlobFactory(provider="p", model="m")


def _items(*values: Any) -> list[tuple[str, ...]]:
    return list(answer(decode(Decoder(CountingIds()), stream(begin(), *values))).items)


def test_pieces_of_two_texts_in_turn_make_two_messages() -> None:
    """Nothing is lost, and each comes out whole."""
    values = (start(0), start(1), text(0, "a"), text(1, "b"), text(0, "c"), stop(0), stop(1), *end())
    assert _items(*values) == [("text", "ac"), ("text", "b")]


def test_a_reused_index_begins_another_block() -> None:
    """Some gateways count no blocks; where the first was not ended, something was lost."""
    values = (*called(0, "a", "f", '{"x":1}'), *called(0, "b", "g", '{"y":2}'), *end("tool_use"))
    assert _items(*values) == [("call", "f", '{"x":1}'), ("call", "g", '{"y":2}')]
    broken = (use(0, "a", "f"), args(0, '{"x":1}'), use(0, "b", "g"), args(0, '{"y":2}'), stop(0), *end("tool_use"))
    assert _items(*broken) == []


def test_a_piece_of_another_kind_than_its_block_breaks_the_answer() -> None:
    """A piece of text at a call's index belongs to a block that was lost."""
    values = (use(0, "a", "f"), text(0, "hm"), args(0, '{"x":1}'), stop(0), *end("tool_use"))
    assert _items(*values) == []


def test_pieces_without_an_index_go_to_the_last_of_their_kind() -> None:
    """There is nothing else to tell them by."""
    values = (use(0, "a", "f"), use(1, "b", "g"), args(None, '{"x":1}'), stop(0), stop(1), *end("tool_use"))
    assert _items(*values) == [("call", "f", "{}"), ("call", "g", '{"x":1}')]


@pytest.mark.parametrize(
    ("given", "expected"),
    [("{}", True), ('{"a":1}', True), ('{"a":', False), ("[1]", False), ("", True)],
)
def test_calls_are_complete_when_their_arguments_are(given: str, expected: bool) -> None:
    """Whether they were streamed or came with the block, ended or not."""
    for is_streamed in (True, False):
        for is_ended in (True, False):
            assembly = MessagesAssembly(CountingIds(), BOUNDS, OWNER, frozenset())
            raw = msgspec.Raw(msgspec.json.encode("" if is_streamed else given) if given or is_streamed else b"null")
            block = BlockIn(type="tool_use", id="a", name="f", input=raw)
            assembly.start(0, block, msgspec.Raw(b"{}"))
            if is_streamed:
                assembly.add(0, DeltaIn(type="input_json_delta", partial_json=given))
            if is_ended:
                assembly.stop(0)
            assert assembly.has_calls
            assert assembly.calls_are_complete == expected


def test_items_are_done_in_their_order() -> None:
    """A call that ended early waits for the text before it."""
    values = (start(0), text(0, "a"), use(1, "t", "f"), stop(1), text(0, "b"), stop(0), *end("tool_use"))
    events = decode(Decoder(CountingIds()), stream(begin(), *values))
    assert [event.index for event in events if isinstance(event, ItemDone)] == [0, 1]
    assert isinstance(events[-1], Finished)
    assert events[-1].stop == "calls"
    done = [event.item for event in events if isinstance(event, ItemDone)]
    assert isinstance(done[1], CallItem)


def test_pieces_of_an_unknown_block_are_joined_once() -> None:
    """However many there are, none is copied for the next; what is no text takes the place of the text before it."""
    assembly = MessagesAssembly(CountingIds(), BOUNDS, OWNER, frozenset())
    assembly.start(0, BlockIn(type="odd"), msgspec.Raw(b'{"type":"odd"}'))
    Counted.joined = 0
    for _ in range(100):
        assembly.add(0, DeltaIn(type="odd_delta", content=Counted("ab")))
        assembly.add(0, DeltaIn(type="odd_delta", text=Counted("c")))
    assembly.add(0, DeltaIn(type="odd_delta", text=[1]))
    assembly.add(0, DeltaIn(type="odd_delta", text="d"))
    assembly.stop(0)
    (item,) = [event.item for event in assembly.take() if isinstance(event, ItemDone)]
    assert isinstance(item, OpaqueItem)
    assert msgspec.json.decode(item.raw) == {"type": "odd", "content": "ab" * 100, "text": "d"}
    assert Counted.joined == 0
