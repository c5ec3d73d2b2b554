"""The audit of a run: what its journal promises, checked on its entries alone, whichever store they came from. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from treadle.canon.events import ENDED, RunEnded, read_event
from treadle.canon.items import CallItem
from treadle.canon.json import type_errors
from treadle.canon.messages import Entry, item_of_entry
from treadle.store.chain import EXTRA, LOST, audit_lines
from treadle.store.export import Exported
from treadle.store.journal import AuditLine, RunRow

Chain = Literal["sound", "unchained", "broken", "forgotten"]
"""Whether the hashes fit: all of them, those that there are (older entries have none), not; or nothing is left."""

PROBLEMS_MAX = 20
"""How many problems of one run are named."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What the audit says of one run; without problems it is as it was written."""

    run_id: str
    status: str
    entries: int
    epochs: int
    chain: Chain
    problems: tuple[str, ...] = ()

    @property
    def is_sound(self) -> bool:
        """Tell whether nothing is wrong."""
        return not self.problems


def audit_run(row: RunRow, entries: Sequence[Entry], lines: Sequence[AuditLine]) -> Finding:
    """Check one run: its row, its entries, and what the store says of their hashes."""
    if not entries and row.status in ENDED and not (row.store and lines):
        # What is not stored loses its content when it ends; nothing else ever loses all of its entries.
        return Finding(run_id=row.id, status=row.status, entries=0, epochs=0, chain="forgotten")
    chained = list(_chain_problems(lines))
    problems = [*chained, *_number_problems(entries), *_epoch_problems(lines), *_read_problems(row, entries)]
    is_old = any(not line.sha256 for line in lines)
    return Finding(
        run_id=row.id,
        status=row.status,
        entries=len(entries),
        epochs=len({line.epoch for line in lines if line.kind != LOST}),
        chain="broken" if chained else "unchained" if is_old else "sound",
        problems=_bounded(problems),
    )


def audit_export(exported: Exported) -> Finding:
    """Check a run that was read from an export."""
    lines = list(audit_lines(exported.row.id, exported.kept, exported.head, exported.sha256))
    return audit_run(exported.row, [kept.entry for kept in exported.kept], lines)


def _chain_problems(lines: Sequence[AuditLine]) -> Iterable[str]:
    for line in lines:
        if line.kind == LOST:
            yield f"entry {line.seq} is lost"
        elif line.expected == EXTRA:
            yield f"entry {line.seq} ({line.kind}) stands behind the last one that the run wrote"
        elif line.sha256 != line.expected:
            yield f"entry {line.seq} ({line.kind}) is not as it was written"


def _number_problems(entries: Sequence[Entry]) -> Iterable[str]:
    numbers = [entry.seq for entry in entries]
    wrong = next((n for n, number in enumerate(numbers, 1) if number != n), None)
    if wrong is not None:
        yield f"the entries are not numbered 1, 2, 3 …: at place {wrong} stands {numbers[wrong - 1]}"


def _epoch_problems(lines: Sequence[AuditLine]) -> Iterable[str]:
    last = 0
    for line in lines:
        if line.kind == LOST:
            continue
        if line.epoch < last:
            yield f"entry {line.seq} was written by epoch {line.epoch}, after epoch {last}"
        last = max(last, line.epoch)


def _read_problems(row: RunRow, entries: Sequence[Entry]) -> Iterable[str]:
    """Check what the entries say: one call and one result for an id, a result for every server call, one end."""
    own = [entry for entry in entries if not entry.is_input]
    calls = Counter(entry.call_id for entry in own if entry.kind == "tool_call")
    results = Counter(entry.call_id for entry in own if entry.kind == "tool_result")
    for what, counted in (("call", calls), ("result", results)):
        yield from (f"the call id {call_id!r} has {n} {what}s" for call_id, n in counted.items() if n > 1)
    yield from (f"there is a result for {call_id!r}, which was not called" for call_id in results if not calls[call_id])
    yield from (f"a start is marked for {each!r}, which was not called" for each in _started(own) if not calls[each])
    if row.status in ENDED:
        yield from (f"the call {each!r} has no result" for each in _server_calls(own) if not results[each])
    yield from _end_problems(row, own)


def _started(own: Sequence[Entry]) -> list[str | None]:
    return list(dict.fromkeys(entry.call_id for entry in own if entry.kind in ("tool_early", "tool_start")))


def _server_calls(own: Sequence[Entry]) -> Iterable[str]:
    for entry in own:
        if entry.kind != "tool_call":
            continue
        try:
            item = item_of_entry(entry)
        except type_errors:
            continue
        if isinstance(item, CallItem) and item.side == "server":
            yield item.call_id


def _end_problems(row: RunRow, own: Sequence[Entry]) -> Iterable[str]:
    ends = [(entry, end) for entry in own if (end := end_of(entry)) is not None]
    if row.status not in ENDED:
        if ends:
            yield f"the run is {row.status}, and entry {ends[0][0].seq} is its end"
        return
    if len(ends) != 1:
        yield f"the run is {row.status}, and its end is recorded {len(ends)} times"
        return
    entry, end = ends[0]
    if entry is not own[-1]:
        yield f"the end is entry {entry.seq}, and others follow it"
    if end.status != row.status:
        yield f"the run is {row.status}, and its recorded end says {end.status}"


def end_of(entry: Entry) -> RunEnded | None:
    """Return the end of a run if that is what the entry tells."""
    if entry.kind != "status" or entry.data is None:
        return None
    try:
        event = read_event(bytes(entry.data))
    except type_errors:
        return None
    return event if isinstance(event, RunEnded) else None


def _bounded(problems: Sequence[str]) -> tuple[str, ...]:
    more = len(problems) - PROBLEMS_MAX
    return (*problems[:PROBLEMS_MAX], *((f"and {more} more",) if more > 0 else ()))
