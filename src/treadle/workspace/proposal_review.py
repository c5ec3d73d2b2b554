"""Builds the review of a proposal that a person reads before deciding: its changes, and the facts' changes since.

Pure: a function of the current workspace and the one that the proposal was made on.
"""

import msgspec
from msgspec.structs import replace

from treadle.core.errors import TreadleError
from treadle.workspace.json_pointer import Json
from treadle.workspace.proposals import moved_paths, proposed_facts
from treadle.workspace.workspace_diff import Difference, Triple, compare, compare_three
from treadle.workspace.workspace_state import Proposal, Workspace


class Review(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a person decides on. `facts_version` goes back with the decision: it says what was seen.

    `diff` is against the facts as they are. A stale proposal has none, and in its place all three sides of every
    place that it would change. `obstacle` says why it could not be confirmed as it is, for instance a lock.
    """

    proposal: Proposal
    sha256: str
    facts_version: int
    is_stale: bool
    diff: tuple[Difference, ...] = ()
    three_way: tuple[Triple, ...] = ()
    obstacle: str | None = None


def review(proposal: Proposal, current: Workspace, made_on: Workspace) -> Review:
    """Return the review of a proposal."""
    moved = moved_paths(current, proposal.base_version, proposal.changes, made_on.facts)
    is_stale = bool(moved)
    fields = Review(proposal=proposal, sha256=proposal.sha256, facts_version=current.facts_version, is_stale=is_stale)
    if is_stale:
        wanted = proposed_facts(replace(made_on, locks=()), proposal.changes)
        sides = compare_three(_facts(made_on.facts), _facts(current.facts), _facts(wanted))
        return replace(fields, three_way=sides, obstacle=f"it is stale: {moved[0]} was changed since it was made")
    try:
        wanted = proposed_facts(replace(current, locks=()), proposal.changes)
    except TreadleError as error:
        return replace(fields, obstacle=error.message)
    return replace(fields, diff=compare(_facts(current.facts), _facts(wanted)), obstacle=_obstacle(proposal, current))


def _obstacle(proposal: Proposal, current: Workspace) -> str | None:
    try:
        proposed_facts(current, proposal.changes)
    except TreadleError as error:
        return error.message
    return None


def _facts(facts: dict[str, Json]) -> Json:
    return {"facts": facts}
