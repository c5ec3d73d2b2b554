"""What happens to runs whose process died: they are gone on with from their journal, or, where that cannot be, ended.

The run's loop is made again from what is frozen in the journal and driven through the record, `engine.recorded_run`.
"""

import contextlib
from collections.abc import Sequence
from typing import Any, cast

import msgspec

from treadle.core.errors import ErrorInfo
from treadle.core.events import Numbered, RunEnded
from treadle.core.items import AnyItem, CallItem, ResultItem, TextPart
from treadle.core.journal_entries import Entry, entry_of_item, item_of_entry
from treadle.core.json import read_json
from treadle.core.request import Request
from treadle.core.run_endings import INTERRUPTED
from treadle.core.tool_definitions import LOCAL, Outcome, failure, flat_failure
from treadle.engine.recorded_run import RecordedRun
from treadle.engine.run_loop import UNKNOWN, Ports, RunLoop
from treadle.journal.journal_interface import RunJournal, RunRow, Store
from treadle.runs.remote_run_reader import read_live_events
from treadle.runs.replay.comparing_journal import EntryComparison
from treadle.runs.replay.event_replay import UNREADABLE, DamagedJournal, EventReplay
from treadle.runs.run_setup import Blueprint, make_loop, read_frame

ATTEMPTS_MAX = 5
"""How many processes may drive a run before it is given up."""
_OPENING = frozenset({"plan", "approval_decision", "approval_request"})
"""What a run begins with: its first round, or what became of the calls that an earlier run left."""
NOT_RUN = failure("interrupted", "Not run: the process that should have run it was stopped.")


class UnreadableRun(Exception):
    """A run's journal does not say enough to go on with it."""


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A run as its journal has it: what its loop is made from, what is known, and how it began."""

    blueprint: Blueprint
    steps: RecordedRun
    added: tuple[AnyItem, ...]
    opening: list[Numbered]
    entries: list[Entry]
    opened: int = 1

    @property
    def rest(self) -> list[Entry]:
        """Return what is recorded after the first steps."""
        return self.entries[self.opened :]

    def loop(self, ports: Ports, *, wall_s: float | None = None) -> RunLoop:
        """Make the loop again and check that it begins as it did.

        Raises: Diverged.
        """
        loop = make_loop(self.blueprint, ports, recorded=self.steps, wall_s=wall_s)
        begun = [entry for _, entry in loop.begin() if entry is not None]
        EntryComparison(self.entries[: self.opened]).take(begun)
        return loop


async def read_record(store: Store, row: RunRow, before: Sequence[AnyItem]) -> RunRecord:
    """Read all that is known of a run; `before` is the conversation it continues.

    Raises: Unreadable, NotFound.
    """
    try:
        return await _read(store, row, before, await store.entries(row.id))
    except (*UNREADABLE, DamagedJournal) as error:
        raise UnreadableRun(f"The journal of {row.id} cannot be gone on with.") from error


async def _read(store: Store, row: RunRow, before: Sequence[AnyItem], entries: list[Entry]) -> RunRecord:
    frame = read_frame(entries)
    own = [entry for entry in entries if not entry.is_input]
    first = next((position for position, entry in enumerate(own) if entry.kind in _OPENING), None)
    if frame is None or first is None or row.request is None:
        raise UnreadableRun(f"The journal of {row.id} was begun by an older Treadle, or its content is gone.")
    replay = EventReplay()
    told = [replay.events_of(entry) for entry in own]
    added = tuple(item_of_entry(entry) for entry in entries if entry.is_input)
    live = [] if row.ended_at is not None else await read_live_events(store, row.id, replay.event_count)
    blueprint = Blueprint(
        row=row,
        request=msgspec.json.decode(row.request, type=Request),
        frame=frame,
        history=(*before, *added),
    )
    opened = 1 if frame.carried is None else len(frame.carried.calls)
    return RunRecord(
        blueprint=blueprint,
        steps=RecordedRun(entries, live),
        added=added,
        opening=[numbered for events in told[: first + opened] for numbered in events],
        entries=own[first:],
        opened=opened,
    )


async def close_run(
    store: Store, journal: RunJournal, now: float, error: ErrorInfo = INTERRUPTED, *, is_stored: bool = True
) -> RunEnded:
    """End a run that nobody goes on with: every open call gets its result, then comes the end; its questions are void.

    Raises: as `RunJournal.finish`.
    """
    entries: list[Entry] = []
    results: list[Entry] = []
    # An entry that cannot be read must not keep the run open for ever; its calls are closed when it is continued.
    with contextlib.suppress(*UNREADABLE):
        entries = await store.entries(journal.run_id)
        results = _missing_results(entries, now)
    ended = RunEnded(
        status="failed",
        error=error,
        rounds=sum(entry.kind == "plan" for entry in entries),
        calls=sum(entry.kind == "tool_start" for entry in entries),
        ended_at=now,
    )
    status = Entry(kind="status", content=ended.status, data=msgspec.Raw(msgspec.json.encode(ended)), at=now)
    await journal.finish([*results, status], ended, forget=() if is_stored else (journal.run_id,))
    if any(entry.kind == "approval_request" for entry in entries):
        await store.approvals.withdraw(journal.run_id, now)
    return ended


def _missing_results(entries: list[Entry], now: float) -> list[Entry]:
    """Return a result for every server call that has none: only one that had started may have had an effect."""
    own = [entry for entry in entries if not entry.is_input]
    items = [item_of_entry(entry) for entry in own if entry.kind in ("tool_call", "tool_result")]
    answered = {entry.call_id for entry in own if entry.kind == "tool_result"}
    started = {entry.call_id for entry in own if entry.kind in ("tool_early", "tool_start")}
    local = {entry.call_id for entry in own if entry.kind in ("tool_call", "tool_start") and _source(entry) == LOCAL}
    return [
        entry_of_item(_result(item, UNKNOWN if item.call_id in started else NOT_RUN, item.call_id in local), at=now)
        for item in items
        if isinstance(item, CallItem) and item.side == "server" and item.call_id not in answered
    ]


def _source(entry: Entry) -> str:
    """Return what a call's entry says of where its tool comes from."""
    data: Any = read_json(bytes(entry.data)) if entry.data else {}
    source: Any = cast("dict[str, Any]", data).get("source") if isinstance(data, dict) else None
    return source if isinstance(source, str) else ""


def _result(call: CallItem, outcome: Outcome, is_local: bool) -> ResultItem:
    outcome = flat_failure(outcome) if is_local else outcome
    return ResultItem(
        call_id=call.call_id,
        name=call.name,
        output=(TextPart(text=outcome.text),),
        is_error=True,
        kind=call.kind,
        rc=outcome.rc,
        summary=outcome.summary,
    )
