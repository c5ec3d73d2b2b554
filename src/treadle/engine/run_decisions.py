"""The decisions of a run: call the model, run tools, repeat an interrupted model call, or end. Data only."""

import msgspec

from treadle.core.events import RunEnded
from treadle.core.items import AnyItem, CallItem, ResultItem
from treadle.core.plan import Plan
from treadle.core.tool_definitions import Offer, Outcome
from treadle.engine.approval_reasons import DecisionRecord, RequestRecord


class CallModel(msgspec.Struct, frozen=True, kw_only=True):
    """Make this model call next."""

    plan: Plan
    round: int
    final: bool = False


class PlannedCall(msgspec.Struct, frozen=True, kw_only=True):
    """One server call of a round: run it under its offer, or only answer it if it has an outcome.

    `reasons` are why a person must approve it, `decision` is what was decided. `is_deferred` leaves it to the next
    run; `request` is the request of an earlier run if that is still open.
    """

    index: int
    call: CallItem
    offer: Offer | None = None
    outcome: Outcome | None = None
    reasons: tuple[str, ...] = ()
    is_tainted: bool = False
    is_deferred: bool = False
    approval_id: str = ""
    decision: DecisionRecord | None = None
    request: RequestRecord | None = None


class CarriedCalls(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of an earlier run that this one runs first.

    `order` are the ids of all calls of their round, `results` the results it has already, `tail` the items after it.
    """

    calls: tuple[PlannedCall, ...]
    order: tuple[str, ...] = ()
    results: tuple[ResultItem, ...] = ()
    tail: tuple[AnyItem, ...] = ()


class RepeatModelCall(msgspec.Struct, frozen=True, kw_only=True):
    """The model call was interrupted by the death of its process: its output is void, `calls` are answered, and the
    same call is made again."""

    calls: tuple[PlannedCall, ...]
    items: tuple[str, ...]
    indexes: tuple[int, ...]


class RunTools(msgspec.Struct, frozen=True, kw_only=True):
    """Run these calls and settle with a result for each."""

    calls: tuple[PlannedCall, ...]


class EndRun(msgspec.Struct, frozen=True, kw_only=True):
    """End the run. `calls` are server calls that never ran and get their outcomes as results first."""

    ended: RunEnded
    calls: tuple[PlannedCall, ...] = ()


Decision = CallModel | RepeatModelCall | RunTools | EndRun
