"""The audit of a run: what its journal promises, checked on its row and its entries, whichever store they came from.

Pure.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal, TypeVar

import msgspec

from treadle.core.events import ENDED, RunEnded, read_event
from treadle.core.items import CallItem
from treadle.core.journal_entries import Entry, item_of_entry
from treadle.core.json import OptionalRaw, type_errors, write_json
from treadle.journal.audit_records import run_of
from treadle.journal.hash_chain import EXTRA, LOST, audit_lines, is_rooted
from treadle.journal.journal_interface import AuditLine, Evidence, RunRow
from treadle.journal.jsonl_export import Exported, sealed_of
from treadle.journal.run_row_hash import SealedRow, is_sound, read_amendment

T = TypeVar("T")

Chain = Literal["sound", "unchained", "broken", "forgotten"]
"""Whether the hashes fit: all of them, those that there are (older entries have none), not; or nothing is left."""

Row = Literal["sealed", "unsealed"]
"""Whether the hashes prove the run's row too: not for runs that were started, or forgotten, before there were seals."""

PROBLEMS_MAX = 20
"""How many problems of one run are named."""


class AuditFinding(msgspec.Struct, frozen=True, kw_only=True):
    """The result of the audit of one run; without problems the run is as it was written."""

    run_id: str
    status: str
    entries: int
    epochs: int
    chain: Chain
    row: Row
    problems: tuple[str, ...] = ()

    @property
    def is_sound(self) -> bool:
        """Return whether nothing is wrong."""
        return not self.problems


def audit_run(evidence: Evidence) -> AuditFinding:
    """Check one run: its row, its entries, and their hashes as the store found them."""
    row, entries, lines = evidence.row, evidence.entries, evidence.lines
    is_forgotten = not entries and evidence.sealed.is_purged and row.status in ENDED
    chained = [] if is_forgotten else [*_chain_problems(lines, evidence.is_rooted)]
    problems = [*chained, *_row_problems(evidence, is_forgotten=is_forgotten), *evidence.faults]
    if not is_forgotten:
        problems += [*_number_problems(entries), *_epoch_problems(lines), *_read_problems(row, entries)]
        problems += _end_problems(evidence.sealed, [entry for entry in entries if not entry.is_input])
    is_old = any(not line.sha256 for line in lines)
    is_sealed = read_amendment(evidence.sealed.amended) is not None if is_forgotten else evidence.is_rooted
    return AuditFinding(
        run_id=row.id,
        status=row.status,
        entries=len(entries),
        epochs=len({line.epoch for line in lines if line.kind != LOST}),
        chain="forgotten" if is_forgotten else "broken" if chained else "unchained" if is_old else "sound",
        row="sealed" if is_sealed else "unsealed",
        problems=_bounded(problems),
    )


def audit_export(exported: Exported) -> AuditFinding:
    """Check a run that was read from an export."""
    sealed = exported.sealed
    root = "" if sealed is None else sealed.root
    row = exported.row
    # The row of an ended run names the end of the chain; for other runs the export does.
    head, sha256 = exported.head, exported.sha256
    if sealed is not None and sealed.ended_at is not None:
        head, sha256 = sealed.head, sealed.sha256
    evidence = Evidence(
        row=row,
        sealed=sealed_of(row, exported.head, exported.sha256) if sealed is None else sealed,
        entries=[stored.entry for stored in exported.stored],
        lines=list(audit_lines(row.id, exported.stored, head, sha256, root)),
        is_rooted=sealed is not None and is_rooted(row.id, exported.stored, root, sha256),
        faults=() if sealed is None or run_of(sealed) == row else ("the run is not the one that was exported",),
    )
    return audit_run(evidence)


def _chain_problems(lines: Sequence[AuditLine], is_whole: bool) -> Iterable[str]:
    for line in lines:
        if line.kind == LOST:
            yield f"entry {line.seq} is lost"
        elif line.expected == EXTRA:
            yield f"entry {line.seq} ({line.kind}) stands behind the last one that the run wrote"
        elif line.sha256 != line.expected:
            # The first entry follows from the row: it is unknown which of the two was changed.
            what = "the run's row, or " if line.seq == 1 and not is_whole else ""
            yield f"{what}entry {line.seq} ({line.kind}) is not as it was written"


