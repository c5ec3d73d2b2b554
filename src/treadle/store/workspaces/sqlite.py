"""Workspaces on SQLite: every write is a job for the writer thread, so that of two for one version the first wins."""

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

import apsw
import msgspec

from treadle.canon.errors import Conflict, NotFound, TreadleError, WorkspaceConflict
from treadle.store.sqlite.connection import Value, select
from treadle.store.sqlite.query import within
from treadle.store.sqlite.rows import bind_text
from treadle.store.sqlite.writer import Job
from treadle.store.workspaces.kept import (
    DECIDED,
    MOVED,
    ChangeRow,
    ProposalRow,
    ProposalStatus,
    WorkspaceRow,
)

_FIELDS = "w.id, w.name, w.key_id, w.session_id, w.created_at, w.updated_at, w.version, w.sha256, w.state"
_CHANGE = "w.id, c.version, c.run_id, c.call_id, c.sha256, c.record"
_PROPOSAL = "p.id, w.id, p.status, p.is_told, p.created_at, p.proposal, p.decision"
_OF = "JOIN workspaces w ON w.n = {}.workspace"

_INSERT = """
INSERT INTO workspaces (id, name, key_id, session_id, created_at, updated_at, version, sha256, state)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING n
"""
_FIND = f"""
SELECT {_FIELDS} FROM workspaces w
WHERE (w.id = ?1 OR (w.name = ?1 AND w.name <> '')) AND (?2 IS NULL OR w.key_id = ?2)
ORDER BY w.id = ?1 DESC, w.updated_at DESC, w.n DESC LIMIT 1
"""
_PAGE = f"""
SELECT {_FIELDS} FROM workspaces w
WHERE (?1 IS NULL OR w.key_id = ?1) AND (?2 IS NULL OR (w.updated_at, w.n) < (?2, ?3))
ORDER BY w.updated_at DESC, w.n DESC LIMIT ?4
"""
_COMMIT = (
    "UPDATE workspaces SET version = ?, updated_at = ?, sha256 = ?, state = ? WHERE id = ? AND version = ? RETURNING n"
)
_RENAME = """
UPDATE workspaces SET name = coalesce(?2, name),
 session_id = CASE WHEN ?3 IS NULL THEN session_id ELSE nullif(?3, '') END
WHERE id = ?1
"""
_ADD = "INSERT INTO workspace_changes VALUES (?, ?, ?, ?, ?, ?, ?)"
_PROPOSE = """
INSERT INTO proposals (id, workspace, status, is_told, created_at, proposal, decision) VALUES (?, ?, ?, ?, ?, ?, ?)
"""
_DECIDE = """
UPDATE proposals SET status = ?, decision = ?, is_told = ?
WHERE id = ? AND workspace = ? AND status = 'open' RETURNING n
"""
_CHANGES = f"SELECT {_CHANGE}, NULL FROM workspace_changes c {_OF.format('c')} WHERE w.id = ?1 AND "
_PROPOSALS = f"""
SELECT {_PROPOSAL} FROM proposals p {_OF.format("p")}
WHERE (?1 IS NULL OR w.id = ?1) AND (?2 IS NULL OR p.status = ?2) ORDER BY p.n DESC LIMIT ?3
"""
_UNTOLD = f"""
SELECT {_PROPOSAL} FROM proposals p {_OF.format("p")}
WHERE w.id = ? AND p.status <> 'open' AND p.is_told = 0 ORDER BY p.n
"""

T = TypeVar("T")


class Runs(Protocol):
    """Runs a job on a connection of the store."""

    async def __call__(self, job: Job[T]) -> T:
        """Return what the job returns."""
        ...


