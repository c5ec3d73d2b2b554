"""Reading workspaces: the same statements on every database, their parameters written `$1`.

A statement's word for "any" is NULL; its type is said, because PostgreSQL wants to know.
"""

from abc import ABC, abstractmethod
from typing import Any

from treadle.journal.workspaces_columns import CHANGE, PROPOSAL, WORKSPACE, Columns, unknown
from treadle.journal.workspaces_interface import ChangeRow, ProposalRow, ProposalStatus, WorkspaceRow

_CHANGES = f"SELECT {CHANGE} FROM workspace_changes c JOIN workspaces w ON w.n = c.workspace WHERE w.id = $1"
_PROPOSALS = f"SELECT {PROPOSAL} FROM proposals p JOIN workspaces w ON w.n = p.workspace"

_FIND = f"""
SELECT {WORKSPACE} FROM workspaces w
WHERE (w.id = $1 OR (w.name = $1 AND w.name <> '')) AND (CAST($2 AS text) IS NULL OR w.key_id = $2)
ORDER BY w.id = $1 DESC, w.updated_at DESC, w.n DESC LIMIT 1
"""
_FIND_OF_SESSION = f"SELECT {WORKSPACE} FROM workspaces w WHERE w.session_id = $1"
_PAGE = f"""
SELECT {WORKSPACE} FROM workspaces w
WHERE (CAST($1 AS text) IS NULL OR w.key_id = $1) AND (CAST($2 AS text) IS NULL
  OR (w.updated_at, w.n) < (SELECT b.updated_at, b.n FROM workspaces b WHERE b.id = $2))
ORDER BY w.updated_at DESC, w.n DESC LIMIT $3
"""
_CHANGES_AFTER = f"{_CHANGES} AND c.version >= $2 ORDER BY c.version LIMIT $3"
_CHANGES_BEFORE = f"""
{_CHANGES} AND (CAST($2 AS bigint) IS NULL OR c.version < $2) ORDER BY c.version DESC LIMIT $3
"""
_SNAPSHOT = f"""
SELECT {CHANGE}, c.snapshot FROM workspace_changes c JOIN workspaces w ON w.n = c.workspace
WHERE w.id = $1 AND c.version <= $2 AND c.snapshot IS NOT NULL ORDER BY c.version DESC LIMIT 1
"""
_FIND_CALL = f"{_CHANGES} AND c.run_id = $2 AND c.call_id = $3"
_FIND_PROPOSAL = f"{_PROPOSALS} WHERE p.id = $1"
_LIST_PROPOSALS = f"""
{_PROPOSALS} WHERE (CAST($1 AS text) IS NULL OR w.id = $1) AND (CAST($2 AS text) IS NULL OR p.status = $2)
  AND (CAST($3 AS text) IS NULL OR w.key_id = $3)
ORDER BY p.n DESC LIMIT $4
"""
_UNTOLD = f"{_PROPOSALS} WHERE w.id = $1 AND p.status <> 'open' AND NOT p.is_told ORDER BY p.n"


class WorkspaceReader(ABC):
    """The half of a `kept.WorkspaceStore` that reads. A database says how it fetches rows, and how it keeps columns."""

    columns: Columns

    @abstractmethod
    async def fetch(self, sql: str, *values: Any) -> list[Any]:
        """Return the rows of a statement."""

    async def find(self, id_or_name: str, *, key_id: str | None = None) -> WorkspaceRow | None:
        """Return the workspace of that id, else the one of that name."""
        bind = self.columns.bind_text
        found = await self.fetch(_FIND, bind(id_or_name), bind(key_id))
        return self.columns.read_workspace(found[0]) if found else None

    async def find_of_session(self, session_id: str) -> WorkspaceRow | None:
        """Return the workspace that the runs of a session work on."""
        found = await self.fetch(_FIND_OF_SESSION, self.columns.bind_text(session_id))
        return self.columns.read_workspace(found[0]) if found else None

    async def page(
        self, limit: int = 50, *, key_id: str | None = None, before: str | None = None
    ) -> list[WorkspaceRow]:
        """Return workspaces, the one changed last first.

        Raises: NotFound.
        """
        bind = self.columns.bind_text
        found = await self.fetch(_PAGE, bind(key_id), bind(before), self.columns.within(limit))
        if not found and before is not None:
            last = await self.find(before)
            if last is None or last.id != before:
                raise unknown(before)
        return [self.columns.read_workspace(values) for values in found]

    async def changes(self, workspace_id: str, *, after: int = -1, limit: int | None = None) -> list[ChangeRow]:
        """Return the changes above version `after`, in order, without their snapshots."""
        columns = self.columns
        count = columns.all_rows if limit is None else columns.within(limit)
        found = await self.fetch(_CHANGES_AFTER, columns.bind_text(workspace_id), columns.within(after + 1), count)
        return [columns.read_change(values) for values in found]

    async def latest_changes(self, workspace_id: str, *, before: int | None, limit: int) -> list[ChangeRow]:
        """Return changes below version `before`, or all, newest first, without their snapshots."""
        columns = self.columns
        upper = None if before is None else columns.within(before)
        found = await self.fetch(_CHANGES_BEFORE, columns.bind_text(workspace_id), upper, columns.within(limit))
        return [columns.read_change(values) for values in found]

    async def snapshot(self, workspace_id: str, version: int) -> ChangeRow | None:
        """Return the newest change up to a version that holds the whole state."""
        columns = self.columns
        found = await self.fetch(_SNAPSHOT, columns.bind_text(workspace_id), columns.within(version))
        return columns.read_change(found[0]) if found else None

    async def find_call(self, workspace_id: str, run_id: str, call_id: str) -> ChangeRow | None:
        """Return the change that a call of a run made."""
        found = await self.fetch(_FIND_CALL, *map(self.columns.bind_text, (workspace_id, run_id, call_id)))
        return self.columns.read_change(found[0]) if found else None

    async def find_proposal(self, proposal_id: str) -> ProposalRow | None:
        """Return a proposal, open or decided."""
        found = await self.fetch(_FIND_PROPOSAL, self.columns.bind_text(proposal_id))
        return self.columns.read_proposal(found[0]) if found else None

    async def proposals(
        self,
        *,
        workspace_id: str | None = None,
        key_id: str | None = None,
        status: ProposalStatus | None = None,
        limit: int = 100,
    ) -> list[ProposalRow]:
        """Return proposals, newest first."""
        columns = self.columns
        narrowed = (columns.bind_text(workspace_id), status, columns.bind_text(key_id))
        found = await self.fetch(_LIST_PROPOSALS, *narrowed, columns.within(limit))
        return [columns.read_proposal(values) for values in found]

    async def untold(self, workspace_id: str) -> list[ProposalRow]:
        """Return the decided proposals that no model has heard of yet, oldest first."""
        found = await self.fetch(_UNTOLD, self.columns.bind_text(workspace_id))
        return [self.columns.read_proposal(values) for values in found]
