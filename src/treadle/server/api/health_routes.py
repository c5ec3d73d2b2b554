"""Health, readiness, metrics, and the state of upstreams and replicas, for operators.

These must answer while the store is unavailable, so no handler here reads it.
"""

import msgspec

from treadle.providers.resilience.endpoint_guard_state import EndpointHealth
from treadle.runtime.replica_comparison import Replica
from treadle.server.auth.route_permissions import METRICS, OPEN, OPERATE
from treadle.server.http_exchange import NO_STORE, Exchange
from treadle.server.route import TEXT, Content, RouteGroup, fields, gives, listed
from treadle.server.server_state import Service
from treadle.telemetry.prometheus import CONTENT_TYPE, write_text


class WaitingCounts(msgspec.Struct, frozen=True, kw_only=True):
    """An abandoned run that this process leaves to others, and the tools that it lacks for it."""

    run_id: str
    tools: tuple[str, ...]


async def health(service: Service, exchange: Exchange) -> None:
    """Report that the process answers."""
    await exchange.answer_json(200, {"status": "ok"})


async def ready(service: Service, exchange: Exchange) -> None:
    """Report whether runs can be started, or why not. An upstream that is down does not make a process unready."""
    reason = _obstacle(service)
    if reason is None:
        upstreams = {each.name: each.breaker for each in service.runtime.router.health()}
        await exchange.answer_json(
            200, {"status": "ready", "upstreams": upstreams} if upstreams else {"status": "ready"}
        )
    else:
        await exchange.answer_json(503, {"status": "unavailable", "reason": reason}, ((b"retry-after", b"1"),))


async def upstreams(service: Service, exchange: Exchange) -> None:
    """Return the state of each upstream: its circuit breaker, calls in progress, failures and last error."""
    rows = [msgspec.to_builtins(each) for each in service.runtime.router.health()]
    await exchange.answer_json(200, {"upstreams": rows})


async def replicas(service: Service, exchange: Exchange) -> None:
    """Compare the processes of this journal with this one, and list runs that wait for a process with their tools."""
    runtime = service.runtime
    waiting = [WaitingCounts(run_id=run_id, tools=tools) for run_id, tools in runtime.runs.without_tools.items()]
    found = {"replicas": runtime.replicas.seen, "waiting": waiting}
    await exchange.answer_json(200, msgspec.to_builtins(found))


async def metrics(service: Service, exchange: Exchange) -> None:
    """Return every series in Prometheus' text form, summed over all workers."""
    numbers = service.numbers
    body = write_text(service.runtime.metrics.registry.collect()) if numbers is None else numbers.text()
    await exchange.answer(200, body, CONTENT_TYPE, (NO_STORE,))


def _obstacle(service: Service) -> str | None:
    if service.is_draining:
        return "shutting down"
    runtime = service.runtime
    problem = runtime.health.problem or runtime.replicas.problem
    return None if problem is None else f"store: {problem.info.message}"


_ROWS = RouteGroup("Operations", OPEN)
_METRICS = RouteGroup("Operations", METRICS)
_OPERATE = RouteGroup("Operations", OPERATE)
_IS_OK = gives(fields(status=TEXT))
REPLICAS = _OPERATE.get(
    "/treadle/v1/replicas",
    replicas,
    "Compare the processes of the journal; list runs that wait for a tool",
    gives(fields(replicas=listed(Replica), waiting=listed(WaitingCounts))),
)
UPSTREAMS = _OPERATE.get(
    "/treadle/v1/upstreams",
    upstreams,
    "Show how the upstreams do",
    gives(fields(upstreams=listed(EndpointHealth))),
)
ROUTES = (
    _ROWS.get("/healthz", health, "Say that the process answers", _IS_OK, is_quiet=True),
    _ROWS.get("/api/hello", health, "Say that the process answers", _IS_OK, is_quiet=True),
    _ROWS.get(
        "/readyz",
        ready,
        "Say whether runs can be started",
        {**_IS_OK, **gives(fields(status=TEXT, reason=TEXT), 503)},
        is_quiet=True,
    ),
    _METRICS.get(
        "/metrics",
        metrics,
        "Give every series in Prometheus' text form",
        {200: (Content("text/plain"),)},
        is_quiet=True,
    ),
)
