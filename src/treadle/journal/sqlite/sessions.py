"""Sessions, as jobs: reads on any connection, writes on a write connection."""

import apsw
import msgspec

from treadle.core.errors import Conflict, NotFound
from treadle.journal.journal_interface import SessionKind, SessionRow
from treadle.journal.sqlite.connection import Value, select
from treadle.journal.sqlite.queries import run_number, within
from treadle.journal.sqlite.retention import forget, relink
from treadle.journal.sqlite.row_mapping import SESSION_FIELDS, Text, bind_json, bind_text, read_session

_FIND = f"""
SELECT {SESSION_FIELDS} FROM sessions s
WHERE (s.id = ?1 OR (s.name = ?1 AND s.name <> '')) AND (?2 IS NULL OR s.key_id = ?2)
ORDER BY s.id = ?1 DESC, s.updated_at DESC, s.n DESC LIMIT 1
"""
_LIST = f"SELECT {SESSION_FIELDS} FROM sessions s WHERE {{}} ORDER BY s.updated_at DESC, s.n DESC LIMIT ?"
_BEFORE = "(s.updated_at, s.n) < (?, ?)"
_HOLDS = """(holds(s.name, ?) OR EXISTS (
  SELECT 1 FROM runs r JOIN events e ON e.run = r.n
  WHERE r.session_id = s.id AND r.store = 1 AND e.kind IN ('user', 'assistant') AND holds(e.content, ?)))"""
_INSERT = """
INSERT INTO sessions (id, name, key_id, created_at, updated_at, head, kind, metadata) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""
_UPDATE = "UPDATE sessions SET name = coalesce(?, name), metadata = coalesce(?, metadata) WHERE id = ?"
_BY_ID = f"SELECT {SESSION_FIELDS} FROM sessions s WHERE s.id = ?"


def find(connection: apsw.Connection, id_or_name: str, key_id: str | None) -> SessionRow | None:
    """Return the session of that id or name."""
    found = select(connection, _FIND, bind_text(id_or_name), bind_text(key_id))
    return read_session(found[0]) if found else None


def page(
    connection: apsw.Connection,
    limit: int,
    before: str | None,
    only: tuple[SessionKind, str | None, str | None],
) -> list[SessionRow]:
    """Return sessions, the one used last first; `only` narrows by kind, key and text.

    Raises: NotFound.
    """
    kind, key_id, search = only
    conditions, values = ["s.kind = ?"], list[Value]([kind])
    if key_id is not None:
        conditions.append("s.key_id = ?")
        values.append(bind_text(key_id))
    if before is not None:
        conditions.append(_BEFORE)
        values.extend(_place(connection, before))
    if search:
        conditions.append(_HOLDS)
        values.extend([_fold(search)] * 2)
    sql = _LIST.format(" AND ".join(conditions))
    return [read_session(found) for found in select(connection, sql, *values, within(limit))]


def create(connection: apsw.Connection, row: SessionRow) -> None:
    """Keep a new session.

    Raises: NotFound.
    """
    head = None if row.head_run_id is None else run_number(connection, row.head_run_id)
    texts = (bind_text(row.id), bind_text(row.name), bind_text(row.key_id))
    select(connection, _INSERT, *texts, row.created_at, row.updated_at, head, row.kind, _metadata(row.metadata))


def update(connection: apsw.Connection, session_id: str, name: str | None, metadata: msgspec.Raw | None) -> SessionRow:
    """Give a session another name or other metadata.

    Raises: NotFound.
    """
    select(connection, _UPDATE, bind_text(name), _metadata(metadata), bind_text(session_id))
    found = select(connection, _BY_ID, bind_text(session_id))
    if not found:
        raise _unknown(session_id)
    return read_session(found[0])


def move_head(
    connection: apsw.Connection, session_id: str, run_id: str | None, expected: str | None, now: float
) -> None:
    """Let a session go on from a run, or from its beginning, if it still stands where it is expected.

    Raises: NotFound, Conflict.
    """
    found = select(connection, _BY_ID, bind_text(session_id))
    if not found:
        raise _unknown(session_id)
    stands = read_session(found[0]).head_run_id
    if stands != expected:
        raise Conflict(f"the session {session_id} stands at {stands}, not at {expected}")
    head = None if run_id is None else run_number(connection, run_id)
    select(connection, "UPDATE sessions SET head = ?, updated_at = ? WHERE id = ?", head, now, session_id)


def delete(connection: apsw.Connection, session_id: str, with_runs: bool) -> bool:
    """Forget a session, its runs too or letting them stand alone; tell whether there was one.

    Raises: Conflict.
    """
    bound = bind_text(session_id)
    runs = select(connection, "SELECT n, id, ended_at FROM runs WHERE session_id = ? ORDER BY n DESC", bound)
    for _, run_id, ended_at in runs:
        if ended_at is None:
            raise Conflict(f"the run {run_id} of the session {session_id} has not ended", hint="cancel it first")
    if with_runs:
        for run, _, _ in runs:
            forget(connection, run)
    relink(connection, "session_id = NULL", "session_id = ?1", bound)
    return bool(select(connection, "DELETE FROM sessions WHERE id = ? RETURNING id", bound))


def _place(connection: apsw.Connection, session_id: str) -> tuple[float, int]:
    found = select(connection, "SELECT updated_at, n FROM sessions WHERE id = ?", bind_text(session_id))
    if not found:
        raise _unknown(session_id)
    return found[0][0], found[0][1]


def _fold(search: str) -> Text:
    return bind_text(search.casefold())


def _metadata(raw: msgspec.Raw | None) -> Text:
    return None if raw is None else bind_json(bytes(raw))


def _unknown(session_id: str) -> NotFound:
    return NotFound(f"there is no session {session_id!r}")
