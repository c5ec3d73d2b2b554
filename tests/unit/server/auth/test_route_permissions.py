"""What routes need: no change of Treadle's own API is open to every program, and few routes are open to all."""

import pytest

from treadle.server.auth.route_permissions import RouteAccess
from treadle.server.http_exchange import SAFE_METHODS
from treadle.server.route_table import TABLE

ROUTES: dict[tuple[str, str], RouteAccess] = {
    (method, route.pattern): route.access for route in TABLE for method in route.methods.split()
}


def test_what_needs_no_key_is_a_short_list() -> None:
    """Pages, which need a login instead, and whether the server lives."""
    found = sorted({pattern for (_, pattern), access in ROUTES.items() if access.is_open})
    assert found == [
        "/",
        "/api/hello",
        "/console",
        "/console/{view*}",
        "/healthz",
        "/login",
        "/openapi.json",
        "/readyz",
        "/web/{file*}",
    ]


def test_treadles_own_api_has_its_own_scope() -> None:
    """A key for another API is refused there, and nowhere else is this scope enough."""
    assert {
        pattern.startswith("/treadle/v1/") for (_, pattern), access in ROUTES.items() if access.api == "treadle"
    } == {True}
    assert {access.api for (_, pattern), access in ROUTES.items() if pattern.startswith("/treadle/v1/")} == {"treadle"}


def test_only_the_own_api_decides() -> None:
    """The APIs of the vendors ask models; their changes need no person."""
    assert {access.api for (method, _), access in ROUTES.items() if access.decides and method not in SAFE_METHODS} == {
        "treadle"
    }


def test_what_needs_a_role_is_listed() -> None:
    """Every route with a role, by the role to read and the role to change."""
    found = {
        pattern: (access.reads, access.writes) for (_, pattern), access in ROUTES.items() if access.reads != "none"
    }
    admin, operate = ("admin", "admin"), ("viewer", "operator")
    assert found == {
        "/metrics": operate,
        "/treadle/v1/evals": operate,
        "/treadle/v1/evals/{run}": operate,
        "/treadle/v1/evals/{run}/samples/{key*}": operate,
        "/treadle/v1/keys": admin,
        "/treadle/v1/keys/{key}": admin,
        "/treadle/v1/logins": admin,
        "/treadle/v1/mcp": operate,
        "/treadle/v1/mcp/{server}": operate,
        "/treadle/v1/replicas": operate,
        "/treadle/v1/upstreams": operate,
    }


@pytest.mark.parametrize(
    ("method", "pattern", "api", "role"),
    [
        ("POST", "/v1/chat/completions", "chat", "none"),
        ("DELETE", "/v1/conversations/{conversation_id}", "responses", "none"),
        ("POST", "/v1/models/{model*}", "gemini", "none"),
        ("GET", "/v1/models/{model*}", "", "none"),
        ("GET", "/treadle/v1/runs", "treadle", "none"),
        ("GET", "/treadle/v1/keys", "treadle", "admin"),
        ("GET", "/treadle/v1/evals", "treadle", "viewer"),
        ("POST", "/treadle/v1/mcp/{server}", "treadle", "operator"),
        ("GET", "/metrics", "", "viewer"),
    ],
)
def test_a_row_names_its_permission(method: str, pattern: str, api: str, role: str) -> None:
    """By the pattern and the method: one path may be two routes."""
    access = ROUTES[method, pattern]
    assert (access.api, access.role(method)) == (api, role)
