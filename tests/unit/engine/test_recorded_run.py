"""What a journal knows of a run: its model calls, marks, results, questions, and how it was ended from outside."""

import msgspec
import pytest

from treadle.core.errors import ErrorInfo
from treadle.core.events import (
    ArgumentsDelta,
    Failed,
    Finished,
    Interrupted,
    ItemAdded,
    ItemDone,
    ModelEvent,
    Noted,
    ReasoningDelta,
    RunRecovered,
    TextDelta,
)
from treadle.core.items import AnyItem, CallItem, MessageItem, ReasoningItem, ResultItem, TextPart, text_message
from treadle.core.journal_entries import Entry, EntryKind, entry_of_item
from treadle.core.request import Note
from treadle.engine.approval_reasons import DecisionRecord, RequestRecord
from treadle.engine.recorded_run import AbortRecord, RecordedRun, ReplyRecord

CALL = CallItem(id="fc_1", call_id="call_1", name="look", arguments='{"a":1}')
THOUGHT = ReasoningItem(id="rs_1", text=("hm",))
SAID = text_message("assistant", "Hello there", "msg_1")
NOTE = Note(code="c", action="kept", message="m")


def entry(kind: EntryKind, data: object = None, *, seq: int = 0, at: float = 0.0, call_id: str | None = None) -> Entry:
    """Return a line of bookkeeping."""
    raw = None if data is None else msgspec.Raw(msgspec.json.encode(data))
    return Entry(kind=kind, at=at, seq=seq, data=raw, call_id=call_id)


def item(what: AnyItem, *, seq: int = 0, is_input: bool = False, **extra: object) -> Entry:
    """Return the line of an item."""
    return msgspec.structs.replace(entry_of_item(what, at=0, is_input=is_input, extra=extra or None), seq=seq)


def cut(*said: AnyItem | Note, heard: tuple[ModelEvent, ...] = (), base: int = 0) -> list[ModelEvent]:
    """Return what is heard again of a model call that was cut off."""
    lines = [entry("note", each) if isinstance(each, Note) else item(each) for each in said]
    return RecordedRun([entry("plan"), *lines], heard).model_events(0, base)


def empty(whole: AnyItem) -> AnyItem:
    """Return an item as it begins."""
    if isinstance(whole, MessageItem):
        return msgspec.structs.replace(whole, content=())
    return msgspec.structs.replace(whole, arguments="") if isinstance(whole, CallItem) else ReasoningItem(id=whole.id)


def test_a_call_that_was_cut_is_told_to_the_end_of_what_is_durable() -> None:
    """Nothing of it was heard: items begin, say all they have, and end."""
    assert cut(THOUGHT, SAID, CALL) == [
        RunRecovered(),
        ItemAdded(index=0, item=empty(THOUGHT)),
        ReasoningDelta(index=0, text="hm"),
        ItemDone(index=0, item=THOUGHT),
        ItemAdded(index=1, item=empty(SAID)),
        TextDelta(index=1, text="Hello there"),
        ItemDone(index=1, item=SAID),
        ItemAdded(index=2, item=empty(CALL)),
        ArgumentsDelta(index=2, text='{"a":1}'),
        ItemDone(index=2, item=CALL),
        Interrupted(),
    ]


def test_what_was_heard_of_it_is_not_said_twice() -> None:
    """An item that had begun says only the rest; one that had said all only ends; one that had ended stays."""
    heard = (
        ItemAdded(index=4, item=empty(THOUGHT)),
        ReasoningDelta(index=4, text="hm"),
        ItemDone(index=4, item=THOUGHT),
        ItemAdded(index=5, item=empty(SAID)),
        TextDelta(index=5, text="Hello"),
        ItemAdded(index=6, item=empty(CALL)),
        ArgumentsDelta(index=6, text='{"a":1}'),
    )
    told = cut(THOUGHT, SAID, CALL, heard=heard, base=4)
    assert told == [
        *(msgspec.structs.replace(event, index=event.index - 4) for event in heard),
        RunRecovered(),
        TextDelta(index=1, text=" there"),
        ItemDone(index=1, item=SAID),
        ItemDone(index=2, item=CALL),
        Interrupted(),
    ]


def test_what_was_heard_and_is_not_durable_is_told_all_the_same() -> None:
    """And what nobody heard comes behind it, under a number of its own."""
    heard = (ItemAdded(index=0, item=empty(SAID)), TextDelta(index=0, text="Hel"))
    assert cut(CALL, heard=heard) == [
        *heard,
        RunRecovered(),
        ItemAdded(index=1, item=empty(CALL)),
        ArgumentsDelta(index=1, text='{"a":1}'),
        ItemDone(index=1, item=CALL),
        Interrupted(),
    ]


def test_an_item_that_says_nothing_has_no_pieces() -> None:
    """It begins and ends."""
    silent = MessageItem(id="msg_2", role="assistant", content=(TextPart(text=""),))
    assert [type(event) for event in cut(silent)] == [RunRecovered, ItemAdded, ItemDone, Interrupted]


