"""Checks logins for Treadle's own API and its pages, by path, method and cookie alone.

If only this machine can reach the server, reading and asking models needs no login, but decisions need a login or a key
(`route_permissions`). If other machines can reach it, people log in for everything. The vendors' APIs under /v1 are
for programs and are not checked here.
"""

import msgspec

from treadle.config import Settings
from treadle.core.errors import Forbidden
from treadle.server.auth.installation_secret import read_secret, secret_for
from treadle.server.auth.signed_tickets import Scope, SignedTicket, Tickets, covers
from treadle.server.http_exchange import Exchange, HttpError
from treadle.server.request_guard import is_loopback

PAGE_HEADER = b"x-treadle-page"
"""The header of the pages' own requests: no form and no other site can send it without asking first."""

COOKIE_S = 30 * 86_400.0
LINK_S = 600.0
KEY_S = 43_200.0
LOCAL_NAME = "local"
_SAFE = frozenset({"GET", "HEAD"})
_OPEN = frozenset({"/login", "/healthz", "/readyz", "/api/hello"})
_OPEN_PREFIXES = ("/web/",)
_PAGES = frozenset({"/", "/console"})
_OWN = ("/treadle/", "/console/")


class PageRule(msgspec.Struct, frozen=True):
    """The scopes that a path needs, to read and to change."""

    prefix: str
    reads: Scope
    writes: Scope


RULES: tuple[PageRule, ...] = (
    PageRule("/treadle/v1/logins", "admin", "admin"),
    PageRule("/treadle/v1/keys", "admin", "admin"),
    PageRule("/treadle/v1/logout", "viewer", "viewer"),
    PageRule("/", "viewer", "operator"),
)
"""The first matching prefix applies."""


class Person(msgspec.Struct, frozen=True, kw_only=True):
    """A person who sent a request, and their scope."""

    name: str
    scope: Scope
    ticket: SignedTicket | None = None


LOCAL = Person(name=LOCAL_NAME, scope="admin")


def asks_for_login(settings: Settings) -> bool:
    """Return whether people must log in: always, never, or if other machines can connect or keys are required."""
    server = settings.server
    if server.login != "auto":
        return server.login == "always"
    return is_exposed(settings) or settings.keys.required == "always"


def is_exposed(settings: Settings) -> bool:
    """Return whether other machines can connect."""
    server = settings.server
    return not is_loopback(server.host) or server.allow_remote or bool(server.allowed_hosts)


class PageGate:
    """Checks requests to Treadle's own API and pages."""

    def __init__(self, tickets: Tickets, *, needs_login: bool) -> None:
        self.tickets = tickets
        self.needs_login = needs_login

    def check(self, exchange: Exchange, now: float) -> None:
        """Check the login of a request, if its path needs one.

        Raises: HttpError (401), Forbidden.
        """
        if not self.needs_login or not _is_guarded(exchange.path):
            return
        person = self.person(exchange, now)
        if person is None:
            raise HttpError(
                401,
                "login_needed",
                "Log in to use this.",
                hint="Open the link that `treadle serve` printed, or one of `treadle login`; programs send a key.",
            )
        self.allow(exchange, person)

    def allow(self, exchange: Exchange, person: Person) -> None:
        """Check that a person may make this request.

        Raises: Forbidden.
        """
        self.check_scope(exchange, person.scope)
        if exchange.method not in _SAFE and PAGE_HEADER not in exchange.headers:
            message = "A change by cookie needs the header x-treadle-page."
            raise Forbidden(message, code="page_header_missing", hint="Programs use an API key instead.")

    def check_scope(self, exchange: Exchange, scope: Scope) -> None:
        """Check that a login's scope is enough for this request.

        Raises: Forbidden.
        """
        rule = next(rule for rule in RULES if exchange.path.startswith(rule.prefix))
        needed = rule.reads if exchange.method in _SAFE else rule.writes
        if not covers(scope, needed):
            message = f"This needs the scope {needed}, and this login has {scope}."
            raise Forbidden(message, code="scope_missing", hint="Ask an admin for another link.")

    def link_path(self, name: str, scope: Scope, now: float, seconds: float = LINK_S) -> str:
        """Return the path of a new one-time link; browsers do not send the part after the `#`."""
        return f"/login#{self.tickets.link(name, scope, now, seconds)}"

    def person(self, exchange: Exchange, now: float) -> Person | None:
        """Return the person who sent the request; None for one who must log in first."""
        ticket = self.tickets.cookie(read_cookie(exchange), now) if b"cookie" in exchange.headers else None
        if ticket is not None:
            return Person(name=ticket.name, scope=ticket.scope, ticket=ticket)
        return None if self.needs_login else LOCAL


def make_gate(settings: Settings, now: float) -> PageGate:
    """Return the page gate of a server that starts now.

    Raises: ConfigError.
    """
    needs_login = asks_for_login(settings)
    secret = secret_for("login", read_secret(settings))
    # A journal records which links were used; without one, no link may be older than the process.
    began_at = 0.0 if settings.store.persistence == "on" else now
    return PageGate(Tickets(secret, began_at), needs_login=needs_login)


def read_cookie(exchange: Exchange) -> str:
    """Return the value of this server's own cookie, or an empty string."""
    wanted = cookie_name(exchange)
    for pair in exchange.header(b"cookie").split(";"):
        name, _, value = pair.strip().partition("=")
        if name == wanted:
            return value
    return ""


def cookie_name(exchange: Exchange) -> str:
    """Return the cookie's name with the port in it, because browsers share cookies between all ports of a host."""
    port = exchange.header(b"host").rpartition(":")[2]
    return f"treadle_{port}" if port.isdigit() else "treadle"


def write_cookie(exchange: Exchange, value: str, max_age_s: float) -> tuple[bytes, bytes]:
    """Write the header that sets the cookie: hidden from scripts and other sites, and TLS only where TLS is used."""
    fields = [f"{cookie_name(exchange)}={value}", "Path=/", "HttpOnly", "SameSite=Strict", f"Max-Age={max_age_s:.0f}"]
    if exchange.header(b"origin").startswith("https://"):
        fields.append("Secure")
    return b"set-cookie", "; ".join(fields).encode()


def is_open(path: str) -> bool:
    """Return whether a path answers all clients alike, so that probes need no lookup of the client."""
    return path in _OPEN or path.startswith(_OPEN_PREFIXES)


def _is_guarded(path: str) -> bool:
    if is_open(path):
        return False
    return path in _PAGES or path.startswith(_OWN)
