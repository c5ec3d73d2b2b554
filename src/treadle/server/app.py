"""The ASGI application: finds the route, checks the client, calls the handler, and turns every error into a response.

Plain ASGI, no framework: on the hot path a request is one dictionary lookup away from its handler.
"""

import logging
import time

from treadle.core.errors import Conflict, ErrorInfo, Exhausted, StoreError, TreadleError, Unauthorised
from treadle.core.ids import REQUEST
from treadle.http.asgi import Header, Receive, Scope, Send
from treadle.runtime import Runtime
from treadle.server import static_pages as pages
from treadle.server.http_exchange import NO_RETRY, Exchange, HttpError
from treadle.server.request_guard import RequestGuard, sane_request_id
from treadle.server.route import HttpRoute
from treadle.server.route_table import Routes
from treadle.server.server_state import Service
from treadle.telemetry import REFUSALS, log_line, trace_parent

log = logging.getLogger(__name__)

TRACE_BYTES_MAX = 128
_NAMING_HEADERS = frozenset({b"x-request-id", b"traceparent"})
"""Headers by which a client or a proxy names a request."""


class App:
    """Treadle over HTTP, as an ASGI 3 application."""

    def __init__(self, runtime: Runtime) -> None:
        self.service = Service(runtime)
        server = runtime.settings.server
        self._guard = RequestGuard(server.host, server.allowed_hosts)
        self._routes = Routes()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            raise NotImplementedError(f"Treadle speaks HTTP, not {scope['type']}")
        began = time.perf_counter()
        service = self.service
        clients = service.clients
        exchange = Exchange(scope, receive, send, "")
        request_id = None if _NAMING_HEADERS.isdisjoint(exchange.headers) else _read_request_names(exchange)
        exchange.request_id = request_id or service.runtime.ids.new(REQUEST)
        route: HttpRoute | None = None
        try:
            self._check(exchange, list(scope["headers"]))
            if clients.checks_addresses:
                await clients.check_address(exchange)
            route = self._routes.find(exchange)
            if not clients.try_admit_now(exchange, route.access):
                await clients.admit(exchange, route.access)
            await route.handler(service, exchange)
        except TreadleError as error:
            await self._refuse(exchange, error)
        except Exception:  # noqa: BLE001 the ASGI edge: a bug answers one request badly and no other
            await _answer_bug(exchange)
        finally:
            if exchange.counted_bytes:
                service.bodies.release(exchange.counted_bytes)
            lasted_s = time.perf_counter() - began
            pattern = "none" if route is None else route.pattern
            service.runtime.metrics.request_ended(pattern, exchange.status, lasted_s)
            level = logging.DEBUG if route is not None and route.is_quiet else logging.INFO
            if log.isEnabledFor(level):
                _log_request(level, exchange, pattern, lasted_s)

    def _check(self, exchange: Exchange, headers: list[Header]) -> None:
        try:
            self._guard.check(exchange, headers)
        except HttpError as error:
            if error.info.status == 415:
                # An unknown path is the first problem: another content type would not help.
                self._routes.find(exchange)
            raise

    async def _refuse(self, exchange: Exchange, error: TreadleError) -> None:
        if isinstance(error, StoreError):
            # The details are for operators; the client gets a general message.
            log.warning("%s", error.message, extra={"request_id": exchange.request_id, "code": error.info.code})
        if error.info.code in REFUSALS:
            self.service.runtime.metrics.refused(error.info.code)
        if exchange.is_started:
            _break_off(exchange, error.info.code)
        elif error.http_status in pages.FAILURES and pages.wants_page(exchange):
            await pages.send_failure(exchange, error.http_status)
        else:
            await exchange.refuse(error.info, _headers(error))


def _read_request_names(exchange: Exchange) -> str | None:
    """Set the trace parent, and return the client's request id if it is safe to use."""
    traced = exchange.headers.get(b"traceparent")
    if traced is not None:
        trace_parent.set(traced[:TRACE_BYTES_MAX].decode("latin-1"))
    given = exchange.headers.get(b"x-request-id")
    return None if given is None else sane_request_id(given)


def _headers(error: TreadleError) -> tuple[Header, ...]:
    """Return an error's headers. SDKs retry every 409 and 429 unless a header stops them."""
    if isinstance(error, HttpError):
        return error.headers
    if isinstance(error, Unauthorised):
        return ((b"www-authenticate", b"Bearer"),)
    is_taken = isinstance(error, Conflict) and error.info.code.startswith(("idempotency_", "approval_"))
    is_spent = isinstance(error, Exhausted) and not error.is_retryable
    return (NO_RETRY,) if is_taken or is_spent else ()


async def _answer_bug(exchange: Exchange) -> None:
    """Answer after a bug with the request id, which people can quote, and no internals."""
    log.exception("unexpected error", extra={"request_id": exchange.request_id, "path": exchange.path})
    if exchange.is_started:
        _break_off(exchange, "internal_error")
    else:
        message = f"Something went wrong inside Treadle; request id {exchange.request_id}."
        await exchange.refuse(ErrorInfo(code="internal_error", message=message, status=500))


def _log_request(level: int, exchange: Exchange, pattern: str, lasted_s: float) -> None:
    """Log a request by its route: paths and queries contain clients' data."""
    details: dict[str, object] = {
        "request_id": exchange.request_id,
        "method": exchange.method,
        "route": pattern,
        "status": exchange.status,
        "duration_s": round(lasted_s, 6),
        "key_id": exchange.client.key_id,
    }
    log_line(log, level, details, "%s %s: %d", exchange.method, pattern, exchange.status)


def _break_off(exchange: Exchange, code: str) -> None:
    """Leave a stream without its end, so that the connection is cut and no client takes it for a success."""
    log.warning("stream broken off", extra={"request_id": exchange.request_id, "code": code})
