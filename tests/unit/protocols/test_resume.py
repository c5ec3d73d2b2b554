"""What a client is told after a crash: what it has seen already stays the beginning, or the stream ends in an error."""

import itertools
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from treadle.core.events import (
    ArgumentsDelta,
    ItemAdded,
    ItemDone,
    ReasoningDelta,
    RefusalDelta,
    RoundBroken,
    RoundStarted,
    RunEnded,
    RunEvent,
    RunStarted,
    TextDelta,
    ToolFinished,
    ToolStarted,
)
from treadle.core.ids import CountingIds
from treadle.core.items import (
    AnyItem,
    CallItem,
    MessageItem,
    OpaqueItem,
    ReasoningItem,
    RefusalPart,
    ResultItem,
    TextPart,
)
from treadle.core.request import Request, Surface
from treadle.protocols.protocol_registry import PROTOCOLS
from treadle.protocols.stream_deduplication import DIVERGED, ReplayDiff

STARTED = RunStarted(run_id="run_1", response_id="resp_1", model="m", created_at=1.0)
ROUND = RoundStarted(round=1, fingerprint="f")
NEXT = RoundStarted(round=2, fingerprint="g")
BROKEN = RoundBroken(round=1)
COMPLETED = RunEnded(status="completed")
Answer = list[AnyItem]


def _said(text: str) -> MessageItem:
    return MessageItem(role="assistant", content=(TextPart(text=text),))


def _declined(text: str) -> MessageItem:
    return MessageItem(role="assistant", content=(RefusalPart(text=text),))


def _thought(text: str) -> ReasoningItem:
    return ReasoningItem(text=(text,))


def _asked(arguments: str, call_id: str = "call_1", **more: Any) -> CallItem:
    return CallItem(call_id=call_id, name="look", arguments=arguments, **more)


def _pieces(text: str, size: int) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


def _begun(index: int, item: AnyItem, size: int) -> list[RunEvent]:
    """Return how an item is told, in pieces of that size, without its end."""
    match item:
        case MessageItem(content=(TextPart() as part,)):
            deltas = [TextDelta(index=index, text=piece) for piece in _pieces(part.text, size)]
            return [ItemAdded(index=index, item=MessageItem(role="assistant")), *deltas]
        case MessageItem(content=(RefusalPart() as part,)):
            refusals = [RefusalDelta(index=index, text=piece) for piece in _pieces(part.text, size)]
            return [ItemAdded(index=index, item=MessageItem(role="assistant")), *refusals]
        case ReasoningItem():
            thoughts = [ReasoningDelta(index=index, text=piece) for piece in _pieces(item.text[0], size)]
            return [ItemAdded(index=index, item=ReasoningItem()), *thoughts]
        case CallItem():
            empty = CallItem(call_id=item.call_id, name=item.name, side=item.side)
            arguments = [ArgumentsDelta(index=index, text=piece) for piece in _pieces(item.arguments, size)]
            return [ItemAdded(index=index, item=empty), *arguments]
        case _:
            return [ItemAdded(index=index, item=item)]


def _whole(index: int, item: AnyItem, size: int = 100) -> list[RunEvent]:
    return [*_begun(index, item, size), ItemDone(index=index, item=item)]


def _told(*events: RunEvent) -> list[RunEvent]:
    mend = ReplayDiff()
    return [each for event in events for each in mend.feed(event)]


def _texts(events: list[RunEvent]) -> dict[tuple[str, int], str]:
    """Return what was streamed of each item, by kind and index."""
    seen: dict[tuple[str, int], str] = {}
    for event in events:
        if isinstance(event, TextDelta | RefusalDelta | ReasoningDelta | ArgumentsDelta):
            key = (type(event).__name__, event.index)
            seen[key] = seen.get(key, "") + event.text
    return seen


def _ended(events: list[RunEvent]) -> RunEnded:
    last = events[-1]
    assert isinstance(last, RunEnded)
    return last


