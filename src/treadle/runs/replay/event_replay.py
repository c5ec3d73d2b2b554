"""Replays a run's events from its journal: the same events in the same order and deltas as its first readers got.

The deltas of a model call are in the log of its `reply` entry, so its items are held until that entry. Without a log
(in journals of older versions, or of a call that never ended) each text is replayed as one delta.
"""

from collections.abc import Sequence

import msgspec

from treadle.core.errors import StoreError
from treadle.core.events import (
    ItemDone,
    Noted,
    Numbered,
    RoundBroken,
    RoundStarted,
    RunEvent,
    RunRecovered,
    ToolFinished,
    ToolStarted,
    read_event,
)
from treadle.core.items import AnyItem, CallItem, MessageItem, ResultItem
from treadle.core.journal_entries import ITEM_KINDS, Entry, item_of_entry
from treadle.core.request import Note
from treadle.engine import delta_log
from treadle.engine.approval_reasons import (
    DecisionRecord,
    RequestRecord,
    decision_step,
    request_step,
    with_decided_arguments,
)
from treadle.engine.recorded_run import ReplyRecord

UNREADABLE = (msgspec.MsgspecError, ValueError, KeyError, AssertionError)
"""The errors of reading a damaged entry."""


class DamagedJournal(StoreError):
    """A journal cannot be read: it was changed, or the disk failed."""

    code = "journal_damaged"
    status = 500

    def __init__(self, message: str) -> None:
        super().__init__(message, hint="`treadle audit verify` says what was changed.")


class _Plan(msgspec.Struct):
    round: int
    fingerprint: str
    tools: int = 0
    final: bool = False


class _ToolData(msgspec.Struct):
    source: str = ""
    duration_s: float = 0.0
    bytes: int = 0
    truncated: bool = False
    sandbox: str = ""


class _Void(msgspec.Struct):
    round: int = 0
    indexes: tuple[int, ...] = ()


