"""Forgets runs and their content, as steps for either database; a caller runs them in a transaction.

Locks are taken in the order in which writers take them: lease, run, blobs. The rows that change are locked where a
database lets several writers in at once.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from treadle.core.errors import Conflict, ErrorInfo, NotFound
from treadle.core.json import write_json
from treadle.journal.run_row_hash import SealedRow, amend
from treadle.journal.sql_steps import SqlDialect, Steps

EXPIRE_RUNS_MAX = 100
"""How many runs one transaction forgets: other writers wait until it is committed."""

_EXPIRED = """
SELECT r.n FROM runs r
WHERE r.expires_at <= $1 AND r.ended_at IS NOT NULL
  AND (NOT r.store OR NOT EXISTS (
    SELECT 1 FROM runs k WHERE k.conversation_id = r.conversation_id
    AND (k.expires_at IS NULL OR k.expires_at > $1 OR k.ended_at IS NULL)))
ORDER BY r.n DESC LIMIT $2
"""
_PREVIOUS = "(SELECT p.previous FROM runs p WHERE p.n = $1)"
_CONTENT = ("events", "requests", "blob_uses", "chunks", "pins", "approvals")
_error = msgspec.json.Decoder(ErrorInfo)


class Retention:
    """The steps that forget, in one database's SQL."""

    def __init__(self, dialect: SqlDialect) -> None:
        self._dialect = dialect
        self._expired = f"{_EXPIRED} FOR UPDATE OF r SKIP LOCKED" if dialect.lock else _EXPIRED

    def delete_run(self, run_or_response_id: str) -> Steps[bool]:
        """Forget one run and return whether it was there."""
        lock = self._dialect.lock
        bound = self._dialect.bind_text(run_or_response_id)
        found = yield "SELECT n FROM runs WHERE id = $1 OR response_id = $1", bound
        if lock and found:
            runs = [row[0] for row in found]
            yield f"SELECT 1 FROM leases WHERE run = ANY($1::bigint[]){lock}", runs
            found = yield f"SELECT n FROM runs WHERE n = ANY($1::bigint[]) ORDER BY n{lock}", runs
        for row in found:
            yield from self.forget(row[0])
        return bool(found)

    def expire_runs(self, now: float) -> Steps[int]:
        """Forget one batch of the runs whose time is over and return how many."""
        found = yield self._expired, now, EXPIRE_RUNS_MAX
        for row in found:
            yield from self.forget(row[0])
        return len(found)

    def purge_run(self, run_id: str) -> Steps[None]:
        """Delete the content of an ended run; its row and counts stay.

        Raises: NotFound, Conflict.
        """
        found = yield from self._sealed_rows("id = $1", self._dialect.bind_text(run_id))
        if not found:
            raise NotFound(f"there is no run {run_id!r}")
        [(run, row)] = found
        if row.ended_at is None:
            raise Conflict(f"the run {run_id} has not ended, so its content is still needed")
        yield from self._purge(run, row)

    def purge_ended(self, run_ids: Sequence[str]) -> Steps[None]:
        """Forget the content of those of the runs that have ended and are still there."""
        # All writers lock runs in the same order, so that they do not wait for each other in a circle.
        for run_id in sorted(run_ids):
            for run, row in (yield from self._sealed_rows("id = $1", self._dialect.bind_text(run_id))):
                if row.ended_at is not None:
                    yield from self._purge(run, row)

    def forget(self, run: int) -> Steps[None]:
        """Take a run out of its conversation, with all that only it needs."""
        blobs = yield from self._blobs_of(run)
        yield from self.relink(f"previous = {_PREVIOUS}", "previous = $1", run)
        yield f"UPDATE sessions SET head = {_PREVIOUS} WHERE head = $1", run
        yield "DELETE FROM chunks WHERE run = $1", run
        yield "DELETE FROM runs WHERE n = $1", run
        yield from self._delete_unused(blobs)

    def relink(self, change: str, where: str, value: Any) -> Steps[None]:
        """Change what some runs refer to, and note in each row what it was."""
        before = yield from self._sealed_rows(where, value)
        yield f"UPDATE runs SET {change} WHERE {where}", value
        for run, row in before:
            yield from self._amend(run, row, is_purged=False)

    def _purge(self, run: int, before: SealedRow) -> Steps[None]:
        [(error,)] = yield "SELECT error FROM runs WHERE n = $1", run
        blobs = yield from self._blobs_of(run)
        for table in _CONTENT:
            yield f"DELETE FROM {table} WHERE run = $1", run
        yield from self._delete_unused(blobs)
        yield "UPDATE runs SET error = $2, sha256 = '' WHERE n = $1", run, self._without_words(error)
        yield from self._amend(run, before, is_purged=True)

    def _without_words(self, error: Any) -> Any:
        if error is None:
            return None
        # An error's words may quote the conversation; its code and status do not.
        found = _error.decode(self._dialect.read_json(error))
        return self._dialect.bind_json(write_json(msgspec.structs.replace(found, message="", hint=None, param=None)))

    def _amend(self, run: int, before: SealedRow, *, is_purged: bool) -> Steps[None]:
        [(_, after)] = yield from self._sealed_rows("n = $1", run)
        amended = self._dialect.bind_text(amend(before, after, is_purged=is_purged))
        yield "UPDATE runs SET amended = $2 WHERE n = $1", run, amended

    def _sealed_rows(self, where: str, value: Any) -> Steps[list[tuple[int, SealedRow]]]:
        """Return the sealed rows of some runs; locked first, so that each is as its last writer left it."""
        lock = self._dialect.lock
        if lock and not (yield f"SELECT n FROM runs WHERE {where} ORDER BY n{lock}", value):
            return []
        sql = f"SELECT r.n, {self._dialect.sealed_fields} FROM runs r WHERE r.{where} ORDER BY r.n"
        found = yield sql, value
        return [(values[0], self._dialect.read_sealed(values[1:])) for values in map(tuple, found)]

    def _blobs_of(self, run: int) -> Steps[list[str]]:
        found = yield "SELECT blob FROM blob_uses WHERE run = $1", run
        return [row[0] for row in found]

    def _delete_unused(self, blobs: list[str]) -> Steps[None]:
        """Delete those of the blobs that no run uses; locked first, so that the second statement sees a new use."""
        if not blobs:
            return
        bound, named = self._dialect.bind_list(blobs), f"sha256 {self._dialect.in_list.format('$1')}"
        if self._dialect.lock:
            yield f"SELECT 1 FROM blobs WHERE {named} ORDER BY sha256{self._dialect.lock}", bound
        unused = "NOT EXISTS (SELECT 1 FROM blob_uses u WHERE u.blob = blobs.sha256)"
        yield f"DELETE FROM blobs WHERE {named} AND {unused}", bound
