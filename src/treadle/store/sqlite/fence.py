"""Writes to a run, as jobs on a write connection: each checks owner and epoch in the transaction that writes.

Numbers come from the lease's row and never from memory, so that a run stays dense whoever writes to it.
"""

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import apsw

from treadle.canon.errors import Conflict, NotFound, StoreError, TreadleError
from treadle.store.journal import INLINE_BYTES_MAX, LEASE_LOST, RUN_ENDED
from treadle.store.sqlite.connection import select
from treadle.store.sqlite.rows import RUN_FIELDS, EndColumns, EntryColumns, RunColumns, Text, bind_json

_INSERT_RUN = """
INSERT INTO runs (id, response_id, conversation_id, previous, session_id, key_id, protocol, model, status, store,
                  background, created_at, expires_at, rounds, calls, epoch)
VALUES (?, ?, ?, (SELECT n FROM runs WHERE id = ?), ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, 1)
RETURNING n
"""
_INSERT_EVENT = """
INSERT INTO events (run, seq, epoch, kind, is_input, at, name, call_id, item_id, content, data, blob)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_ADVANCE = """
UPDATE leases SET head = head + ?, until = ? WHERE run = ? AND owner = ? AND epoch = ? RETURNING head
"""
_END_RUN = """
UPDATE runs SET status = ?, ended_at = ?, stop = ?, limit_name = ?, usage = ?, error = ?, rounds = ?, calls = ?,
                epoch = ?
WHERE n = ?
"""
_CLAIM = """
UPDATE leases SET owner = ?1, epoch = epoch + 1, until = ?2
WHERE run IN (SELECT run FROM leases WHERE until <= ?3 ORDER BY until, run LIMIT ?4)
RETURNING run, epoch
"""


class Hold(NamedTuple):
    """Who writes to which run: the run's number, the owner, and the owner's epoch."""

    run: int
    owner: str
    epoch: int


Claimed = tuple[tuple[Any, ...], Hold]


def start_run(connection: apsw.Connection, columns: RunColumns, body: str | bytes | None, owner: str) -> Hold:
    """Insert a run's row, its request and its lease, which ends at once until entries are appended.

    Raises: NotFound, Conflict.
    """
    _check_previous(connection, columns)
    [(run,)] = select(connection, _INSERT_RUN, *columns)
    if body is not None:
        select(connection, "INSERT INTO requests VALUES (?, ?)", run, body)
    select(connection, "INSERT INTO leases VALUES (?, ?, 1, 0, 0)", run, owner)
    return Hold(run, owner, 1)


def append(connection: apsw.Connection, hold: Hold, entries: Sequence[EntryColumns], until: float) -> int:
    """Renew the lease, insert the entries and return the number of the last one.

    Raises: StoreError (lease lost), Conflict (the run has ended), NotFound (it was deleted).
    """
    held = select(connection, _ADVANCE, len(entries), until, hold.run, hold.owner, hold.epoch)
    if not held:
        raise _lost(connection, hold)
    head: int = held[0][0]
    rows = [
        (hold.run, seq, hold.epoch, *columns[:-1], *_place(connection, hold.run, columns[-1]))
        for seq, columns in enumerate(entries, head - len(entries) + 1)
    ]
    connection.executemany(_INSERT_EVENT, rows)
    return head


def end_run(connection: apsw.Connection, hold: Hold, columns: EndColumns) -> None:
    """Give the run its end and drop its lease: without one, nothing can be written to it any more."""
    select(connection, _END_RUN, *columns, hold.epoch, hold.run)
    select(connection, "DELETE FROM leases WHERE run = ?", hold.run)


def release(connection: apsw.Connection, hold: Hold) -> None:
    """Leave the run without an owner and its lease ended."""
    select(connection, "UPDATE leases SET owner = '', until = 0 WHERE run = ? AND owner = ? AND epoch = ?", *hold)


def claim(connection: apsw.Connection, owner: str, now: float, until: float, limit: int) -> list[Claimed]:
    """Take the runs whose lease ended, each under a new epoch, and return their RUN_FIELDS with it."""
    taken = [Hold(run, owner, epoch) for run, epoch in select(connection, _CLAIM, owner, until, now, limit)]
    sql = f"SELECT {RUN_FIELDS} FROM runs r WHERE r.n = ?"
    return [(select(connection, sql, hold.run)[0], hold) for hold in sorted(taken)]


def put_blob(connection: apsw.Connection, run: int, data: bytes) -> str:
    """Keep bytes for a run, once however often they come, and return their sha256."""
    sha256 = hashlib.sha256(data).hexdigest()
    select(connection, "INSERT INTO blobs (sha256, data) VALUES (?, ?) ON CONFLICT DO NOTHING", sha256, data)
    select(connection, "INSERT INTO blob_uses VALUES (?, ?) ON CONFLICT DO NOTHING", run, sha256)
    return sha256


def _place(connection: apsw.Connection, run: int, data: bytes | None) -> tuple[Text, str | None]:
    """Return an entry's data inline, or the name of the blob it went to."""
    if data is None:
        return None, None
    if len(data) > INLINE_BYTES_MAX:
        return None, put_blob(connection, run, data)
    return bind_json(data), None


def _check_previous(connection: apsw.Connection, columns: RunColumns) -> None:
    if columns.previous_id is None:
        return
    found = select(connection, "SELECT conversation_id FROM runs WHERE id = ?", columns.previous_id)
    if not found:
        raise NotFound(f"there is no run {columns.previous_id!r} to continue")
    if found[0][0] != columns.conversation_id:
        raise Conflict(f"the run {columns.previous_id!r} belongs to another conversation")


def _lost(connection: apsw.Connection, hold: Hold) -> TreadleError:
    found = select(connection, "SELECT ended_at, epoch FROM runs WHERE n = ?", hold.run)
    if not found:
        return NotFound("the run was deleted")
    ended_at, epoch = found[0]
    if ended_at is not None and epoch == hold.epoch:
        return Conflict("the run has ended", code=RUN_ENDED)
    return StoreError("another owner has taken the run over", code=LEASE_LOST)
