"""What the journal already knows of a run that is driven again, after a crash or to prove that it was as it was.

The loop takes the same way as the first time: model calls are heard from the record, results are taken from it, and
where the record ends the loop goes on by itself.
"""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

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
    RefusalDelta,
    RunEvent,
    RunRecovered,
    Stop,
    TextDelta,
)
from treadle.core.items import AnyItem, ResultItem
from treadle.core.journal_entries import ITEM_KINDS, Entry, item_of_entry
from treadle.core.request import Note
from treadle.core.tool_definitions import Outcome
from treadle.core.usage import Usage
from treadle.engine import delta_log as tape
from treadle.engine.approval_reasons import DecisionRecord, RequestRecord

Ending = Literal["finished", "failed", "expired", "aborted", "interrupted"]
_ItemEvent = ItemAdded | TextDelta | RefusalDelta | ReasoningDelta | ArgumentsDelta | ItemDone
_EventWithoutItem = Noted | RunRecovered
"""Events of a model call that belong to none of its items."""
_ReplayedEvent = _ItemEvent | _EventWithoutItem
_SavedItem = tuple[int, AnyItem | Noted]


class ReplyRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a model call ended: the data of a `reply` entry. `base` is what its indexes were raised by."""

    ending: Ending
    base: int = 0
    stop: Stop | None = None
    raw_stop: str | None = None
    usage: Usage | None = None
    error: ErrorInfo | None = None
    tape: list[list[Any]] = []


class AbortRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """That a run was ended from outside: the data of an `error` entry. Without an error somebody cancelled it."""

    error: ErrorInfo | None = None


class RecordedResult(msgspec.Struct, frozen=True, kw_only=True):
    """A result as it was journalled, and the outcome it was made from."""

    item: ResultItem
    outcome: Outcome
    seq: int


class RecordedRound(msgspec.Struct, frozen=True, kw_only=True):
    """A model call as far as the journal has it; without a reply it was cut off."""

    limit: str | None
    items: list[_SavedItem]
    reply: ReplyRecord | None = None


class _PlanData(msgspec.Struct):
    limit: str | None = None


class _ResultData(msgspec.Struct):
    rc: str = "ok"
    duration_s: float = 0.0
    bytes: int = 0
    truncated: bool = False
    sandbox: str = ""


class _EndData(msgspec.Struct):
    limit: str | None = None


class RecordedRun:
    """The record of one run, read from its entries. `heard` is what an unfinished last model call was heard to say.

    Raises: MsgspecError, ValueError for a journal that cannot be read.
    """

    def __init__(self, entries: Sequence[Entry], heard: Sequence[RunEvent] = ()) -> None:
        self._received = heard
        self._rounds: list[RecordedRound] = []
        self._starts: dict[str, int] = {}
        self._early: set[str] = set()
        self._results: dict[str, RecordedResult] = {}
        self._requests: dict[str, RequestRecord] = {}
        self._decisions: dict[str, DecisionRecord] = {}
        self._open_requests: set[str] = set()
        self._waiting_since = 0.0
        self._waited_s = 0.0
        self._end_limit: str | None = None
        self.abort: AbortRecord | None = None
        self._abort_seq = 0
        for entry in entries:
            if not entry.is_input:
                self._read(entry)

    def round(self, number: int) -> RecordedRound | None:
        """Return the model call of that number, counted from 0, if the journal knows of it."""
        return self._rounds[number] if number < len(self._rounds) else None

    def starts(self, call_id: str) -> int:
        """Return how often the call was marked as started."""
        return self._starts.get(call_id, 0)

    def is_early(self, call_id: str) -> bool:
        """Tell whether the call was let begin before its turn was complete."""
        return call_id in self._early

    def result(self, call_id: str) -> RecordedResult | None:
        """Return the call's result, if it has one."""
        return self._results.get(call_id)

    def request(self, call_id: str) -> RequestRecord | None:
        """Return what was asked about the call, if anybody was asked."""
        return self._requests.get(call_id)

    def decision(self, call_id: str) -> DecisionRecord | None:
        """Return what was decided about the call."""
        return self._decisions.get(call_id)

    def waited_s(self, now: float) -> float:
        """Return how long the run has waited for people, up to now; that time is not its own."""
        return self._waited_s + (now - self._waiting_since if self._open_requests else 0.0)

    def is_aborted_before(self, call_id: str) -> bool:
        """Tell whether the run was ended from outside before the call had its result."""
        if self.abort is None:
            return False
        known = self._results.get(call_id)
        return known is None or known.seq > self._abort_seq

    def limit_after(self, number: int) -> str | None:
        """Return the limit that was known when the tools of that model call had run."""
        after = self.round(number + 1)
        return self._end_limit if after is None else after.limit

    def model_events(self, number: int, base: int) -> list[ModelEvent]:
        """Return what the model said in that call, and how it ended, as the first time; `base` is where its indexes
        began in the run."""
        known = self._rounds[number]
        reply = known.reply
        if reply is None:
            return [*_relative_to_call(_join_interrupted(known.items, self._received, base), base), Interrupted()]
        told = [numbered.event for numbered in tape.replay_events(reply.tape, known.items)]
        events: list[ModelEvent] = [
            *_relative_to_call([event for event in told if isinstance(event, _ReplayedEvent)], base)
        ]
        if reply.ending == "finished":
            assert reply.stop is not None
            events.append(Finished(stop=reply.stop, usage=reply.usage, raw_stop=reply.raw_stop))
        elif reply.ending == "failed":
            assert reply.error is not None
            events.append(Failed(error=reply.error))
        elif reply.ending == "interrupted":
            events.append(Interrupted())
        return events

    def _read(self, entry: Entry) -> None:
        data = entry.data or msgspec.Raw(b"{}")
        match entry.kind:
            case "plan":
                self._rounds.append(RecordedRound(limit=msgspec.json.decode(data, type=_PlanData).limit, items=[]))
            case "reply":
                reply = msgspec.json.decode(data, type=ReplyRecord)
                self._rounds[-1] = msgspec.structs.replace(self._rounds[-1], reply=reply)
            case "tool_early":
                self._early.add(entry.call_id or "")
            case "tool_start":
                call_id = entry.call_id or ""
                self._starts[call_id] = self._starts.get(call_id, 0) + 1
            case "approval_request":
                self._read_request(entry, msgspec.json.decode(data, type=RequestRecord))
            case "approval_decision":
                self._read_decision(entry, msgspec.json.decode(data, type=DecisionRecord))
            case "tool_result":
                self._read_result(entry, msgspec.json.decode(data, type=_ResultData))
            case "note" if self._is_open:
                self._rounds[-1].items.append((entry.seq, Noted(note=msgspec.json.decode(data, type=Note))))
            case "error":
                self.abort, self._abort_seq = msgspec.json.decode(data, type=AbortRecord), entry.seq
            case "status":
                self._end_limit = msgspec.json.decode(data, type=_EndData).limit
            case kind if kind in ITEM_KINDS and self._is_open:
                self._rounds[-1].items.append((entry.seq, item_of_entry(entry)))
            case _:
                pass

    @property
    def _is_open(self) -> bool:
        return bool(self._rounds) and self._rounds[-1].reply is None

    def _read_request(self, entry: Entry, record: RequestRecord) -> None:
        """Note a question; the time of those open together counts once, and nobody waits for a deferred one."""
        self._requests[entry.call_id or ""] = record
        if record.is_deferred:
            return
        if not self._open_requests:
            self._waiting_since = entry.at
        self._open_requests.add(entry.call_id or "")

    def _read_decision(self, entry: Entry, record: DecisionRecord) -> None:
        self._decisions[entry.call_id or ""] = record
        was_open = bool(self._open_requests)
        self._open_requests.discard(entry.call_id or "")
        if was_open and not self._open_requests:
            self._waited_s += entry.at - self._waiting_since

    def _read_result(self, entry: Entry, data: _ResultData) -> None:
        item = item_of_entry(entry)
        assert isinstance(item, ResultItem)
        outcome = Outcome(
            text="",
            parts=item.output,
            rc=data.rc,
            summary=item.summary,
            output_bytes=data.bytes,
            truncated=data.truncated,
            duration_s=data.duration_s,
            sandbox=data.sandbox,
        )
        self._results[item.call_id] = RecordedResult(item=item, outcome=outcome, seq=entry.seq)


