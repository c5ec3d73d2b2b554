import json
from typing import Any

import msgspec
import pytest

from treadle.core.events import ArgumentsDelta, ItemAdded, ItemDone, Noted, TextDelta
from treadle.core.ids import CountingIds
from treadle.core.items import CallItem, MessageItem, OpaqueItem, TextPart
from treadle.protocols.decoding.answer_meter import NOTES_MAX, AnswerBounds
from treadle.protocols.decoding.item_drafts import BlobFactory
from treadle.protocols.responses.upstream_assembly import ITEMS_MAX, ResponsesAssembly
from treadle.protocols.responses.upstream_content_parts import TextPiece
from treadle.protocols.responses.upstream_item_index import ItemPosition


def raw(value: Any) -> msgspec.Raw:
    """Return a value as it stands on the wire."""
    return msgspec.Raw(json.dumps(value).encode())


def assembly(text: int = 10_000, arguments: int = 1_000, taken: frozenset[str] = frozenset()) -> ResponsesAssembly:
    """Return an assembly with these bounds."""
    bounds = AnswerBounds(text_bytes_max=text, arguments_bytes_max=arguments)
    return ResponsesAssembly(CountingIds(), bounds, BlobFactory(provider="up", model="m"), taken)


def at(index: int) -> ItemPosition:
    """Return a place."""
    return ItemPosition(output_index=index)


def call(number: int, **fields: Any) -> msgspec.Raw:
    """Return a call."""
    return raw({"type": "function_call", "call_id": f"c{number}", "name": "f", "arguments": "{}", **fields})


def codes(made: ResponsesAssembly) -> list[str]:
    """Return what was noted."""
    return [event.note.code for event in made.take() if isinstance(event, Noted)]


def test_items_open_side_by_side_are_done_in_order_of_appearance() -> None:
    """The second ends first on the wire and second here."""
    made = assembly()
    made.add_item(at(0), raw({"type": "message", "id": "m"}))
    made.add_item(at(1), call(1, arguments=""))
    made.end_item(at(1), call(1))
    made.add_text(at(0), 0, TextPiece(kind="text", text="hi"))
    made.end_item(at(0), raw({"type": "message", "id": "m"}))
    begun = CallItem(id="fc_0002", call_id="c1", name="f", upstream_id="c1")
    said = MessageItem(id="msg_0001", role="assistant")
    assert made.take() == [
        ItemAdded(index=0, item=said),
        ItemAdded(index=1, item=begun),
        ArgumentsDelta(index=1, text="{}"),
        TextDelta(index=0, text="hi"),
        ItemDone(index=0, item=msgspec.structs.replace(said, content=(TextPart(text="hi"),))),
        ItemDone(index=1, item=msgspec.structs.replace(begun, arguments="{}")),
    ]


@pytest.mark.parametrize(
    ("call_id", "code"),
    [("", "call_without_id"), ("taken", "duplicate_call_id"), ("a b", "odd_call_id"), ("x" * 65, "odd_call_id")],
)
def test_a_call_id_that_cannot_be_used_is_replaced(call_id: str, code: str) -> None:
    """The upstream's own id is kept beside."""
    made = assembly(taken=frozenset({"taken"}))
    made.end_item(at(0), call(1, call_id=call_id))
    events = made.take()
    done = next(event.item for event in events if isinstance(event, ItemDone))
    assert isinstance(done, CallItem)
    assert (done.call_id, done.upstream_id) == ("call_0002", call_id or None)
    assert [event.note.code for event in events if isinstance(event, Noted)] == [code]


def test_whole_calls_stand_without_an_end() -> None:
    """A name and an object, or no arguments at all, are a call; half of it is not."""
    made = assembly()
    assert not made.has_calls
    made.add_item(at(0), call(1, arguments=""))
    assert made.has_calls
    assert made.calls_are_complete
    made.add_arguments(at(0), "function", "official", '{"a":')
    assert not made.calls_are_complete
    made.add_arguments(at(0), "function", "official", "1}")
    assert made.calls_are_complete
    made.add_arguments(at(1), "function", "official", "{}")
    assert not made.calls_are_complete