class EventReplay:
    """Turns the entries of one run into its events, entry by entry."""

    def __init__(self) -> None:
        self.event_count = 0
        self._next_index = 0
        self._held: list[tuple[int, AnyItem | Noted]] | None = None
        self._calls: dict[str, tuple[int, CallItem]] = {}
        self._started: set[str] = set()
        self._has_delta_log = False

    def events_of(self, entry: Entry) -> list[Numbered]:
        """Return the events that follow from this entry, with its sequence number where they are stored in it.

        Raises: Damaged.
        """
        if entry.is_input:
            return []
        try:
            events = self._replay(entry)
        except UNREADABLE as error:
            raise DamagedJournal(f"Entry {entry.seq} of the run's journal cannot be read.") from error
        self.event_count += len(events)
        return events

    def _replay(self, entry: Entry) -> list[Numbered]:
        data = entry.data or msgspec.Raw(b"{}")
        match entry.kind:
            case "plan":
                held = self._release()
                self._held = []
                plan = msgspec.json.decode(data, type=_Plan)
                started = RoundStarted(
                    round=plan.round, fingerprint=plan.fingerprint, tools=plan.tools, final=plan.final
                )
                return [*held, Numbered(event=started, seq=entry.seq)]
            case "reply":
                return self._replay_call(msgspec.json.decode(data, type=ReplyRecord).tape)
            case "note":
                noted = Noted(note=msgspec.json.decode(data, type=Note))
                if self._held is None:
                    return [Numbered(event=noted, seq=entry.seq)]
                self._held.append((entry.seq, noted))
                return []
            case "error":
                # The run was ended from outside, perhaps before the model's first event: nothing was recovered.
                return self._release()
            case "tool_early":
                # Its start is replayed where the round runs its calls.
                return []
            case kind if kind in ITEM_KINDS and kind != "tool_result":
                return self._item(entry)
            case _:
                return [*self._release_interrupted(), *self._last_numbered(self._events(entry, data), entry.seq)]

    def _item(self, entry: Entry) -> list[Numbered]:
        """Hold an item until the delta log of its model call; a partial message was replayed by that log already."""
        item = item_of_entry(entry)
        if self._held is not None:
            self._held.append((entry.seq, item))
            return []
        if isinstance(item, MessageItem) and item.is_partial and self._has_delta_log:
            return []
        return self._whole_item(entry.seq, item)

    def _replay_call(self, log: delta_log.DeltaLog) -> list[Numbered]:
        held, self._held = self._held or [], None
        self._has_delta_log = True
        events = delta_log.replay_events(log, held)
        for numbered in events:
            match numbered.event:
                case ItemDone(index=index, item=CallItem() as call):
                    self._calls[call.call_id] = (index, call)
                case _:
                    pass
            self._next_index = max(self._next_index, getattr(numbered.event, "index", -1) + 1)
        return events

    def _release_interrupted(self) -> list[Numbered]:
        """Release the held items of a model call that never ended; the deltas that its clients got are lost."""
        if self._held is None:
            return []
        return [Numbered(event=RunRecovered()), *self._release()]

    def _release(self) -> list[Numbered]:
        """Return the events of the held items of a model call without a delta log."""
        held, self._held = self._held or [], None
        events: list[Numbered] = []
        for seq, item in held:
            events += [Numbered(event=item, seq=seq)] if isinstance(item, Noted) else self._whole_item(seq, item)
        return events

    def _whole_item(self, seq: int, item: AnyItem) -> list[Numbered]:
        index, self._next_index = self._next_index, self._next_index + 1
        if isinstance(item, CallItem):
            self._calls[item.call_id] = (index, item)
        events = delta_log.events_of_item(index, item)
        if not (isinstance(item, MessageItem) and item.is_partial):
            events.append(ItemDone(index=index, item=item))
        return self._last_numbered(events, seq)

    def _events(self, entry: Entry, data: msgspec.Raw) -> list[RunEvent]:
        match entry.kind:
            case "status":
                return [read_event(bytes(data))]
            case "void":
                void = msgspec.json.decode(data, type=_Void)
                return [RoundBroken(round=void.round, indexes=void.indexes)]
            case "approval_request":
                return [self._request(entry, msgspec.json.decode(data, type=RequestRecord))]
            case "approval_decision":
                return [self._decision(entry, msgspec.json.decode(data, type=DecisionRecord))]
            case "tool_start":
                return self._start(entry, msgspec.json.decode(data, type=_ToolData).source)
            case "tool_result":
                return self._result(entry, msgspec.json.decode(data, type=_ToolData))
            case _:
                return []

    def _request(self, entry: Entry, record: RequestRecord) -> RunEvent:
        """Return the event of an approval request."""
        index, call = self._known(entry, record)
        return request_step(index, call, record, entry.at)[0]

    def _decision(self, entry: Entry, record: DecisionRecord) -> RunEvent:
        """Return the event of a decision; from here on the call has the decided arguments."""
        index, call = self._known(entry, record)
        self._calls[call.call_id] = (index, with_decided_arguments(call, record))
        return decision_step(index, call, record, entry.at)[0]

    def _known(self, entry: Entry, record: RequestRecord | DecisionRecord) -> tuple[int, CallItem]:
        """Return the call of an approval; a call carried over from an earlier run is in the record itself."""
        if record.call is not None:
            self._calls[record.call.call_id] = (record.index, record.call)
            self._next_index = max(self._next_index, record.index + 1)
        return self._calls[entry.call_id or ""]

    def _start(self, entry: Entry, source: str) -> list[RunEvent]:
        """Return the start of a call, once, however often it was restarted."""
        index, call = self._calls[entry.call_id or ""]
        if call.call_id in self._started:
            return []
        self._started.add(call.call_id)
        return [ToolStarted(index=index, call=call, source=source)]

    def _result(self, entry: Entry, data: _ToolData) -> list[RunEvent]:
        """Return the events of a result; a call that never ran has no start entry, so its start is added."""
        item = item_of_entry(entry)
        assert isinstance(item, ResultItem)
        index, call = self._calls[item.call_id]
        started: list[RunEvent] = []
        if item.call_id not in self._started:
            started = [ToolStarted(index=index, call=call, source=data.source)]
        finished = ToolFinished(
            index=index,
            call=call,
            result=item,
            source=data.source,
            duration_s=data.duration_s,
            output_bytes=data.bytes,
            truncated=data.truncated,
            sandbox=data.sandbox,
        )
        return [*started, finished]

    def _last_numbered(self, events: Sequence[RunEvent], seq: int) -> list[Numbered]:
        live = [Numbered(event=event) for event in events[:-1]]
        return [*live, *(Numbered(event=event, seq=seq) for event in events[-1:])]


def replay_journal(entries: Sequence[Entry]) -> list[Numbered]:
    """Return all events of a journal."""
    replay = EventReplay()
    return [numbered for entry in entries for numbered in replay.events_of(entry)]
