"""The steps that change facts: anyone proposes, and a person confirms or rejects, on the facts that they were shown.

A proposal is stale if what it touches has changed since its base, the facts it was made for. The caller passes the
base; without it any change of the facts makes the proposal stale.

As in `workspace_state`, each step takes a frozen workspace and returns a new one with its record, or raises.
"""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from treadle.core.errors import LimitExceeded, NotFound, ProtocolError, WorkspaceConflict
from treadle.core.json import write_json
from treadle.workspace.json_pointer import Json, find_at
from treadle.workspace.workspace_diff import compare, equal, is_inside
from treadle.workspace.workspace_state import (
    PROPOSALS_MAX,
    REASON_CHARS_MAX,
    Actor,
    Change,
    Proposal,
    Workspace,
    WorkspaceRecord,
    WorkspaceStep,
    applied,
    check_person,
    owned,
)

PROPOSAL_BYTES_MAX = 262_144
NAMED_MAX = 5
STALE = "workspace_conflict"
"""The code of the WorkspaceConflict for facts that have changed."""


def propose(
    workspace: Workspace, proposal: Proposal, *, actor: Actor, base: Mapping[str, Json] | None = None
) -> WorkspaceStep:
    """Open a proposal for a person to decide; the facts stay unchanged. `base` are the facts it was made for.

    Raises: WorkspaceConflict, when the facts it touches have changed or are locked, or when it changes nothing;
    ProtocolError, LimitExceeded.
    """
    if any(known.id == proposal.id for known in workspace.proposals):
        raise ProtocolError(f"a proposal `{proposal.id}` is open already", param="id")
    if len(workspace.proposals) >= PROPOSALS_MAX:
        raise LimitExceeded(f"{PROPOSALS_MAX} proposals are open already; one must be decided first")
    _check_reason(proposal.reason)
    edits = owned(proposal.changes)
    if len(write_json(edits)) > PROPOSAL_BYTES_MAX:
        raise LimitExceeded(f"the changes are larger than {PROPOSAL_BYTES_MAX} bytes", param="changes")
    _check_base(workspace, proposal, edits, base)
    if equal(applied(workspace, edits, "facts"), workspace.facts):
        raise WorkspaceConflict(
            "the changes leave the facts as they are, so there is nothing to decide",
            code="nothing_to_propose",
            param="changes",
        )
    record = WorkspaceRecord(
        version=workspace.version + 1,
        kind="proposed",
        actor=actor,
        changes=edits,
        proposal_id=proposal.id,
        reason=proposal.reason,
        expires_at=proposal.expires_at,
    )
    opened = replace(proposal, changes=edits, version=workspace.version, base_version=workspace.facts_version)
    return WorkspaceStep(replace(workspace, proposals=(*workspace.proposals, opened), version=record.version), record)


def confirm(  # noqa: PLR0913 - the parts of a decision
    workspace: Workspace,
    proposal_id: str,
    version: int,
    *,
    actor: Actor,
    only: Sequence[int] | None = None,
    changes: Sequence[Change] | None = None,
    base: Mapping[str, Json] | None = None,
) -> WorkspaceStep:
    """Apply a proposal to the facts. `version` is the version of the facts that the person was shown, `base` are the
    facts that it was made for.

    `only` names the changes to take, counted from 0; the others are dropped. `changes` are the person's own in place
    of the proposed ones: made for the facts as they are now, so that a stale proposal can be settled by hand.

    Raises: Forbidden, unless a person confirms; NotFound; ProtocolError; WorkspaceConflict, when the facts moved on.
    """
    check_person(actor, "confirm a proposal")
    proposal = find_open(workspace, proposal_id)
    if changes is None:
        edits = proposal.changes if only is None else _chosen(proposal, only)
        _check_fresh(workspace, proposal, version, edits, base)
    elif only is not None:
        raise ProtocolError("choose changes with only, or give your own, not both", param="only")
    else:
        _check_seen(workspace, proposal, version)
        edits = owned(changes)
    facts = applied(workspace, edits, "facts")
    record = WorkspaceRecord(
        version=workspace.version + 1, kind="confirmed", actor=actor, changes=edits, proposal_id=proposal_id
    )
    confirmed = replace(
        workspace,
        facts=facts,
        facts_version=workspace.facts_version + 1,
        proposals=without(workspace, proposal_id),
        version=record.version,
    )
    return WorkspaceStep(confirmed, record)


