"""The workspace: facts, draft, locks and UI state, and the only ways in which they change.

Every way takes a frozen workspace and returns a new one with the record of what happened; a refused one raises and
changes nothing. A locked value stays what it is until a person unlocks it, and facts change only when a person
confirms a proposal on the facts they have seen. No clock, no storage, no random id: the caller brings those.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from treadle.canon.errors import Forbidden, LimitExceeded, NotFound, ProtocolError, WorkspaceConflict
from treadle.canon.json import BadJson, canonical_json, read_json, write_json
from treadle.workspace.pointer import Json, append_at, find_at, get_at, read_pointer, remove_at, set_at

Actor = Literal["person", "model", "program"]
Operation = Literal["set", "remove", "append"]
Section = Literal["facts", "draft", "ui"]
RecordKind = Literal["patched", "shown", "proposed", "confirmed", "rejected", "locked", "unlocked"]

CHANGES_MAX = 256
SECTION_BYTES_MAX = 1_048_576
PROPOSALS_MAX = 64
LOCKS_MAX = 256
REASON_CHARS_MAX = 2_000


class Change(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One edit, at a pointer into the whole workspace: `/draft/title`, `/facts/name`."""

    path: str
    op: Operation = "set"
    value: Json = None


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """Changes to the facts that wait for a person; `base_version` is the version of the facts they were made for."""

    id: str
    changes: tuple[Change, ...]
    reason: str
    base_version: int


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What happened, as it is kept: who did what, and the version that came of it."""

    version: int
    kind: RecordKind
    actor: Actor
    changes: tuple[Change, ...] = ()
    proposal_id: str | None = None
    path: str | None = None
    reason: str = ""


class Workspace(msgspec.Struct, frozen=True, kw_only=True):
    """One moment of a workspace. `version` counts every step, `facts_version` only those that changed facts."""

    facts: dict[str, Json] = {}
    draft: dict[str, Json] = {}
    locks: tuple[str, ...] = ()
    ui: dict[str, Json] = {}
    proposals: tuple[Proposal, ...] = ()
    version: int = 0
    facts_version: int = 0

    def document(self) -> dict[str, Json]:
        """Return what pointers point into."""
        return {"facts": self.facts, "draft": self.draft, "locks": list(self.locks), "ui": self.ui}

    def get(self, pointer: str) -> Json:
        """Return the value at the pointer.

        Raises: ProtocolError.
        """
        return get_at(self.document(), pointer)


class Step(NamedTuple):
    """A workspace after a step, and the record of the step."""

    workspace: Workspace
    record: Record


def patch_draft(workspace: Workspace, changes: Sequence[Change], *, actor: Actor) -> Step:
    """Apply all of the changes to the draft, or none.

    Raises: ProtocolError, LimitExceeded; WorkspaceConflict, which names the lock in the way.
    """
    owned = _owned(changes)
    draft = _applied(workspace, owned, "draft")
    record = Record(version=workspace.version + 1, kind="patched", actor=actor, changes=owned)
    return Step(replace(workspace, draft=draft, version=record.version), record)


def show(workspace: Workspace, changes: Sequence[Change], *, actor: Actor) -> Step:
    """Apply all of the changes to the UI state, or none.

    Raises: as `patch_draft`.
    """
    owned = _owned(changes)
    ui = _applied(workspace, owned, "ui")
    record = Record(version=workspace.version + 1, kind="shown", actor=actor, changes=owned)
    return Step(replace(workspace, ui=ui, version=record.version), record)


def propose(workspace: Workspace, proposal: Proposal, *, actor: Actor) -> Step:
    """Put a proposal before a person; the facts stay as they are.

    Raises: WorkspaceConflict, when the facts have moved on or are locked; ProtocolError, LimitExceeded.
    """
    if any(known.id == proposal.id for known in workspace.proposals):
        raise ProtocolError(f"a proposal `{proposal.id}` is open already", param="id")
    if len(workspace.proposals) >= PROPOSALS_MAX:
        raise LimitExceeded(f"{PROPOSALS_MAX} proposals are open already; one must be decided first")
    if len(proposal.reason) > REASON_CHARS_MAX:
        raise LimitExceeded(f"the reason is longer than {REASON_CHARS_MAX} characters", param="reason")
    owned = replace(proposal, changes=_owned(proposal.changes))
    _check_fresh(workspace, proposal, proposal.base_version)
    _applied(workspace, owned.changes, "facts")
    record = Record(
        version=workspace.version + 1,
        kind="proposed",
        actor=actor,
        changes=owned.changes,
        proposal_id=owned.id,
        reason=owned.reason,
    )
    return Step(replace(workspace, proposals=(*workspace.proposals, owned), version=record.version), record)


def confirm(workspace: Workspace, proposal_id: str, version: int, *, actor: Actor) -> Step:
    """Make a proposal fact. `version` is the version of the facts that the person was shown.

    Raises: Forbidden, unless a person confirms; NotFound; WorkspaceConflict, when the facts have moved on.
    """
    _check_person(actor, "confirm a proposal")
    proposal = _proposal(workspace, proposal_id)
    _check_fresh(workspace, proposal, version)
    facts = _applied(workspace, proposal.changes, "facts")
    record = Record(
        version=workspace.version + 1,
        kind="confirmed",
        actor=actor,
        changes=proposal.changes,
        proposal_id=proposal_id,
    )
    confirmed = replace(
        workspace,
        facts=facts,
        facts_version=workspace.facts_version + 1,
        proposals=_without(workspace, proposal_id),
        version=record.version,
    )
    return Step(confirmed, record)


def reject(workspace: Workspace, proposal_id: str, *, actor: Actor, reason: str = "") -> Step:
    """Drop a proposal, stale or not.

    Raises: Forbidden, unless a person rejects; NotFound.
    """
    _check_person(actor, "reject a proposal")
    _proposal(workspace, proposal_id)
    record = Record(version=workspace.version + 1, kind="rejected", actor=actor, proposal_id=proposal_id, reason=reason)
    return Step(replace(workspace, proposals=_without(workspace, proposal_id), version=record.version), record)


def lock(workspace: Workspace, path: str, *, actor: Actor) -> Step:
    """Hold the value at the path, also one that does not exist yet, until a person unlocks it.

    Raises: ProtocolError, for a path outside facts, draft and ui; LimitExceeded.
    """
    _section_of(path)
    if path not in workspace.locks and len(workspace.locks) >= LOCKS_MAX:
        raise LimitExceeded(f"there are {LOCKS_MAX} locks already", param="path")
    locks = tuple(sorted({*workspace.locks, path}))
    record = Record(version=workspace.version + 1, kind="locked", actor=actor, path=path)
    return Step(replace(workspace, locks=locks, version=record.version), record)


def unlock(workspace: Workspace, path: str, *, actor: Actor) -> Step:
    """Release a lock.

    Raises: Forbidden, unless a person unlocks; NotFound.
    """
    _check_person(actor, "unlock a path")
    if path not in workspace.locks:
        raise NotFound(f"there is no lock `{path}`", param="path")
    locks = tuple(held for held in workspace.locks if held != path)
    record = Record(version=workspace.version + 1, kind="unlocked", actor=actor, path=path)
    return Step(replace(workspace, locks=locks, version=record.version), record)


def _applied(workspace: Workspace, changes: tuple[Change, ...], section: Section) -> dict[str, Json]:
    before = workspace.document()
    after: Json = before
    for change in changes:
        if _section_of(change.path) != section:
            raise ProtocolError(f"`{change.path}` is not in the {section}", code="invalid_pointer", param=change.path)
        after = _apply(after, change)
    _check_locks(before, after, workspace.locks)
    result = find_at(after, f"/{section}")
    if not isinstance(result, dict):
        raise ProtocolError(f"the {section} must stay an object", param=f"/{section}")
    if len(write_json(result)) > SECTION_BYTES_MAX:
        raise LimitExceeded(f"the {section} would be larger than {SECTION_BYTES_MAX} bytes", param=f"/{section}")
    return result


def _apply(document: Json, change: Change) -> Json:
    match change.op:
        case "set":
            return set_at(document, change.path, change.value)
        case "remove":
            return remove_at(document, change.path)
        case "append":
            return append_at(document, change.path, change.value)


def _check_locks(before: Json, after: Json, locks: tuple[str, ...]) -> None:
    """Compare values, not paths: a removed element also moves its neighbours, and a parent takes its children along."""
    for path in locks:
        old, new = find_at(before, path), find_at(after, path)
        if old is not new and (old is UNSET or new is UNSET or canonical_json(old) != canonical_json(new)):
            raise WorkspaceConflict(
                f"the lock `{path}` is in the way: its value would change",
                code="workspace_locked",
                param=path,
                hint="only a person can unlock it",
            )


def _check_fresh(workspace: Workspace, proposal: Proposal, version: int) -> None:
    if not proposal.base_version == version == workspace.facts_version:
        raise WorkspaceConflict(
            f"proposal `{proposal.id}` was made for version {proposal.base_version} of the facts and judged on "
            f"version {version}, but they are at version {workspace.facts_version}",
            param="version",
            hint="read the facts again and make a new proposal",
        )


def _check_person(actor: Actor, deed: str) -> None:
    if actor != "person":
        raise Forbidden(f"only a person can {deed}", param="actor")


def _proposal(workspace: Workspace, proposal_id: str) -> Proposal:
    for proposal in workspace.proposals:
        if proposal.id == proposal_id:
            return proposal
    raise NotFound(f"there is no open proposal `{proposal_id}`", param="proposal_id")


def _without(workspace: Workspace, proposal_id: str) -> tuple[Proposal, ...]:
    return tuple(proposal for proposal in workspace.proposals if proposal.id != proposal_id)


def _section_of(path: str) -> str:
    tokens = read_pointer(path)
    if not tokens or tokens[0] not in ("facts", "draft", "ui"):
        raise ProtocolError(f"`{path}` is not in /facts, /draft or /ui", code="invalid_pointer", param=path)
    return tokens[0]


def _owned(changes: Sequence[Change]) -> tuple[Change, ...]:
    """Copy the values, so that nobody outside can change what the workspace holds, and refuse what is not JSON."""
    if not changes:
        raise ProtocolError("there is nothing to change", param="changes")
    if len(changes) > CHANGES_MAX:
        raise LimitExceeded(f"more than {CHANGES_MAX} changes at once", param="changes")
    try:
        return tuple(replace(change, value=read_json(write_json(change.value))) for change in changes)
    except (BadJson, TypeError, RecursionError) as error:
        raise ProtocolError(f"a value is not JSON: {error}", param="changes") from None
