"""What a store promises about approvals: their rows and rules. Who may decide, and what follows, is known above.

A1  Once for a call: of a run and a call there is at most one approval; a second request gets the first one.
A2  Decided once: an approval leaves `pending` once, however many decide at the same time. The check is part of the
    write, and a later decider is given the first decision.
A3  In time: an approval that has expired can only become `expired`.
A4  Used once: a call that is left to a later run is carried out by one run only.
A5  Notified: waiters for a change of the run are woken by the decision, in whichever process it was made.
A6  Forgotten is gone: with the content of a run go its approvals, with a session its rules.
"""

from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec

from treadle.core.errors import Conflict, NotFound

ApprovalStatus = Literal["pending", "approved", "denied", "expired", "cancelled"]
RuleKind = Literal["call", "tool", "pattern"]

DECIDED = "approval_decided"
"""The code of the Conflict when a decider finds that another one was first."""

USED = "approval_used"
"""The code of the Conflict when a run finds that another one carries the call on."""


class ApprovalQuestion(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is asked: which call, from where, and why it needs a person. `digest` is what a decision is bound to.

    `arguments` are in canonical JSON. `is_deferred` when the run does not wait: the next one carries the call on.
    `sandbox` is the level that a command would run at where it was asked about.
    """

    tool: str
    source: str
    arguments: str
    digest: str
    reasons: tuple[str, ...] = ()
    session_id: str | None = None
    project: str = ""
    is_tainted: bool = False
    is_exec: bool = False
    is_deferred: bool = False
    sandbox: str = ""


class ApprovalDecision(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was decided, when and by whom; `arguments` are those to run with, where they were changed."""

    status: ApprovalStatus
    at: float
    by: str = ""
    reason: str = ""
    arguments: str | None = None


class ApprovalRow(msgspec.Struct, frozen=True, kw_only=True):
    """An approval, pending or decided."""

    id: str
    run_id: str
    call_id: str
    created_at: float
    expires_at: float
    question: ApprovalQuestion
    key_id: str = ""
    status: ApprovalStatus = "pending"
    used_by: str | None = None
    decision: ApprovalDecision | None = None


class ApprovalRule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which calls a remembered rule agrees to: exactly one, all of a tool, or those whose arguments fit patterns.

    `covers_taint` when it was given after untrusted output had been read, and so holds then too. `sandbox` is the level
    of the command that it was given for: it agrees to none at a lower one.
    """

    kind: RuleKind
    tool: str
    source: str = ""
    project: str = ""
    digest: str = ""
    patterns: dict[str, str] = {}
    covers_taint: bool = False
    sandbox: str = ""


class RuleRow(msgspec.Struct, frozen=True, kw_only=True):
    """A remembered rule; without a session it holds in every one of its project."""

    id: str
    created_at: float
    rule: ApprovalRule
    session_id: str | None = None
    key_id: str = ""


class ApprovalStore(Protocol):
    """Where approvals and remembered rules are stored."""

    async def file(self, row: ApprovalRow) -> ApprovalRow:
        """Store a question unless its call has one already; return the one that stands.

        Raises: NotFound (the run).
        """
        ...

    async def find(self, approval_id: str, *, key_id: str | None = None) -> ApprovalRow | None:
        """Return an approval; with `key_id`, only if it belongs to that key."""
        ...

    async def page(
        self,
        limit: int = 50,
        *,
        key_id: str | None = None,
        status: ApprovalStatus | None = None,
        run_id: str | None = None,
        before: str | None = None,
    ) -> list[ApprovalRow]:
        """Return approvals, newest first; `before` is the id of the last one of the page before.

        Raises: NotFound, when there is no approval `before`.
        """
        ...

    async def decide(self, approval_id: str, decision: ApprovalDecision) -> ApprovalRow:
        """Decide a pending approval and wake a waiter for its run.

        One that has expired becomes expired, whatever was decided.
        Raises: Conflict (code `approval_decided`, naming what stands), NotFound.
        """
        ...

    async def withdraw(self, run_id: str, now: float) -> None:
        """Cancel what is still pending of a run that has ended."""
        ...

    async def use(self, approval_ids: Sequence[str], run_id: str) -> None:
        """Let a run carry on the calls of these approvals, all or none.

        Raises: Conflict (code `approval_used`), NotFound.
        """
        ...

    async def release(self, run_id: str) -> None:
        """Give back what a run that never started was to carry on."""
        ...

    async def add_rule(self, row: RuleRow) -> None:
        """Store a rule.

        Raises: NotFound (the session), Conflict (the id is taken).
        """
        ...

    async def rules(self, *, key_id: str | None = None, tool: str | None = None, limit: int = 200) -> list[RuleRow]:
        """Return rules, newest first."""
        ...

    async def delete_rule(self, rule_id: str, *, key_id: str | None = None) -> bool:
        """Forget a rule and return whether it was there."""
        ...


def unknown(approval_id: str) -> NotFound:
    """Return the error of an approval that is not there."""
    return NotFound(f"There is no approval {approval_id!r}.", param="approval")


def decided_already(row: ApprovalRow) -> Conflict:
    """Return the error for a second decision, naming the first one."""
    return Conflict(f"The approval {row.id} is {row.status} already.", code=DECIDED, param="approval")


def used_already(approval_id: str) -> Conflict:
    """Return the error for a call that another run carries out."""
    return Conflict(f"The call of the approval {approval_id} is carried on already.", code=USED, param="approval")