def test_without_a_break_everything_passes() -> None:
    """Most runs never break."""
    events: list[RunEvent] = [STARTED, ROUND, *_whole(0, _said("Hello")), NEXT, *_whole(1, _asked("{}")), COMPLETED]
    assert _told(*events) == events


def test_a_break_before_anything_was_told_passes_everything() -> None:
    """There is nothing to compare with."""
    events: list[RunEvent] = [STARTED, ROUND, BROKEN, ROUND, *_whole(0, _said("Hello")), COMPLETED]
    assert _told(*events) == events


def test_the_same_answer_goes_on_where_the_old_one_stopped() -> None:
    """The beginning is not told twice, and the item keeps the place that the client knows."""
    before: list[RunEvent] = [STARTED, ROUND, *_begun(3, _said("Hello wo"), 4), BROKEN]
    after = _told(*before, ROUND, *_whole(7, _said("Hello world."), 3), COMPLETED)[len(before) :]
    assert after == [
        ROUND,
        TextDelta(index=3, text="r"),
        TextDelta(index=3, text="ld."),
        ItemDone(index=3, item=_said("Hello world.")),
        COMPLETED,
    ]


def test_another_answer_ends_in_an_error_that_says_where_to_look() -> None:
    """Text cannot be taken back, so the client is told where the whole answer is."""
    events = _told(
        STARTED, ROUND, *_begun(0, _said("Hello wo"), 4), BROKEN, ROUND, *_whole(1, _said("Hi there"), 3), COMPLETED
    )
    last = _ended(events)
    assert last.error is not None
    assert (last.status, last.error.code, last.error.hint) == (
        "failed",
        DIVERGED,
        "the whole answer is at GET /treadle/v1/runs/run_1/events",
    )
    assert _texts(events) == {("TextDelta", 0): "Hello wo"}
    assert COMPLETED not in events


def test_a_shorter_answer_differs() -> None:
    """The client has seen text that does not exist any more."""
    assert _ended(_told(STARTED, ROUND, *_begun(0, _said("Hello"), 9), BROKEN, ROUND, *_whole(1, _said("Hell")))).error
    assert _ended(_told(STARTED, ROUND, *_begun(0, _said("Hello"), 9), BROKEN, ROUND, COMPLETED)).error


def test_another_kind_of_item_differs() -> None:
    """An answer that begins with a call is not the text that was begun."""
    broken: list[RunEvent] = [STARTED, ROUND, *_begun(0, _said("Hello"), 9), BROKEN, ROUND]
    assert _ended(_told(*broken, *_whole(1, _asked("{}")))).error
    assert _ended(_told(*broken, *_whole(1, _thought("Hello")))).error


def test_an_item_that_had_ended_must_be_the_same() -> None:
    """Its end was told: the same one is left out, a longer one differs."""
    broken: list[RunEvent] = [STARTED, ROUND, *_whole(0, _thought("Hm.")), *_begun(1, _said("He"), 9), BROKEN, ROUND]
    same = _told(*broken, *_whole(4, _thought("Hm."), 1), *_whole(5, _said("Hello"), 1), COMPLETED)
    assert _texts(same) == {("ReasoningDelta", 0): "Hm.", ("TextDelta", 1): "Hello"}
    assert _ended(same) == COMPLETED
    assert _ended(_told(*broken, *_whole(4, _thought("Hm. So"), 1))).error


def test_a_call_keeps_the_id_that_the_client_knows() -> None:
    """The model makes a new id each time; the client has the first one."""
    broken: list[RunEvent] = [STARTED, ROUND, *_begun(0, _asked('{"a":'), 9), BROKEN, ROUND]
    events = _told(*broken, *_whole(1, _asked('{"a":1}', "call_2"), 2), COMPLETED)
    assert events[-2] == ItemDone(index=0, item=_asked('{"a":1}', "call_1"))
    assert _texts(events) == {("ArgumentsDelta", 0): '{"a":1}'}
    assert _ended(_told(*broken, *_whole(1, _asked('{"b":1}', "call_2")))).error


