"""Loads workspaces from a store, and commits steps atomically with optimistic concurrency.

A step that loses a race is applied again to the newest version. The rules of the steps are in `workspace_state`,
`proposals` and `versions`.
"""

from collections.abc import Callable
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from treadle.core.errors import LimitExceeded, NotFound, WorkspaceConflict
from treadle.core.json import write_json
from treadle.journal.workspaces_interface import (
    MOVED,
    ChangeRow,
    ProposalRow,
    ProposalStatus,
    WorkspaceRow,
    WorkspaceStore,
)
from treadle.workspace import versions as history
from treadle.workspace.proposals import find_open
from treadle.workspace.workspace_diff import Difference, compare
from treadle.workspace.workspace_state import (
    REASON_CHARS_MAX,
    Actor,
    Proposal,
    RecordKind,
    Workspace,
    WorkspaceRecord,
    WorkspaceStep,
)

NAME_CHARS_MAX = 200
SNAPSHOT_EVERY = 64
"""A snapshot is stored every so many versions, which bounds the records needed to rebuild a version."""
TRIES_MAX = 64
"""How often a step is applied again because another writer was first."""
KEY_ID = ""
"""The key id of clients without a key."""

_DECISIONS: dict[RecordKind, ProposalStatus] = {
    "confirmed": "confirmed",
    "rejected": "rejected",
    "expired": "expired",
}
_state = msgspec.json.Decoder(Workspace)
_record = msgspec.json.Decoder(WorkspaceRecord)
_proposal = msgspec.json.Decoder(Proposal)


class Author(msgspec.Struct, frozen=True, kw_only=True):
    """The author of a step: who, why, and in which call of which run."""

    actor: Actor
    who: str = ""
    reason: str = ""
    run_id: str | None = None
    call_id: str | None = None


PERSON = Author(actor="person")
PROGRAM = Author(actor="program")


class StoredWorkspace(NamedTuple):
    """The row of a workspace, and its decoded state."""

    row: WorkspaceRow
    workspace: Workspace


class Taken(NamedTuple):
    """A workspace after a step, and the record of the step."""

    held: StoredWorkspace
    record: WorkspaceRecord


