"""Workspaces on PostgreSQL: a commit is one transaction whose first statement is the check of the version.

A write whose answer was lost is looked for by its hash before it is tried again.
"""

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from treadle.canon.errors import Conflict, NotFound, TreadleError, WorkspaceConflict
from treadle.store.postgres.connection import Connection, Work
from treadle.store.postgres.query import within
from treadle.store.postgres.rows import bind_data, bind_plain, bind_text, read_data, read_text
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
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) RETURNING n
"""
_FIND = f"""
SELECT {_FIELDS} FROM workspaces w
WHERE (w.id = $1 OR (w.name = $1 AND w.name <> '')) AND ($2::text IS NULL OR w.key_id = $2)
ORDER BY w.id = $1 DESC, w.updated_at DESC, w.n DESC LIMIT 1
"""
_PAGE = f"""
SELECT {_FIELDS} FROM workspaces w
WHERE ($1::text IS NULL OR w.key_id = $1)
  AND ($2::float8 IS NULL OR (w.updated_at, w.n) < ($2::float8, $3::bigint))
ORDER BY w.updated_at DESC, w.n DESC LIMIT $4
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
SELECT {_FIELDS} FROM w
"""
_ADD = "INSERT INTO workspace_changes VALUES ($1, $2, $3, $4, $5, $6, $7)"
_PROPOSE = """
INSERT INTO proposals (id, workspace, status, is_told, created_at, proposal, decision)
VALUES ($1, $2, $3, $4, $5, $6, $7)
"""
_DECIDE = """
UPDATE proposals SET status = $1, decision = $2, is_told = $3
WHERE id = $4 AND workspace = $5 AND status = 'open' RETURNING n
"""
_CHANGES = f"SELECT {_CHANGE}, NULL::text FROM workspace_changes c {_OF.format('c')} WHERE w.id = $1 AND "
_PROPOSALS = f"""
SELECT {_PROPOSAL} FROM proposals p {_OF.format("p")}
WHERE ($1::text IS NULL OR w.id = $1) AND ($2::text IS NULL OR p.status = $2) ORDER BY p.n DESC LIMIT $3
"""
_UNTOLD = f"""
SELECT {_PROPOSAL} FROM proposals p {_OF.format("p")}
WHERE w.id = $1 AND p.status <> 'open' AND NOT p.is_told ORDER BY p.n
"""
_KNOWN = f"SELECT 1 FROM workspace_changes c {_OF.format('c')} WHERE w.id = $1 AND c.version = $2 AND c.sha256 = $3"

T = TypeVar("T")


class Reads(Protocol):
    """Runs work that changes nothing on a connection of the store."""

    async def __call__(self, work: Work[T]) -> T:
        """Return what the work returns."""
        ...


class Writes(Protocol):
    """Runs work to its end on a connection; `settle` looks whether work whose answer was lost was done."""

    async def __call__(self, work: Work[T], settle: Work[T | None] | None = None) -> T:
        """Return what the work returns."""
        ...


class PostgresWorkspaces:
    """Fits `kept.WorkspaceStore`, over the connections of a PostgresStore."""

    def __init__(self, read: Reads, write: Writes, forget: Reads) -> None:
        self._read = read
        self._write = write
        self._forget = forget

    async def create(self, row: WorkspaceRow, change: ChangeRow) -> None:
        """Keep a new workspace and its version 0.

        Raises: Conflict, NotFound, ProtocolError.
        """
        texts = [bind_plain(f"workspaces.{name}", getattr(row, name)) for name in ("id", "name", "key_id")]
        rest = (bind_text(row.session_id), row.created_at, row.updated_at, row.version, row.sha256)

        async def work(connection: Connection) -> bool:
            async with connection.transaction():
                number = await connection.fetchval(_INSERT, *texts, *rest, bind_data(bytes(row.state)))
                await connection.execute(_ADD, number, *_change_values(change))
            return True

        await self._write(work, _known(change))

    async def find(self, id_or_name: str, *, key_id: str | None = None) -> WorkspaceRow | None:
        """Return the workspace of that id, else the one of that name."""
        found = await self._rows(_FIND, bind_text(id_or_name), bind_text(key_id))
        return _read_workspace(found[0]) if found else None

    async def find_of_session(self, session_id: str) -> WorkspaceRow | None:
        """Return the workspace that the runs of a session work on."""
        sql = f"SELECT {_FIELDS} FROM workspaces w WHERE w.session_id = $1"
        found = await self._rows(sql, bind_text(session_id))
        return _read_workspace(found[0]) if found else None

    async def page(
        self, limit: int = 50, *, key_id: str | None = None, before: str | None = None
    ) -> list[WorkspaceRow]:
        """Return workspaces, the one changed last first.

        Raises: NotFound.
        """

        async def work(connection: Connection) -> list[Any]:
            place = (None, None) if before is None else await _place(connection, before)
            return await connection.fetch(_PAGE, bind_text(key_id), *place, within(limit))

        return [_read_workspace(values) for values in await self._read(work)]

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
                    raise await _missed(connection, row.id, base)
                await connection.execute(_ADD, number, *_change_values(change))
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
            raise _unknown(workspace_id)
        return _read_workspace(found)

    async def changes(self, workspace_id: str, *, after: int = -1, limit: int | None = None) -> list[ChangeRow]:
        """Return the changes above version `after`, in order, without their snapshots."""
        sql = f"{_CHANGES} c.version >= $2 ORDER BY c.version LIMIT $3"
        count = None if limit is None else within(limit)
        rows = await self._rows(sql, bind_text(workspace_id), within(after + 1), count)
        return [_read_change(values) for values in rows]

    async def latest_changes(self, workspace_id: str, *, before: int | None, limit: int) -> list[ChangeRow]:
        """Return changes below version `before`, or all, newest first, without their snapshots."""
        sql = f"{_CHANGES} ($2::bigint IS NULL OR c.version < $2) ORDER BY c.version DESC LIMIT $3"
        upper = None if before is None else within(before)
        return [_read_change(values) for values in await self._rows(sql, bind_text(workspace_id), upper, within(limit))]

    async def snapshot(self, workspace_id: str, version: int) -> ChangeRow | None:
        """Return the newest change up to a version that holds the whole state."""
        sql = f"""
        SELECT {_CHANGE}, c.snapshot FROM workspace_changes c {_OF.format("c")}
        WHERE w.id = $1 AND c.version <= $2 AND c.snapshot IS NOT NULL ORDER BY c.version DESC LIMIT 1
        """
        found = await self._rows(sql, bind_text(workspace_id), within(version))
        return _read_change(found[0]) if found else None

    async def find_call(self, workspace_id: str, run_id: str, call_id: str) -> ChangeRow | None:
        """Return the change that a call of a run made."""
        sql = f"{_CHANGES} c.run_id = $2 AND key_of(c.call_id) = key_of($3)"
        found = await self._rows(sql, bind_text(workspace_id), bind_text(run_id), bind_text(call_id))
        return _read_change(found[0]) if found else None

    async def find_proposal(self, proposal_id: str) -> ProposalRow | None:
        """Return a proposal, open or decided."""
        sql = f"SELECT {_PROPOSAL} FROM proposals p {_OF.format('p')} WHERE p.id = $1"
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
        sql = "UPDATE proposals SET is_told = true WHERE id = ANY($1::text[])"
        ids = [bind_text(proposal_id) for proposal_id in proposal_ids]
        await self._write(lambda connection: connection.execute(sql, ids))

    async def delete(self, workspace_id: str) -> bool:
        """Forget a workspace with all of its versions and proposals; tell whether there was one."""
        sql = "DELETE FROM workspaces WHERE id = $1 RETURNING 1"
        found = await self._forget(lambda connection: connection.fetchval(sql, bind_text(workspace_id)))
        return found is not None

    async def _rows(self, sql: str, *values: Any) -> list[Any]:
        return await self._read(lambda connection: connection.fetch(sql, *values))


async def _keep_proposal(connection: Connection, workspace: int, row: ProposalRow) -> None:
    proposal = bind_data(bytes(row.proposal))
    decision = None if row.decision is None else bind_data(bytes(row.decision))
    row_id = bind_text(row.id)
    if row.status == "open":
        values = (row_id, workspace, row.status, row.is_told, row.created_at, proposal, decision)
        await connection.execute(_PROPOSE, *values)
    elif await connection.fetchval(_DECIDE, row.status, decision, row.is_told, row_id, workspace) is None:
        raise Conflict(f"the proposal {row.id} is decided already", code=DECIDED)


def _known(change: ChangeRow) -> Work[bool | None]:
    """Return work that looks whether this very change is there."""
    values = (bind_text(change.workspace_id), change.version, change.sha256)

    async def settle(connection: Connection) -> bool | None:
        return await connection.fetchval(_KNOWN, *values) is not None or None

    return settle


async def _missed(connection: Connection, workspace_id: str, base: int) -> TreadleError:
    version = await connection.fetchval("SELECT version FROM workspaces WHERE id = $1", bind_text(workspace_id))
    if version is None:
        return _unknown(workspace_id)
    return WorkspaceConflict(f"the workspace is at version {version}, not at {base}", code=MOVED, param="version")


async def _place(connection: Connection, workspace_id: str) -> tuple[float, int]:
    found = await connection.fetchrow("SELECT updated_at, n FROM workspaces WHERE id = $1", bind_text(workspace_id))
    if found is None:
        raise _unknown(workspace_id)
    return found[0], found[1]


def _change_values(change: ChangeRow) -> tuple[Any, ...]:
    snapshot = None if change.snapshot is None else bind_data(bytes(change.snapshot))
    calls = (bind_text(change.run_id), bind_text(change.call_id))
    return (change.version, *calls, change.sha256, bind_data(bytes(change.record)), snapshot)


def _read_workspace(values: Any) -> WorkspaceRow:
    row_id, name, key_id, session_id, created_at, updated_at, version, sha256, state = values
    return WorkspaceRow(
        id=read_text(row_id) or "",
        name=read_text(name) or "",
        key_id=read_text(key_id) or "",
        session_id=read_text(session_id),
        created_at=created_at,
        updated_at=updated_at,
        version=version,
        sha256=sha256,
        state=msgspec.Raw(read_data(state)),
    )


def _read_change(values: Any) -> ChangeRow:
    workspace_id, version, run_id, call_id, sha256, record, snapshot = values
    return ChangeRow(
        workspace_id=read_text(workspace_id) or "",
        version=version,
        run_id=read_text(run_id),
        call_id=read_text(call_id),
        sha256=sha256,
        record=msgspec.Raw(read_data(record)),
        snapshot=None if snapshot is None else msgspec.Raw(read_data(snapshot)),
    )


def _read_proposal(values: Any) -> ProposalRow:
    row_id, workspace_id, status, is_told, created_at, proposal, decision = values
    return ProposalRow(
        id=read_text(row_id) or "",
        workspace_id=read_text(workspace_id) or "",
        status=status,
        is_told=is_told,
        created_at=created_at,
        proposal=msgspec.Raw(read_data(proposal)),
        decision=None if decision is None else msgspec.Raw(read_data(decision)),
    )


def _unknown(workspace_id: str) -> NotFound:
    return NotFound(f"there is no workspace {workspace_id!r}", param="workspace")
