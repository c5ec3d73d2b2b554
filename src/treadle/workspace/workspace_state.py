"""The state of a workspace (facts, draft, locks, UI) and the steps that change draft, locks and UI.

Each step takes a frozen workspace and returns a new one with its record, or raises. A locked value cannot change until
a person unlocks it. Facts change in `proposals` and `versions`, by a person's decision only. Pure: clock, ids and
storage are the caller's.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple, cast

import msgspec
from msgspec.structs import replace

from treadle.core.errors import Forbidden, LimitExceeded, NotFound, ProtocolError, WorkspaceConflict
from treadle.core.json import BadJson, fingerprint, read_json, write_json
from treadle.workspace.json_pointer import Json, append_at, find_at, get_at, insert_at, read_pointer, remove_at, set_at
from treadle.workspace.workspace_diff import Difference, equal

Actor = Literal["person", "model", "program"]
Operation = Literal["set", "delete", "append", "insert"]
Section = Literal["facts", "draft", "ui"]
RecordKind = Literal[
    "created", "patched", "shown", "proposed", "confirmed", "rejected", "expired", "locked", "unlocked", "restored"
]
SECTIONS: tuple[Section, ...] = ("facts", "draft", "ui")

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


class Proposal(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Changes to the facts that wait for a decision; `base_version` is the version of the facts they were made for.

    `version` is that of the workspace in which it was made, `who` and `run_id` say who made it.
    """

    id: str
    changes: tuple[Change, ...]
    reason: str
    base_version: int
    version: int = 0
    who: str = ""
    run_id: str | None = None
    at: float = 0.0
    expires_at: float | None = None

    @property
    def sha256(self) -> str:
        """Return a hash of these changes on these facts, so that a person confirms exactly what was shown."""
        changes = [(change.path, change.op, change.value) for change in self.changes]
        return fingerprint({"changes": changes, "base_version": self.base_version})


class WorkspaceRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The record of a step: who did what and why, in which run, with the difference and the new version.

    The step sets the fields up to `expires_at`, the store adds the rest. `restored` is the version that was restored.
    """

    version: int
    kind: RecordKind
    actor: Actor
    changes: tuple[Change, ...] = ()
    proposal_id: str | None = None
    path: str | None = None
    restored: int | None = None
    expires_at: float | None = None
    reason: str = ""
    who: str = ""
    run_id: str | None = None
    call_id: str | None = None
    at: float = 0.0
    diff: tuple[Difference, ...] = ()


class Workspace(msgspec.Struct, frozen=True, kw_only=True):
    """The immutable state of a workspace. `version` counts all steps, `facts_version` those that changed facts."""

    facts: dict[str, Json] = {}
    draft: dict[str, Json] = {}
    locks: tuple[str, ...] = ()
    ui: dict[str, Json] = {}
    proposals: tuple[Proposal, ...] = ()
    version: int = 0
    facts_version: int = 0

    def document(self) -> dict[str, Json]:
        """Return the document that pointers refer to."""
        return {"facts": self.facts, "draft": self.draft, "locks": list(self.locks), "ui": self.ui}

    def get(self, pointer: str) -> Json:
        """Return the value at the pointer.

        Raises: ProtocolError.
        """
        return get_at(self.document(), pointer)


class WorkspaceStep(NamedTuple):
    """A workspace after a step, and the record of the step."""

    workspace: Workspace
    record: WorkspaceRecord


def patch_draft(workspace: Workspace, changes: Sequence[Change], *, actor: Actor) -> WorkspaceStep:
    """Apply all of the changes to the draft, or none.

    Raises: ProtocolError, LimitExceeded; WorkspaceConflict, which names the lock in the way.
    """
    edits = owned(changes)
    draft = applied(workspace, edits, "draft")
    record = WorkspaceRecord(version=workspace.version + 1, kind="patched", actor=actor, changes=edits)
    return WorkspaceStep(replace(workspace, draft=draft, version=record.version), record)


def show(workspace: Workspace, changes: Sequence[Change], *, actor: Actor) -> WorkspaceStep:
    """Apply all of the changes to the UI state, or none.

    Raises: as `patch_draft`.
    """
    edits = owned(changes)
    ui = applied(workspace, edits, "ui")
    record = WorkspaceRecord(version=workspace.version + 1, kind="shown", actor=actor, changes=edits)
    return WorkspaceStep(replace(workspace, ui=ui, version=record.version), record)


def lock(workspace: Workspace, path: str, *, actor: Actor) -> WorkspaceStep:
    """Lock the value at the path, which need not exist, until a person unlocks it.

    Raises: ProtocolError, for a path outside facts, draft and ui; LimitExceeded.
    """
    section_of(path)
    if path not in workspace.locks and len(workspace.locks) >= LOCKS_MAX:
        raise LimitExceeded(f"there are {LOCKS_MAX} locks already", param="path")
    locks = tuple(sorted({*workspace.locks, path}))
    record = WorkspaceRecord(version=workspace.version + 1, kind="locked", actor=actor, path=path)
    return WorkspaceStep(replace(workspace, locks=locks, version=record.version), record)


def unlock(workspace: Workspace, path: str, *, actor: Actor) -> WorkspaceStep:
    """Release a lock.

    Raises: Forbidden, unless a person unlocks; NotFound.
    """
    check_person(actor, "unlock a path")
    if path not in workspace.locks:
        raise NotFound(f"there is no lock `{path}`", param="path")
    locks = tuple(held for held in workspace.locks if held != path)
    record = WorkspaceRecord(version=workspace.version + 1, kind="unlocked", actor=actor, path=path)
    return WorkspaceStep(replace(workspace, locks=locks, version=record.version), record)


def applied(workspace: Workspace, changes: tuple[Change, ...], section: Section) -> dict[str, Json]:
    """Return a section with all of the changes made; they must be inside it and not change locked values.

    Raises: ProtocolError, LimitExceeded, WorkspaceConflict.
    """
    before = workspace.document()
    after: Json = before
    for change in changes:
        if section_of(change.path) != section:
            raise ProtocolError(f"`{change.path}` is not in the {section}", code="invalid_pointer", param=change.path)
        after = apply(after, change)
    check_locks(before, after, workspace.locks)
    return checked_section(find_at(after, f"/{section}"), section)


def checked_section(value: object, section: Section) -> dict[str, Json]:
    """Return the value if it is a valid section.

    Raises: ProtocolError, LimitExceeded.
    """
    if not isinstance(value, dict):
        raise ProtocolError(f"the {section} must stay an object", param=f"/{section}")
    if len(write_json(value)) > SECTION_BYTES_MAX:
        raise LimitExceeded(f"the {section} would be larger than {SECTION_BYTES_MAX} bytes", param=f"/{section}")
    return cast("dict[str, Json]", value)


def apply(document: Json, change: Change) -> Json:
    """Return the document with one change made.

    Raises: ProtocolError.
    """
    match change.op:
        case "set":
            return set_at(document, change.path, change.value)
        case "delete":
            return remove_at(document, change.path)
        case "append":
            return append_at(document, change.path, change.value)
        case "insert":
            return insert_at(document, change.path, change.value)


def check_locks(before: Json, after: Json, locks: tuple[str, ...]) -> None:
    """Check that no locked value has changed, not even by removing an element before it or its parent.

    Raises: WorkspaceConflict, which names the lock.
    """
    for path in locks:
        if not equal(find_at(before, path), find_at(after, path)):
            raise WorkspaceConflict(
                f"the lock `{path}` is in the way: its value would change",
                code="workspace_locked",
                param=path,
                hint="only a person can unlock it",
            )


def check_person(actor: Actor, deed: str) -> None:
    """Check that the actor is a person.

    Raises: Forbidden.
    """
    if actor != "person":
        raise Forbidden(f"only a person can {deed}", param="actor")


def section_of(path: str) -> str:
    """Return the section that a path lies in.

    Raises: ProtocolError.
    """
    tokens = read_pointer(path)
    if not tokens or tokens[0] not in ("facts", "draft", "ui"):
        raise ProtocolError(f"`{path}` is not in /facts, /draft or /ui", code="invalid_pointer", param=path)
    return tokens[0]


def owned(changes: Sequence[Change]) -> tuple[Change, ...]:
    """Copy the values, so that the caller cannot change them later, and check that they are JSON.

    Raises: ProtocolError, LimitExceeded.
    """
    if not changes:
        raise ProtocolError("there is nothing to change", param="changes")
    if len(changes) > CHANGES_MAX:
        raise LimitExceeded(f"more than {CHANGES_MAX} changes at once", param="changes")
    try:
        return tuple(replace(change, value=read_json(write_json(change.value))) for change in changes)
    except (BadJson, TypeError, RecursionError, UnicodeEncodeError) as error:
        raise ProtocolError(f"a value is not JSON: {error}", param="changes") from None
