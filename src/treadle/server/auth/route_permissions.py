"""What each route needs: which API's scope of a key, and which role. Pure; the first row that fits a pattern holds."""

import msgspec

from treadle.journal.keys_interface import Role
from treadle.protocols.protocol_registry import GEMINI, PROTOCOLS
from treadle.server.http_exchange import SAFE_METHODS


class RouteAccess(msgspec.Struct, frozen=True):
    """What some routes need. Without an `api` the key of any API will do; what `is_open` needs no key at all.

    A role is needed beside that, to look (`reads`) or to change (`writes`). What `decides` needs a credential also
    where other requests need none. What `outlives_store` is needed most while the store is away: a key that was known
    a while ago will do then.
    """

    methods: str
    prefix: str
    api: str = ""
    reads: Role = "none"
    writes: Role = "none"
    is_open: bool = False
    outlives_store: bool = False
    decides: bool = False

    def role(self, method: str) -> Role:
        """Return the role that a method needs."""
        return self.reads if method in SAFE_METHODS else self.writes


RULES: tuple[RouteAccess, ...] = (
    RouteAccess("GET HEAD", "/v1/models"),
    RouteAccess("GET HEAD", "/v1beta/models"),
    RouteAccess("POST", "/v1/models/", GEMINI),
    *(RouteAccess("*", path, row.name) for row in PROTOCOLS.values() for path in row.paths if path.startswith("/v1")),
    RouteAccess("*", "/mcp", "mcp"),
    RouteAccess("*", "/treadle/v1/keys", "treadle", "admin", "admin"),
    RouteAccess("*", "/treadle/v1/logins", "treadle", "admin", "admin"),
    RouteAccess("*", "/treadle/v1/evals", "treadle", "viewer", "operator"),
    RouteAccess("*", "/treadle/v1/mcp", "treadle", "viewer", "operator"),
    RouteAccess("*", "/treadle/v1/upstreams", "treadle", "viewer", "operator"),
    RouteAccess("*", "/treadle/v1/replicas", "treadle", "viewer", "operator"),
    RouteAccess("*", "/treadle/v1/", "treadle"),
    RouteAccess("*", "/metrics", reads="viewer", writes="operator", outlives_store=True),
    RouteAccess("GET HEAD", "/healthz", is_open=True),
    RouteAccess("GET HEAD", "/readyz", is_open=True),
    RouteAccess("GET HEAD", "/api/hello", is_open=True),
    RouteAccess("GET HEAD", "/openapi.json", is_open=True),
    RouteAccess("*", "/login", is_open=True),
    RouteAccess("GET HEAD", "/web/", is_open=True),
    RouteAccess("GET HEAD", "/console", is_open=True),
    RouteAccess("GET HEAD", "/", is_open=True),
)
"""Pages are open here because the gate looks after them: a browser brings no key."""

OWN_API = "/treadle/v1/"
UNDECIDED = frozenset(
    {
        ("POST", "/treadle/v1/runs"),
        ("POST", "/treadle/v1/runs/{run_id}/fork"),
        ("POST", "/treadle/v1/runs/{run_id}/replay"),
        ("POST", "/treadle/v1/guests/{name}/runs"),
        ("POST", "/treadle/v1/sessions"),
        ("PATCH", "/treadle/v1/sessions/{session_id}"),
        ("POST", "/treadle/v1/sessions/{session_id}/fork"),
        ("POST", "/treadle/v1/sessions/{session_id}/turns"),
        ("POST", "/treadle/v1/sessions/{session_id}/branch"),
        ("POST", "/treadle/v1/workspaces"),
        ("PATCH", "/treadle/v1/workspaces/{workspace}/draft"),
        ("PATCH", "/treadle/v1/workspaces/{workspace}/ui"),
        ("POST", "/treadle/v1/workspaces/{workspace}/proposals"),
        ("POST", "/treadle/v1/logout"),
    }
)
"""Changes by Treadle's own API that ask a model, prepare or propose something. Every other one decides, so that a new
route needs a credential unless it is named here."""


def access_of(pattern: str, method: str) -> RouteAccess:
    """Return what a route needs.

    Raises: LookupError for a route that nobody thought of.
    """
    for rule in RULES:
        is_whole = rule.prefix != "/" or pattern == "/"
        if is_whole and pattern.startswith(rule.prefix) and (rule.methods == "*" or method in rule.methods.split()):
            return msgspec.structs.replace(rule, decides=_decides(pattern, method))
    raise LookupError(f"no rule says who may use {method} {pattern}")


def _decides(pattern: str, method: str) -> bool:
    is_change = method not in SAFE_METHODS
    return is_change and pattern.startswith(OWN_API) and (method, pattern) not in UNDECIDED
