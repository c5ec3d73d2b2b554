"""Workspaces on PostgreSQL: a commit is one transaction whose first statement is the check of the version.

A write whose answer was lost is looked for by its hash before it is tried again.
"""

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from treadle.journal.postgres.connection import Connection, Work
from treadle.journal.postgres.queries import within
from treadle.journal.postgres.row_mapping import bind_data, bind_plain, bind_text, read_data, read_text
from treadle.journal.workspaces_columns import WORKSPACE, Columns, decided, moved, unknown
from treadle.journal.workspaces_interface import ChangeRow, ProposalRow, WorkspaceRow
from treadle.journal.workspaces_queries import WorkspaceReader

_INSERT = """
INSERT INTO workspaces (id, name, key_id, session_id, created_at, updated_at, version, sha256, state)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) RETURNING n
"""
_COMMIT = """
UPDATE workspaces SET version = $1, updated_at = $2, sha256 = $3, state = $4 WHERE id = $5 AND version = $6 RETURNING n
"""
_RENAME = f"""
WITH w AS (
  UPDATE workspaces SET name = coalesce($2, name),
    session_id = CASE WHEN $3::text IS NULL THEN session_id ELSE nullif($3, '') END
  WHERE id = $1 RETURNING *
)
SELECT {WORKSPACE} FROM w
"""
_VERSION = "SELECT version FROM workspaces WHERE id = $1"
_ADD = """
INSERT INTO workspace_changes (workspace, version, run_id, call_id, sha256, record, snapshot)
VALUES ($1, $2, $3, $4, $5, $6, $7)
"""
_PROPOSE = """
INSERT INTO proposals (id, workspace, status, is_told, created_at, proposal, decision)
VALUES ($1, $2, $3, $4, $5, $6, $7)
"""
_DECIDE = """
UPDATE proposals SET status = $1, decision = $2, is_told = $3
WHERE id = $4 AND workspace = $5 AND status = 'open' RETURNING n
"""
_KNOWN = """
SELECT 1 FROM workspace_changes c JOIN workspaces w ON w.n = c.workspace
WHERE w.id = $1 AND c.version = $2 AND c.sha256 = $3
"""
_COLUMNS = Columns(
    bind_text=bind_text,
    read_text=read_text,
    bind_json=bind_data,
    read_json=read_data,
    within=within,
    all_rows=None,
)

T = TypeVar("T")


class Reads(Protocol):
    """Runs work that changes nothing on a connection of the store."""

    async def __call__(self, work: Work[T]) -> T:
        """Return what the work returns."""
        ...


class WorkspaceWrites(Protocol):
    """Runs work to its end on a connection; `settle` looks whether work whose answer was lost was done."""

    async def __call__(self, work: Work[T], settle: Work[T | None] | None = None) -> T:
        """Return what the work returns."""
        ...


class PostgresWorkspaces(WorkspaceReader):
    """Fits `kept.WorkspaceStore`, over the connections of a PostgresStore."""

    columns = _COLUMNS

    def __init__(self, read: Reads, write: WorkspaceWrites, forget: Reads) -> None:
        self._read = read
        self._write = write
        self._forget = forget

    async def fetch(self, sql: str, *values: Any) -> list[Any]:
        """Return the rows of a statement."""
        return await self._read(lambda connection: connection.fetch(sql, *values))

    async def create(self, row: WorkspaceRow, change: ChangeRow) -> None:
        """Keep a new workspace and its version 0.

        Raises: Conflict, NotFound, ProtocolError.
        """
        texts = [bind_plain(f"workspaces.{name}", getattr(row, name)) for name in ("id", "name", "key_id")]
        rest = (bind_text(row.session_id), row.created_at, row.updated_at, row.version, row.sha256)

        async def work(connection: Connection) -> bool:
            async with connection.transaction():
                number = await connection.fetchval(_INSERT, *texts, *rest, bind_data(bytes(row.state)))
                await connection.execute(_ADD, number, *_COLUMNS.change_values(change))
            return True

        await self._write(work, _known(change))

    async def commit(
        self, row: WorkspaceRow, change: ChangeRow, proposals: Sequence[ProposalRow] = (), *, base: int
    ) -> None:
        """Keep the next version, if the workspace is still at version `base`.

        Raises: WorkspaceConflict, Conflict, NotFound.
        """
        state = bind_data(bytes(row.state))
        values = (row.version, row.updated_at, row.sha256, state, bind_text(row.id), base)

        async def work(connection: Connection) -> bool:
            async with connection.transaction():
                number = await connection.fetchval(_COMMIT, *values)
                if number is None:
                    version = await connection.fetchval(_VERSION, bind_text(row.id))
                    raise moved(version, row.id, base)
                await connection.execute(_ADD, number, *_COLUMNS.change_values(change))
                for proposal in proposals:
                    await _keep_proposal(connection, number, proposal)
            return True

        await self._write(work, _known(change))

    async def update(
        self, workspace_id: str, *, name: str | None = None, session_id: str | None = None
    ) -> WorkspaceRow:
        """Give a workspace another name or bind it to a session.

        Raises: NotFound, Conflict, ProtocolError.
        """
        values = (bind_text(workspace_id), bind_plain("workspaces.name", name), bind_text(session_id))
        found = await self._write(lambda connection: connection.fetchrow(_RENAME, *values))
        if found is None:
            raise unknown(workspace_id)
        return _COLUMNS.read_workspace(found)

    async def mark_told(self, proposal_ids: Sequence[str]) -> None:
        """Remember that a model has heard of these decisions."""
        sql = "UPDATE proposals SET is_told = true WHERE id = ANY($1::text[])"
        ids = [bind_text(proposal_id) for proposal_id in proposal_ids]
        await self._write(lambda connection: connection.execute(sql, ids))

    async def delete(self, workspace_id: str) -> bool:
        """Forget a workspace with all of its versions and proposals; tell whether there was one."""
        sql = "DELETE FROM workspaces WHERE id = $1 RETURNING 1"
        found = await self._forget(lambda connection: connection.fetchval(sql, bind_text(workspace_id)))
        return found is not None


async def _keep_proposal(connection: Connection, workspace: int, row: ProposalRow) -> None:
    if row.status == "open":
        await connection.execute(_PROPOSE, *_COLUMNS.proposal_values(row, workspace))
    elif await connection.fetchval(_DECIDE, *_COLUMNS.decision_values(row, workspace)) is None:
        raise decided(row.id)


def _known(change: ChangeRow) -> Work[bool | None]:
    """Return work that looks whether this very change is there."""
    values = (bind_text(change.workspace_id), change.version, change.sha256)

    async def settle(connection: Connection) -> bool | None:
        return await connection.fetchval(_KNOWN, *values) is not None or None

    return settle
