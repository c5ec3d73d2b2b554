"""The ASGI application: the table of routes, and the edge where every error becomes an answer.

Plain ASGI, no framework: a request on the hot path is one dictionary lookup away from its handler.
"""

import logging
import time
from collections.abc import Awaitable, Callable

import msgspec

from treadle.core.errors import Conflict, ErrorInfo, Exhausted, NotFound, StoreError, TreadleError, Unauthorised
from treadle.core.ids import REQUEST
from treadle.http.asgi import Header, Receive, Scope, Send
from treadle.runtime import Runtime
from treadle.server import console_page as page
from treadle.server import static_pages as pages
from treadle.server.api import approval_routes as approvals
from treadle.server.api import chat_routes as chat
from treadle.server.api import conversation_routes as conversations
from treadle.server.api import eval_routes as scores
from treadle.server.api import gemini_routes as gemini
from treadle.server.api import guest_routes as guests
from treadle.server.api import health_routes as operations
from treadle.server.api import key_routes as keys
from treadle.server.api import login_routes as logins
from treadle.server.api import mcp_server_routes as mcp_servers
from treadle.server.api import messages_routes as messages
from treadle.server.api import model_routes as models
from treadle.server.api import plan_routes as plans
from treadle.server.api import proposal_routes as proposals
from treadle.server.api import replay_routes as again
from treadle.server.api import responses_routes as responses
from treadle.server.api import run_routes as runs
from treadle.server.api import session_routes as sessions
from treadle.server.api import tool_routes as tools
from treadle.server.api import trace_routes as trace
from treadle.server.api import wire_view_routes as wire
from treadle.server.api import workspace_routes as workspaces
from treadle.server.chat_page import browser_stream as live
from treadle.server.chat_page import chat_page_routes as talk
from treadle.server.http_exchange import NO_RETRY, Exchange, HttpError
from treadle.server.mcp import mcp_route as mcp
from treadle.server.openapi import document as openapi
from treadle.server.request_guard import RequestGuard, sane_request_id
from treadle.server.server_state import Service
from treadle.telemetry import REFUSALS, say, trace_parent

log = logging.getLogger(__name__)

Handler = Callable[[Service, Exchange], Awaitable[None]]
SEGMENT_CHARS_MAX = 256
TRACE_BYTES_MAX = 128
_NAMING = frozenset({b"x-request-id", b"traceparent"})
"""By these others name a request."""

QUIET = frozenset({"/healthz", "/readyz", "/api/hello", "/metrics", "/web/{file*}"})
"""What probes and pages ask for all the time: logged only where everything is."""


class Route(msgspec.Struct, frozen=True):
    """One row of the table. `{name}` in the pattern takes one segment, `{name*}` all the rest."""

    methods: str
    pattern: str
    handler: Handler