class SqliteWorkspaces:
    """Fits `kept.WorkspaceStore`, over the connections of a SqliteStore."""

    def __init__(self, read: Runs, write: Runs, forget: Runs) -> None:
        self._read = read
        self._write = write
        self._forget = forget

    async def create(self, row: WorkspaceRow, change: ChangeRow) -> None:
        """Keep a new workspace and its version 0.

        Raises: Conflict, NotFound.
        """
        values = (
            bind_text(row.id),
            bind_text(row.name),
            bind_text(row.key_id),
            bind_text(row.session_id),
            row.created_at,
            row.updated_at,
            row.version,
            row.sha256,
            bytes(row.state).decode(),
        )

        def job(connection: apsw.Connection) -> None:
            [(number,)] = select(connection, _INSERT, *values)
            select(connection, _ADD, number, *_change_values(change))

        await self._write(job)

    async def find(self, id_or_name: str, *, key_id: str | None = None) -> WorkspaceRow | None:
        """Return the workspace of that id, else the one of that name."""
        found = await self._rows(_FIND, bind_text(id_or_name), bind_text(key_id))
        return _read_workspace(found[0]) if found else None

    async def find_of_session(self, session_id: str) -> WorkspaceRow | None:
        """Return the workspace that the runs of a session work on."""
        sql = f"SELECT {_FIELDS} FROM workspaces w WHERE w.session_id = ?"
        found = await self._rows(sql, bind_text(session_id))
        return _read_workspace(found[0]) if found else None

    async def page(
        self, limit: int = 50, *, key_id: str | None = None, before: str | None = None
    ) -> list[WorkspaceRow]:
        """Return workspaces, the one changed last first.

        Raises: NotFound.
        """

        def job(connection: apsw.Connection) -> list[tuple[Any, ...]]:
            place = (None, None) if before is None else _place(connection, before)
            return select(connection, _PAGE, bind_text(key_id), *place, within(limit))

        return [_read_workspace(values) for values in await self._read(job)]

    async def commit(
        self, row: WorkspaceRow, change: ChangeRow, proposals: Sequence[ProposalRow] = (), *, base: int
    ) -> None:
        """Keep the next version, if the workspace is still at version `base`.

        Raises: WorkspaceConflict, Conflict, NotFound.
        """
        values = (row.version, row.updated_at, row.sha256, bytes(row.state).decode(), bind_text(row.id), base)

        def job(connection: apsw.Connection) -> None:
            moved = select(connection, _COMMIT, *values)
            if not moved:
                raise _missed(connection, row.id, base)
            number = moved[0][0]
            select(connection, _ADD, number, *_change_values(change))
            for proposal in proposals:
                _keep_proposal(connection, number, proposal)

        await self._write(job)

    async def update(
        self, workspace_id: str, *, name: str | None = None, session_id: str | None = None
    ) -> WorkspaceRow:
        """Give a workspace another name or bind it to a session.

        Raises: NotFound, Conflict.
        """
        bound = bind_text(workspace_id)

        def job(connection: apsw.Connection) -> list[tuple[Any, ...]]:
            select(connection, _RENAME, bound, bind_text(name), bind_text(session_id))
            return select(connection, f"SELECT {_FIELDS} FROM workspaces w WHERE w.id = ?", bound)

        found = await self._write(job)
        if not found:
            raise _unknown(workspace_id)
        return _read_workspace(found[0])

    async def changes(self, workspace_id: str, *, after: int = -1, limit: int | None = None) -> list[ChangeRow]:
        """Return the changes above version `after`, in order, without their snapshots."""
        sql = f"{_CHANGES} c.version >= ?2 ORDER BY c.version LIMIT ?3"
        count = -1 if limit is None else within(limit)
        rows = await self._rows(sql, bind_text(workspace_id), within(after + 1), count)
        return [_read_change(values) for values in rows]

    async def latest_changes(self, workspace_id: str, *, before: int | None, limit: int) -> list[ChangeRow]:
        """Return changes below version `before`, or all, newest first, without their snapshots."""
        sql = f"{_CHANGES} (?2 IS NULL OR c.version < ?2) ORDER BY c.version DESC LIMIT ?3"
        upper = None if before is None else within(before)
        return [_read_change(values) for values in await self._rows(sql, bind_text(workspace_id), upper, within(limit))]

    async def snapshot(self, workspace_id: str, version: int) -> ChangeRow | None:
        """Return the newest change up to a version that holds the whole state."""
        sql = f"""
        SELECT {_CHANGE}, c.snapshot FROM workspace_changes c {_OF.format("c")}
        WHERE w.id = ? AND c.version <= ? AND c.snapshot IS NOT NULL ORDER BY c.version DESC LIMIT 1
        """
        found = await self._rows(sql, bind_text(workspace_id), within(version))
        return _read_change(found[0]) if found else None

    async def find_call(self, workspace_id: str, run_id: str, call_id: str) -> ChangeRow | None:
        """Return the change that a call of a run made."""
        sql = f"{_CHANGES} c.run_id = ?2 AND c.call_id = ?3"
        found = await self._rows(sql, bind_text(workspace_id), bind_text(run_id), bind_text(call_id))
        return _read_change(found[0]) if found else None

    async def find_proposal(self, proposal_id: str) -> ProposalRow | None:
        """Return a proposal, open or decided."""
        sql = f"SELECT {_PROPOSAL} FROM proposals p {_OF.format('p')} WHERE p.id = ?"
        found = await self._rows(sql, bind_text(proposal_id))
        return _read_proposal(found[0]) if found else None

    async def proposals(
        self, *, workspace_id: str | None = None, status: ProposalStatus | None = None, limit: int = 100
    ) -> list[ProposalRow]:
        """Return proposals, newest first."""
        rows = await self._rows(_PROPOSALS, bind_text(workspace_id), status, within(limit))
        return [_read_proposal(values) for values in rows]

    async def untold(self, workspace_id: str) -> list[ProposalRow]:
        """Return the decided proposals that no model has heard of yet, oldest first."""
        return [_read_proposal(values) for values in await self._rows(_UNTOLD, bind_text(workspace_id))]

    async def mark_told(self, proposal_ids: Sequence[str]) -> None:
        """Remember that a model has heard of these decisions."""

        def job(connection: apsw.Connection) -> None:
            for proposal_id in proposal_ids:
                select(connection, "UPDATE proposals SET is_told = 1 WHERE id = ?", bind_text(proposal_id))

        await self._write(job)

    async def delete(self, workspace_id: str) -> bool:
        """Forget a workspace with all of its versions and proposals; tell whether there was one."""
        sql = "DELETE FROM workspaces WHERE id = ? RETURNING id"
        return bool(await self._forget(lambda connection: select(connection, sql, bind_text(workspace_id))))

    async def _rows(self, sql: str, *values: Value) -> list[tuple[Any, ...]]:
        return await self._read(lambda connection: select(connection, sql, *values))


