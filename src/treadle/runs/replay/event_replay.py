"""A run told again from its journal: the same events in the same order and the same pieces as its first readers saw.

The pieces of a model call are on the tape of its `reply` entry, so its items wait until that has come. A journal
without tapes (of an older Treadle, or of a call that was never closed) is told with each text in one piece.
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
from treadle.engine import delta_log as tape
from treadle.engine.approval_reasons import (
    DecisionRecord,
    RequestRecord,
    decision_step,
    request_step,
    with_decided_arguments,
)
from treadle.engine.recorded_run import ReplyRecord

UNREADABLE = (msgspec.MsgspecError, ValueError, KeyError, AssertionError)
"""What reading an entry meets that nobody wrote so."""


class DamagedJournal(StoreError):
    """A journal holds what cannot be read: somebody changed it, or a disk did."""

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
        """Return the events that this entry lets be told, numbered by it where it is theirs.

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
                # The run was ended from outside, perhaps before the model's first word: nothing was recovered.
                return self._release()
            case "tool_early":
                # Its start is told where the turn runs its calls.
                return []
            case kind if kind in ITEM_KINDS and kind != "tool_result":
                return self._item(entry)
            case _:
                return [*self._release_interrupted(), *self._last_numbered(self._events(entry, data), entry.seq)]

    def _item(self, entry: Entry) -> list[Numbered]:
        """Hold an item until its call's tape comes; what a call left unfinished was told by its tape already."""
        item = item_of_entry(entry)
        if self._held is not None:
            self._held.append((entry.seq, item))
            return []
        if isinstance(item, MessageItem) and item.is_partial and self._has_delta_log:
            return []
        return self._whole_item(entry.seq, item)

    def _replay_call(self, record: tape.DeltaLog) -> list[Numbered]:
        held, self._held = self._held or [], None
        self._has_delta_log = True
        events = tape.replay_events(record, held)
        for numbered in events:
            match numbered.event:
                case ItemDone(index=index, item=CallItem() as call):
                    self._calls[call.call_id] = (index, call)
                case _:
                    pass
            self._next_index = max(self._next_index, getattr(numbered.event, "index", -1) + 1)
        return events

    def _release_interrupted(self) -> list[Numbered]:
        """Release what was held of a call that no process ended: the pieces that its clients got are lost."""
        if self._held is None:
            return []
        return [Numbered(event=RunRecovered()), *self._release()]

    def _release(self) -> list[Numbered]:
        """Tell what was held of a call that has no tape."""
        held, self._held = self._held or [], None
        events: list[Numbered] = []
        for seq, thing in held:
            events += [Numbered(event=thing, seq=seq)] if isinstance(thing, Noted) else self._whole_item(seq, thing)
        return events

    def _whole_item(self, seq: int, item: AnyItem) -> list[Numbered]:
        index, self._next_index = self._next_index, self._next_index + 1
        if isinstance(item, CallItem):
            self._calls[item.call_id] = (index, item)
        events = tape.events_of_item(index, item)
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
        """Tell what is asked."""
        index, call = self._known(entry, record)
        return request_step(index, call, record, entry.at)[0]

    def _decision(self, entry: Entry, record: DecisionRecord) -> RunEvent:
        """Tell what was decided; from here on the call is told as it runs."""
        index, call = self._known(entry, record)
        self._calls[call.call_id] = (index, with_decided_arguments(call, record))
        return decision_step(index, call, record, entry.at)[0]

    def _known(self, entry: Entry, record: RequestRecord | DecisionRecord) -> tuple[int, CallItem]:
        """Return the call that a question is about; one that an earlier run made is known only from here on."""
        if record.call is not None:
            self._calls[record.call.call_id] = (record.index, record.call)
            self._next_index = max(self._next_index, record.index + 1)
        return self._calls[entry.call_id or ""]

    def _start(self, entry: Entry, source: str) -> list[RunEvent]:
        """Tell the start of a call once, however often it was begun again."""
        index, call = self._calls[entry.call_id or ""]
        if call.call_id in self._started:
            return []
        self._started.add(call.call_id)
        return [ToolStarted(index=index, call=call, source=source)]

    def _result(self, entry: Entry, kept: _ToolData) -> list[RunEvent]:
        """Tell a result; a call that never really ran has no start of its own in the journal."""
        item = item_of_entry(entry)
        assert isinstance(item, ResultItem)
        index, call = self._calls[item.call_id]
        started: list[RunEvent] = []
        if item.call_id not in self._started:
            started = [ToolStarted(index=index, call=call, source=kept.source)]
        finished = ToolFinished(
            index=index,
            call=call,
            result=item,
            source=kept.source,
            duration_s=kept.duration_s,
            output_bytes=kept.bytes,
            truncated=kept.truncated,
            sandbox=kept.sandbox,
        )
        return [*started, finished]

    def _last_numbered(self, events: Sequence[RunEvent], seq: int) -> list[Numbered]:
        live = [Numbered(event=event) for event in events[:-1]]
        return [*live, *(Numbered(event=event, seq=seq) for event in events[-1:])]


def replay_journal(entries: Sequence[Entry]) -> list[Numbered]:
    """Tell a whole journal."""
    replay = EventReplay()
    return [numbered for entry in entries for numbered in replay.events_of(entry)]