TABLE: tuple[Route, ...] = (
    Route("POST", "/v1/chat/completions", chat.create),
    Route("POST", "/v1/responses", responses.create),
    Route("GET", "/v1/responses", responses.upgrade),
    Route("POST", "/v1/responses/input_tokens", responses.input_tokens),
    Route("POST", "/v1/responses/compact", responses.compact),
    Route("GET HEAD", "/v1/responses/{response_id}", responses.get),
    Route("DELETE", "/v1/responses/{response_id}", responses.delete),
    Route("GET HEAD", "/v1/responses/{response_id}/input_items", responses.input_items),
    Route("POST", "/v1/responses/{response_id}/cancel", responses.cancel),
    Route("POST", "/v1/conversations", conversations.create),
    Route("GET HEAD", "/v1/conversations/{conversation_id}", conversations.get),
    Route("POST", "/v1/conversations/{conversation_id}", conversations.update),
    Route("DELETE", "/v1/conversations/{conversation_id}", conversations.delete),
    Route("GET HEAD", "/v1/conversations/{conversation_id}/items", conversations.list_items),
    Route("POST", "/v1/conversations/{conversation_id}/items", conversations.create_items),
    Route("GET HEAD", "/v1/conversations/{conversation_id}/items/{item_id}", conversations.get_item),
    Route("DELETE", "/v1/conversations/{conversation_id}/items/{item_id}", conversations.delete_item),
    Route("POST", "/v1/messages", messages.create),
    Route("POST", "/v1/messages/count_tokens", messages.count_tokens),
    Route("POST", "/v1beta/models/{model*}", gemini.act),
    Route("POST", "/v1beta/tunedModels/{model*}", gemini.act_tuned),
    Route("POST", "/v1/models/{model*}", gemini.act),
    Route("POST", "/v1/tunedModels/{model*}", gemini.act_tuned),
    Route("GET HEAD", "/v1/models", models.index),
    Route("GET HEAD", "/v1/models/{model*}", models.get),
    Route("GET HEAD", "/v1beta/models", models.index),
    Route("GET HEAD", "/v1beta/models/{model*}", models.get),
    Route("POST", "/treadle/v1/runs", runs.create),
    Route("GET HEAD", "/treadle/v1/runs", runs.index),
    Route("GET HEAD", "/treadle/v1/runs/{run_id}", runs.get),
    Route("GET", "/treadle/v1/runs/{run_id}/events", runs.events),
    Route("POST", "/treadle/v1/runs/{run_id}/cancel", runs.cancel),
    Route("GET HEAD", "/treadle/v1/runs/{run_id}/plans", plans.index),
    Route("GET HEAD", "/treadle/v1/runs/{run_id}/plans/{round}", plans.get),
    Route("GET HEAD", "/treadle/v1/plans/{fingerprint}", plans.equal),
    Route("GET HEAD", "/treadle/v1/runs/{run_id}/trace", trace.get),
    Route("GET HEAD", "/treadle/v1/runs/{run_id}/rounds/{round}", wire.get),
    Route("POST", "/treadle/v1/runs/{run_id}/fork", again.fork),
    Route("POST", "/treadle/v1/runs/{run_id}/replay", again.replay),
    Route("GET", "/treadle/v1/runs/{run_id}/export", again.export),
    Route("GET HEAD", "/treadle/v1/evals", scores.index),
    Route("GET HEAD", "/treadle/v1/evals/{run}", scores.get),
    Route("GET HEAD", "/treadle/v1/evals/{run}/samples/{key*}", scores.sample),
    Route("GET HEAD", "/treadle/v1/sessions", sessions.index),
    Route("POST", "/treadle/v1/sessions", sessions.create),
    Route("GET HEAD", "/treadle/v1/sessions/{session_id}", sessions.get),
    Route("PATCH", "/treadle/v1/sessions/{session_id}", sessions.change),
    Route("DELETE", "/treadle/v1/sessions/{session_id}", sessions.delete),
    Route("POST", "/treadle/v1/sessions/{session_id}/fork", sessions.fork),
    Route("GET", "/treadle/v1/sessions/{session_id}/export", sessions.export),
    Route("GET HEAD", "/treadle/v1/sessions/{session_id}/turns", talk.index),
    Route("POST", "/treadle/v1/sessions/{session_id}/turns", talk.create),
    Route("POST", "/treadle/v1/sessions/{session_id}/branch", talk.branch),
    Route("GET HEAD", "/treadle/v1/models", talk.models),
    Route("GET", "/treadle/v1/live", live.follow),
    Route("GET HEAD", "/treadle/v1/workspaces", workspaces.index),
    Route("POST", "/treadle/v1/workspaces", workspaces.create),
    Route("GET HEAD", "/treadle/v1/workspaces/{workspace}", workspaces.get),
    Route("PATCH", "/treadle/v1/workspaces/{workspace}", workspaces.change),
    Route("DELETE", "/treadle/v1/workspaces/{workspace}", workspaces.delete),
    Route("PATCH", "/treadle/v1/workspaces/{workspace}/draft", workspaces.patch_draft),
    Route("PATCH", "/treadle/v1/workspaces/{workspace}/ui", workspaces.patch_ui),
    Route("POST", "/treadle/v1/workspaces/{workspace}/locks", workspaces.lock),
    Route("DELETE", "/treadle/v1/workspaces/{workspace}/locks", workspaces.unlock),
    Route("GET HEAD", "/treadle/v1/workspaces/{workspace}/history", workspaces.history),
    Route("GET HEAD", "/treadle/v1/workspaces/{workspace}/versions/{version}", workspaces.version),
    Route("GET HEAD", "/treadle/v1/workspaces/{workspace}/diff", workspaces.diff),
    Route("POST", "/treadle/v1/workspaces/{workspace}/restore", workspaces.restore),
    Route("GET HEAD", "/treadle/v1/workspaces/{workspace}/audit", workspaces.audit),
    Route("GET HEAD", "/treadle/v1/workspaces/{workspace}/proposals", proposals.index),
    Route("POST", "/treadle/v1/workspaces/{workspace}/proposals", proposals.create),
    Route("GET HEAD", "/treadle/v1/workspaces/{workspace}/proposals/{proposal}", proposals.get),
    Route("POST", "/treadle/v1/workspaces/{workspace}/proposals/{proposal}/confirm", proposals.confirm),
    Route("POST", "/treadle/v1/workspaces/{workspace}/proposals/{proposal}/reject", proposals.reject),
    Route("GET HEAD", "/treadle/v1/proposals", proposals.everywhere),
    Route("GET HEAD", "/treadle/v1/approvals", approvals.index),
    Route("GET HEAD", "/treadle/v1/approvals/rules", approvals.rules),
    Route("DELETE", "/treadle/v1/approvals/rules/{rule_id}", approvals.forget_rule),
    Route("GET HEAD", "/treadle/v1/approvals/{approval_id}", approvals.get),
    Route("POST", "/treadle/v1/approvals/{approval_id}", approvals.decide),
    Route("POST", "/treadle/v1/approvals/{approval_id}/decide", approvals.decide),
    Route("GET HEAD", "/treadle/v1/tools", tools.index),
    Route("GET HEAD", "/treadle/v1/tools/{name*}", tools.get),
    Route("GET HEAD", "/treadle/v1/mcp", mcp_servers.index),
    Route("POST", "/treadle/v1/mcp/{server}", mcp_servers.decide),
    Route("GET HEAD", "/treadle/v1/upstreams", operations.upstreams),
    Route("GET HEAD", "/treadle/v1/replicas", operations.replicas),
    Route("GET HEAD", "/treadle/v1/guests", guests.index),
    Route("POST", "/treadle/v1/guests/{name}/runs", guests.create),
    Route("GET POST DELETE", "/mcp", mcp.handle),
    Route("GET HEAD", "/healthz", operations.health),
    Route("GET HEAD", "/api/hello", operations.health),
    Route("GET HEAD", "/readyz", operations.ready),
    Route("GET HEAD", "/metrics", operations.metrics),
    Route("GET HEAD", "/openapi.json", openapi.show),
    Route("GET HEAD", "/login", logins.page),
    Route("POST", "/login", logins.login),
    Route("POST", "/treadle/v1/logout", logins.logout),
    Route("POST", "/treadle/v1/logins", logins.create),
    Route("GET HEAD", "/treadle/v1/me", logins.me),
    Route("GET HEAD", "/treadle/v1/keys", keys.index),
    Route("POST", "/treadle/v1/keys", keys.create),
    Route("DELETE", "/treadle/v1/keys/{key}", keys.revoke),
    Route("GET HEAD", "/", pages.chat),
    Route("GET HEAD", "/console", page.show),
    Route("GET HEAD", "/console/{view*}", page.show),
    Route("GET HEAD", "/web/{file*}", pages.static),
)


