"""The table of all routes, the lookup of a path in it, and the route that shows it as an OpenAPI document."""

from functools import cache

from treadle.core.errors import NotFound
from treadle.core.json import write_json
from treadle.server import static_pages as pages
from treadle.server.api import approval_routes as approvals
from treadle.server.api import chat_routes as chat
from treadle.server.api import conversation_routes as conversations
from treadle.server.api import eval_routes as evals
from treadle.server.api import gemini_routes as gemini
from treadle.server.api import guest_routes as guests
from treadle.server.api import health_routes as health
from treadle.server.api import key_routes as keys
from treadle.server.api import login_routes as logins
from treadle.server.api import mcp_server_routes as mcp_servers
from treadle.server.api import messages_routes as messages
from treadle.server.api import model_routes as models
from treadle.server.api import plan_routes as plans
from treadle.server.api import proposal_routes as proposals
from treadle.server.api import replay_routes as replays
from treadle.server.api import responses_routes as responses
from treadle.server.api import run_routes as runs
from treadle.server.api import session_routes as sessions
from treadle.server.api import tool_routes as tools
from treadle.server.api import trace_routes as traces
from treadle.server.api import wire_view_routes as wire_views
from treadle.server.api import workspace_routes as workspaces
from treadle.server.auth.route_permissions import OPEN
from treadle.server.chat_page import browser_stream as live
from treadle.server.chat_page import chat_page_routes as chat_page
from treadle.server.http_exchange import JSON as JSON_TYPE
from treadle.server.http_exchange import Exchange, HttpError
from treadle.server.mcp import mcp_route as mcp
from treadle.server.openapi_document import document
from treadle.server.route import ANY, HttpRoute, RouteGroup, gives
from treadle.server.server_state import Service

SEGMENT_CHARS_MAX = 256


async def show_openapi(service: Service, exchange: Exchange) -> None:
    """GET /openapi.json: what this server answers."""
    await exchange.answer(200, write_openapi(), JSON_TYPE, ((b"cache-control", b"no-cache"),))


@cache
def write_openapi() -> bytes:
    """Return the OpenAPI document of the table as JSON."""
    return write_json(document(TABLE))


# The order is that of the published document. A path is matched by the first row that fits.
TABLE: tuple[HttpRoute, ...] = (
    *chat.ROUTES,
    *responses.ROUTES,
    *conversations.ROUTES,
    *messages.ROUTES,
    *gemini.ROUTES,
    *models.ROUTES,
    *runs.ROUTES,
    *plans.ROUTES,
    *traces.ROUTES,
    *wire_views.ROUTES,
    *replays.ROUTES,
    *evals.ROUTES,
    *sessions.ROUTES,
    *chat_page.ROUTES,
    *live.ROUTES,
    *workspaces.ROUTES,
    *proposals.ROUTES,
    *approvals.ROUTES,
    *tools.ROUTES,
    *guests.ROUTES,
    health.REPLICAS,
    *mcp_servers.ROUTES,
    health.UPSTREAMS,
    *mcp.ROUTES,
    *health.ROUTES,
    RouteGroup("Operations", OPEN).get("/openapi.json", show_openapi, "Give this document", gives(ANY)),
    *logins.ROUTES,
    *keys.ROUTES,
    *pages.ROUTES,
)


class Routes:
    """Finds the route of a path. Client APIs answer with and without their `/v1`, as clients differ in that."""

    def __init__(self, table: tuple[HttpRoute, ...] = TABLE) -> None:
        self._exact: dict[str, dict[str, HttpRoute]] = {}
        self._patterns: list[tuple[list[str], dict[str, HttpRoute]]] = []
        for route in table:
            self._add(route, route.pattern)
            if route.pattern.startswith("/v1/"):
                self._add(route, route.pattern.removeprefix("/v1"))

    def find(self, exchange: Exchange) -> HttpRoute:
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

    def _add(self, route: HttpRoute, pattern: str) -> None:
        is_exact = "{" not in pattern
        by_method = self._exact.setdefault(pattern, {}) if is_exact else self._of_pattern(pattern.split("/"))
        by_method.update(dict.fromkeys(route.methods.split(), route))

    def _of_pattern(self, segments: list[str]) -> dict[str, HttpRoute]:
        for known, found in self._patterns:
            if known == segments:
                return found
        added: dict[str, HttpRoute] = {}
        self._patterns.append((segments, added))
        return added

    def _match(self, exchange: Exchange) -> dict[str, HttpRoute] | None:
        given = exchange.path.split("/")
        for pattern, by_method in self._patterns:
            params = _params(pattern, given)
            if params is not None:
                exchange.params = params
                return by_method
        return None


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