def test_streamed_annotations_are_kept() -> None:
    """They belong to a text that has begun, and are objects."""
    made = assembly()
    made.annotate(at(0), 0, raw({"type": "early"}))
    made.add_text(at(0), 0, TextPiece(kind="text", text="hi"))
    made.annotate(at(0), 0, raw({"type": "url_citation"}))
    made.annotate(at(0), 0, raw(7))
    made.finish()
    done = made.take()[-1]
    assert isinstance(done, ItemDone)
    assert isinstance(done.item, MessageItem)
    assert done.item.content == (TextPart(text="hi", annotations=msgspec.Raw(b'[{"type": "url_citation"}]')),)


def test_every_bound_is_told() -> None:
    """Bytes of the answer, bytes of a call's arguments, items."""
    made = assembly(text=5)
    made.add_text(at(0), 0, TextPiece(kind="text", text="123456"))
    assert made.meter.overflow == "the answer is over 5 bytes"
    made = assembly(arguments=3)
    made.add_arguments(at(0), "function", "official", "{   ")
    assert made.meter.overflow == "the arguments of a call are over 3 bytes"
    made = assembly(arguments=3)
    made.end_item(at(0), call(1, arguments='{"a":1}'))
    assert made.meter.overflow == "the arguments of a call are over 3 bytes"
    made = assembly(text=1_000_000)
    for number in range(ITEMS_MAX + 1):
        made.end_item(at(number), call(number))
    assert made.meter.overflow == f"more than {ITEMS_MAX} items in one answer"
    assert sum(isinstance(event, ItemDone) for event in made.take()) == ITEMS_MAX


def test_what_is_held_unseen_counts_too() -> None:
    """Arguments without a name, unknown items and announcements are held, so they are bounded."""
    made = assembly(text=50)
    made.add_item(at(0), raw({"type": "odd", "data": "x" * 50}))
    assert made.meter.overflow is not None
    made = assembly(text=50)
    made.add_item(at(0), call(1, arguments="x" * 50))
    assert made.meter.overflow is not None
    made = assembly(text=50)
    made.add_arguments(at(0), "function", "official", '"' + "x" * 50)
    assert made.meter.overflow is not None


def test_notes_are_bounded_and_the_rest_counted() -> None:
    """A stream that is all wrong is not echoed line by line."""
    made = assembly()
    for _ in range(NOTES_MAX + 5):
        made.note("odd", "dropped", "again")
    made.finish()
    events = [event.note for event in made.take() if isinstance(event, Noted)]
    assert len(events) == NOTES_MAX + 1
    assert (events[-1].code, events[-1].count) == ("more_notes", 5)


def test_the_final_output_is_paired_by_ids_first_and_by_what_is_left_then() -> None:
    """Enough drafts for all: each is the next; too few: what does not fit is new."""
    made = assembly()
    made.add_text(at(0), 0, TextPiece(kind="text", text="one"))
    made.add_text(at(5), 0, TextPiece(kind="text", text="two"))
    whole = [raw({"type": "message", "id": f"new{text}", "content": text}) for text in ("one", "two", "three")]
    made.end_output(whole)
    made.finish()
    done = [event.item for event in made.take() if isinstance(event, ItemDone)]
    texts = ["".join(part.text for part in item.content) for item in done if isinstance(item, MessageItem)]  # type: ignore[union-attr]
    assert texts == ["one", "two", "three"]
    assert codes(made) == []


def test_an_output_with_another_text_is_paired_where_there_is_one_for_each() -> None:
    """It is not said twice: it contradicts what was streamed, and the item never ends."""
    made = assembly()
    made.add_text(at(3), 0, TextPiece(kind="text", text="one"))
    made.end_output([raw({"type": "message", "id": "x", "content": "two"})])
    made.finish()
    events = made.take()
    assert made.meter.damage == "an item ends otherwise than it was streamed"
    assert [type(event) for event in events] == [ItemAdded, TextDelta]


def test_an_unknown_item_is_kept_as_it_is() -> None:
    """Byte for byte; its last version counts."""
    made = assembly()
    first = msgspec.Raw(b'{"type":"odd","id":"o_1", "a" : "x" }')
    last = msgspec.Raw(b'{"type":"odd","id":"o_1","b": 1}')
    made.add_item(at(0), first)
    made.end_item(at(0), last)
    assert made.take() == [
        ItemAdded(index=0, item=OpaqueItem(id="o_1", protocol="responses", raw=first)),
        ItemDone(index=0, item=OpaqueItem(id="o_1", protocol="responses", raw=last)),
    ]
