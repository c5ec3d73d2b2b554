"""Logging in and out, the current client, and login links. A link's ticket is behind the `#`, so it is never logged."""

import msgspec

from treadle.core.errors import ProtocolError
from treadle.server import static_pages as pages
from treadle.server.auth.page_access import COOKIE_S, LINK_S, write_cookie
from treadle.server.auth.route_permissions import ADMIN, OPEN, PREPARE, TREADLE
from treadle.server.auth.signed_tickets import Scope
from treadle.server.http_exchange import Exchange, HttpError, read_body
from treadle.server.route import FLAG, NOTHING, PAGE, TEXT, RouteGroup, fields, gives
from treadle.server.server_state import Service

NAME_CHARS_MAX = 100
LINK_S_MAX = 86_400.0


class Redeem(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /login: the ticket of a link."""

    ticket: str


class NewLink(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /treadle/v1/logins."""

    name: str
    scope: Scope = "viewer"
    expires_s: float = LINK_S


async def page(service: Service, exchange: Exchange) -> None:
    """Show the page that turns a link into a login and explains how to get one."""
    await pages.send_page(exchange, "login.html")


async def login(service: Service, exchange: Exchange) -> None:
    """Exchange a link's ticket for the login cookie; a ticket works once. Raises: ProtocolError, HttpError (401)."""
    wanted = await service.read(exchange, lambda body: read_body(body, Redeem))
    made = await service.clients.logins.redeem(wanted.ticket)
    if made is None:
        raise HttpError(
            401,
            "link_not_good",
            "This link was used already, or its time is over.",
            hint="A link works once. `treadle login` prints another, and so does `treadle serve` when it starts.",
        )
    value, cookie = made
    headers = (write_cookie(exchange, value, COOKIE_S),)
    await exchange.answer_json(200, {"name": cookie.name, "scope": cookie.scope}, headers)


async def logout(service: Service, exchange: Exchange) -> None:
    """End this login everywhere its cookie was copied to."""
    now = service.runtime.clock.now()
    person = service.gate.person(exchange, now)
    if person is not None and person.ticket is not None:
        await service.clients.logins.end(person.ticket)
    await exchange.answer(204, headers=(write_cookie(exchange, "", 0.0),))


async def me(service: Service, exchange: Exchange) -> None:
    """Return the client's name and scope."""
    client = exchange.client
    shown = {"name": client.name, "scope": client.grant.role, "needs_login": service.gate.needs_login}
    await exchange.answer_json(200, shown)


async def create(service: Service, exchange: Exchange) -> None:
    """Create a login link for another person. Raises: ProtocolError."""
    new = await service.read(exchange, lambda body: read_body(body, NewLink))
    if not new.name.strip() or len(new.name) > NAME_CHARS_MAX:
        raise ProtocolError(f"name has 1 to {NAME_CHARS_MAX} characters.", param="name")
    if not 1 <= new.expires_s <= LINK_S_MAX:
        raise ProtocolError(f"expires_s is a number from 1 to {LINK_S_MAX:.0f}.", param="expires_s")
    now, name = service.runtime.clock.now(), new.name.strip()
    path = service.gate.link_path(name, new.scope, now, new.expires_s)
    shown = {"path": path, "name": name, "scope": new.scope, "expires_at": now + new.expires_s}
    await exchange.answer_json(201, shown)


_ROWS = RouteGroup("Login", TREADLE)
_ADMIN = RouteGroup("Login", ADMIN)
_OPEN = RouteGroup("Login", OPEN)
_PREPARE = RouteGroup("Login", PREPARE)
ROUTES = (
    _OPEN.get("/login", page, "Show the page that turns a link into a login", {200: (PAGE,)}),
    _OPEN.post("/login", login, "Log in with the ticket of a link", gives(fields(name=TEXT, scope=TEXT)), body=Redeem),
    _PREPARE.post("/treadle/v1/logout", logout, "Log out", NOTHING),
    _ADMIN.post(
        "/treadle/v1/logins",
        create,
        "Make a link for somebody",
        gives(fields(path=TEXT, name=TEXT, scope=TEXT, expires_at={"type": "number"}), 201),
        body=NewLink,
    ),
    _ROWS.get(
        "/treadle/v1/me",
        me,
        "Say who is asking and what they may do",
        gives(fields(name=TEXT, scope=TEXT, needs_login=FLAG)),
    ),
)