def reject(workspace: Workspace, proposal_id: str, *, actor: Actor, reason: str = "") -> WorkspaceStep:
    """Drop a proposal, stale or not.

    Raises: Forbidden, unless a person rejects; NotFound, LimitExceeded.
    """
    check_person(actor, "reject a proposal")
    _check_reason(reason)
    find_open(workspace, proposal_id)
    record = WorkspaceRecord(
        version=workspace.version + 1, kind="rejected", actor=actor, proposal_id=proposal_id, reason=reason
    )
    return WorkspaceStep(replace(workspace, proposals=without(workspace, proposal_id), version=record.version), record)


def expire(workspace: Workspace, proposal_id: str) -> WorkspaceStep:
    """Drop a proposal that was not decided in time, which is not a rejection.

    Raises: NotFound.
    """
    find_open(workspace, proposal_id)
    record = WorkspaceRecord(version=workspace.version + 1, kind="expired", actor="program", proposal_id=proposal_id)
    return WorkspaceStep(replace(workspace, proposals=without(workspace, proposal_id), version=record.version), record)


def proposed_facts(workspace: Workspace, changes: Sequence[Change]) -> dict[str, Json]:
    """Return the facts that the changes would give.

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
    """Return the open proposals except one."""
    return tuple(proposal for proposal in workspace.proposals if proposal.id != proposal_id)


def _chosen(proposal: Proposal, only: Sequence[int]) -> tuple[Change, ...]:
    chosen = sorted(set(only))
    if not chosen or chosen[0] < 0 or chosen[-1] >= len(proposal.changes):
        count = len(proposal.changes)
        raise ProtocolError(f"only names changes from 0 to {count - 1}, at least one of them", param="only")
    return tuple(proposal.changes[index] for index in chosen)


def moved_paths(
    workspace: Workspace, base_version: int, changes: Sequence[Change], base: Mapping[str, Json] | None
) -> tuple[str, ...]:
    """Return the paths that these changes touch and that have changed since their base."""
    if base_version == workspace.facts_version:
        return ()
    if base is None:
        return ("/facts",)
    before: Json = {"facts": dict(base)}
    moved = [each.path for each in compare(before, {"facts": workspace.facts})]
    touched = [_touched(before, change) for change in changes]
    return tuple(path for path in moved if any(is_inside(path, other) or is_inside(other, path) for other in touched))


def _touched(before: Json, change: Change) -> str:
    """Return the path that a change touches: removing or inserting an element touches the whole array."""
    parent = change.path.rpartition("/")[0]
    is_element = change.op in ("insert", "delete") and isinstance(find_at(before, parent), list)
    return parent if is_element else change.path


def _check_base(
    workspace: Workspace, proposal: Proposal, edits: Sequence[Change], base: Mapping[str, Json] | None
) -> None:
    """Check that a new proposal was made for the current facts."""
    now = workspace.facts_version
    if not 0 <= proposal.base_version <= now:
        raise WorkspaceConflict(
            f"the facts have no version {proposal.base_version}; they are at version {now}",
            code=STALE,
            param="base_version",
            hint="read the facts again and propose anew",
        )
    if moved := moved_paths(workspace, proposal.base_version, edits, base):
        raise WorkspaceConflict(
            f"the changes were made for version {proposal.base_version} of the facts; they are at version {now}, and "
            f"since then there was a change of {', '.join(moved[:NAMED_MAX])}",
            code=STALE,
            param="base_version",
            hint="read the facts again and propose anew",
        )


def _check_fresh(
    workspace: Workspace,
    proposal: Proposal,
    version: int,
    edits: Sequence[Change],
    base: Mapping[str, Json] | None,
) -> None:
    now = workspace.facts_version
    moved = moved_paths(workspace, proposal.base_version, edits, base)
    if proposal.base_version <= version <= now and not moved:
        return
    since = f", and since then there was a change of {', '.join(moved[:NAMED_MAX])}" if moved else ""
    raise WorkspaceConflict(
        f"proposal `{proposal.id}` was made for version {proposal.base_version} of the facts and judged on "
        f"version {version}, but they are at version {now}{since}",
        code=STALE,
        param="version",
        hint="reject it, or confirm your own changes in its place",
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
