# ruff: noqa: D102 - the methods are documented in workspaces_interface
"""Stores workspaces, their versions and proposals in either database.

Of two commits for one version the first wins: its first statement is the check of the version. A commit whose answer
was lost is looked up by its hash before it is tried again.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from treadle.core.errors import Conflict, NotFound, WorkspaceConflict
from treadle.journal.sql_steps import Steps, Tables, single, within
from treadle.journal.workspaces_interface import (
    DECIDED,
    MOVED,
    ChangeRow,
    ProposalRow,
    ProposalStatus,
    WorkspaceRow,
)

_WORKSPACE = "w.id, w.name, w.key_id, w.session_id, w.created_at, w.updated_at, w.version, w.sha256, w.state"
_CHANGE = "w.id, c.version, c.run_id, c.call_id, c.sha256, c.record"
_PROPOSAL = "p.id, w.id, p.status, p.is_told, p.created_at, p.proposal, p.decision"

_CHANGES = f"SELECT {_CHANGE} FROM workspace_changes c JOIN workspaces w ON w.n = c.workspace WHERE w.id = $1"
_PROPOSALS = f"SELECT {_PROPOSAL} FROM proposals p JOIN workspaces w ON w.n = p.workspace"

_FIND = f"""
SELECT {_WORKSPACE} FROM workspaces w
WHERE (w.id = $1 OR (w.name = $1 AND w.name <> '')) AND (CAST($2 AS text) IS NULL OR w.key_id = $2)
ORDER BY w.id = $1 DESC, w.updated_at DESC, w.n DESC LIMIT 1
"""
_FIND_OF_SESSION = f"SELECT {_WORKSPACE} FROM workspaces w WHERE w.session_id = $1"
_PAGE = f"""
SELECT {_WORKSPACE} FROM workspaces w
WHERE (CAST($1 AS text) IS NULL OR w.key_id = $1) AND (CAST($2 AS text) IS NULL
  OR (w.updated_at, w.n) < (SELECT b.updated_at, b.n FROM workspaces b WHERE b.id = $2))
