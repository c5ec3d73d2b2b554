"""Reads a run's journal into what recovery and replay need, and ends runs that cannot be recovered.

The loop is rebuilt from the stored frame and driven through the recorded steps, see `engine.recorded_run`.
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
"""How many processes may try to drive a run before it is ended."""
_OPENING = frozenset({"plan", "approval_decision", "approval_request"})
"""The first steps of a run: its first round, or the decisions and requests of carried calls."""
NOT_RUN = failure("interrupted", "Not run: the process that should have run it was stopped.")


class UnreadableRun(Exception):
    """A run cannot be rebuilt from its journal."""


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A run as its journal has it: what its loop is built from, its recorded steps, and its opening."""

    blueprint: Blueprint
    steps: RecordedRun
    added: tuple[AnyItem, ...]
    opening: list[Numbered]
    entries: list[Entry]
    opened: int = 1

    @property
    def rest(self) -> list[Entry]:
        """Return the entries after the first steps."""
        return self.entries[self.opened :]

    def loop(self, ports: Ports, *, wall_s: float | None = None) -> RunLoop:
        """Rebuild the loop and check that its first steps equal the recorded ones.

        Raises: Diverged.
        """
        loop = make_loop(self.blueprint, ports, recorded=self.steps, wall_s=wall_s)
        first = [entry for _, entry in loop.begin() if entry is not None]
        EntryComparison(self.entries[: self.opened]).take(first)
        return loop


async def read_record(store: Store, row: RunRow, before: Sequence[AnyItem]) -> RunRecord:
    """Read the record of a run; `before` is the conversation it continues.

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
    events = [replay.events_of(entry) for entry in own]
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
        opening=[numbered for events in events[: first + opened] for numbered in events],
        entries=own[first:],
        opened=opened,
    )


async def close_run(
    store: Store, journal: RunJournal, now: float, error: ErrorInfo = INTERRUPTED, *, is_stored: bool = True
) -> RunEnded:
    """End a run that no process will drive, with a result for each open call; its approval requests are withdrawn.

    Raises: as `RunJournal.finish`.
    """
    entries: list[Entry] = []
    results: list[Entry] = []
    # A damaged entry must not keep the run open forever; its calls are closed when a later run continues it.
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
    """Return a result for every server call without one; only a call that had started may have had an effect."""
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
    """Return the source of the tool in a call's entry."""
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