def test_calls_that_treadle_runs_are_not_compared() -> None:
    """Nobody has seen them before they run."""
    hidden = _asked('{"a":1}', side="server")
    other = _asked('{"b":2}', "call_2", side="server")
    result = ResultItem(call_id="call_1")
    events = _told(
        STARTED,
        ROUND,
        *_whole(0, hidden),
        ToolStarted(index=0, call=hidden),
        ToolFinished(index=0, call=hidden, result=result),
        BROKEN,
        ROUND,
        *_whole(1, other),
        ToolStarted(index=1, call=other),
        COMPLETED,
    )
    assert _ended(events) == COMPLETED
    assert _texts(events)["ArgumentsDelta", 1] == '{"b":2}'


def test_unread_items_must_be_the_same() -> None:
    """What only its protocol can read is compared byte for byte."""
    opaque = OpaqueItem(protocol="messages", raw=msgspec.Raw(b"{}"))
    broken: list[RunEvent] = [STARTED, ROUND, *_whole(0, opaque), BROKEN, ROUND]
    assert _ended(_told(*broken, *_whole(1, opaque), COMPLETED)) == COMPLETED
    assert _ended(_told(*broken, *_whole(1, OpaqueItem(protocol="messages", raw=msgspec.Raw(b"[]"))))).error


def test_a_second_break_knows_what_both_told() -> None:
    """The client's view is still one beginning."""
    events = _told(
        STARTED,
        ROUND,
        *_begun(0, _said("Hel"), 9),
        BROKEN,
        ROUND,
        *_begun(1, _said("Hello wo"), 9),
        BROKEN,
        ROUND,
        *_whole(2, _said("Hello world"), 2),
        COMPLETED,
    )
    assert _texts(events) == {("TextDelta", 0): "Hello world"}
    assert _ended(events) == COMPLETED


def test_a_failure_after_a_break_is_told_as_it_is() -> None:
    """A run that fails or is cancelled did not answer differently."""
    broken: list[RunEvent] = [STARTED, ROUND, *_begun(0, _said("Hello"), 9), BROKEN, ROUND]
    for status in ("failed", "cancelled"):
        end = RunEnded(status=status)
        assert _told(*broken, end)[-1] == end


def test_later_rounds_are_told_as_ever() -> None:
    """The comparison ends with the round that was broken."""
    broken: list[RunEvent] = [STARTED, ROUND, *_begun(0, _said("A"), 9), BROKEN, ROUND, *_whole(1, _said("AB"))]
    rest: list[RunEvent] = [NEXT, *_whole(2, _said("A")), COMPLETED]
    assert _told(*broken, *rest)[-len(rest) :] == rest


def _closed(*events: RunEvent) -> list[RunEvent]:
    mend = ReplayDiff(closes=True)
    return [each for event in events for each in mend.feed(event)]


def test_a_protocol_that_closes_items_is_told_no_break_if_the_answer_is_the_same() -> None:
    """Its item goes on."""
    before: list[RunEvent] = [STARTED, ROUND, *_begun(0, _said("Hel"), 9)]
    events = _closed(*before, BROKEN, ROUND, *_whole(1, _said("Hello")), COMPLETED)
    assert events == [
        *before,
        ROUND,
        TextDelta(index=0, text="lo"),
        ItemDone(index=0, item=_said("Hello")),
        COMPLETED,
    ]


def test_a_protocol_that_closes_items_is_told_the_break_where_the_answers_differ() -> None:
    """Then all of the new answer, but what was whole and the same."""
    before: list[RunEvent] = [STARTED, ROUND, *_whole(0, _thought("Hm.")), *_begun(1, _said("Hel"), 9)]
    other = _whole(3, _said("Hey you"), 2)
    events = _closed(*before, BROKEN, ROUND, *_whole(2, _thought("Hm.")), *other, COMPLETED)
    assert events == [*before, ROUND, BROKEN, *other, COMPLETED]


