"""Logging in over HTTP: the link, the cookie, the scopes, and what a foreign page can not do."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from treadle.access.client_identity import Client
from treadle.config import ServerSection
from treadle.config.settings import WorkspaceSection
from treadle.server.app import App
from treadle.server.http_exchange import Exchange
from unit.server.conftest import OpenApp
from unit.server.visit import JSON_TYPE, LOCAL, Visit

PAGE = ("x-treadle-page", "1")
HTML = ("accept", "text/html,*/*")


@pytest.fixture
async def guarded(open_app: OpenApp) -> AsyncIterator[App]:
    """An application that asks everybody to log in."""
    async with open_app(server=ServerSection(login="always")) as opened:
        yield opened


async def _login(app: App, scope: str = "admin") -> tuple[str, str]:
    """Log in by a new link and return the cookie."""
    service = app.service
    path = service.gate.link_path("ada", scope, service.runtime.clock.now())  # type: ignore[arg-type]
    body = b'{"ticket": "%s"}' % path.partition("#")[2].encode()
    visit = await Visit(app, "POST", "/login", headers=[LOCAL, JSON_TYPE], body=body).run()
    assert (visit.status, visit.json()) == (200, {"name": "ada", "scope": scope})
    return "cookie", visit.headers["set-cookie"].partition(";")[0]


async def test_nobody_need_log_in_to_look_where_only_this_machine_can_come(app: App) -> None:
    """On loopback any program sees everything; who decides takes the link."""
    visit = await Visit(app, "GET", "/treadle/v1/me").run()
    assert visit.json() == {"name": "local", "scope": "admin", "needs_login": False}
    assert app.service.first_link().startswith("/login#")


@pytest.mark.parametrize(
    ("server", "needed"),
    [
        (ServerSection(), False),
        (ServerSection(host="::1"), False),
        (ServerSection(login="always"), True),
        (ServerSection(host="0.0.0.0", allow_remote=True), True),
        (ServerSection(allowed_hosts=("gateway.example.org",)), True),
        (ServerSection(host="0.0.0.0", allow_remote=True, login="never"), False),
    ],
)
async def test_login_is_asked_for_where_others_can_come(open_app: OpenApp, server: ServerSection, needed: bool) -> None:
    """By default that follows from the address; the configuration has the last word."""
    async with open_app(server=server) as app:
        assert app.service.gate.needs_login is needed


@pytest.mark.parametrize("path", ["/treadle/v1/runs", "/treadle/v1/me", "/treadle/v1/live"])
async def test_without_a_login_the_api_is_closed(guarded: App, path: str) -> None:
    """Programs get 401 in Treadle's envelope, which says what to do."""
    visit = await Visit(guarded, "GET", path).run()
    error = visit.json()["error"]
    assert (visit.status, error["code"]) == (401, "login_needed")
    assert "treadle login" in error["hint"]


@pytest.mark.parametrize("path", ["/", "/console"])
async def test_without_a_login_a_person_gets_the_page_that_says_how(guarded: App, path: str) -> None:
    """The page and the scripts it needs are open to all."""
    visit = await Visit(guarded, "GET", path, headers=[LOCAL, HTML]).run()
    assert (visit.status, b"Log in to Treadle" in visit.body) == (401, True)
    for name in ("/login", "/web/login.js", "/web/shared/api.js", "/healthz"):
        assert (await Visit(guarded, "GET", name).run()).status == 200


async def test_the_cookie_opens_the_api(guarded: App) -> None:
    """It is HttpOnly, SameSite=Strict, named by the port, and Secure where the page came over TLS."""
    cookie = await _login(guarded)
    visit = await Visit(guarded, "GET", "/treadle/v1/me", headers=[LOCAL, cookie]).run()
    assert visit.json() == {"name": "ada", "scope": "admin", "needs_login": True}
    path = guarded.service.first_link()
    body = b'{"ticket": "%s"}' % path.partition("#")[2].encode()
    origin = ("origin", "https://localhost:8700")
    made = (await Visit(guarded, "POST", "/login", headers=[LOCAL, JSON_TYPE, origin], body=body).run()).headers
    name, _, rest = made["set-cookie"].partition("=")
    assert name == "treadle_8700"
    assert rest.split("; ")[1:] == ["Path=/", "HttpOnly", "SameSite=Strict", "Max-Age=2592000", "Secure"]


async def test_a_link_works_once(guarded: App) -> None:
    """The second time it is refused with words for a person."""
    body = b'{"ticket": "%s"}' % guarded.service.first_link().partition("#")[2].encode()
    statuses = [
        (await Visit(guarded, "POST", "/login", headers=[LOCAL, JSON_TYPE], body=body).run()).status for _ in range(2)
    ]
    assert statuses == [200, 401]
    bad = await Visit(guarded, "POST", "/login", headers=[LOCAL, JSON_TYPE], body=b'{"tick": 1}').run()
    assert bad.status == 400


