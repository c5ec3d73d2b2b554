"""Workspaces in a store: read whole, and changed by steps that are kept or not taken at all.

Of several who write at once each takes its step on what the one before left. Here are the clock and the store; what a
step may do is said elsewhere.
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
"""Every so many versions the whole state is kept, so that no version costs more than that many records to make."""
TRIES_MAX = 64
"""How often a step is taken anew because another writer was first."""
KEY_ID = ""
"""The key of whoever needs none."""

_DECISIONS: dict[RecordKind, ProposalStatus] = {
    "confirmed": "confirmed",
    "rejected": "rejected",
    "expired": "expired",
}
_state = msgspec.json.Decoder(Workspace)
_record = msgspec.json.Decoder(WorkspaceRecord)
_proposal = msgspec.json.Decoder(Proposal)


class Author(msgspec.Struct, frozen=True, kw_only=True):
    """Who takes a step, why, and in which call of which run."""

    actor: Actor
    who: str = ""
    reason: str = ""
    run_id: str | None = None
    call_id: str | None = None


PERSON = Author(actor="person")
PROGRAM = Author(actor="program")


class Held(NamedTuple):
    """A workspace as it is kept, and as it is."""

    row: WorkspaceRow
    workspace: Workspace


class Taken(NamedTuple):
    """A workspace after a step, and the record of the step."""

    held: Held
    record: WorkspaceRecord


class Standing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A proposal and what became of it; `decision` is the record of that."""

    workspace_id: str
    status: ProposalStatus
    proposal: Proposal
    decision: WorkspaceRecord | None = None


class WorkspaceHistory:
    """The workspaces of one key in a store, one step at a time; without a key those of all."""

    def __init__(self, store: WorkspaceStore, clock: Callable[[], float], key_id: str | None) -> None:
        self._store = store
        self._clock = clock
        self._key_id = key_id

    async def find(self, id_or_name: str) -> Held | None:
        """Return a workspace, if there is one."""
        row = await self._store.find(id_or_name, key_id=self._key_id)
        return None if row is None else held_of(row)

    async def get(self, id_or_name: str) -> Held:
        """Return a workspace.

        Raises: NotFound.
        """
        held = await self.find(id_or_name)
        if held is None:
            raise NotFound(f"there is no workspace {id_or_name!r}", param="workspace")
        return held

    async def put(self, row: WorkspaceRow, workspace: Workspace, author: Author) -> Held:
        """Keep a new workspace; the row says all but its state.

        Raises: Conflict, NotFound, LimitExceeded.
        """
        _check_author(author)
        diff = compare(Workspace().document(), workspace.document())
        record = self._stamped(WorkspaceRecord(version=0, kind="created", actor=author.actor), author, diff)
        written, raw = _raw(record), _raw(workspace)
        sha256 = history.link("", bytes(written))
        kept = replace(row, sha256=sha256, state=raw, created_at=record.at, updated_at=record.at)
        change = ChangeRow(workspace_id=row.id, version=0, record=written, sha256=sha256, snapshot=raw)
        await self._store.create(kept, change)
        return Held(kept, workspace)

    async def take(
        self,
        id_or_name: str,
        step: Callable[[Workspace], WorkspaceStep],
        author: Author,
        base: int | None = None,
    ) -> Taken:
        """Take a step on the newest version, anew as long as others are first; a call of a run takes it once.

        `base` is the version that the step was made for, if it is for no other.
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

    async def _keep(self, held: Held, after: Workspace, record: WorkspaceRecord) -> Taken:
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
        return Taken(Held(row, after), record)

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


def held_of(row: WorkspaceRow) -> Held:
    """Return a workspace as it is kept and as it is."""
    return Held(row, _state.decode(row.state))


def record_of(row: ChangeRow) -> WorkspaceRecord:
    """Return the record of a version."""
    return _record.decode(row.record)


def snapshot_of(row: ChangeRow | None) -> Workspace | None:
    """Return the whole state that a version keeps, if it does."""
    return None if row is None or row.snapshot is None else _state.decode(row.snapshot)


def standing_of(row: ProposalRow) -> Standing:
    """Return a proposal and what became of it."""
    return Standing(
        workspace_id=row.workspace_id,
        status=row.status,
        proposal=_proposal.decode(row.proposal),
        decision=None if row.decision is None else _record.decode(row.decision),
    )


def _proposal_rows(held: Held, after: Workspace, record: WorkspaceRecord) -> list[ProposalRow]:
    """Return the rows of the proposal that a step makes or decides."""
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
    """Give a proposal that was just made what its record says of it, so that a replay makes the same one."""
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
    """Return a text that JSON can hold."""
    return text.encode("utf-8", "replace").decode()


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(write_json(value))