class Routes:
    """Finds the route of a path. Client APIs answer with and without their `/v1`, as clients differ in that."""

    def __init__(self, table: tuple[Route, ...] = TABLE) -> None:
        self._exact: dict[str, dict[str, Route]] = {}
        self._patterns: list[tuple[list[str], dict[str, Route]]] = []
        for route in table:
            self._add(route, route.pattern)
            if route.pattern.startswith("/v1/"):
                self._add(route, route.pattern.removeprefix("/v1"))

    def find(self, exchange: Exchange) -> Route:
        """Return the route and put the path's parameters on the exchange.

        Raises: NotFound, HttpError for a path that exists with other methods.
        """
        by_method = self._exact.get(exchange.path) or self._match(exchange)
        if by_method is None:
            raise NotFound(f"There is nothing at {exchange.method} {exchange.path}.", hint="The page is at /.")
        route = by_method.get(exchange.method)
        if route is None:
            allow = ", ".join(by_method)
            message = f"{exchange.path} takes {allow}, not {exchange.method}."
            raise HttpError(405, "method_not_allowed", message, headers=((b"allow", allow.encode()),))
        return route

    def _add(self, route: Route, pattern: str) -> None:
        is_exact = "{" not in pattern
        by_method = self._exact.setdefault(pattern, {}) if is_exact else self._of_pattern(pattern.split("/"))
        by_method.update(dict.fromkeys(route.methods.split(), route))

    def _of_pattern(self, segments: list[str]) -> dict[str, Route]:
        for known, found in self._patterns:
            if known == segments:
                return found
        added: dict[str, Route] = {}
        self._patterns.append((segments, added))
        return added

    def _match(self, exchange: Exchange) -> dict[str, Route] | None:
        given = exchange.path.split("/")
        for pattern, by_method in self._patterns:
            params = _params(pattern, given)
            if params is not None:
                exchange.params = params
                return by_method
        return None


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
        request_id = None if _NAMING.isdisjoint(exchange.headers) else _read_names(exchange)
        exchange.request_id = request_id or service.runtime.ids.new(REQUEST)
        pattern = "none"
        try:
            self._check(exchange, list(scope["headers"]))
            if clients.meets:
                await clients.meet(exchange)
            route = self._routes.find(exchange)
            pattern = route.pattern
            if not clients.let_in(exchange, pattern):
                await clients.admit(exchange, pattern)
            await route.handler(service, exchange)
        except TreadleError as error:
            await self._refuse(exchange, error)
        except Exception:  # noqa: BLE001 the ASGI edge: a bug answers one request badly and no other
            await _apologise(exchange)
        finally:
            if exchange.counted_bytes:
                service.bodies.release(exchange.counted_bytes)
            lasted_s = time.perf_counter() - began
            service.runtime.metrics.request_ended(pattern, exchange.status, lasted_s)
            level = logging.DEBUG if pattern in QUIET else logging.INFO
            if log.isEnabledFor(level):
                _log_request(level, exchange, pattern, lasted_s)

    def _check(self, exchange: Exchange, headers: list[Header]) -> None:
        try:
            self._guard.check(exchange, headers)
        except HttpError as error:
            if error.info.status == 415:
                # What is wrong first is the path: the right type would not help there.
                self._routes.find(exchange)
            raise

    async def _refuse(self, exchange: Exchange, error: TreadleError) -> None:
        if isinstance(error, StoreError):
            # Where and why is for operators; the client is told neither.
            log.warning("%s", error.message, extra={"request_id": exchange.request_id, "code": error.info.code})
        if error.info.code in REFUSALS:
            self.service.runtime.metrics.refused(error.info.code)
        if exchange.begun:
            _break_off(exchange, error.info.code)
        elif error.http_status in pages.FAILURES and pages.wants_page(exchange):
            await pages.send_failure(exchange, error.http_status)
        else:
            await exchange.refuse(error.info, _headers(error))


