"""Treadle's own API: plans, which are exactly what each model call of a run sent, with the difference to the previous
one and the other model calls that sent the same."""

import re

import msgspec

from treadle.core.errors import NotFound, ProtocolError
from treadle.core.plan import plan_json
from treadle.runs.views.plan_history import EqualCall, PlanDifference, PlanLine, equal_calls, list_plans, read_plan
from treadle.server.api.page_cursor import read_before
from treadle.server.api.run_routes import find_run
from treadle.server.auth.route_permissions import TREADLE
from treadle.server.http_exchange import Exchange, read_number
from treadle.server.route import BEFORE, RouteGroup, gives, number
from treadle.server.server_state import Service

PAGE_MAX = 100
EQUAL_RUNS_MAX = 20
ROUND_DIGITS_MAX = 9
_SHA256 = re.compile(r"[0-9a-f]{64}")


class PlanList(msgspec.Struct, frozen=True, kw_only=True):
    """The plans of a run, in order."""

    run_id: str
    plans: list[PlanLine]


class PlanView(PlanLine, frozen=True, kw_only=True):
    """One plan: whole, with what changed since the one before, and the other model calls that sent the same."""

    run_id: str
    plan: msgspec.Raw
    diff: PlanDifference | None
    equal: list[EqualCall]


class EqualPage(msgspec.Struct, frozen=True, kw_only=True):
    """The model calls that sent a plan, those of the newest run first; `next_before` gives the next page."""

    fingerprint: str
    calls: list[EqualCall]
    has_more: bool
    next_before: str | None


async def index(service: Service, exchange: Exchange) -> None:
    """List the model calls of a run. Raises: NotFound."""
    row = await find_run(service, exchange, exchange.params["run_id"])
    plans = await list_plans(service.runtime.store, row)
    await exchange.answer_json(200, PlanList(run_id=row.id, plans=plans))


async def get(service: Service, exchange: Exchange) -> None:
    """Return exactly what a model call sent.

    Raises: ProtocolError, NotFound; Conflict, when it cannot be made again from the journal.
    """
    store = service.runtime.store
    number = _read_round(exchange.params["round"])
    row = await find_run(service, exchange, exchange.params["run_id"])
    line, plan, diff = await read_plan(store, row, number)
    rows = await store.list_runs(limit=EQUAL_RUNS_MAX, key_id=exchange.reach, fingerprint=plan.fingerprint)
    equal = await equal_calls(store, plan.fingerprint, rows)
    view = PlanView(
        **msgspec.structs.asdict(line),
        run_id=row.id,
        plan=msgspec.Raw(plan_json(plan)),
        diff=diff,
        equal=[each for each in equal if (each.run_id, each.round) != (row.id, number)],
    )
    await exchange.answer_json(200, view)


async def equal(service: Service, exchange: Exchange) -> None:
    """Return a page of the model calls, in all runs, that sent exactly this plan. Raises: ProtocolError, NotFound."""
    fingerprint = exchange.params["fingerprint"]
    if _SHA256.fullmatch(fingerprint) is None:
        raise ProtocolError("A fingerprint is a sha256: 64 hexadecimal digits in lower case.", param="fingerprint")
    query = exchange.query()
    limit = read_number(query, "limit", default=50, least=1, most=PAGE_MAX)
    store = service.runtime.store
    before = await read_before(exchange, store.find_run)
    rows = await store.list_runs(limit=limit + 1, before=before, key_id=exchange.reach, fingerprint=fingerprint)
    if not rows and before is None:
        raise NotFound(f"No model call sent the plan {fingerprint}.", param="fingerprint")
    shown, has_more = rows[:limit], len(rows) > limit
    page = EqualPage(
        fingerprint=fingerprint,
        calls=await equal_calls(store, fingerprint, shown),
        has_more=has_more,
        next_before=shown[-1].id if has_more else None,
    )
    await exchange.answer_json(200, page)


def _read_round(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= ROUND_DIGITS_MAX and int(text) >= 1):
        raise ProtocolError("A round is a whole number; rounds are counted from 1.", param="round")
    return int(text)


_ROWS = RouteGroup("Runs", TREADLE)
ROUTES = (
    _ROWS.get("/treadle/v1/runs/{run_id}/plans", index, "List the plans of a run's model calls", gives(PlanList)),
    _ROWS.get("/treadle/v1/runs/{run_id}/plans/{round}", get, "Show exactly what a model call sent", gives(PlanView)),
    _ROWS.get(
        "/treadle/v1/plans/{fingerprint}",
        equal,
        "List the model calls that sent this very plan",
        gives(EqualPage),
        query=(number("limit", "how many, at most", least=1, most=100), BEFORE),
    ),
)
