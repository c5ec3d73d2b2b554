"""Writes to a run, as jobs on a write connection: each checks owner and epoch in the transaction that writes.

Numbers and the chain's last hash come from the lease's row and never from memory, so that a run stays dense and
chained whoever writes to it.
"""

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import apsw

from treadle.canon.errors import Conflict, NotFound, StoreError, TreadleError
from treadle.store.chain import entry_hash
from treadle.store.journal import IDEMPOTENCY_KEY_TAKEN, INLINE_BYTES_MAX, LEASE_LOST, RUN_ENDED, Chunk, busy
from treadle.store.sqlite.connection import Value, select
from treadle.store.sqlite.rows import RUN_FIELDS, EndColumns, EntryColumns, RunColumns, Text, bind_json

_INSERT_RUN = """
INSERT INTO runs (id, response_id, conversation_id, previous, session_id, key_id, protocol, model, status, store,
                  background, created_at, expires_at, idempotency_key, request_sha256, rounds, calls, epoch)
VALUES (?, ?, ?, (SELECT n FROM runs WHERE id = ?), ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, 1)
RETURNING n, id
"""
_INSERT_EVENT = """
INSERT INTO events (run, seq, epoch, sha256, kind, is_input, at, name, call_id, item_id, content, fingerprint,
                    data, blob)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_HELD = "SELECT head, sha256 FROM leases WHERE run = ? AND owner = ? AND epoch = ?"
_ADVANCE = """
UPDATE leases SET head = ?, sha256 = ?, until = ?, changes = changes + 1 WHERE run = ?
"""
_RENEW = """
UPDATE leases SET until = ?, changes = changes + 1 WHERE run = ? AND owner = ? AND epoch = ? RETURNING run
"""
_RELEASE = """
UPDATE leases SET owner = '', until = 0, handed = handed + 1, changes = changes + 1
WHERE run = ? AND owner = ? AND epoch = ?
"""
_CANCEL = """
UPDATE leases SET cancel = 1, changes = changes + 1 WHERE run = (SELECT n FROM runs WHERE id = ?) RETURNING run
"""
_DROP_CHUNKS = "DELETE FROM chunks WHERE run = ?1 AND (first + count <= ?2 OR first + count > ?3)"
_END_RUN = """
UPDATE runs SET status = ?, ended_at = ?, stop = ?, limit_name = ?, usage = ?, error = ?, rounds = ?, calls = ?,
                epoch = ?, (head, sha256) = (SELECT l.head, l.sha256 FROM leases l WHERE l.run = runs.n)
