"""The five things the engine needs from outside, as Protocols. Adapters fit by shape."""

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
    """A model to stream from."""

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

        The write is begun at once and goes on when the future is given up.
        Raises: StoreError, also when another process has taken the run over; other errors, when an entry is refused.
        """
        ...


class Clock(Protocol):
    """Time, injected."""

    def now(self) -> float:
        """Return the wall clock: seconds since 1970."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never go back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class PermissionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked about one concrete call, and why. `is_deferred` when the run will not wait for the answer."""

    call: CallItem
    offer: Offer
    reasons: tuple[str, ...]
    is_tainted: bool = False
    is_deferred: bool = False


class PendingApproval(msgspec.Struct, frozen=True, kw_only=True):
    """A question that somebody has been asked, to be waited for; `digest` is what the answer is bound to."""

    approval_id: str
    digest: str = ""
    expires_at: float = 0.0


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """A decision about one concrete call: by whom, and with which arguments, where those were changed.

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
    """Someone to ask before a call runs."""

    async def ask(self, plea: PermissionRequest, context: CallContext) -> PendingApproval | Verdict:
        """Put the question; return where to wait for the answer, or the answer where it is known already.

        Asked about the same call of the same run again, it is the same question.
        """
        ...

    async def hear(self, approval_id: str, context: CallContext) -> Verdict:
        """Wait for the answer."""
        ...
