"""Verifies that a workspace equals the replay of its history: every hash, every difference, and the state."""

from collections.abc import Sequence

import msgspec

from treadle.core.errors import LimitExceeded, ProtocolError
from treadle.core.json import canonical_json
from treadle.journal.workspaces_interface import ChangeRow
from treadle.workspace import versions as history
from treadle.workspace.workspace_diff import compare
from treadle.workspace.workspace_state import Workspace
from treadle.workspace.workspace_store import StoredWorkspace, record_of


class WorkspaceFinding(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an audit: the number of versions, and the problems found."""

    workspace_id: str
    versions: int
    problems: tuple[str, ...]


def audit(held: StoredWorkspace, rows: Sequence[ChangeRow], first: Workspace | None) -> WorkspaceFinding:
    """Replay all versions from the first one, and return the problems found."""
    problems: list[str] = []
    workspace, sha256 = Workspace(), ""
    for expected, row in enumerate(rows):
        record = record_of(row)
        if row.version != expected or record.version != expected:
            problems.append(f"version {expected} is missing")
            break
        sha256 = history.link(sha256, bytes(row.record))
        if row.sha256 != sha256:
            problems.append(f"version {expected}: its hash does not fit")
        try:
            after = history.replay(workspace, record) if expected else first or workspace
        except (ProtocolError, LimitExceeded) as error:
            problems.append(f"version {expected} can not be replayed: {error.message}")
            break
        if canonical_json(compare(workspace.document(), after.document())) != canonical_json(record.diff):
            problems.append(f"version {expected}: its difference does not fit")
        workspace = after
    if not problems and (workspace != held.workspace or sha256 != held.row.sha256):
        problems.append("the state is not what its history leads to")
    return WorkspaceFinding(workspace_id=held.row.id, versions=len(rows), problems=tuple(problems))
