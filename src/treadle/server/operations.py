"""What operators ask: is it alive, is it ready, what has it counted."""

import asyncio

import msgspec

from treadle.canon.errors import StoreError
from treadle.server.http import NO_STORE, Exchange
from treadle.server.service import Service
from treadle.telemetry.registry import CONTENT_TYPE, write_text

PING_TIMEOUT_S = 2.0


async def health(service: Service, exchange: Exchange) -> None:
    """GET /healthz: the process answers."""
    await exchange.answer_json(200, {"status": "ok"})


async def ready(service: Service, exchange: Exchange) -> None:
    """GET /readyz: new runs can be started, or why they cannot. An upstream that is down makes no process unready."""
    reason = await _obstacle(service)
    if reason is None:
        upstreams = {each.name: each.breaker for each in service.runtime.router.health()}
        await exchange.answer_json(
            200, {"status": "ready", "upstreams": upstreams} if upstreams else {"status": "ready"}
        )
    else:
        await exchange.answer_json(503, {"status": "unavailable", "reason": reason}, ((b"retry-after", b"1"),))


async def upstreams(service: Service, exchange: Exchange) -> None:
    """GET /treadle/v1/upstreams: how each does: its breaker, calls under way, failures, what it last failed with."""
    rows = [msgspec.to_builtins(each) for each in service.runtime.router.health()]
    await exchange.answer_json(200, {"upstreams": rows})


async def metrics(service: Service, exchange: Exchange) -> None:
    """GET /metrics: every series in Prometheus' text form, of all workers together where there are several."""
    numbers = service.numbers
    body = write_text(service.runtime.metrics.registry.collect()) if numbers is None else numbers.text()
    await exchange.answer(200, body, CONTENT_TYPE, (NO_STORE,))


async def _obstacle(service: Service) -> str | None:
    if service.is_draining:
        return "shutting down"
    try:
        async with asyncio.timeout(PING_TIMEOUT_S):
            await service.runtime.store.ping()
    except StoreError as error:
        return f"store: {error.info.message}"
    except TimeoutError:
        return f"store: no answer within {PING_TIMEOUT_S:g} s"
    return None
