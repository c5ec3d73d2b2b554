"""How workspaces, their history and decided proposals are printed; everything is cleaned of control characters."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from treadle.terminal.rendering.proposal_card import diff_lines, when
from treadle.terminal.rendering.sanitize import clean

if TYPE_CHECKING:
    from treadle.workspace.workspace_state import WorkspaceRecord
    from treadle.workspace.workspace_store import ProposalStanding


def print_lines(lines: Iterable[str]) -> None:
    """Print lines for a person to read."""
    for line in lines:
        print(clean(line))


def standing_lines(standing: "ProposalStanding") -> list[str]:
    """Return a decided proposal in one or two lines."""
    proposal, decision = standing.proposal, standing.decision
    lines = [f"{proposal.id}  {standing.status}  {len(proposal.changes)} changes  {proposal.reason}".rstrip()]
    lines += [f"  because: {decision.reason}"] if decision is not None and decision.reason else []
    return lines


def record_lines(record: "WorkspaceRecord", *, has_diff: bool) -> list[str]:
    """Return one version of a history."""
    by = " ".join(word for word in (record.actor, record.who, record.run_id or "") if word)
    what = record.path or record.proposal_id or ("" if record.restored is None else f"version {record.restored}")
    head = f"{record.version:>5}  {when(record.at)}  {record.kind:<9}  {by}  {what}".rstrip()
    lines = [head + (f"  ({record.reason})" if record.reason else "")]
    return lines + (diff_lines(record.diff) if has_diff and record.diff else [])
