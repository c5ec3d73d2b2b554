"""What a turn can decide: to ask the model, to run tools, to ask again after a crash, or to end. Data only."""

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
    """One server call of the turn: run it under its offer, or, with an outcome already, only answer it.

    `reasons` say why a person must agree first, `decision` what was said. `is_deferred` leaves it to the next run:
    `request` is what an earlier run asked, where that still stands.
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
    """Calls of an earlier run that this one runs first: what they are, the rest of their turn, and what comes after.

    `order` are the ids of all calls of the turn, `results` those it has already, `tail` what the model reads after it.
    """

    calls: tuple[PlannedCall, ...]
    order: tuple[str, ...] = ()
    results: tuple[ResultItem, ...] = ()
    tail: tuple[AnyItem, ...] = ()


class RepeatModelCall(msgspec.Struct, frozen=True, kw_only=True):
    """The model call was cut off by the death of its process: what it said is void, `calls` are answered, and the
    same call is made again."""

    calls: tuple[PlannedCall, ...]
    items: tuple[str, ...]
    indexes: tuple[int, ...]


class RunTools(msgspec.Struct, frozen=True, kw_only=True):
    """Run these calls and come back with an outcome for each."""

    calls: tuple[PlannedCall, ...]


class EndRun(msgspec.Struct, frozen=True, kw_only=True):
    """The run is over. `calls` are server calls that never ran and get these results first."""

    ended: RunEnded
    calls: tuple[PlannedCall, ...] = ()


Decision = CallModel | RepeatModelCall | RunTools | EndRun