ORDER BY w.updated_at DESC, w.n DESC LIMIT $3
"""
_CHANGES_AFTER = f"{_CHANGES} AND c.version >= $2 ORDER BY c.version LIMIT $3"
_CHANGES_BEFORE = f"""
{_CHANGES} AND (CAST($2 AS bigint) IS NULL OR c.version < $2) ORDER BY c.version DESC LIMIT $3
"""
_SNAPSHOT = f"""
SELECT {_CHANGE}, c.snapshot FROM workspace_changes c JOIN workspaces w ON w.n = c.workspace
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
_INSERT = """
INSERT INTO workspaces (id, name, key_id, session_id, created_at, updated_at, version, sha256, state)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) RETURNING n
"""
_COMMIT = """
UPDATE workspaces SET version = $1, updated_at = $2, sha256 = $3, state = $4 WHERE id = $5 AND version = $6 RETURNING n
"""
_VERSION = "SELECT version FROM workspaces WHERE id = $1"
_UPDATE = """
UPDATE workspaces SET name = coalesce($2, name),
 session_id = CASE WHEN CAST($3 AS text) IS NULL THEN session_id ELSE nullif($3, '') END
WHERE id = $1
"""
_BY_ID = f"SELECT {_WORKSPACE} FROM workspaces w WHERE w.id = $1"
_ADD_CHANGE = """
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


class StoredWorkspaces(Tables):
    """Fits `workspaces_interface.WorkspaceStore`."""

    async def create(self, row: WorkspaceRow, change: ChangeRow) -> None:
        dialect = self._dialect
        texts = [dialect.bind_plain(f"workspaces.{name}", getattr(row, name)) for name in ("id", "name", "key_id")]
        rest = (row.created_at, row.updated_at, row.version, row.sha256, dialect.bind_raw(row.state))

        def steps() -> Steps[bool]:
            [(number,)] = yield _INSERT, *texts, dialect.bind_text(row.session_id), *rest
            yield _ADD_CHANGE, number, *self._change_values(change)
            return True

        await self._access.transact(steps, partial(self._is_known, change))

    async def commit(
        self, row: WorkspaceRow, change: ChangeRow, proposals: Sequence[ProposalRow] = (), *, base: int
    ) -> None:
        dialect = self._dialect
        bound = dialect.bind_text(row.id)
        values = (row.version, row.updated_at, row.sha256, dialect.bind_raw(row.state), bound, base)

        def steps() -> Steps[bool]:
            committed = yield _COMMIT, *values
            if not committed:
                found = yield _VERSION, bound
                raise _moved(found[0][0] if found else None, row.id, base)
            [(number,)] = committed
            yield _ADD_CHANGE, number, *self._change_values(change)
            for proposal in proposals:
                yield from self._write_proposal(number, proposal)
            return True

        await self._access.transact(steps, partial(self._is_known, change))

    async def update(
        self, workspace_id: str, *, name: str | None = None, session_id: str | None = None
    ) -> WorkspaceRow:
        dialect = self._dialect
        bound = dialect.bind_text(workspace_id)
        values = dialect.bind_plain("workspaces.name", name), dialect.bind_text(session_id)

        def steps() -> Steps[Sequence[Any]]:
            yield _UPDATE, bound, *values
            return (yield _BY_ID, bound)

        found = await self._access.transact(steps)
        if not found:
            raise _unknown(workspace_id)
        return self._read_workspace(found[0])

    async def mark_told(self, proposal_ids: Sequence[str]) -> None:
        sql = f"UPDATE proposals SET is_told = true WHERE id {self._dialect.in_list.format('$1')}"
        await self.execute(sql, self._dialect.bind_list(proposal_ids))

    async def delete(self, workspace_id: str) -> bool:
        sql, bound = "DELETE FROM workspaces WHERE id = $1 RETURNING 1", self._dialect.bind_text(workspace_id)
        return bool(await self._access.forget(partial(single, sql, bound)))

    async def find(self, id_or_name: str, *, key_id: str | None = None) -> WorkspaceRow | None:
        bind = self._dialect.bind_text
        found = await self.fetch(_FIND, bind(id_or_name), bind(key_id))
        return self._read_workspace(found[0]) if found else None

    async def find_of_session(self, session_id: str) -> WorkspaceRow | None:
        found = await self.fetch(_FIND_OF_SESSION, self._dialect.bind_text(session_id))
        return self._read_workspace(found[0]) if found else None

    async def page(
        self, limit: int = 50, *, key_id: str | None = None, before: str | None = None
    ) -> list[WorkspaceRow]:
        bind = self._dialect.bind_text
        found = await self.fetch(_PAGE, bind(key_id), bind(before), within(limit))
        if not found and before is not None:
            last = await self.find(before)
            if last is None or last.id != before:
                raise _unknown(before)
        return [self._read_workspace(values) for values in found]

    async def changes(self, workspace_id: str, *, after: int = -1, limit: int | None = None) -> list[ChangeRow]:
        dialect = self._dialect
        count = dialect.all_rows if limit is None else within(limit)
        found = await self.fetch(_CHANGES_AFTER, dialect.bind_text(workspace_id), within(after + 1), count)
        return [self._read_change(values) for values in found]

    async def latest_changes(self, workspace_id: str, *, before: int | None, limit: int) -> list[ChangeRow]:
        dialect = self._dialect
        upper = None if before is None else within(before)
        found = await self.fetch(_CHANGES_BEFORE, dialect.bind_text(workspace_id), upper, within(limit))
        return [self._read_change(values) for values in found]

    async def snapshot(self, workspace_id: str, version: int) -> ChangeRow | None:
        dialect = self._dialect
        found = await self.fetch(_SNAPSHOT, dialect.bind_text(workspace_id), within(version))
        return self._read_change(found[0]) if found else None

    async def find_call(self, workspace_id: str, run_id: str, call_id: str) -> ChangeRow | None:
        found = await self.fetch(_FIND_CALL, *map(self._dialect.bind_text, (workspace_id, run_id, call_id)))
        return self._read_change(found[0]) if found else None

    async def find_proposal(self, proposal_id: str) -> ProposalRow | None:
        found = await self.fetch(_FIND_PROPOSAL, self._dialect.bind_text(proposal_id))
        return self._read_proposal(found[0]) if found else None

    async def proposals(
        self,
        *,
        workspace_id: str | None = None,
        key_id: str | None = None,
        status: ProposalStatus | None = None,
        limit: int = 100,
    ) -> list[ProposalRow]:
        dialect = self._dialect
        narrowed = (dialect.bind_text(workspace_id), status, dialect.bind_text(key_id))
        found = await self.fetch(_LIST_PROPOSALS, *narrowed, within(limit))
        return [self._read_proposal(values) for values in found]

    async def untold(self, workspace_id: str) -> list[ProposalRow]:
        found = await self.fetch(_UNTOLD, self._dialect.bind_text(workspace_id))
        return [self._read_proposal(values) for values in found]

    def _is_known(self, change: ChangeRow) -> Steps[bool | None]:
        """Return True if this very change is there, else None."""
        bound = self._dialect.bind_text(change.workspace_id)
        return bool((yield _KNOWN, bound, change.version, change.sha256)) or None

    def _write_proposal(self, workspace: int, row: ProposalRow) -> Steps[None]:
        dialect = self._dialect
        row_id, decision = dialect.bind_text(row.id), dialect.bind_raw(row.decision)
        if row.status == "open":
            proposal = dialect.bind_raw(row.proposal)
            yield _PROPOSE, row_id, workspace, row.status, row.is_told, row.created_at, proposal, decision
        elif not (yield _DECIDE, row.status, decision, row.is_told, row_id, workspace):
            raise Conflict(f"the proposal {row.id} is decided already", code=DECIDED)

    def _change_values(self, change: ChangeRow) -> tuple[Any, ...]:
        """Return a version as the values of its insert, the number of its workspace left out."""
        dialect = self._dialect
        call = (dialect.bind_text(change.run_id), dialect.bind_text(change.call_id))
        return (
            change.version,
            *call,
            change.sha256,
            dialect.bind_raw(change.record),
            dialect.bind_raw(change.snapshot),
        )

    def _read_workspace(self, values: Sequence[Any]) -> WorkspaceRow:
        row_id, name, key_id, session_id, created_at, updated_at, version, sha256, state = values
        dialect = self._dialect
        return WorkspaceRow(
            id=dialect.text(row_id),
            name=dialect.text(name),
            key_id=dialect.text(key_id),
            session_id=dialect.text_or_none(session_id),
            created_at=created_at,
            updated_at=updated_at,
            version=version,
            sha256=sha256,
            state=msgspec.Raw(dialect.read_json(state)),
        )

    def _read_change(self, values: Sequence[Any]) -> ChangeRow:
        """Read a version, and its snapshot where that was selected."""
        workspace_id, version, run_id, call_id, sha256, record, *snapshot = values
        dialect = self._dialect
        return ChangeRow(
            workspace_id=dialect.text(workspace_id),
            version=version,
            run_id=dialect.text_or_none(run_id),
            call_id=dialect.text_or_none(call_id),
            sha256=sha256,
            record=msgspec.Raw(dialect.read_json(record)),
            snapshot=dialect.read_raw(snapshot[0]) if snapshot else None,
        )

    def _read_proposal(self, values: Sequence[Any]) -> ProposalRow:
        row_id, workspace_id, status, is_told, created_at, proposal, decision = values
        dialect = self._dialect
        return ProposalRow(
            id=dialect.text(row_id),
            workspace_id=dialect.text(workspace_id),
            status=status,
            is_told=bool(is_told),
            created_at=created_at,
            proposal=msgspec.Raw(dialect.read_json(proposal)),
            decision=dialect.read_raw(decision),
        )


def _unknown(workspace_id: str) -> NotFound:
    return NotFound(f"there is no workspace {workspace_id!r}", param="workspace")


def _moved(version: int | None, workspace_id: str, base: int) -> NotFound | WorkspaceConflict:
    """Return the refusal of a commit for a version that is not the newest; without one there is no workspace."""
    if version is None:
        return _unknown(workspace_id)
    return WorkspaceConflict(f"the workspace is at version {version}, not at {base}", code=MOVED, param="version")