def _join_interrupted(said: Sequence[_SavedItem], heard: Sequence[RunEvent], base: int) -> list[_ReplayedEvent]:
    """Join what was heard of a cut call with what is journalled of it: whatever is durable is told to its end.

    Between the two stands the mark of the recovery: clients of the process that died may have got more than was heard.
    """
    events: list[_ReplayedEvent] = [event for event in heard if isinstance(event, _ReplayedEvent)]
    events.append(RunRecovered())
    ended = {event.item.id for event in events if isinstance(event, ItemDone)}
    begun = {event.item.id: event.index for event in events if isinstance(event, ItemAdded)}
    notes = sum(isinstance(event, Noted) for event in events)
    fresh = max((event.index + 1 for event in events if not isinstance(event, _EventWithoutItem)), default=base)
    for _, thing in said:
        if isinstance(thing, Noted):
            notes -= 1
            if notes < 0:
                events.append(thing)
        elif thing.id not in ended:
            index = begun.get(thing.id, fresh)
            fresh = max(fresh, index + 1)
            events.extend(_remaining_events(index, thing, events))
            events.append(ItemDone(index=index, item=thing))
    return events


def _remaining_events(index: int, item: AnyItem, events: Sequence[_ReplayedEvent]) -> list[_ReplayedEvent]:
    """Return what an item still has to say after these events."""
    said: dict[tuple[str, int], int] = {}
    has_begun = False
    for event in events:
        if isinstance(event, ItemAdded) and event.index == index:
            has_begun = True
        elif isinstance(event, tape.Delta) and event.index == index:
            lane = tape.text_key(event)
            said[lane] = said.get(lane, 0) + len(event.text)
    rest = [tape.make_delta(lane, index, text[said.get(lane, 0) :]) for lane, text in tape.texts_of_item(item).items()]
    begin: list[_ReplayedEvent] = [] if has_begun else [ItemAdded(index=index, item=tape.empty_item(item))]
    return [*begin, *(event for event in rest if event.text)]


def _relative_to_call(events: Sequence[_ReplayedEvent], base: int) -> list[_ReplayedEvent]:
    """Return a call's events with the indexes that its decoder gave them."""
    return [
        event if isinstance(event, _EventWithoutItem) else msgspec.structs.replace(event, index=event.index - base)
        for event in events
    ]