class ProposalStanding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A proposal and its status; `decision` is the record of the step that decided it."""

    workspace_id: str
    status: ProposalStatus
    proposal: Proposal
    decision: WorkspaceRecord | None = None


class WorkspaceHistory:
    """The workspaces of one key in a store, or of all keys without one."""

    def __init__(self, store: WorkspaceStore, clock: Callable[[], float], key_id: str | None) -> None:
        self._store = store
        self._clock = clock
        self._key_id = key_id

    async def find(self, id_or_name: str) -> StoredWorkspace | None:
        """Return a workspace, if there is one."""
        row = await self._store.find(id_or_name, key_id=self._key_id)
        return None if row is None else stored_of(row)

    async def get(self, id_or_name: str) -> StoredWorkspace:
        """Return a workspace.

        Raises: NotFound.
        """
        held = await self.find(id_or_name)
        if held is None:
            raise NotFound(f"there is no workspace {id_or_name!r}", param="workspace")
        return held

    async def put(self, row: WorkspaceRow, workspace: Workspace, author: Author) -> StoredWorkspace:
        """Store a new workspace; the row has everything but its state.

        Raises: Conflict, NotFound, LimitExceeded.
        """
        _check_author(author)
        diff = compare(Workspace().document(), workspace.document())
        record = self._stamped(WorkspaceRecord(version=0, kind="created", actor=author.actor), author, diff)
        written, raw = _raw(record), _raw(workspace)
        sha256 = history.link("", bytes(written))
        stored = replace(row, sha256=sha256, state=raw, created_at=record.at, updated_at=record.at)
        change = ChangeRow(workspace_id=row.id, version=0, record=written, sha256=sha256, snapshot=raw)
        await self._store.create(stored, change)
        return StoredWorkspace(stored, workspace)

    async def take(
        self,
        id_or_name: str,
        step: Callable[[Workspace], WorkspaceStep],
        author: Author,
        base: int | None = None,
    ) -> Taken:
        """Apply a step to the newest version, again if another writer was first; at most once for a call of a run.

        `base` is the only version that the step may be applied to, if given.
        Raises: NotFound, LimitExceeded, WorkspaceConflict, and what the step raises.
        """
        _check_author(author)
        for attempt in range(TRIES_MAX):
            held = await self.get(id_or_name)
            if author.run_id and author.call_id:
                known = await self._store.find_call(held.row.id, author.run_id, author.call_id)
                if known is not None:
                    return Taken(held, _record.decode(known.record))
            if base is not None and base != held.row.version:
                raise WorkspaceConflict(
                    f"the workspace is at version {held.row.version}, not at {base}",
                    code=MOVED,
                    param="base_version",
                    hint="read it again",
                )
            after, record = step(held.workspace)
            diff = compare(held.workspace.document(), after.document())
            record = self._stamped(record, author, diff)
            after = _dated(after, record)
            try:
                return await self._keep(held, after, record)
            except WorkspaceConflict as error:
                if error.info.code != MOVED or attempt + 1 == TRIES_MAX:
                    raise
        raise AssertionError("the last attempt returns or raises")

    async def _keep(self, held: StoredWorkspace, after: Workspace, record: WorkspaceRecord) -> Taken:
        written, raw = _raw(record), _raw(after)
        sha256 = history.link(held.row.sha256, bytes(written))
        row = replace(held.row, state=raw, version=after.version, sha256=sha256, updated_at=record.at)
        change = ChangeRow(
            workspace_id=row.id,
            version=after.version,
            record=written,
            sha256=sha256,
            run_id=record.run_id,
            call_id=record.call_id,
            snapshot=raw if after.version % SNAPSHOT_EVERY == 0 else None,
        )
        changed = _proposal_rows(held, after, record)
        await self._store.commit(row, change, changed, base=held.row.version)
        return Taken(StoredWorkspace(row, after), record)

    def _stamped(self, record: WorkspaceRecord, author: Author, diff: tuple[Difference, ...]) -> WorkspaceRecord:
        return replace(
            record,
            reason=_plain(record.reason or author.reason),
            who=_plain(author.who),
            run_id=author.run_id,
            call_id=author.call_id,
            at=self._clock(),
            diff=diff,
        )


def stored_of(row: WorkspaceRow) -> StoredWorkspace:
    """Return the stored workspace of a row."""
    return StoredWorkspace(row, _state.decode(row.state))


def record_of(row: ChangeRow) -> WorkspaceRecord:
    """Return the record of a version."""
    return _record.decode(row.record)


def snapshot_of(row: ChangeRow | None) -> Workspace | None:
    """Return the snapshot of a version, if it has one."""
    return None if row is None or row.snapshot is None else _state.decode(row.snapshot)


def standing_of(row: ProposalRow) -> ProposalStanding:
    """Return the standing of a proposal row."""
    return ProposalStanding(
        workspace_id=row.workspace_id,
        status=row.status,
        proposal=_proposal.decode(row.proposal),
        decision=None if row.decision is None else _record.decode(row.decision),
    )


def _proposal_rows(held: StoredWorkspace, after: Workspace, record: WorkspaceRecord) -> list[ProposalRow]:
    """Return the rows of the proposal that a step opens or decides."""
    if record.kind == "proposed":
        made = after.proposals[-1]
        row = ProposalRow(id=made.id, workspace_id=held.row.id, proposal=_raw(made), created_at=record.at)
        return [row]
    status = _DECISIONS.get(record.kind)
    if status is None or record.proposal_id is None:
        return []
    decided = find_open(held.workspace, record.proposal_id)
    row = ProposalRow(
        id=decided.id,
        workspace_id=held.row.id,
        proposal=_raw(decided),
        created_at=decided.at,
        status=status,
        decision=_raw(record),
    )
    return [row]


def _dated(workspace: Workspace, record: WorkspaceRecord) -> Workspace:
    """Copy the record's fields to a new proposal, so that a replay gives the same one."""
    if record.kind != "proposed":
        return workspace
    *others, made = workspace.proposals
    dated = replace(made, reason=record.reason, who=record.who, run_id=record.run_id, at=record.at)
    return replace(workspace, proposals=(*others, dated))


def _check_author(author: Author) -> None:
    if len(author.reason) > REASON_CHARS_MAX:
        raise LimitExceeded(f"the reason is longer than {REASON_CHARS_MAX} characters", param="reason")
    if len(author.who) > NAME_CHARS_MAX:
        raise LimitExceeded(f"a name is longer than {NAME_CHARS_MAX} characters", param="who")


def _plain(text: str) -> str:
    """Return a text without lone surrogates, which JSON cannot encode."""
    return text.encode("utf-8", "replace").decode()


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(write_json(value))
