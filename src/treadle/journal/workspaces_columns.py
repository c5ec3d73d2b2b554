"""Workspaces as columns and back, whatever the database: databases differ in how they keep texts, JSON and numbers."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from treadle.core.errors import Conflict, NotFound, WorkspaceConflict
from treadle.journal.workspaces_interface import DECIDED, MOVED, ChangeRow, ProposalRow, WorkspaceRow

WORKSPACE = "w.id, w.name, w.key_id, w.session_id, w.created_at, w.updated_at, w.version, w.sha256, w.state"
CHANGE = "w.id, c.version, c.run_id, c.call_id, c.sha256, c.record"
PROPOSAL = "p.id, w.id, p.status, p.is_told, p.created_at, p.proposal, p.decision"


class Columns(msgspec.Struct, frozen=True, kw_only=True):
    """How one database keeps things; `all_rows` is its limit of a statement that has none."""

    bind_text: Callable[[str | None], Any]
    read_text: Callable[[Any], str | None]
    bind_json: Callable[[bytes], Any]
    read_json: Callable[[Any], bytes | str]
    within: Callable[[int], int]
    all_rows: int | None

    def change_values(self, change: ChangeRow) -> tuple[Any, ...]:
        """Return a version as the values of its insert, the number of its workspace left out."""
        calls = (self.bind_text(change.run_id), self.bind_text(change.call_id))
        return (change.version, *calls, change.sha256, self._bound(change.record), self._bound(change.snapshot))

    def proposal_values(self, row: ProposalRow, workspace: int) -> tuple[Any, ...]:
        """Return a new proposal as the values of its insert."""
        bodies = (self._bound(row.proposal), self._bound(row.decision))
        return (self.bind_text(row.id), workspace, row.status, row.is_told, row.created_at, *bodies)

    def decision_values(self, row: ProposalRow, workspace: int) -> tuple[Any, ...]:
        """Return a decided proposal as the values of its update."""
        return (row.status, self._bound(row.decision), row.is_told, self.bind_text(row.id), workspace)

    def read_workspace(self, values: Sequence[Any]) -> WorkspaceRow:
        """Read a workspace from the columns WORKSPACE."""
        row_id, name, key_id, session_id, created_at, updated_at, version, sha256, state = values
        return WorkspaceRow(
            id=self._text(row_id),
            name=self._text(name),
            key_id=self._text(key_id),
            session_id=self.read_text(session_id),
            created_at=created_at,
            updated_at=updated_at,
            version=version,
            sha256=sha256,
            state=msgspec.Raw(self.read_json(state)),
        )

    def read_change(self, values: Sequence[Any]) -> ChangeRow:
        """Read a version from the columns CHANGE, and its snapshot where that was asked for."""
        workspace_id, version, run_id, call_id, sha256, record, *snapshot = values
        return ChangeRow(
            workspace_id=self._text(workspace_id),
            version=version,
            run_id=self.read_text(run_id),
            call_id=self.read_text(call_id),
            sha256=sha256,
            record=msgspec.Raw(self.read_json(record)),
            snapshot=self._raw(snapshot[0]) if snapshot else None,
        )

    def read_proposal(self, values: Sequence[Any]) -> ProposalRow:
        """Read a proposal from the columns PROPOSAL."""
        row_id, workspace_id, status, is_told, created_at, proposal, decision = values
        return ProposalRow(
            id=self._text(row_id),
            workspace_id=self._text(workspace_id),
            status=status,
            is_told=bool(is_told),
            created_at=created_at,
            proposal=msgspec.Raw(self.read_json(proposal)),
            decision=self._raw(decision),
        )

    def _text(self, value: Any) -> str:
        return self.read_text(value) or ""

    def _bound(self, raw: msgspec.Raw | None) -> Any:
        return None if raw is None else self.bind_json(bytes(raw))

    def _raw(self, value: Any) -> msgspec.Raw | None:
        return None if value is None else msgspec.Raw(self.read_json(value))


def unknown(workspace_id: str) -> NotFound:
    """Return the refusal of a workspace that is not there."""
    return NotFound(f"there is no workspace {workspace_id!r}", param="workspace")


def moved(version: int | None, workspace_id: str, base: int) -> NotFound | WorkspaceConflict:
    """Return the refusal of a commit for a version that is not the newest; without one there is no workspace."""
    if version is None:
        return unknown(workspace_id)
    return WorkspaceConflict(f"the workspace is at version {version}, not at {base}", code=MOVED, param="version")


def decided(proposal_id: str) -> Conflict:
    """Return the refusal of a second decision."""
    return Conflict(f"the proposal {proposal_id} is decided already", code=DECIDED)
