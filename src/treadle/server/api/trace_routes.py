"""Treadle's own API: a run as a tree of rounds and calls, with tokens and cost summed upward."""

import msgspec

from treadle.runs.views.trace_tree import Trace, trace_of
from treadle.server.api.run_routes import RunView, find_run, mark_waiting, view_of
from treadle.server.auth.route_permissions import TREADLE
from treadle.server.http_exchange import Exchange
from treadle.server.route import RouteGroup, gives
from treadle.server.server_state import Service


class RunTrace(msgspec.Struct, frozen=True, kw_only=True):
    """A run and its tree; `now` is the server's time, by which a run that goes on is measured."""

    run: RunView
    trace: Trace
    now: float


async def get(service: Service, exchange: Exchange) -> None:
    """Return the tree of a run that is running or has ended. Raises: NotFound."""
    row = await find_run(service, exchange, exchange.params["run_id"])
    trace = trace_of(await service.runtime.store.entries(row.id), service.runtime.prices.cost)
    [row] = await mark_waiting(service, [row])
    view = view_of(service, row, trace.question)
    await exchange.answer_json(200, RunTrace(run=view, trace=trace, now=service.runtime.clock.now()))


_ROWS = RouteGroup("Runs", TREADLE)
ROUTES = (_ROWS.get("/treadle/v1/runs/{run_id}/trace", get, "Show a run as a tree", gives(RunTrace)),)
