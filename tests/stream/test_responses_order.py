"""Runs as Responses streams, judged by the real openai SDK; the order of events is asserted as a whole."""

import json

import msgspec

from stream.responses_oracle import COMPLETED, judge
from stream.responses_runs import CALL, START, TEXT, call, message, message_item, round_started, said
from treadle.core.events import (
    ItemAdded,
    ItemDone,
    ReasoningDelta,
    RefusalDelta,
    RunEvent,
    TextDelta,
)
from treadle.core.items import (
    AnyItem,
    Blob,
    CallItem,
    MessageItem,
    OpaqueItem,
    ReasoningItem,
    RefusalPart,
    TextPart,
)


def test_text_is_one_message_in_the_official_order() -> None:
    """A plain answer has every event of the official order once, and deltas that add up."""
    seen = judge([round_started(1), *message(0, "Hel", "lo"), COMPLETED])
    assert seen.types == [*START, *TEXT[:3], *TEXT[2:], "completed"]
    assert [event["delta"] for event in seen.of("output_text.delta")] == ["Hel", "lo"]
    assert seen.final["output"] == [message_item("Hello")]


def test_refusal_is_a_part_of_its_own() -> None:
    """A refusal streams as refusal events and ends as a refusal part."""
    item = MessageItem(id="msg_1", role="assistant", content=(RefusalPart(text="I cannot."),))
    events: list[RunEvent] = [
        ItemAdded(index=0, item=said("")),
        RefusalDelta(index=0, text="I can"),
        RefusalDelta(index=0, text="not."),
        ItemDone(index=0, item=item),
    ]
    seen = judge([*events, COMPLETED])
    refusal = ["content_part.added", "refusal.delta", "refusal.delta", "refusal.done", "content_part.done"]
    assert seen.types == [*START, "output_item.added", *refusal, "output_item.done", "completed"]
    assert seen.final["output"][0]["content"] == [{"type": "refusal", "refusal": "I cannot."}]


def test_text_then_refusal_are_two_parts_in_order() -> None:
    """A new part closes the one before it and takes the next content index."""
    item = MessageItem(id="msg_1", role="assistant", content=(TextPart(text="Hm."), RefusalPart(text="No.")))
    events: list[RunEvent] = [
        ItemAdded(index=0, item=said("")),
        TextDelta(index=0, text="Hm."),
        RefusalDelta(index=0, text="No.", part=1),
        ItemDone(index=0, item=item),
    ]
    seen = judge([*events, COMPLETED])
    assert seen.types == [
        *START,
        *TEXT[:5],
        "content_part.added",
        "refusal.delta",
        "refusal.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert [event["content_index"] for event in seen.of("content_part.done")] == [0, 1]


def test_reasoning_summary_and_raw_text_have_their_own_indexes() -> None:
    """Summaries go by summary_index, raw reasoning by content_index, and sealed content rides on the item."""
    blobs = (Blob(provider="openai", kind="encrypted_content", data="sealed"),)
    item = ReasoningItem(id="rs_1", summary=("Plan", "Check"), text=("raw",), blobs=blobs)
    events: list[RunEvent] = [
        ItemAdded(index=0, item=ReasoningItem(id="rs_1")),
        ReasoningDelta(index=0, text="Plan", is_summary=True),
        ReasoningDelta(index=0, text="Check", part=1, is_summary=True),
        ReasoningDelta(index=0, text="raw"),
        ItemDone(index=0, item=item),
    ]
    seen = judge([*events, *message(1, "Hi"), COMPLETED])
    summary = [
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
    ]
    raw = ["content_part.added", "reasoning_text.delta", "reasoning_text.done", "content_part.done"]
    item_types = ["output_item.added", *summary, *summary, *raw, "output_item.done"]
    assert seen.types == [*START, *item_types, *TEXT, "completed"]
    assert [event["summary_index"] for event in seen.of("reasoning_summary_text.delta")] == [0, 1]
    assert seen.final["output"][0] == {
        "type": "reasoning",
        "id": "rs_1",
        "status": "completed",
        "summary": [{"type": "summary_text", "text": "Plan"}, {"type": "summary_text", "text": "Check"}],
        "content": [{"type": "reasoning_text", "text": "raw"}],
        "encrypted_content": "sealed",
    }


def test_text_that_ends_otherwise_than_it_streamed_is_said_right_at_the_end() -> None:
    """Text cannot be unsaid; the done events and the item carry what the item says in the end."""
    events: list[RunEvent] = [
        ItemAdded(index=0, item=said("")),
        TextDelta(index=0, text="Hxl"),
        ItemDone(index=0, item=said("Hello")),
    ]
    seen = judge([*events, COMPLETED])
    assert seen.types == [*START, *TEXT, "completed"]
    assert seen.of("output_text.done")[0]["text"] == "Hello"
    assert seen.final["output"] == [message_item("Hello")]


def test_item_that_comes_whole_is_opened_and_closed() -> None:
    """An item without a beginning or deltas is written as if it had them."""
    items: list[AnyItem] = [said("Hi"), call('{"a":1}'), ReasoningItem(id="rs_1", summary=("s",))]
    seen = judge([*[ItemDone(index=index, item=item) for index, item in enumerate(items)], COMPLETED])
    assert [item["type"] for item in seen.final["output"]] == ["message", "function_call", "reasoning"]
    assert seen.types[2 : 2 + len(TEXT) + len(CALL)] == [*TEXT, *CALL]


def test_opaque_item_of_this_protocol_passes_unchanged() -> None:
    """An item of a kind that Treadle does not know is shown as its upstream wrote it; one of another API is not."""
    raw = b'{"type":"web_search_call","id":"ws_1","status":"completed","action":{"type":"search","query":"q"}}'
    mine = OpaqueItem(id="ws_1", protocol="responses", raw=msgspec.Raw(raw))
    other = OpaqueItem(id="x", protocol="messages", raw=msgspec.Raw(b'{"type":"x"}'))
    events = [ItemAdded(index=0, item=mine), ItemDone(index=0, item=mine), ItemDone(index=1, item=other)]
    seen = judge([*events, COMPLETED])
    assert seen.types == [*START, "output_item.added", "output_item.done", "completed"]
    assert seen.final["output"] == [json.loads(raw)]


def test_phase_of_a_message_is_kept() -> None:
    """A commentary message says that it is one."""
    item = MessageItem(id="msg_1", role="assistant", content=(TextPart(text="Hm"),), phase="commentary")
    seen = judge([ItemDone(index=0, item=item), COMPLETED])
    assert seen.final["output"] == [{**message_item("Hm"), "phase": "commentary"}]


def test_items_without_ids_get_one_that_stays() -> None:
    """An item that nobody named is named once, by its kind, and keeps that name to the end."""
    items: list[AnyItem] = [
        said("Hi", ""),
        ReasoningItem(text=("r",)),
        CallItem(call_id="call_1", name="f", arguments="{}"),
    ]
    seen = judge([*[ItemDone(index=index, item=item) for index, item in enumerate(items)], COMPLETED])
    assert [item["id"] for item in seen.final["output"]] == ["msg_new0001", "rs_new0002", "fc_new0003"]


def test_deltas_of_an_unknown_or_finished_item_change_nothing() -> None:
    """Late or stray deltas are not written: an item that is done stays as it was."""
    stray: list[RunEvent] = [TextDelta(index=7, text="x"), TextDelta(index=0, text="late")]
    seen = judge([*message(0, "Hi"), *stray, ItemDone(index=0, item=said("Again")), COMPLETED])
    assert seen.types == [*START, *TEXT, "completed"]
    assert seen.final["output"] == [message_item("Hi")]
