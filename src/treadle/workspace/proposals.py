"""How facts change: somebody proposes, a person decides, on the very facts they have seen, once.

As in `state` every step takes a frozen workspace and returns a new one with its record; a refused one changes nothing.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from treadle.canon.errors import LimitExceeded, NotFound, ProtocolError, WorkspaceConflict
from treadle.canon.json import write_json
from treadle.workspace.pointer import Json
from treadle.workspace.state import (
    PROPOSALS_MAX,
    REASON_CHARS_MAX,
    Actor,
    Change,
    Proposal,
    Record,
    Step,
    Workspace,
    applied,
    check_person,
    owned,
)

PROPOSAL_BYTES_MAX = 262_144
STALE = "workspace_conflict"
"""The code of the WorkspaceConflict that says that the facts have moved on."""


def propose(workspace: Workspace, proposal: Proposal, *, actor: Actor) -> Step:
    """Put a proposal before a person; the facts stay as they are.

    Raises: WorkspaceConflict, when the facts have moved on or are locked; ProtocolError, LimitExceeded.
    """
    if any(known.id == proposal.id for known in workspace.proposals):
        raise ProtocolError(f"a proposal `{proposal.id}` is open already", param="id")
    if len(workspace.proposals) >= PROPOSALS_MAX:
        raise LimitExceeded(f"{PROPOSALS_MAX} proposals are open already; one must be decided first")
    _check_reason(proposal.reason)
    edits = owned(proposal.changes)
    if len(write_json(edits)) > PROPOSAL_BYTES_MAX:
        raise LimitExceeded(f"the changes are larger than {PROPOSAL_BYTES_MAX} bytes", param="changes")
    _check_fresh(workspace, proposal, proposal.base_version)
    applied(workspace, edits, "facts")
    record = Record(
        version=workspace.version + 1,
        kind="proposed",
        actor=actor,
        changes=edits,
        proposal_id=proposal.id,
        reason=proposal.reason,
        expires_at=proposal.expires_at,
    )
    kept = replace(proposal, changes=edits, version=workspace.version)
    return Step(replace(workspace, proposals=(*workspace.proposals, kept), version=record.version), record)


def confirm(
    workspace: Workspace,
    proposal_id: str,
    version: int,
    *,
    actor: Actor,
    only: Sequence[int] | None = None,
    changes: Sequence[Change] | None = None,
) -> Step:
    """Make a proposal fact. `version` is the version of the facts that the person was shown.

    `only` names the changes to take, counted from 0; the others are dropped. `changes` are the person's own in place
    of the proposed ones: made for the facts as they are now, so that a stale proposal can be settled by hand.

    Raises: Forbidden, unless a person confirms; NotFound; ProtocolError; WorkspaceConflict, when the facts moved on.
    """
    check_person(actor, "confirm a proposal")
    proposal = find_open(workspace, proposal_id)
    if changes is None:
        _check_fresh(workspace, proposal, version)
        edits = proposal.changes if only is None else _chosen(proposal, only)
    elif only is not None:
        raise ProtocolError("choose changes with only, or give your own, not both", param="only")
    else:
        _check_seen(workspace, proposal, version)
        edits = owned(changes)
    facts = applied(workspace, edits, "facts")
    record = Record(
        version=workspace.version + 1, kind="confirmed", actor=actor, changes=edits, proposal_id=proposal_id
    )
    confirmed = replace(
        workspace,
        facts=facts,
        facts_version=workspace.facts_version + 1,
        proposals=without(workspace, proposal_id),
        version=record.version,
    )
    return Step(confirmed, record)


def reject(workspace: Workspace, proposal_id: str, *, actor: Actor, reason: str = "") -> Step:
    """Drop a proposal, stale or not.

    Raises: Forbidden, unless a person rejects; NotFound, LimitExceeded.
    """
    check_person(actor, "reject a proposal")
    _check_reason(reason)
    find_open(workspace, proposal_id)
    record = Record(version=workspace.version + 1, kind="rejected", actor=actor, proposal_id=proposal_id, reason=reason)
    return Step(replace(workspace, proposals=without(workspace, proposal_id), version=record.version), record)


def expire(workspace: Workspace, proposal_id: str) -> Step:
    """Drop a proposal that nobody decided in time: that is not a person's no.

    Raises: NotFound.
    """
    find_open(workspace, proposal_id)
    record = Record(version=workspace.version + 1, kind="expired", actor="program", proposal_id=proposal_id)
    return Step(replace(workspace, proposals=without(workspace, proposal_id), version=record.version), record)


def proposed_facts(workspace: Workspace, changes: Sequence[Change]) -> dict[str, Json]:
    """Return the facts as they would be, without making them so.

    Raises: ProtocolError, LimitExceeded, WorkspaceConflict.
    """
    return applied(workspace, tuple(changes), "facts")


def find_open(workspace: Workspace, proposal_id: str) -> Proposal:
    """Return a proposal that waits for a person.

    Raises: NotFound.
    """
    for proposal in workspace.proposals:
        if proposal.id == proposal_id:
            return proposal
    raise NotFound(f"there is no open proposal `{proposal_id}`", param="proposal_id")


def without(workspace: Workspace, proposal_id: str) -> tuple[Proposal, ...]:
    """Return the open proposals but for one."""
    return tuple(proposal for proposal in workspace.proposals if proposal.id != proposal_id)


def _chosen(proposal: Proposal, only: Sequence[int]) -> tuple[Change, ...]:
    chosen = sorted(set(only))
    if not chosen or chosen[0] < 0 or chosen[-1] >= len(proposal.changes):
        count = len(proposal.changes)
        raise ProtocolError(f"only names changes from 0 to {count - 1}, at least one of them", param="only")
    return tuple(proposal.changes[index] for index in chosen)


def _check_fresh(workspace: Workspace, proposal: Proposal, version: int) -> None:
    if not proposal.base_version == version == workspace.facts_version:
        raise WorkspaceConflict(
            f"proposal `{proposal.id}` was made for version {proposal.base_version} of the facts and judged on "
            f"version {version}, but they are at version {workspace.facts_version}",
            code=STALE,
            param="version",
            hint="read the facts again and make a new proposal",
        )


def _check_seen(workspace: Workspace, proposal: Proposal, version: int) -> None:
    if version != workspace.facts_version:
        raise WorkspaceConflict(
            f"proposal `{proposal.id}` was judged on version {version} of the facts, but they are at version "
            f"{workspace.facts_version}",
            code=STALE,
            param="version",
            hint="read the facts again before you decide",
        )


def _check_reason(reason: str) -> None:
    if len(reason) > REASON_CHARS_MAX:
        raise LimitExceeded(f"the reason is longer than {REASON_CHARS_MAX} characters", param="reason")