def _keep_proposal(connection: apsw.Connection, workspace: int, row: ProposalRow) -> None:
    proposal = bytes(row.proposal).decode()
    decision = None if row.decision is None else bytes(row.decision).decode()
    row_id = bind_text(row.id)
    if row.status == "open":
        select(connection, _PROPOSE, row_id, workspace, row.status, row.is_told, row.created_at, proposal, decision)
    elif not select(connection, _DECIDE, row.status, decision, row.is_told, row_id, workspace):
        raise Conflict(f"the proposal {row.id} is decided already", code=DECIDED)


def _missed(connection: apsw.Connection, workspace_id: str, base: int) -> TreadleError:
    found = select(connection, "SELECT version FROM workspaces WHERE id = ?", bind_text(workspace_id))
    if not found:
        return _unknown(workspace_id)
    return WorkspaceConflict(f"the workspace is at version {found[0][0]}, not at {base}", code=MOVED, param="version")


def _place(connection: apsw.Connection, workspace_id: str) -> tuple[float, int]:
    found = select(connection, "SELECT updated_at, n FROM workspaces WHERE id = ?", bind_text(workspace_id))
    if not found:
        raise _unknown(workspace_id)
    return found[0][0], found[0][1]


def _change_values(change: ChangeRow) -> tuple[Value, ...]:
    snapshot = None if change.snapshot is None else bytes(change.snapshot).decode()
    calls = (bind_text(change.run_id), bind_text(change.call_id))
    return (change.version, *calls, change.sha256, bytes(change.record).decode(), snapshot)


def _read_workspace(values: Sequence[Any]) -> WorkspaceRow:
    row_id, name, key_id, session_id, created_at, updated_at, version, sha256, state = values
    return WorkspaceRow(
        id=row_id,
        name=name,
        key_id=key_id,
        session_id=session_id,
        created_at=created_at,
        updated_at=updated_at,
        version=version,
        sha256=sha256,
        state=msgspec.Raw(state),
    )


def _read_change(values: Sequence[Any]) -> ChangeRow:
    workspace_id, version, run_id, call_id, sha256, record, snapshot = values
    return ChangeRow(
        workspace_id=workspace_id,
        version=version,
        run_id=_read_text(run_id),
        call_id=_read_text(call_id),
        sha256=sha256,
        record=msgspec.Raw(record),
        snapshot=None if snapshot is None else msgspec.Raw(snapshot),
    )


def _read_proposal(values: Sequence[Any]) -> ProposalRow:
    row_id, workspace_id, status, is_told, created_at, proposal, decision = values
    return ProposalRow(
        id=row_id,
        workspace_id=workspace_id,
        status=status,
        is_told=bool(is_told),
        created_at=created_at,
        proposal=msgspec.Raw(proposal),
        decision=None if decision is None else msgspec.Raw(decision),
    )


def _read_text(value: str | bytes | None) -> str | None:
    return value.decode("utf-8", "surrogatepass") if isinstance(value, bytes) else value


def _unknown(workspace_id: str) -> NotFound:
    return NotFound(f"there is no workspace {workspace_id!r}", param="workspace")
