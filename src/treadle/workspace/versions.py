"""Replays a workspace from the records of its steps, and restores sections of an older version.

The records form a hash chain. If a replay from a snapshot gives a different workspace, the history was tampered with.
"""

import hashlib
from collections.abc import Sequence

from msgspec.structs import replace

from treadle.core.errors import LimitExceeded, ProtocolError, WorkspaceConflict
from treadle.workspace.json_pointer import Json, find_at
from treadle.workspace.proposals import without
from treadle.workspace.workspace_diff import equal
from treadle.workspace.workspace_state import (
    REASON_CHARS_MAX,
    SECTIONS,
    Actor,
    Change,
    Proposal,
    Section,
    Workspace,
    WorkspaceRecord,
    WorkspaceStep,
    apply,
    check_locks,
    check_person,
    checked_section,
)


def restore(
    workspace: Workspace, old: Workspace, *, actor: Actor, sections: Sequence[Section] = SECTIONS, reason: str = ""
) -> WorkspaceStep:
    """Restore some sections of an older version. Locks and open proposals stay unchanged.

    Raises: Forbidden, unless a person restores; WorkspaceConflict, which names the lock in the way, or when nothing
    differs; ProtocolError, LimitExceeded.
    """
    check_person(actor, "restore a version")
    if not sections:
        raise ProtocolError(f"sections names at least one of {', '.join(SECTIONS)}", param="sections")
    if len(reason) > REASON_CHARS_MAX:
        raise LimitExceeded(f"the reason is longer than {REASON_CHARS_MAX} characters", param="reason")
    changes = tuple(
        Change(path=f"/{name}", value=getattr(old, name))
        for name in SECTIONS
        if name in sections and not equal(getattr(old, name), getattr(workspace, name))
    )
    if not changes:
        raise WorkspaceConflict(
            f"version {old.version} does not differ there from the workspace as it is", code="nothing_to_restore"
        )
    restored = _changed(workspace, changes)
    check_locks(workspace.document(), restored.document(), workspace.locks)
    is_fact = any(change.path == "/facts" for change in changes)
    record = WorkspaceRecord(
        version=workspace.version + 1,
        kind="restored",
        actor=actor,
        changes=changes,
        restored=old.version,
        reason=reason,
    )
    facts_version = workspace.facts_version + is_fact
    return WorkspaceStep(replace(restored, version=record.version, facts_version=facts_version), record)


def replay(workspace: Workspace, record: WorkspaceRecord) -> Workspace:
    """Return the workspace after a recorded step, without checking it again.

    Raises: ProtocolError, for a record that does not fit.
    """
    if record.version != workspace.version + 1:
        raise ProtocolError(f"version {record.version} does not follow version {workspace.version}", param="version")
    after = replace(_changed(workspace, () if record.kind == "proposed" else record.changes), version=record.version)
    match record.kind:
        case "proposed":
            return replace(after, proposals=(*after.proposals, _proposal(workspace, record)))
        case "confirmed":
            left = without(after, record.proposal_id or "")
            return replace(after, proposals=left, facts_version=after.facts_version + 1)
        case "rejected" | "expired":
            return replace(after, proposals=without(after, record.proposal_id or ""))
        case "locked":
            return replace(after, locks=tuple(sorted({*after.locks, record.path or ""})))
        case "unlocked":
            return replace(after, locks=tuple(held for held in after.locks if held != record.path))
        case "restored":
            return replace(after, facts_version=after.facts_version + is_of_facts(record))
        case "created" | "patched" | "shown":
            return after


def is_of_facts(record: WorkspaceRecord) -> bool:
    """Return whether a step made a new version of the facts."""
    is_restored = record.kind == "restored" and any(change.path == "/facts" for change in record.changes)
    return record.kind == "confirmed" or is_restored


def link(before: str, record: bytes) -> str:
    """Return the chained hash of a stored record that follows the one with the hash `before`."""
    return hashlib.sha256(before.encode() + record).hexdigest()


def _changed(workspace: Workspace, changes: Sequence[Change]) -> Workspace:
    document: Json = workspace.document()
    for change in changes:
        document = apply(document, change)
    facts, draft, ui = (checked_section(find_at(document, f"/{name}"), name) for name in SECTIONS)
    return replace(workspace, facts=facts, draft=draft, ui=ui)


def _proposal(workspace: Workspace, record: WorkspaceRecord) -> Proposal:
    return Proposal(
        id=record.proposal_id or "",
        changes=record.changes,
        reason=record.reason,
        base_version=workspace.facts_version,
        version=workspace.version,
        who=record.who,
        run_id=record.run_id,
        at=record.at,
        expires_at=record.expires_at,
    )
