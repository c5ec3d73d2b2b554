"""Retention: how runs are forgotten, each time in a transaction that the caller has begun.

Locks are taken in the order in which writers take them: lease, run, blobs. What is deleted cannot be read any more;
PostgreSQL takes it off the disk when it vacuums.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from treadle.core.errors import Conflict, NotFound
from treadle.journal.postgres.connection import Connection
from treadle.journal.postgres.row_mapping import SEALED_FIELDS, bind_text, read_error, read_sealed, write_error
from treadle.journal.run_row_hash import SealedRow, amend

EXPIRE_RUNS_MAX = 100
"""How many runs one transaction forgets: others who need them wait meanwhile."""

_EXPIRED = """
SELECT r.n FROM runs r
WHERE r.expires_at <= $1 AND r.ended_at IS NOT NULL
  AND (NOT r.store OR NOT EXISTS (
    SELECT 1 FROM runs k WHERE k.conversation_id = r.conversation_id
    AND (k.expires_at IS NULL OR k.expires_at > $1 OR k.ended_at IS NULL)))
ORDER BY r.n DESC LIMIT $2 FOR UPDATE OF r SKIP LOCKED
"""
_BEFORE = "(SELECT p.previous FROM runs p WHERE p.n = $1)"


async def delete_run(connection: Connection, run_or_response_id: str) -> bool:
    """Forget one run; tell whether there was one."""
    sql = "SELECT n FROM runs WHERE id = $1 OR response_id = $1"
    found = [row[0] for row in await connection.fetch(sql, bind_text(run_or_response_id))]
    await connection.fetch("SELECT 1 FROM leases WHERE run = ANY($1::bigint[]) FOR UPDATE", found)
    locked = await connection.fetch("SELECT n FROM runs WHERE n = ANY($1::bigint[]) ORDER BY n FOR UPDATE", found)
    for row in locked:
        await forget(connection, row[0])
    return bool(locked)


async def expire_runs(connection: Connection, now: float) -> int:
    """Forget one batch of the runs past their time and return how many."""
    found = await connection.fetch(_EXPIRED, now, EXPIRE_RUNS_MAX)
    for row in found:
        await forget(connection, row[0])
    return len(found)


async def purge_run(connection: Connection, run_id: str) -> None:
    """Forget the content of an ended run and keep its numbers.

    Raises: NotFound, Conflict.
    """
    found = await _rows(connection, "id = $1", bind_text(run_id))
    if not found:
        raise NotFound(f"there is no run {run_id!r}")
    [(run, row)] = found
    if row.ended_at is None:
        raise Conflict(f"the run {run_id} has not ended, so its content is still needed")
    await _purge(connection, run, row)


async def purge_ended(connection: Connection, run_ids: Sequence[str]) -> None:
    """Forget the content of those of the runs that have ended and are still there."""
    for run_id in sorted(run_ids):
        for run, row in await _rows(connection, "id = $1", bind_text(run_id)):
            if row.ended_at is not None:
                await _purge(connection, run, row)


async def _purge(connection: Connection, run: int, before: SealedRow) -> None:
    error = await connection.fetchval("SELECT error FROM runs WHERE n = $1", run)
    blobs = await _blobs_of(connection, run)
    for table in ("events", "requests", "blob_uses", "chunks", "pins", "approvals"):
        await connection.execute(f"DELETE FROM {table} WHERE run = $1", run)
    await _free_blobs(connection, blobs)
    # An error's words may quote the conversation; its code and status do not.
    wordless = None
    if error is not None:
        wordless = write_error(msgspec.structs.replace(read_error(error), message="", hint=None, param=None))
    await connection.execute("UPDATE runs SET error = $2, sha256 = '' WHERE n = $1", run, wordless)
    [(_, after)] = await _rows(connection, "n = $1", run)
    await _set_amended(connection, run, amend(before, after, is_purged=True))


async def forget(connection: Connection, run: int) -> None:
    """Take a run out of its conversation, with all that only it needs."""
    blobs = await _blobs_of(connection, run)
    await relink(connection, f"previous = {_BEFORE}", "previous = $1", run)
    await connection.execute(f"UPDATE sessions SET head = {_BEFORE} WHERE head = $1", run)
    await connection.execute("DELETE FROM chunks WHERE run = $1", run)
    await connection.execute("DELETE FROM runs WHERE n = $1", run)
    await _free_blobs(connection, blobs)


async def relink(connection: Connection, change: str, where: str, value: Any) -> None:
    """Change what some runs refer to, and let each row say what it was."""
    before = await _rows(connection, where, value)
    await connection.execute(f"UPDATE runs SET {change} WHERE {where}", value)
    for run, row in before:
        [(_, after)] = await _rows(connection, "n = $1", run)
        await _set_amended(connection, run, amend(row, after))


async def _rows(connection: Connection, where: str, value: Any) -> list[tuple[int, SealedRow]]:
    """Return the sealed rows of some runs, which are locked; each as its last writer left it."""
    locked = await connection.fetch(f"SELECT n FROM runs WHERE {where} ORDER BY n FOR UPDATE", value)
    sql = f"SELECT r.n, {SEALED_FIELDS} FROM runs r WHERE r.n = ANY($1::bigint[]) ORDER BY r.n"
    found = await connection.fetch(sql, [row[0] for row in locked]) if locked else []
    return [(values[0], read_sealed(values[1:])) for values in map(tuple, found)]


async def _set_amended(connection: Connection, run: int, amended: str | None) -> None:
    bound = None if amended is None else bind_text(amended)
    await connection.execute("UPDATE runs SET amended = $2 WHERE n = $1", run, bound)


async def _blobs_of(connection: Connection, run: int) -> list[str]:
    return [row[0] for row in await connection.fetch("SELECT blob FROM blob_uses WHERE run = $1", run)]


async def _free_blobs(connection: Connection, blobs: list[str]) -> None:
    """Delete the blobs that nobody uses any more; locked first, so that a new use is seen by the second statement."""
    if blobs:
        locked = "SELECT 1 FROM blobs WHERE sha256 = ANY($1::text[]) ORDER BY sha256 FOR UPDATE"
        await connection.fetch(locked, blobs)
        unused = "NOT EXISTS (SELECT 1 FROM blob_uses u WHERE u.blob = blobs.sha256)"
        await connection.execute(f"DELETE FROM blobs WHERE sha256 = ANY($1::text[]) AND {unused}", blobs)
