"""What routes need: each has a rule, and what is open to all is a short list."""

import pytest

from treadle.server.app import TABLE
from treadle.server.auth.route_permissions import access_of

ROUTES = [(method, route.pattern) for route in TABLE for method in route.methods.split()]


def test_every_route_has_a_rule() -> None:
    """A route that nobody thought of would be found when the first request comes; here it is found before."""
    assert all(access_of(pattern, method) for method, pattern in ROUTES)


def test_what_needs_no_key_is_a_short_list() -> None:
    """Pages, which need a login instead, and whether the server lives."""
    found = sorted({pattern for method, pattern in ROUTES if access_of(pattern, method).is_open})
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


def test_a_route_without_a_rule_is_no_route() -> None:
    """Neither a path that looks like another, nor a method that no rule names."""
    for pattern, method in (("/new", "GET"), ("/healthz", "POST"), ("/v1/new", "POST")):
        with pytest.raises(LookupError, match="no rule"):
            access_of(pattern, method)


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
        ("GET", "/metrics", "", "viewer"),
    ],
)
def test_the_first_rule_that_fits_holds(method: str, pattern: str, api: str, role: str) -> None:
    """By the beginning of the pattern, and by the method."""
    access = access_of(pattern, method)
    assert (access.api, access.role(method)) == (api, role)
