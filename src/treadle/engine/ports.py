"""The interfaces that the loop needs from outside: model, toolbox, journal and approver."""

from asyncio import Future
from collections.abc import Coroutine, Sequence
from typing import Any, Protocol

import msgspec

from treadle.core.events import Batches, RunEnded
from treadle.core.items import CallItem
from treadle.core.journal_entries import Entry
from treadle.core.plan import Plan
from treadle.core.tool_definitions import CallContext, Offer, Outcome


class Model(Protocol):
    """Streams model calls."""

    def stream(self, plan: Plan, run_id: str) -> Batches:
        """Make one model call and yield its events in batches, one batch for each read of the network.

        The last event of the last batch is Finished or Failed. Closing them closes the connection.
        Raises: UpstreamError, before the first batch only; UnsupportedFeature, when a strict plan cannot be sent whole.
        """
        ...


class Toolbox(Protocol):
    """Runs server tools."""

    def run(self, call: CallItem, context: CallContext) -> Coroutine[Any, Any, Outcome]:
        """Validate and run one call, within its policy's timeout and caps.

        Every failure of the tool is an Outcome; only cancellation is raised.
        """
        ...


class Journal(Protocol):
    """The durable log of one run."""

    def append(self, entries: Sequence[Entry], ended: RunEnded | None = None) -> "Future[int]":
        """Make the entries durable, in order, and return the number of the last one; `ended` closes the run with them.

        The write starts immediately and continues when the future is cancelled.
        Raises: StoreError, also when another process has taken over the run; other errors, when an entry is refused.
        """
        ...


class PermissionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Asks for approval of one call, with the reasons. `is_deferred` when the run will not wait for the decision."""

    call: CallItem
    offer: Offer
    reasons: tuple[str, ...]
    is_tainted: bool = False
    is_deferred: bool = False


class PendingApproval(msgspec.Struct, frozen=True, kw_only=True):
    """An approval request that waits for a decision; `digest` is what the decision is bound to."""

    approval_id: str
    digest: str = ""
    expires_at: float = 0.0


class ApprovalVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """A decision about one call: by whom, and with which arguments, where those were changed.

    `sandbox` is the level that a command was shown with.
    """

    approved: bool
    code: str = "denied"
    reason: str = ""
    by: str = ""
    arguments: str | None = None
    approval_id: str = ""
    sandbox: str = ""


class Approver(Protocol):
    """Decides whether a call may run, or asks a person to."""

    async def ask(self, request: PermissionRequest, context: CallContext) -> PendingApproval | ApprovalVerdict:
        """Request approval; return the pending request, or the verdict if it is known already.

        Idempotent: a second request for the same call of the same run is the same request.
        """
        ...

    async def wait(self, approval_id: str, context: CallContext) -> ApprovalVerdict:
        """Wait for the decision."""
        ...