@pytest.mark.parametrize(("heard", "told"), [(0, 2), (1, 2), (2, 2), (3, 3)])
def test_a_note_is_told_once(heard: int, told: int) -> None:
    """Those that were heard are not told again from the journal."""
    events = cut(NOTE, NOTE, heard=(Noted(note=NOTE),) * heard)
    late = [Noted(note=NOTE)] * (told - heard)
    assert events == [*[Noted(note=NOTE)] * heard, RunRecovered(), *late, Interrupted()]


def test_a_call_that_ended_ends_again_as_it_did() -> None:
    """Well, badly, or not at all."""
    error = ErrorInfo(code="upstream_error", message="no", status=502)
    endings = {
        "finished": [Finished(stop="done", raw_stop="stop")],
        "failed": [Failed(error=error)],
        "interrupted": [Interrupted()],
        "expired": [],
        "aborted": [],
    }
    for ending, events in endings.items():
        reply = ReplyRecord(ending=ending, stop="done", raw_stop="stop", error=error)  # type: ignore[arg-type]
        assert RecordedRun([entry("plan"), entry("reply", reply)]).model_events(0, 0) == events


def test_model_calls_are_counted_and_know_their_limits() -> None:
    """The limit of the next one, or of the end, was known when the tools of a model call had run."""
    past = RecordedRun(
        [
            entry("plan"),
            entry("reply", ReplyRecord(ending="finished", stop="calls")),
            item(SAID),
            entry("plan", {"limit": "max_iterations"}),
            entry("status", {"limit": "wall_time"}),
        ]
    )
    first, second = past.round(0), past.round(1)
    assert first is not None
    assert second is not None
    assert (first.limit, first.items, second.limit, second.reply) == (None, [], "max_iterations", None)
    assert past.round(2) is None
    assert (past.limit_after(0), past.limit_after(1)) == ("max_iterations", "wall_time")


def test_what_came_in_with_the_request_is_not_of_the_run() -> None:
    """Input is no answer of a model, and a result in it is not one of this run's tools."""
    result = ResultItem(id="fco_1", call_id="call_1")
    past = RecordedRun([entry("plan"), item(SAID, is_input=True), item(result, is_input=True)])
    known = past.round(0)
    assert known is not None
    assert (known.items, past.result("call_1")) == ([], None)


def test_marks_are_kept_by_call() -> None:
    """How often it started, and whether it was let begin early."""
    lines = [entry("tool_start", call_id="a"), entry("tool_start", call_id="a"), entry("tool_early", call_id="b")]
    past = RecordedRun([entry("plan"), *lines])
    assert [past.starts(call_id) for call_id in "abc"] == [2, 0, 0]
    assert [past.is_early(call_id) for call_id in "abc"] == [False, True, False]


def test_a_result_is_taken_with_what_was_counted_of_it() -> None:
    """So that the event of its end is the same again."""
    result = ResultItem(id="fco_1", call_id="call_1", output=(TextPart(text="4"),), summary="four", rc="ok")
    line = item(result, seq=9, rc="7", duration_s=1.5, bytes=12, truncated=True, sandbox="L2")
    known = RecordedRun([entry("plan"), line]).result("call_1")
    assert known is not None
    outcome = known.outcome
    assert (known.item, known.seq, outcome.parts, outcome.summary) == (result, 9, result.output, "four")
    assert (outcome.rc, outcome.duration_s, outcome.output_bytes) == ("7", 1.5, 12)
    assert (outcome.truncated, outcome.sandbox) == (True, "L2")


def test_a_run_that_was_ended_from_outside_knows_what_was_done_before() -> None:
    """A result that was there stays; one that came later, or never, does not count."""
    before, after = (ResultItem(id=f"fco_{n}", call_id=f"call_{n}") for n in (1, 3))
    ended = entry("error", AbortRecord(), seq=2)
    lines = [entry("plan"), item(before, seq=1), ended, item(after, seq=3)]
    past = RecordedRun(lines)
    assert past.abort == AbortRecord()
    assert [past.is_aborted_before(f"call_{n}") for n in (1, 2, 3)] == [False, True, True]
    assert not RecordedRun(lines[:2]).is_aborted_before("call_2")


def test_the_time_that_people_take_is_counted_once() -> None:
    """Of questions that are open together, from the first that was asked to the last that was answered."""
    asked, said = RequestRecord(approval_id="apr"), DecisionRecord(approval_id="apr", status="approved")
    lines = [
        entry("approval_request", asked, at=10, call_id="a"),
        entry("approval_request", asked, at=12, call_id="b"),
        entry("approval_decision", said, at=15, call_id="a"),
        entry("approval_decision", said, at=20, call_id="b"),
        entry("approval_decision", said, at=25, call_id="c"),
        entry("approval_request", asked, at=30, call_id="d"),
    ]
    assert [RecordedRun(lines[:count]).waited_s(40) for count in (0, 1, 2, 3, 4, 5, 6)] == [0, 30, 30, 30, 10, 10, 20]
    past = RecordedRun(lines)
    assert (past.request("d"), past.decision("d"), past.decision("c")) == (asked, None, said)


def test_nobody_waits_for_a_question_that_was_deferred() -> None:
    """The run ends with it."""
    past = RecordedRun(
        [entry("approval_request", RequestRecord(approval_id="apr", is_deferred=True), at=10, call_id="a")]
    )
    assert past.waited_s(40) == 0
    assert past.request("a") is not None
