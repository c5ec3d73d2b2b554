"""How workspaces are stored: rows, and what a store promises about them. What their JSON means is known above.

A workspace has one row with its newest state, one change for each of its versions, and one row for each proposal.

 W1  Dense: the changes of a workspace are its versions 0, 1, 2 … without a gap.
 W2  One winner: a commit names the version it was made for; of several for the same version one is done, and the
     others get a conflict. The check is part of the write.
 W3  Whole: the state, its change and the proposal that it makes or decides are there together or not at all.
 W4  Decided once: a proposal leaves `open` once.
 W5  Once: a call of a run makes at most one change of a workspace.
 W6  Forgotten is gone: a deleted workspace leaves neither change nor proposal.
"""

from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec

ProposalStatus = Literal["open", "confirmed", "rejected", "expired"]

MOVED = "workspace_moved"
"""The code of the WorkspaceConflict when a writer finds that another one was first."""

DECIDED = "proposal_decided"
"""The code of the Conflict when a decider finds that another one was first."""


class WorkspaceRow(msgspec.Struct, frozen=True, kw_only=True):
    """A workspace; `state` is its newest version, `sha256` the hash of the change that led to it.

    Runs of the session `session_id` work on it.
    """

    id: str
    created_at: float
    updated_at: float
    state: msgspec.Raw
    version: int = 0
    sha256: str = ""
    name: str = ""
    key_id: str = ""
    session_id: str | None = None


class ChangeRow(msgspec.Struct, frozen=True, kw_only=True):
    """One version: the record of the step that led to it, the chain's hash, and at times the whole state."""

    workspace_id: str
    version: int
    record: msgspec.Raw
    sha256: str
    run_id: str | None = None
    call_id: str | None = None
    snapshot: msgspec.Raw | None = None


class ProposalRow(msgspec.Struct, frozen=True, kw_only=True):
    """A proposal and, once it is decided, the record of that; `is_told` once the model was given it."""

    id: str
    workspace_id: str
    proposal: msgspec.Raw
    created_at: float
    status: ProposalStatus = "open"
    decision: msgspec.Raw | None = None
    is_told: bool = False


class WorkspaceStore(Protocol):
    """Where workspaces are stored."""

    async def create(self, row: WorkspaceRow, change: ChangeRow) -> None:
        """Store a new workspace and its version 0.

        Raises: Conflict (its id, its name within the key, or its session is taken), NotFound (the session).
        """
        ...

    async def find(self, id_or_name: str, *, key_id: str | None = None) -> WorkspaceRow | None:
        """Return the workspace of that id, else the one of that name."""
        ...

    async def find_of_session(self, session_id: str) -> WorkspaceRow | None:
        """Return the workspace that the runs of a session work on."""
        ...

    async def page(
        self, limit: int = 50, *, key_id: str | None = None, before: str | None = None
    ) -> list[WorkspaceRow]:
        """Return workspaces, the one changed last first; `before` is the id of the last one of the page before.

        Raises: NotFound, when there is no workspace `before`.
        """
        ...

    async def commit(
        self, row: WorkspaceRow, change: ChangeRow, proposals: Sequence[ProposalRow] = (), *, base: int
    ) -> None:
        """Store the next version, if the workspace is still at version `base`, with the proposals it makes or decides.

        Raises: WorkspaceConflict (code `workspace_moved`), Conflict (code `proposal_decided`, or the call has made a
        change already), NotFound.
        """
        ...

    async def update(
        self, workspace_id: str, *, name: str | None = None, session_id: str | None = None
    ) -> WorkspaceRow:
        """Give a workspace another name or bind it to a session; an empty one takes it away, None leaves it.

        Raises: NotFound, Conflict.
        """
        ...

    async def changes(self, workspace_id: str, *, after: int = -1, limit: int | None = None) -> list[ChangeRow]:
        """Return the changes above version `after`, in order, without their snapshots."""
        ...

    async def latest_changes(self, workspace_id: str, *, before: int | None, limit: int) -> list[ChangeRow]:
        """Return changes below version `before`, or all, newest first, without their snapshots."""
        ...

    async def snapshot(self, workspace_id: str, version: int) -> ChangeRow | None:
        """Return the newest change up to a version that holds the whole state."""
        ...

    async def find_call(self, workspace_id: str, run_id: str, call_id: str) -> ChangeRow | None:
        """Return the change that a call of a run made."""
        ...

    async def find_proposal(self, proposal_id: str) -> ProposalRow | None:
        """Return a proposal, open or decided."""
        ...

    async def proposals(
        self,
        *,
        workspace_id: str | None = None,
        key_id: str | None = None,
        status: ProposalStatus | None = None,
        limit: int = 100,
    ) -> list[ProposalRow]:
        """Return proposals, newest first: of one workspace, of those of one key, or of all."""
        ...

    async def untold(self, workspace_id: str) -> list[ProposalRow]:
        """Return the decided proposals that no model was given yet, oldest first."""
        ...

    async def mark_told(self, proposal_ids: Sequence[str]) -> None:
        """Record that a model was given these decisions."""
        ...

    async def delete(self, workspace_id: str) -> bool:
        """Forget a workspace with all of its versions and proposals and return whether it was there."""
        ...