def _row_problems(evidence: Evidence, *, is_forgotten: bool) -> Iterable[str]:
    row = evidence.sealed
    if not is_sound(row):
        yield "the run's row is not as it was last changed"
    if is_forgotten:
        return
    if not evidence.entries and not evidence.is_rooted and evidence.sealed.head == 0 and not evidence.lines:
        yield "the run's row is not as it was written"
    last = next((line for line in reversed(evidence.lines) if line.kind != LOST), None)
    if row.status in ENDED and last is not None and last.epoch != row.epoch:
        yield f"the run's epoch is {row.epoch}, and epoch {last.epoch} wrote its end"
    if row.status not in ENDED:
        untold = (row.ended_at, row.stop, row.limit, row.usage, row.error)
        counts = (row.rounds, row.calls, row.epoch, row.head, row.sha256)
        if untold != (None,) * 5 or counts != (0, 0, 1, 0, "") or row.status != "running":
            yield f"the run is {row.status}, and its row says how it ended"


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
    """Check the entries: one call and one result for an id, a result for every server call."""
    own = [entry for entry in entries if not entry.is_input]
    calls = Counter(entry.call_id for entry in own if entry.kind == "tool_call")
    results = Counter(entry.call_id for entry in own if entry.kind == "tool_result")
    carried = _carried_calls(own)
    known = {*calls, *carried}
    for what, counted in (("call", calls), ("result", results)):
        yield from (f"the call id {call_id!r} has {n} {what}s" for call_id, n in counted.items() if n > 1)
    yield from (
        f"there is a result for {call_id!r}, which was not called" for call_id in results if call_id not in known
    )
    yield from (f"a start is marked for {each!r}, which was not called" for each in _started(own) if each not in known)
    if row.status in ENDED:
        left = _left_calls(own) if row.status == "requires_action" else frozenset[str | None]()
        awaited = [*_server_calls(own), *carried]
        yield from (f"the call {each!r} has no result" for each in awaited if not results[each] and each not in left)


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


class _Call(msgspec.Struct):
    call_id: str


class _Planned(msgspec.Struct):
    call: _Call


class _Carriage(msgspec.Struct):
    calls: list[_Planned]


class _Frame(msgspec.Struct):
    """The part of a `frame` entry that names the calls of an earlier run that this one continues."""

    carried: _Carriage | None = None


class _Request(msgspec.Struct):
    """The part of an `approval_request` entry that is set when the run does not wait for the answer."""

    is_deferred: bool = False


_frame = msgspec.json.Decoder(_Frame)
_request = msgspec.json.Decoder(_Request)


def _carried_calls(own: Sequence[Entry]) -> list[str]:
    """Return the calls of an earlier run that this one carries on: it starts and answers them like its own."""
    frame = next((entry for entry in own if entry.kind == "frame"), None)
    found = None if frame is None else _read(_frame, frame)
    if found is None or found.carried is None:
        return []
    return [planned.call.call_id for planned in found.carried.calls]


def _left_calls(own: Sequence[Entry]) -> frozenset[str | None]:
    """Return the calls that a run leaves to the next one: a person was asked, and the run does not wait."""
    asked = [(entry.call_id, _read(_request, entry)) for entry in own if entry.kind == "approval_request"]
    return frozenset(call_id for call_id, request in asked if request is not None and request.is_deferred)


class _End(msgspec.Struct):
    """The parts of a recorded end that a row stores as JSON, as they were written."""

    usage: OptionalRaw = None
    error: OptionalRaw = None


_end = msgspec.json.Decoder(_End)


def _end_problems(row: SealedRow, own: Sequence[Entry]) -> Iterable[str]:
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
    names = ("ended_at", "stop", "limit", "rounds", "calls")
    wrong = [name for name in names if getattr(row, name) != getattr(end, name)]
    written = _read(_end, entry) or _End()
    for name, stored, raw, value in (
        ("usage", row.usage, written.usage, end.usage),
        ("error", row.error, written.error, end.error),
    ):
        if not _equals(stored, raw, value):
            wrong.append(name)
    yield from (f"the run's {name} is not what its recorded end says" for name in wrong)


def _equals(stored: str | None, raw: msgspec.Raw | None, value: msgspec.Struct | None) -> bool:
    """Return whether a column equals the entry's value: as that was written, or as it is written today."""
    if stored is None or value is None or raw is None:
        return stored is None and value is None
    return stored.encode("utf-8", "surrogatepass") in (bytes(raw), write_json(value))


def end_of(entry: Entry) -> RunEnded | None:
    """Return the end of a run if the entry records it."""
    if entry.kind != "status" or entry.data is None:
        return None
    try:
        event = read_event(bytes(entry.data))
    except type_errors:
        return None
    return event if isinstance(event, RunEnded) else None


def _read(decoder: "msgspec.json.Decoder[T]", entry: Entry) -> T | None:
    try:
        return None if entry.data is None else decoder.decode(entry.data)
    except type_errors:
        return None


def _bounded(problems: Sequence[str]) -> tuple[str, ...]:
    more = len(problems) - PROBLEMS_MAX
    return (*problems[:PROBLEMS_MAX], *((f"and {more} more",) if more > 0 else ()))
