"""Reads and writes sessions, as steps for either database; the writes run in a transaction."""

from typing import Any, NoReturn

import msgspec

from treadle.core.errors import Conflict, NotFound
from treadle.journal.journal_interface import SessionKind, SessionRow
from treadle.journal.retention import Retention
from treadle.journal.run_queries import run_number
from treadle.journal.sql_steps import SqlDialect, Steps, within

_FIELDS = """s.id, s.name, s.key_id, s.created_at, s.updated_at,
 (SELECT h.id FROM runs h WHERE h.n = s.head), s.kind, s.metadata"""
_FIND = f"""
SELECT {_FIELDS} FROM sessions s
WHERE (s.id = $1 OR (s.name = $1 AND s.name <> '')) AND (CAST($2 AS text) IS NULL OR s.key_id = $2)
ORDER BY s.id = $1 DESC, s.updated_at DESC, s.n DESC LIMIT 1
"""
_BY_ID = f"SELECT {_FIELDS} FROM sessions s WHERE s.id = $1"
_INSERT = """
INSERT INTO sessions (id, name, key_id, created_at, updated_at, head, kind, metadata)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
"""
_UPDATE = "UPDATE sessions SET name = coalesce($2, name), metadata = coalesce($3, metadata) WHERE id = $1"


class SessionQueries:
    """The steps of sessions in one database's SQL."""

    def __init__(self, dialect: SqlDialect, retention: Retention) -> None:
        self._dialect = dialect
        self._retention = retention
        self._lock = f"SELECT n FROM sessions WHERE id = $1{dialect.lock}"
        name_holds, content_holds = (dialect.holds.format(each, "{0}") for each in ("s.name", "e.content"))
        self._holds = f"""({name_holds} OR EXISTS (
  SELECT 1 FROM runs r JOIN events e ON e.run = r.n
  WHERE r.session_id = s.id AND r.store AND e.kind IN ('user', 'assistant') AND {content_holds}))"""

    def find(self, id_or_name: str, key_id: str | None) -> Steps[SessionRow | None]:
        """Return the session of that id or name."""
        bind = self._dialect.bind_text
        found = yield _FIND, bind(id_or_name), bind(key_id)
        return self._read(found[0]) if found else None

    def page(
        self, limit: int, before: str | None, kind: SessionKind, key_id: str | None, search: str | None
    ) -> Steps[list[SessionRow]]:
        """Return sessions, the one used last first.

        Raises: NotFound.
        """
        bind = self._dialect.bind_text
        conditions, values = ["s.kind = $1"], list[Any]([kind])
        if key_id is not None:
            values.append(bind(key_id))
            conditions.append(f"s.key_id = ${len(values)}")
        if before is not None:
            found = yield "SELECT updated_at, n FROM sessions WHERE id = $1", bind(before)
            if not found:
                _refuse_unknown(before)
            values.extend(found[0])
            place = f"(CAST(${len(values) - 1} AS double precision), CAST(${len(values)} AS bigint))"
            conditions.append(f"(s.updated_at, s.n) < {place}")
        if search:
            values.append(bind(self._dialect.fold_case(search)))
            conditions.append(self._holds.format(f"${len(values)}"))
        where = " AND ".join(conditions)
        order = f"ORDER BY s.updated_at DESC, s.n DESC LIMIT ${len(values) + 1}"
        found = yield f"SELECT {_FIELDS} FROM sessions s WHERE {where} {order}", *values, within(limit)
        return [self._read(row) for row in found]

    def create(self, row: SessionRow) -> Steps[bool]:
        """Store a new session.

        Raises: NotFound, ProtocolError.
        """
        plain = self._dialect.bind_plain
        texts = [plain(f"sessions.{name}", getattr(row, name)) for name in ("id", "name", "key_id")]
        head = None if row.head_run_id is None else (yield from run_number(self._dialect, row.head_run_id))
        metadata = self._dialect.bind_raw(row.metadata)
        yield _INSERT, *texts, row.created_at, row.updated_at, head, row.kind, metadata
        return True

    def is_created(self, row: SessionRow) -> Steps[bool | None]:
        """Return True if exactly this session is there, else None."""
        return (yield from self.find(row.id, None)) == row or None

    def update(self, session_id: str, name: str | None, metadata: msgspec.Raw | None) -> Steps[SessionRow]:
        """Change a session's name or metadata.

        Raises: NotFound, ProtocolError.
        """
        dialect = self._dialect
        bound = dialect.bind_text(session_id)
        yield _UPDATE, bound, dialect.bind_plain("sessions.name", name), dialect.bind_raw(metadata)
        found = yield _BY_ID, bound
        if not found:
            _refuse_unknown(session_id)
        return self._read(found[0])

    def move_head(self, session_id: str, run_id: str | None, expected: str | None, now: float) -> Steps[bool]:
        """Let a session continue from a run, or from its beginning, if its head is the expected one.

        Raises: NotFound, Conflict.
        """
        bound = self._dialect.bind_text(session_id)
        if self._dialect.lock:
            # A separate statement: the one that waited for the lock does not see runs that started while it waited.
            yield self._lock, bound
        found = yield _BY_ID, bound
        if not found:
            _refuse_unknown(session_id)
        head_run_id = self._read(found[0]).head_run_id
        if head_run_id != expected:
            raise Conflict(f"the session {session_id} stands at {head_run_id}, not at {expected}")
        head = None if run_id is None else (yield from run_number(self._dialect, run_id))
        yield "UPDATE sessions SET head = $2, updated_at = $3 WHERE id = $1", bound, head, now
        return True

    def is_moved(self, session_id: str, run_id: str | None) -> Steps[bool | None]:
        """Return True if the session's head is this run, else None."""
        found = yield from self.find(session_id, None)
        return (found is not None and (found.id, found.head_run_id) == (session_id, run_id)) or None

    def delete(self, session_id: str, with_runs: bool) -> Steps[bool]:
        """Forget a session; its runs too, or they stay without a session. Return whether it was there.

        Raises: Conflict.
        """
        bound, lock = self._dialect.bind_text(session_id), self._dialect.lock
        if lock:
            # A run that starts in the session waits for this lock, and then finds no session.
            yield self._lock, bound
        runs = yield f"SELECT n, id, ended_at FROM runs WHERE session_id = $1 ORDER BY n DESC{lock}", bound
        for _, run_id, ended_at in runs:
            if ended_at is None:
                raise Conflict(f"the run {run_id} of the session {session_id} has not ended", hint="cancel it first")
        if with_runs:
            for row in runs:
                yield from self._retention.forget(row[0])
        yield from self._retention.relink("session_id = NULL", "session_id = $1", bound)
        return bool((yield "DELETE FROM sessions WHERE id = $1 RETURNING 1", bound))

    def _read(self, values: Any) -> SessionRow:
        row_id, name, key_id, created_at, updated_at, head_run_id, kind, metadata = values
        dialect = self._dialect
        return SessionRow(
            id=dialect.text(row_id),
            name=dialect.text(name),
            key_id=dialect.text(key_id),
            created_at=created_at,
            updated_at=updated_at,
            head_run_id=dialect.text_or_none(head_run_id),
            kind=kind,
            metadata=dialect.read_raw(metadata),
        )


def _refuse_unknown(session_id: str) -> NoReturn:
    raise NotFound(f"there is no session {session_id!r}")
