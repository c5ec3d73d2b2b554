"""Retention: how runs are forgotten, as jobs on a write connection.

What is deleted is overwritten in the database; the write-ahead log holds it until `empty_log` has run.
"""

import json
from collections.abc import Sequence

import apsw

from treadle.core.errors import Conflict, NotFound
from treadle.journal.run_row_hash import SealedRow, amend
from treadle.journal.sqlite.connection import BUSY_TIMEOUT_MS, Value, select
from treadle.journal.sqlite.row_mapping import SEALED_FIELDS, bind_text, read_sealed

EXPIRE_RUNS_MAX = 100
"""How many runs one transaction forgets: other writers wait meanwhile."""

_EXPIRED = """
SELECT r.n FROM runs r
WHERE r.expires_at <= ?1 AND r.ended_at IS NOT NULL
  AND (r.store = 0 OR NOT EXISTS (
    SELECT 1 FROM runs k WHERE k.conversation_id = r.conversation_id
    AND (k.expires_at IS NULL OR k.expires_at > ?1 OR k.ended_at IS NULL)))
ORDER BY r.n DESC LIMIT ?2
"""
# An error's words may quote the conversation; its code and status do not.
_FORGET_WORDS = """
UPDATE runs SET error = json_set(json_remove(error, '$.hint', '$.param'), '$.message', '')
WHERE n = ? AND error IS NOT NULL
"""
_FREE_BLOBS = """
DELETE FROM blobs WHERE sha256 IN (SELECT value FROM json_each(?))
AND NOT EXISTS (SELECT 1 FROM blob_uses u WHERE u.blob = blobs.sha256)
"""


def delete_run(connection: apsw.Connection, run_or_response_id: str) -> bool:
    """Forget one run; tell whether there was one."""
    found = select(connection, "SELECT n FROM runs WHERE id = ?1 OR response_id = ?1", bind_text(run_or_response_id))
    for (run,) in found:
        forget(connection, run)
    return bool(found)


def expire_runs(connection: apsw.Connection, now: float) -> int:
    """Forget one batch of the runs past their time and return how many."""
    found = select(connection, _EXPIRED, now, EXPIRE_RUNS_MAX)
    for (run,) in found:
        forget(connection, run)
    return len(found)


def purge_run(connection: apsw.Connection, run_id: str) -> None:
    """Forget the content of an ended run and keep its numbers.

    Raises: NotFound, Conflict.
    """
    found = select(connection, "SELECT n, ended_at FROM runs WHERE id = ?", bind_text(run_id))
    if not found:
        raise NotFound(f"there is no run {run_id!r}")
    run, ended_at = found[0]
    if ended_at is None:
        raise Conflict(f"the run {run_id} has not ended, so its content is still needed")
    _purge(connection, run)


def purge_ended(connection: apsw.Connection, run_ids: Sequence[str]) -> None:
    """Forget the content of those of the runs that have ended and are still there."""
    for run_id in run_ids:
        for (run,) in select(connection, "SELECT n FROM runs WHERE id = ? AND ended_at IS NOT NULL", bind_text(run_id)):
            _purge(connection, run)


def _purge(connection: apsw.Connection, run: int) -> None:
    [before] = _rows(connection, "r.n = ?", run)
    blobs = _blobs_of(connection, run)
    for table in ("events", "requests", "blob_uses", "chunks", "pins", "approvals"):
        select(connection, f"DELETE FROM {table} WHERE run = ?", run)
    select(connection, _FREE_BLOBS, blobs)
    select(connection, _FORGET_WORDS, run)
    select(connection, "UPDATE runs SET sha256 = '' WHERE n = ?", run)
    [after] = _rows(connection, "r.n = ?", run)
    _set_amended(connection, after, amend(before[1], after[1], is_purged=True))


def empty_log(connection: apsw.Connection) -> bool:
    """Move the write-ahead log into the database and empty it; False where others are using it just now."""
    connection.set_busy_timeout(0)
    try:
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except (apsw.BusyError, apsw.LockedError):
        return False
    finally:
        connection.set_busy_timeout(BUSY_TIMEOUT_MS)
    return True


def forget(connection: apsw.Connection, run: int) -> None:
    """Take a run out of its conversation, with all that only it needs."""
    blobs = _blobs_of(connection, run)
    previous = "(SELECT p.previous FROM runs p WHERE p.n = ?1)"
    relink(connection, f"previous = {previous}", "previous = ?1", run)
    select(connection, f"UPDATE sessions SET head = {previous} WHERE head = ?1", run)
    select(connection, "DELETE FROM runs WHERE n = ?", run)
    select(connection, _FREE_BLOBS, blobs)


def relink(connection: apsw.Connection, change: str, where: str, value: Value) -> None:
    """Change what some runs refer to, and let each row say what it was."""
    before = _rows(connection, f"r.{where}", value)
    select(connection, f"UPDATE runs SET {change} WHERE {where}", value)
    for run, row in before:
        [after] = _rows(connection, "r.n = ?", run)
        _set_amended(connection, after, amend(row, after[1]))


def _rows(connection: apsw.Connection, where: str, value: Value) -> list[tuple[int, SealedRow]]:
    found = select(connection, f"SELECT r.n, {SEALED_FIELDS} FROM runs r WHERE {where}", value)
    return [(values[0], read_sealed(values[1:])) for values in found]


def _set_amended(connection: apsw.Connection, row: tuple[int, SealedRow], amended: str | None) -> None:
    select(connection, "UPDATE runs SET amended = ? WHERE n = ?", amended, row[0])


def _blobs_of(connection: apsw.Connection, run: int) -> str:
    return json.dumps([blob for (blob,) in select(connection, "SELECT blob FROM blob_uses WHERE run = ?", run)])
