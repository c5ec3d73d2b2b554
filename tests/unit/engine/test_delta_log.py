import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.core.events import (
    ArgumentsDelta,
    ItemAdded,
    ItemDone,
    Noted,
    Numbered,
    ReasoningDelta,
    RefusalDelta,
    RunEvent,
    TextDelta,
)
from treadle.core.items import AnyItem, CallItem, MessageItem, ReasoningItem, RefusalPart, TextPart
from treadle.core.request import Note
from treadle.engine import delta_log

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)


def items(index: int) -> st.SearchStrategy[AnyItem]:
    """Return items of every kind that comes in pieces."""
    parts = st.lists(st.builds(TextPart, text=TEXT) | st.builds(RefusalPart, text=TEXT), max_size=3).map(tuple)
    texts = st.lists(TEXT, max_size=2).map(tuple)
    return st.one_of(
        st.builds(MessageItem, id=st.just(f"msg_{index}"), role=st.just("assistant"), content=parts),
        st.builds(
            CallItem, id=st.just(f"fc_{index}"), call_id=st.just(f"call_{index}"), name=st.just("f"), arguments=TEXT
        ),
        st.builds(ReasoningItem, id=st.just(f"rs_{index}"), summary=texts, text=texts),
    )


@st.composite
def rounds(draw: st.DrawFn) -> list[RunEvent]:
    """Return the events of a model call: items cut into pieces and interleaved; some never end, some have notes."""
    lanes: list[list[RunEvent]] = []
    for index in range(draw(st.integers(0, 4))):
        item = draw(items(index))
        lane: list[RunEvent] = [ItemAdded(index=index, item=delta_log.empty_item(item))]
        for place, text in delta_log.texts_of_item(item).items():
            while text:
                cut = draw(st.integers(1, len(text)))
                lane.append(delta_log.make_delta(place, index, text[:cut]))
                text = text[cut:]
        if draw(st.integers(0, 4)):
            lane.append(ItemDone(index=index, item=item))
        lanes.append(lane)
    for _ in range(draw(st.integers(0, 2))):
        lanes.append([Noted(note=Note(code="n", action="kept", message="m"))])
    events: list[RunEvent] = []
    while lanes := [lane for lane in lanes if lane]:
        events.append(draw(st.sampled_from(lanes)).pop(0))
    return events


def entries_of(events: list[RunEvent]) -> list[tuple[int, AnyItem | Noted]]:
    """Return what the journal would hold of a call."""
    durable = [event for event in events if isinstance(event, ItemDone | Noted)]
    return [(seq, event.item if isinstance(event, ItemDone) else event) for seq, event in enumerate(durable, 7)]


def numbered(events: list[RunEvent]) -> list[Numbered]:
    """Number events as the journal does."""
    seqs = iter(range(7, 1000))
    return [Numbered(event=event, seq=next(seqs) if isinstance(event, ItemDone | Noted) else 0) for event in events]


def kept(recorded: delta_log.DeltaLog) -> delta_log.DeltaLog:
    """Return a tape as it is read back from the journal."""
    return msgspec.json.decode(msgspec.json.encode(recorded), type=list[list])


@given(rounds())
def test_a_tape_tells_every_event_again_in_its_place_and_its_pieces(events):
    """However items overlap, whether or not they end."""
    assert delta_log.replay_events(kept(delta_log.encode_deltas(events)), entries_of(events)) == numbered(events)


def test_pieces_are_kept_as_lengths_only():
    """A long answer in small pieces costs a few bytes for each of them and none of its text."""
    item = MessageItem(id="msg_1", role="assistant", content=(TextPart(text="abc" * 1000),))
    deltas: list[RunEvent] = [TextDelta(index=0, text="abc") for _ in range(1000)]
    recorded = delta_log.encode_deltas(
        [ItemAdded(index=0, item=delta_log.empty_item(item)), *deltas, ItemDone(index=0, item=item)]
    )
    assert recorded == [["+", 0], ["t", 0, 0, *[3] * 1000], ["=", 0]]


UNDERIVABLE: dict[str, list[RunEvent]] = {
    "logprobs": [TextDelta(index=0, text="ab", logprobs=msgspec.Raw(b"[1]"))],
    "another text": [TextDelta(index=0, text="AB")],
    "more text": [TextDelta(index=0, text="ab"), TextDelta(index=0, text="c")],
    "another kind": [RefusalDelta(index=0, text="ab")],
    "reasoning": [ReasoningDelta(index=0, text="ab")],
    "arguments": [ArgumentsDelta(index=0, text="ab")],
}


@pytest.mark.parametrize("case", UNDERIVABLE)
def test_what_cannot_be_cut_out_of_the_item_is_kept_word_for_word(case):
    """So the events told again are never others than the first ones."""
    item = MessageItem(id="msg_1", role="assistant", content=(TextPart(text="ab"),))
    events = [ItemAdded(index=0, item=delta_log.empty_item(item)), *UNDERIVABLE[case], ItemDone(index=0, item=item)]
    recorded = delta_log.encode_deltas(events)
    assert [token[0] for token in recorded][-1] == "="
    assert all(token[0] == "x" for token in recorded[:-1])
    assert delta_log.replay_events(kept(recorded), entries_of(events)) == numbered(events)


def test_an_item_that_began_with_more_than_its_name_is_kept_word_for_word():
    """Some decoders know a piece of an item when it begins."""
    item = MessageItem(id="msg_1", role="assistant", content=(TextPart(text="ab"),))
    events: list[RunEvent] = [ItemAdded(index=0, item=item), ItemDone(index=0, item=item)]
    assert delta_log.replay_events(kept(delta_log.encode_deltas(events)), entries_of(events)) == numbered(events)


@pytest.mark.parametrize("bad", [[["=", 0], ["=", 1]], [["?"]], [["q", 0, 0, 1]]])
def test_a_tape_that_does_not_fit_is_refused(bad):
    """A damaged journal is an error and not another story."""
    with pytest.raises(ValueError, match="delta log"):
        delta_log.replay_events(bad, [(1, MessageItem(id="m", role="assistant"))])