WHERE n = ?
"""
_OWE = """
INSERT INTO debts SELECT id, key_id, model, ended_at, usage FROM runs WHERE n = ? AND key_id <> ''
ON CONFLICT DO NOTHING
"""
_CLAIM = """
UPDATE leases SET owner = ?1, epoch = epoch + 1, until = ?2, changes = changes + 1
WHERE run IN (
  SELECT l.run FROM leases l JOIN runs r ON r.n = l.run
  WHERE l.until <= ?3 AND (?5 IS NULL OR r.id = ?5) AND (?6 IS NULL OR r.background = ?6)
  ORDER BY l.until, l.run LIMIT ?4
)
RETURNING run, epoch, handed
"""
_LEASE = """
INSERT INTO leases (run, owner, epoch, until, head, session_id)
SELECT n, ?2, 1, 0, 0, session_id FROM runs WHERE n = ?1
"""
_BUSY = "SELECT 1 FROM leases WHERE session_id = ?"


class Hold(NamedTuple):
    """Who writes to which run: the run's number, the owner, the owner's epoch, and the run's id.

    `handed` is how often earlier owners gave it up of their own will.
    """

    run: int
    owner: str
    epoch: int
    run_id: str
    handed: int = 0

    @property
    def fence(self) -> tuple[int, str, int]:
        """Return what a lease must match."""
        return self[:3]


Claimed = tuple[tuple[Any, ...], Hold]


def start_run(connection: apsw.Connection, columns: RunColumns, body: str | bytes | None, owner: str) -> Hold:
    """Insert a run's row, its request and its lease, which ends at once until entries are appended.

    Raises: NotFound, Conflict.
    """
    _check_idempotency(connection, columns)
    _check_previous(connection, columns)
    _check_session(connection, columns)
    [(run, run_id)] = select(connection, _INSERT_RUN, *columns)
    if body is not None:
        select(connection, "INSERT INTO requests VALUES (?, ?)", run, body)
    select(connection, _LEASE, run, owner)
    return Hold(run, owner, 1, run_id)


def append(connection: apsw.Connection, hold: Hold, entries: Sequence[EntryColumns], until: float) -> int:
    """Renew the lease, insert the entries and return the number of the last one.

    Raises: StoreError (lease lost), Conflict (the run has ended), NotFound (it was deleted).
    """
    held = select(connection, _HELD, *hold.fence)
    if not held:
        raise _lost(connection, hold)
    head: int
    sha256: str
    [(head, sha256)] = held
    rows: list[tuple[Value, ...]] = []
    for entry in entries:
        head += 1
        sha256 = entry_hash(sha256, hold.run_id, head, hold.epoch, entry.body)
        placed = _place(connection, hold.run, entry.data)
        rows.append((hold.run, head, hold.epoch, sha256, *entry.plain, entry.fingerprint, *placed))
    select(connection, _ADVANCE, head, sha256, until, hold.run)
    connection.executemany(_INSERT_EVENT, rows)
    return head


def tell(connection: apsw.Connection, hold: Hold, chunk: Chunk, keep_from: int, until: float) -> None:
    """Renew the lease and keep what the run says, in the place of what it said from there on before.

    Raises: as `append`.
    """
    if not select(connection, _RENEW, until, *hold.fence):
        raise _lost(connection, hold)
    select(connection, _DROP_CHUNKS, hold.run, keep_from, chunk.first)
    select(connection, "INSERT INTO chunks VALUES (?, ?, ?, ?)", hold.run, chunk.first, chunk.count, chunk.data)


def end_run(connection: apsw.Connection, hold: Hold, columns: EndColumns) -> None:
    """Give the run its end and drop its lease: without one, nothing can be written to it any more."""
    select(connection, _END_RUN, *columns, hold.epoch, hold.run)
    select(connection, _OWE, hold.run)
    select(connection, "DELETE FROM leases WHERE run = ?", hold.run)
    select(connection, "DELETE FROM chunks WHERE run = ?", hold.run)


def release(connection: apsw.Connection, hold: Hold) -> None:
    """Leave the run without an owner and its lease ended."""
    select(connection, _RELEASE, *hold.fence)


def request_cancel(connection: apsw.Connection, run_id: Text) -> bool:
    """Mark a run for whoever drives it; False if it has ended or is not there."""
    return bool(select(connection, _CANCEL, run_id))


def end_leases(connection: apsw.Connection) -> None:
    """End every lease: for a process that is alone, and so knows that all owners are dead."""
    select(connection, "UPDATE leases SET owner = '', until = 0, changes = changes + 1")


def end_leases_of(connection: apsw.Connection, owner: str) -> list[str]:
    """End the leases of a dead owner and return the runs that it had."""
    sql = "UPDATE leases SET owner = '', until = 0, changes = changes + 1 WHERE owner = ? RETURNING run"
    ended = [run for (run,) in select(connection, sql, owner)]
    return [select(connection, "SELECT id FROM runs WHERE n = ?", run)[0][0] for run in ended]


class Wanted(NamedTuple):
    """Which abandoned runs are taken: how many, one of them, or those in the background or not."""

    limit: int
    run_id: Text = None
    background: bool | None = None


def claim(connection: apsw.Connection, owner: str, now: float, until: float, wanted: Wanted) -> list[Claimed]:
    """Take the runs whose lease ended, each under a new epoch, and return their RUN_FIELDS with it."""
    taken = sorted(select(connection, _CLAIM, owner, until, now, *wanted))
    sql = f"SELECT {RUN_FIELDS} FROM runs r WHERE r.n = ?"
    found = [(select(connection, sql, run)[0], run, epoch, handed) for run, epoch, handed in taken]
    return [(values, Hold(run, owner, epoch, values[0], handed)) for values, run, epoch, handed in found]


def pin(connection: apsw.Connection, run: int, seq: int, number: int) -> int:
    """Remember a number for an entry unless there is one already; return the one that stands."""
    select(connection, "INSERT INTO pins VALUES (?, ?, ?) ON CONFLICT DO NOTHING", run, seq, number)
    return select(connection, "SELECT number FROM pins WHERE run = ? AND seq = ?", run, seq)[0][0]


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


def _check_session(connection: apsw.Connection, columns: RunColumns) -> None:
    if columns.session_id is not None and select(connection, _BUSY, columns.session_id):
        raise busy(str(columns.session_id))


def _check_idempotency(connection: apsw.Connection, columns: RunColumns) -> None:
    if columns.idempotency_key is None:
        return
    sql = "SELECT id FROM runs WHERE key_id = ? AND idempotency_key = ?"
    for (run_id,) in select(connection, sql, columns.key_id, columns.idempotency_key):
        raise Conflict(f"the idempotency key belongs to the run {run_id}", code=IDEMPOTENCY_KEY_TAKEN)


def _lost(connection: apsw.Connection, hold: Hold) -> TreadleError:
    found = select(connection, "SELECT ended_at, epoch FROM runs WHERE n = ?", hold.run)
    if not found:
        return NotFound("the run was deleted")
    ended_at, epoch = found[0]
    if ended_at is not None and epoch == hold.epoch:
        return Conflict("the run has ended", code=RUN_ENDED)
    return StoreError("another owner has taken the run over", code=LEASE_LOST)
