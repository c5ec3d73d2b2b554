"""Reads a run's journal entries for the loop that recovers or replays it.

The loop runs the same code as the first time, with model calls and results taken from here. After the last journalled
step it continues live.
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
from treadle.engine import delta_log
from treadle.engine.approval_reasons import DecisionRecord, RequestRecord

Ending = Literal["finished", "failed", "expired", "aborted", "interrupted"]
_ItemEvent = ItemAdded | TextDelta | RefusalDelta | ReasoningDelta | ArgumentsDelta | ItemDone
_EventWithoutItem = Noted | RunRecovered
"""Events of a model call that belong to none of its items."""
_ReplayedEvent = _ItemEvent | _EventWithoutItem
_SavedItem = tuple[int, AnyItem | Noted]


class ReplyRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a model call ended: the data of a `reply` entry. `base` is the offset added to its indexes."""

    ending: Ending
    base: int = 0
    stop: Stop | None = None
    raw_stop: str | None = None
    usage: Usage | None = None
    error: ErrorInfo | None = None
    tape: list[list[Any]] = []


class AbortRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run was ended from outside: the data of an `error` entry. Without an error it was cancelled."""

    error: ErrorInfo | None = None


class RecordedResult(msgspec.Struct, frozen=True, kw_only=True):
    """A journalled result, and the outcome it was made from."""

    item: ResultItem
    outcome: Outcome
    seq: int


class RecordedRound(msgspec.Struct, frozen=True, kw_only=True):
    """What the journal has of a model call; without a reply it was interrupted."""

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
    """The journalled steps of one run. `received` are the events of an unfinished last model call that were published.

    Raises: MsgspecError, ValueError for a journal that cannot be read.
    """

    def __init__(self, entries: Sequence[Entry], received: Sequence[RunEvent] = ()) -> None:
        self._received = received
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
        """Return the model call of that number, counted from 0, if it is journalled."""
        return self._rounds[number] if number < len(self._rounds) else None

    def starts(self, call_id: str) -> int:
        """Return how often the call was marked as started."""
        return self._starts.get(call_id, 0)

    def is_early(self, call_id: str) -> bool:
        """Return whether the call was started before its model call had ended."""
        return call_id in self._early

    def result(self, call_id: str) -> RecordedResult | None:
        """Return the call's result, if it has one."""
        return self._results.get(call_id)

    def request(self, call_id: str) -> RequestRecord | None:
        """Return the approval request for the call, if there was one."""
        return self._requests.get(call_id)

    def decision(self, call_id: str) -> DecisionRecord | None:
        """Return what was decided about the call."""
        return self._decisions.get(call_id)

    def waited_s(self, now: float) -> float:
        """Return how long the run has waited for approvals until now; its time limit does not count this."""
        return self._waited_s + (now - self._waiting_since if self._open_requests else 0.0)

    def is_aborted_before(self, call_id: str) -> bool:
        """Return whether the run was ended from outside before the call had its result."""
        if self.abort is None:
            return False
        known = self._results.get(call_id)
        return known is None or known.seq > self._abort_seq

    def limit_after(self, number: int) -> str | None:
        """Return the limit that was reached when the tools of that model call had run."""
        after = self.round(number + 1)
        return self._end_limit if after is None else after.limit

    def model_events(self, number: int, base: int) -> list[ModelEvent]:
        """Return the events of that model call, as the provider sent them; `base` is the offset of its indexes in the
        run."""
        known = self._rounds[number]
        reply = known.reply
        if reply is None:
            return [*_relative_to_call(_join_interrupted(known.items, self._received, base), base), Interrupted()]
        events_of_run = [numbered.event for numbered in delta_log.replay_events(reply.tape, known.items)]
        events: list[ModelEvent] = [
            *_relative_to_call([event for event in events_of_run if isinstance(event, _ReplayedEvent)], base)
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
        """Record a request; overlapping waits count once, and a run does not wait for a deferred one."""
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


def _join_interrupted(saved: Sequence[_SavedItem], received: Sequence[RunEvent], base: int) -> list[_ReplayedEvent]:
    """Join the published events of an interrupted call with its journalled items: those are completed.

    `RunRecovered` separates the two: clients of the process that died may have received more than `received`.
    """
    events: list[_ReplayedEvent] = [event for event in received if isinstance(event, _ReplayedEvent)]
    events.append(RunRecovered())
    ended = {event.item.id for event in events if isinstance(event, ItemDone)}
    started = {event.item.id: event.index for event in events if isinstance(event, ItemAdded)}
    notes = sum(isinstance(event, Noted) for event in events)
    next_index = max((event.index + 1 for event in events if not isinstance(event, _EventWithoutItem)), default=base)
    for _, item in saved:
        if isinstance(item, Noted):
            notes -= 1
            if notes < 0:
                events.append(item)
        elif item.id not in ended:
            index = started.get(item.id, next_index)
            next_index = max(next_index, index + 1)
            events.extend(_remaining_events(index, item, events))
            events.append(ItemDone(index=index, item=item))
    return events


def _remaining_events(index: int, item: AnyItem, events: Sequence[_ReplayedEvent]) -> list[_ReplayedEvent]:
    """Return the events of an item that these do not have yet, without its end."""
    sent: dict[tuple[str, int], int] = {}
    has_started = False
    for event in events:
        if isinstance(event, ItemAdded) and event.index == index:
            has_started = True
        elif isinstance(event, delta_log.Delta) and event.index == index:
            key = delta_log.text_key(event)
            sent[key] = sent.get(key, 0) + len(event.text)
    rest = [
        delta_log.make_delta(key, index, text[sent.get(key, 0) :])
        for key, text in delta_log.texts_of_item(item).items()
    ]
    start: list[_ReplayedEvent] = [] if has_started else [ItemAdded(index=index, item=delta_log.empty_item(item))]
    return [*start, *(event for event in rest if event.text)]


def _relative_to_call(events: Sequence[_ReplayedEvent], base: int) -> list[_ReplayedEvent]:
    """Return the events with the indexes that their decoder gave them."""
    return [
        event if isinstance(event, _EventWithoutItem) else msgspec.structs.replace(event, index=event.index - base)
        for event in events
    ]