def test_a_protocol_that_closes_items_is_told_the_break_where_an_answer_is_shorter() -> None:
    """Nothing of the new answer is left to be told but its end."""
    before: list[RunEvent] = [STARTED, ROUND, *_whole(0, _said("A")), *_begun(1, _asked("{"), 9)]
    events = _closed(*before, BROKEN, ROUND, *_whole(2, _said("A")), COMPLETED)
    assert events == [*before, ROUND, BROKEN, COMPLETED]


def test_a_protocol_that_closes_items_may_break_twice() -> None:
    """What the other answer began is compared with the third."""
    before: list[RunEvent] = [STARTED, ROUND, *_begun(0, _said("Hel"), 9), BROKEN, ROUND, *_begun(1, _said("Hi"), 9)]
    events = _closed(*before, BROKEN, ROUND, *_whole(2, _said("Hi!"), 9), COMPLETED)
    assert events == [
        *before[:4],
        ROUND,
        BROKEN,
        *_begun(1, _said("Hi"), 9),
        ROUND,
        TextDelta(index=1, text="!"),
        ItemDone(index=1, item=_said("Hi!")),
        COMPLETED,
    ]


ITEMS = st.one_of(
    st.text("ab", max_size=6).map(_said),
    st.text("ab", min_size=1, max_size=6).map(_declined),
    st.text("ab", max_size=6).map(_thought),
    st.text("ab", max_size=6).map(_asked),
)


@given(st.lists(ITEMS, min_size=1, max_size=3), st.data())
def test_the_clients_view_does_not_depend_on_the_chunks(answer: Answer, data: st.DataObject) -> None:
    """However both answers are cut, and wherever the first one broke, the client reads the answer once."""
    cut = data.draw(st.integers(0, sum(len(_whole(0, item, 1)) for item in answer)))
    sizes = data.draw(st.tuples(st.integers(1, 7), st.integers(1, 7)))
    first = itertools.chain.from_iterable(_whole(n, item, sizes[0]) for n, item in enumerate(answer))
    second = itertools.chain.from_iterable(_whole(n + 10, item, sizes[1]) for n, item in enumerate(answer))
    broken: list[RunEvent] = [STARTED, ROUND, *itertools.islice(first, cut), BROKEN, ROUND, *second, COMPLETED]
    plain: list[RunEvent] = [STARTED, ROUND, *(e for n, item in enumerate(answer) for e in _whole(n, item)), COMPLETED]
    for protocol in ("chat", "messages", "gemini"):
        bodies: list[bytes] = []
        for events in (_told(*broken), plain):
            encoder = PROTOCOLS[protocol].codec.encoder(
                Request(protocol=protocol, model="m", surface=Surface()), CountingIds()
            )
            for event in events:
                encoder.feed(event)
            bodies.append(encoder.body())
        assert bodies[0] == bodies[1]


@given(st.lists(ITEMS, min_size=1, max_size=2), st.lists(ITEMS, min_size=1, max_size=2), st.integers(0, 20))
def test_two_answers_end_well_only_if_one_begins_the_other(old: Answer, new: Answer, cut: int) -> None:
    """Otherwise the last event is the error, and nothing comes after it."""
    first = itertools.chain.from_iterable(_whole(n, item, 1) for n, item in enumerate(old))
    second = itertools.chain.from_iterable(_whole(n + 10, item, 2) for n, item in enumerate(new))
    start = list(itertools.islice(first, cut))
    events = _told(STARTED, ROUND, *start, BROKEN, ROUND, *second, COMPLETED)
    ends = [event for event in events if isinstance(event, RunEnded)]
    assert ends == events[-1:]
    if ends == [COMPLETED]:
        expected = {
            kind: text
            for n, item in enumerate(new)
            for (kind, _), text in _texts(_whole(n, item)).items()
            if len(new) == 1
        }
        assert len(new) > 1 or {kind: text for (kind, _), text in _texts(events).items()} == expected