@pytest.mark.parametrize(
    ("scope", "method", "path", "status"),
    [
        ("viewer", "GET", "/treadle/v1/sessions", 200),
        ("viewer", "POST", "/treadle/v1/sessions", 403),
        ("viewer", "DELETE", "/treadle/v1/sessions/x", 403),
        ("viewer", "POST", "/treadle/v1/approvals/x", 403),
        ("viewer", "POST", "/treadle/v1/logins", 403),
        ("viewer", "POST", "/treadle/v1/logout", 204),
        ("operator", "POST", "/treadle/v1/sessions", 201),
        ("operator", "POST", "/treadle/v1/approvals/x", 404),
        ("operator", "POST", "/treadle/v1/logins", 403),
        ("admin", "POST", "/treadle/v1/logins", 201),
    ],
)
async def test_each_scope_has_its_reach(guarded: App, scope: str, method: str, path: str, status: int) -> None:
    """A viewer looks, an operator also asks and decides, an admin also gives out links."""
    cookie = await _login(guarded, scope)
    bodies = {"/treadle/v1/approvals/x": b'{"approve": true}', "/treadle/v1/logout": b""}
    body = bodies.get(path, b'{"name": "bob"}') if method == "POST" else b""
    visit = await Visit(guarded, method, path, headers=[LOCAL, JSON_TYPE, PAGE, cookie], body=body).run()
    assert visit.status == status
    if status == 403:
        assert visit.json()["error"]["code"] == "scope_missing"


async def test_a_cookie_alone_changes_nothing(guarded: App) -> None:
    """Without the header that only our own page can send, a change is refused, and so is another origin."""
    cookie = await _login(guarded)
    bare = await Visit(guarded, "POST", "/treadle/v1/sessions", headers=[LOCAL, JSON_TYPE, cookie], body=b"{}").run()
    assert (bare.status, bare.json()["error"]["code"]) == (403, "page_header_missing")
    foreign = [LOCAL, JSON_TYPE, PAGE, cookie, ("origin", "https://evil.example")]
    visit = await Visit(guarded, "POST", "/treadle/v1/sessions", headers=foreign, body=b"{}").run()
    assert (visit.status, visit.json()["error"]["code"]) == (403, "origin_not_allowed")


async def test_logging_out_ends_the_login(guarded: App) -> None:
    """The cookie is taken back, and good no more."""
    cookie = await _login(guarded)
    visit = await Visit(guarded, "POST", "/treadle/v1/logout", headers=[LOCAL, JSON_TYPE, PAGE, cookie]).run()
    assert (visit.status, "Max-Age=0" in visit.headers["set-cookie"]) == (204, True)
    assert (await Visit(guarded, "GET", "/treadle/v1/me", headers=[LOCAL, cookie]).run()).status == 401


async def test_an_admin_makes_links_for_others(guarded: App) -> None:
    """With a name, a scope and a time; bad fields are named."""
    cookie = await _login(guarded)
    headers = [LOCAL, JSON_TYPE, PAGE, cookie]

    async def make(body: bytes) -> Visit:
        return await Visit(guarded, "POST", "/treadle/v1/logins", headers=headers, body=body).run()

    made = (await make(b'{"name": "bob", "scope": "viewer", "expires_s": 60}')).json()
    assert (made["name"], made["scope"], made["path"].startswith("/login#")) == ("bob", "viewer", True)
    for body, param in (
        (b'{"name": " "}', "name"),
        (b'{"name": "b", "scope": "root"}', "scope"),
        (b'{"name": "b", "expires_s": 0}', "expires_s"),
        (b'{"name": "b", "expires_s": 1e9}', "expires_s"),
    ):
        refused = await make(body)
        assert (refused.status, refused.json()["error"]["param"]) == (400, param)


async def test_the_vendors_apis_ask_for_no_login(guarded: App) -> None:
    """They are for programs; who may use them is not a matter of cookies."""
    assert (await Visit(guarded, "GET", "/v1/models").run()).status == 200


async def test_what_is_done_by_a_login_stands_in_its_name(guarded: App) -> None:
    """Whatever the request says; only of who shows no credential the word is taken."""
    visit = Visit(guarded, "POST", "/")
    exchange = Exchange(visit.scope, visit._receive, visit._send, "req_1")  # pyright: ignore[reportPrivateUsage]
    exchange.client = Client(name="ada")
    assert guarded.service.signer(exchange, "mallory") == "ada"
    assert guarded.service.signer(exchange, "policy read-only") == "policy read-only (ada)"


async def test_without_a_login_the_request_says_who(app: App) -> None:
    """It decides nothing that way."""
    visit = Visit(app, "POST", "/")
    exchange = Exchange(visit.scope, visit._receive, visit._send, "req_1")  # pyright: ignore[reportPrivateUsage]
    assert app.service.signer(exchange, "ada") == "ada"


async def test_facts_are_proposed_and_decided_in_the_name_of_the_login(open_app: OpenApp) -> None:
    """Like approvals: nobody signs with the name of somebody else."""
    section = WorkspaceSection(enabled=True)
    async with open_app(server=ServerSection(login="always"), workspace=section) as guarded:
        headers = [LOCAL, JSON_TYPE, PAGE, await _login(guarded, "operator")]

        async def post(path: str, body: Any) -> Any:
            where = f"/treadle/v1/workspaces{path}"
            visit = await Visit(guarded, "POST", where, headers=headers, body=msgspec.json.encode(body)).run()
            assert visit.status < 300, visit.body
            return visit.json()

        await post("", {"name": "desk", "facts": {"city": "Turku"}, "by": "mallory"})
        change = {"path": "/facts/city", "value": "Tampere"}
        made = await post("/desk/proposals", {"changes": [change], "by": "mallory"})
        await post(f"/desk/proposals/{made['id']}/reject", {"by": "mallory"})
        shown = await Visit(
            guarded, "GET", f"/treadle/v1/workspaces/desk/proposals/{made['id']}", headers=headers
        ).run()
    assert (shown.json()["proposal"]["who"], shown.json()["decision"]["who"]) == ("ada", "ada")
