"""Sessions: reads on any connection; writes are one statement, or part of a transaction that the caller has begun."""

from typing import Any

import msgspec

from treadle.core.errors import Conflict, NotFound
from treadle.journal.journal_interface import SessionKind, SessionRow
from treadle.journal.postgres.connection import Connection
from treadle.journal.postgres.queries import run_number, within
from treadle.journal.postgres.retention import forget, relink
from treadle.journal.postgres.row_mapping import (
    SESSION_FIELDS,
    bind_data,
    bind_plain,
    bind_text,
    read_session,
    read_text,
)

_FIND = f"""
SELECT {SESSION_FIELDS} FROM sessions s
WHERE (s.id = $1 OR (s.name = $1 AND s.name <> '')) AND ($2::text IS NULL OR s.key_id = $2)
ORDER BY s.id = $1 DESC, s.updated_at DESC, s.n DESC LIMIT 1
"""
_PAGE = f"SELECT {SESSION_FIELDS} FROM sessions s WHERE {{}} ORDER BY s.updated_at DESC, s.n DESC LIMIT {{}}"
_HOLDS = """(strpos(lower(s.name), lower({0})) > 0 OR EXISTS (
  SELECT 1 FROM runs r JOIN events e ON e.run = r.n
  WHERE r.session_id = s.id AND r.store AND e.kind IN ('user', 'assistant')
    AND strpos(lower(e.content), lower({0})) > 0))"""
_INSERT = """
INSERT INTO sessions (id, name, key_id, created_at, updated_at, head, kind, metadata)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
"""
_UPDATE = f"""
WITH s AS (
  UPDATE sessions SET name = coalesce($2, name), metadata = coalesce($3, metadata) WHERE id = $1 RETURNING *
)
SELECT {SESSION_FIELDS} FROM s
"""


async def find(connection: Connection, id_or_name: str, key_id: str | None) -> SessionRow | None:
    """Return the session of that id or name."""
    found = await connection.fetchrow(_FIND, bind_text(id_or_name), bind_text(key_id))
    return None if found is None else read_session(found)


async def page(
    connection: Connection, limit: int, before: str | None, only: tuple[SessionKind, str | None, str | None]
) -> list[SessionRow]:
    """Return sessions, the one used last first; `only` narrows by kind, key and text.

    Raises: NotFound.
    """
    kind, key_id, search = only
    values: list[Any] = [kind]
    conditions = ["s.kind = $1"]
    if key_id is not None:
        values.append(bind_text(key_id))
        conditions.append(f"s.key_id = ${len(values)}")
    if before is not None:
        values.extend(await _place(connection, before))
        conditions.append(f"(s.updated_at, s.n) < (${len(values) - 1}::float8, ${len(values)}::bigint)")
    if search:
        values.append(bind_text(search))
        conditions.append(_HOLDS.format(f"${len(values)}::text"))
    sql = _PAGE.format(" AND ".join(conditions), f"${len(values) + 1}")
    return [read_session(found) for found in await connection.fetch(sql, *values, within(limit))]


async def create(connection: Connection, row: SessionRow) -> None:
    """Keep a new session.

    Raises: NotFound, ProtocolError.
    """
    texts = [bind_plain(f"sessions.{name}", getattr(row, name)) for name in ("id", "name", "key_id")]
    head = None if row.head_run_id is None else await run_number(connection, row.head_run_id)
    metadata = _metadata(row.metadata)
    await connection.execute(_INSERT, *texts, row.created_at, row.updated_at, head, row.kind, metadata)


async def update(connection: Connection, session_id: str, name: str | None, metadata: msgspec.Raw | None) -> SessionRow:
    """Give a session another name or other metadata.

    Raises: NotFound, ProtocolError.
    """
    bound = bind_plain("sessions.name", name)
    found = await connection.fetchrow(_UPDATE, bind_text(session_id), bound, _metadata(metadata))
    if found is None:
        raise _unknown(session_id)
    return read_session(found)


async def move_head(
    connection: Connection, session_id: str, run_id: str | None, expected: str | None, now: float
) -> None:
    """Let a session go on from a run, or from its beginning, if it still stands where it is expected.

    Raises: NotFound, Conflict.
    """
    found = await connection.fetchrow("SELECT head FROM sessions WHERE id = $1 FOR UPDATE", bind_text(session_id))
    if found is None:
        raise _unknown(session_id)
    # A statement of its own: the one that waited for the lock does not see runs begun meanwhile.
    stands_at = read_text(await connection.fetchval("SELECT id FROM runs WHERE n = $1", found[0]))
    if stands_at != expected:
        raise Conflict(f"the session {session_id} stands at {stands_at}, not at {expected}")
    head = None if run_id is None else await run_number(connection, run_id)
    sql = "UPDATE sessions SET head = $2, updated_at = $3 WHERE id = $1"
    await connection.execute(sql, bind_text(session_id), head, now)


async def delete(connection: Connection, session_id: str, with_runs: bool) -> bool:
    """Forget a session, its runs too or letting them stand alone; tell whether there was one.

    Raises: Conflict.
    """
    bound = bind_text(session_id)
    # Whoever starts a run in the session waits for this lock, and then finds no session.
    await connection.execute("SELECT 1 FROM sessions WHERE id = $1 FOR UPDATE", bound)
    sql = "SELECT n, id, ended_at FROM runs WHERE session_id = $1 ORDER BY n DESC FOR UPDATE"
    runs = await connection.fetch(sql, bound)
    for _, run_id, ended_at in runs:
        if ended_at is None:
            raise Conflict(f"the run {run_id} of the session {session_id} has not ended", hint="cancel it first")
    if with_runs:
        for row in runs:
            await forget(connection, row[0])
    await relink(connection, "session_id = NULL", "session_id = $1", bound)
    return await connection.fetchval("DELETE FROM sessions WHERE id = $1 RETURNING 1", bound) is not None


async def _place(connection: Connection, session_id: str) -> tuple[float, int]:
    found = await connection.fetchrow("SELECT updated_at, n FROM sessions WHERE id = $1", bind_text(session_id))
    if found is None:
        raise _unknown(session_id)
    return found[0], found[1]


def _metadata(raw: msgspec.Raw | None) -> str | None:
    return None if raw is None else bind_data(bytes(raw))


def _unknown(session_id: str) -> NotFound:
    return NotFound(f"there is no session {session_id!r}")