def _read_names(exchange: Exchange) -> str | None:
    """Take under what the request is to be seen, and return what its client calls it, if that can be used."""
    traced = exchange.headers.get(b"traceparent")
    if traced is not None:
        trace_parent.set(traced[:TRACE_BYTES_MAX].decode("latin-1"))
    given = exchange.headers.get(b"x-request-id")
    return None if given is None else sane_request_id(given)


def _headers(error: TreadleError) -> tuple[Header, ...]:
    """Return what an error says beside its body: SDKs try every 409 and 429 again unless told that it is of no use."""
    if isinstance(error, HttpError):
        return error.headers
    if isinstance(error, Unauthorised):
        return ((b"www-authenticate", b"Bearer"),)
    is_taken = isinstance(error, Conflict) and error.info.code.startswith(("idempotency_", "approval_"))
    is_spent = isinstance(error, Exhausted) and not error.is_retryable
    return (NO_RETRY,) if is_taken or is_spent else ()


def _params(pattern: list[str], given: list[str]) -> dict[str, str] | None:
    params: dict[str, str] = {}
    for position, segment in enumerate(pattern):
        if segment.endswith("*}"):
            rest = "/".join(given[position:])
            return {**params, segment[1:-2]: rest} if rest else None
        value = given[position] if position < len(given) else ""
        if segment.startswith("{"):
            if not value or len(value) > SEGMENT_CHARS_MAX:
                return None
            params[segment[1:-1]] = value
        elif segment != value:
            return None
    return params if len(pattern) == len(given) else None


async def _apologise(exchange: Exchange) -> None:
    """Answer for a bug: the request id for people to quote, nothing of the inside."""
    log.exception("unexpected error", extra={"request_id": exchange.request_id, "path": exchange.path})
    if exchange.begun:
        _break_off(exchange, "internal_error")
    else:
        message = f"Something went wrong inside Treadle; request id {exchange.request_id}."
        await exchange.refuse(ErrorInfo(code="internal_error", message=message, status=500))


def _log_request(level: int, exchange: Exchange, pattern: str, lasted_s: float) -> None:
    """Log a request by its route: paths and queries hold what belongs to clients."""
    said: dict[str, object] = {
        "request_id": exchange.request_id,
        "method": exchange.method,
        "route": pattern,
        "status": exchange.status,
        "duration_s": round(lasted_s, 6),
        "key_id": exchange.client.key_id,
    }
    say(log, level, said, "%s %s: %d", exchange.method, pattern, exchange.status)


def _break_off(exchange: Exchange, code: str) -> None:
    """Leave a stream without its end: the connection is then cut, which no client takes for a success."""
    log.warning("stream broken off", extra={"request_id": exchange.request_id, "code": code})
