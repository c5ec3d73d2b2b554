"""Workspaces on SQLite: every write is a job for the writer thread, so that of two for one version the first wins."""

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

import apsw

from treadle.journal.sqlite.connection import select
from treadle.journal.sqlite.queries import within
from treadle.journal.sqlite.row_mapping import bind_text, read_text
from treadle.journal.sqlite.writer_thread import Job
from treadle.journal.workspaces_columns import WORKSPACE, Columns, decided, moved, unknown
from treadle.journal.workspaces_interface import ChangeRow, ProposalRow, WorkspaceRow
from treadle.journal.workspaces_queries import WorkspaceReader

_INSERT = """
INSERT INTO workspaces (id, name, key_id, session_id, created_at, updated_at, version, sha256, state)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING n
"""
_COMMIT = (
    "UPDATE workspaces SET version = ?, updated_at = ?, sha256 = ?, state = ? WHERE id = ? AND version = ? RETURNING n"
)
_RENAME = """
UPDATE workspaces SET name = coalesce(?2, name),
 session_id = CASE WHEN ?3 IS NULL THEN session_id ELSE nullif(?3, '') END
WHERE id = ?1
"""
_ADD = """
INSERT INTO workspace_changes (workspace, version, run_id, call_id, sha256, record, snapshot)
VALUES (?, ?, ?, ?, ?, ?, ?)
"""
_PROPOSE = """
INSERT INTO proposals (id, workspace, status, is_told, created_at, proposal, decision) VALUES (?, ?, ?, ?, ?, ?, ?)
"""
_DECIDE = """
UPDATE proposals SET status = ?, decision = ?, is_told = ?
WHERE id = ? AND workspace = ? AND status = 'open' RETURNING n
"""
_COLUMNS = Columns(
    bind_text=bind_text,
    read_text=read_text,
    bind_json=bytes.decode,
    read_json=str,
    within=within,
    all_rows=-1,
)

T = TypeVar("T")


class WorkspaceRuns(Protocol):
    """Runs a job on a connection of the store."""

    async def __call__(self, job: Job[T]) -> T:
        """Return what the job returns."""
        ...


class SqliteWorkspaces(WorkspaceReader):
    """Fits `kept.WorkspaceStore`, over the connections of a SqliteStore."""

    columns = _COLUMNS

    def __init__(self, read: WorkspaceRuns, write: WorkspaceRuns, forget: WorkspaceRuns) -> None:
        self._read = read
        self._write = write
        self._forget = forget

    async def fetch(self, sql: str, *values: Any) -> list[Any]:
        """Return the rows of a statement; SQLite numbers its parameters `?1`."""
        numbered = sql.replace("$", "?")
        return await self._read(lambda connection: select(connection, numbered, *values))

    async def create(self, row: WorkspaceRow, change: ChangeRow) -> None:
        """Keep a new workspace and its version 0.

        Raises: Conflict, NotFound.
        """
        texts = [bind_text(each) for each in (row.id, row.name, row.key_id, row.session_id)]
        rest = (row.created_at, row.updated_at, row.version, row.sha256, bytes(row.state).decode())

        def job(connection: apsw.Connection) -> None:
            [(number,)] = select(connection, _INSERT, *texts, *rest)
            select(connection, _ADD, number, *_COLUMNS.change_values(change))

        await self._write(job)

    async def commit(
        self, row: WorkspaceRow, change: ChangeRow, proposals: Sequence[ProposalRow] = (), *, base: int
    ) -> None:
        """Keep the next version, if the workspace is still at version `base`.

        Raises: WorkspaceConflict, Conflict, NotFound.
        """
        values = (row.version, row.updated_at, row.sha256, bytes(row.state).decode(), bind_text(row.id), base)

        def job(connection: apsw.Connection) -> None:
            taken = select(connection, _COMMIT, *values)
            if not taken:
                found = select(connection, "SELECT version FROM workspaces WHERE id = ?", bind_text(row.id))
                raise moved(found[0][0] if found else None, row.id, base)
            [(number,)] = taken
            select(connection, _ADD, number, *_COLUMNS.change_values(change))
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
            return select(connection, f"SELECT {WORKSPACE} FROM workspaces w WHERE w.id = ?", bound)

        found = await self._write(job)
        if not found:
            raise unknown(workspace_id)
        return _COLUMNS.read_workspace(found[0])

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


def _keep_proposal(connection: apsw.Connection, workspace: int, row: ProposalRow) -> None:
    if row.status == "open":
        select(connection, _PROPOSE, *_COLUMNS.proposal_values(row, workspace))
    elif not select(connection, _DECIDE, *_COLUMNS.decision_values(row, workspace)):
        raise decided(row.id)
