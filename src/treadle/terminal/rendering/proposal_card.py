"""Renders an open proposal to a workspace in the terminal, before a person decides."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from msgspec import UNSET

from treadle.core.json import cut_text, write_json

if TYPE_CHECKING:
    from treadle.workspace.proposal_review import Review
    from treadle.workspace.workspace_diff import Difference, Triple

VALUE_BYTES_MAX = 400


def review_lines(review: "Review") -> list[str]:
    """Return an open proposal as a person reads it before deciding."""
    proposal = review.proposal
    by = proposal.who or (f"run {proposal.run_id}" if proposal.run_id else "a program")
    lines = [f"{proposal.id}  by {by}, {when(proposal.at)}, for version {proposal.base_version} of the facts"]
    lines += [f"  why: {proposal.reason}"] if proposal.reason else []
    lines += triple_lines(review.three_way) if review.is_stale else diff_lines(review.diff)
    lines += [f"  it cannot be confirmed as it is: {review.obstacle}"] if review.obstacle else []
    return lines


def when(at: float) -> str:
    """Return a time as people write it."""
    return datetime.fromtimestamp(at).astimezone().isoformat(" ", "minutes")[:16]


def diff_lines(differences: "Sequence[Difference]") -> list[str]:
    """Return differences, a line for what was and one for what is."""
    lines: list[str] = []
    for each in differences:
        lines.append(f"  {each.path or '(all)'}")
        lines += [] if each.before is UNSET else [f"  - {_value(each.before)}"]
        lines += [] if each.after is UNSET else [f"  + {_value(each.after)}"]
    return lines or ["  nothing"]


def triple_lines(triples: "Sequence[Triple]") -> list[str]:
    """Return the three sides of every place."""
    lines: list[str] = []
    for each in triples:
        lines.append(f"  {each.path}{'  CLASH' if each.is_clash else ''}")
        for name, value in (("was", each.base), ("is", each.current), ("proposed", each.proposed)):
            lines.append(f"    {name:<8}  {'(nothing)' if value is UNSET else _value(value)}")
    return lines


def _value(value: object) -> str:
    text = write_json(value).decode()
    short = cut_text(text, VALUE_BYTES_MAX)
    return short if short == text else f"{short}…"
