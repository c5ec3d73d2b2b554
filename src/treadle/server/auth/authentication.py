"""Identifies a request's client: by its key, else by a login cookie, else as a local program where no key is needed.

A local program may ask models, but decides nothing. What a route needs is in `route_permissions`.
"""

import os

from treadle.access.client_identity import LOCAL, PUBLIC_CLIENT, Client
from treadle.access.key_token import PREFIX
from treadle.access.keyring import Keyring, fingerprint_of
from treadle.config import Settings
from treadle.core.errors import ConfigError, RequestError, StoreError, Unauthorised
from treadle.journal.keys_interface import KeyGrant
from treadle.runtime import Runtime
from treadle.server.auth.installation_secret import is_shared, secret_for, stored_secret
from treadle.server.auth.login_state import SharedLogins
from treadle.server.auth.page_access import PageGate, is_exposed, is_open
from treadle.server.auth.request_rate_limits import RequestRateLimiter
from treadle.server.auth.route_permissions import TREADLE, RouteAccess
from treadle.server.auth.signed_tickets import PERSON_KEY
from treadle.server.auth.signed_tickets import Scope as TicketScope
from treadle.server.http_exchange import SAFE_METHODS, Exchange
from treadle.server.request_guard import client_key

KEY_PREFIX = f"{PREFIX}_"
RECHECK_S = 1.0
"""How often a client that follows a stream is authenticated again."""


def asks_for_key(settings: Settings) -> bool:
    """Return whether programs need a key: always, never, or if other machines can connect."""
    required = settings.keys.required
    return is_exposed(settings) if required == "auto" else required == "always"


def make_keyring(runtime: Runtime) -> Keyring:
    """Return the keyring of an installation.

    Raises: ConfigError, if no secret is stored by which keys could be verified later.
    """
    pepper = secret_for("keys", stored_secret(runtime.settings))
    proved = runtime.store.replicas.note_secret
    return Keyring(runtime.store.keys, pepper, clock=runtime.clock, ids=runtime.ids, proved=proved)


class Clients:
    """Authenticates the clients of a server, and checks what they may use.

    Where keys are needed, the secret that verifies them must be stored; this is checked when the server starts.
    """

    def __init__(self, runtime: Runtime, gate: PageGate) -> None:
        self._runtime = runtime
        self._gate = gate
        self.logins = SharedLogins(gate, runtime.store, runtime.clock)
        self.needs_key = asks_for_key(runtime.settings)
        self._keyring = make_keyring(runtime) if self.needs_key else None
        self._rate_limiter = RequestRateLimiter(runtime)
        self.checks_addresses = self._rate_limiter.counts_addresses or gate.needs_login
        """Whether `check_address` has anything to check."""
        if (self.needs_key or gate.needs_login) and is_shared(runtime.settings, os.environ):
            runtime.replicas.set_secret(fingerprint_of(secret_for("keys", stored_secret(runtime.settings))))
        self._is_unrestricted = not (self.needs_key or gate.needs_login or self._rate_limiter.bounds(LOCAL))

    @property
    def keyring(self) -> Keyring:
        """Return the keyring, created at the first access.

        Raises: ConfigError.
        """
        if self._keyring is None:
            self._keyring = make_keyring(self._runtime)
        return self._keyring

    async def check_address(self, exchange: Exchange) -> None:
        """Count a request to its address and check the login, before routing, which would reveal what paths exist.

        Raises: Exhausted, HttpError (401), Forbidden.
        """
        if self._rate_limiter.counts_addresses:
            await self._rate_limiter.count_address(exchange)
        if self._gate.needs_login and not is_open(exchange.path) and client_key(exchange) is None:
            await self.logins.refresh()
            self._gate.check(exchange, self._runtime.clock.now())

    def try_admit_now(self, exchange: Exchange, access: RouteAccess) -> bool:
        """Admit a request without a credential or a limit to check; return False for any other, for `admit`.

        Raises: HttpError for a query that is too long.
        """
        if not self._is_unrestricted:
            return False
        if access.is_open:
            return True
        key = client_key(exchange)
        if (
            (access.decides and exchange.method not in SAFE_METHODS)
            or b"cookie" in exchange.headers
            or (key is not None and key.startswith(KEY_PREFIX))
        ):
            return False
        exchange.client = LOCAL
        return True

    async def admit(self, exchange: Exchange, access: RouteAccess) -> None:
        """Identify the client, check its permission for the route, and count the request.

        Raises: Unauthorised, Forbidden, Exhausted, HttpError (401 for a page or people), StoreError.
        """
        key = None if access.is_open else client_key(exchange)
        exchange.client = await self._identify(exchange, access, key)
        if access.decides and exchange.method not in SAFE_METHODS:
            exchange.client.check_decides()
        if not access.is_open and self._rate_limiter.bounds(exchange.client):
            await self._rate_limiter.count_request(exchange, access.api)

    async def wait_until_refused(self, exchange: Exchange) -> None:
        """Wait until the client of a stream of Treadle's own API would be refused: such a stream may be endless, while
        the key is revoked or expires, or the login ends."""
        while await self._is_still_allowed(exchange):
            await self._runtime.clock.sleep(RECHECK_S)

    async def _is_still_allowed(self, exchange: Exchange) -> bool:
        try:
            return await self._identify(exchange, TREADLE, client_key(exchange)) == exchange.client
        except StoreError:
            return True  # the next check reads it again
        except RequestError:
            return False

    async def _identify(self, exchange: Exchange, access: RouteAccess, key: str | None) -> Client:
        if key and key.startswith(PERSON_KEY):
            return self._person(key, exchange)
        if key and (self.needs_key or key.startswith(KEY_PREFIX)):
            return await self._holder(key, exchange, access)
        if self._gate.needs_login or b"cookie" in exchange.headers:
            await self.logins.refresh()
            now = self._runtime.clock.now()
            self._gate.check(exchange, now)
            is_asked = not access.is_open and (self.needs_key or access.api == "treadle")
            person = self._gate.person(exchange, now) if is_asked else None
            if person is not None and person.ticket is not None:
                self._gate.allow(exchange, person)
                return _client_of(person.name, person.scope)
        if access.is_open:
            return PUBLIC_CLIENT
        if self.needs_key:
            return await self.keyring.check(None)
        return LOCAL

    def _person(self, text: str, exchange: Exchange) -> Client:
        """Return the person who owns the key.

        Raises: Unauthorised, Forbidden.
        """
        ticket = self._gate.tickets.holder(text, self._runtime.clock.now())
        if ticket is None:
            raise Unauthorised(
                "The person's key is over, or not one of this server's.",
                code="invalid_api_key",
                hint="`treadle login --key` prints another; give --store or --config as the server was given them",
            )
        self._gate.check_scope(exchange, ticket.scope)
        return _client_of(ticket.name, ticket.scope)

    async def _holder(self, text: str, exchange: Exchange, access: RouteAccess) -> Client:
        """Return the client that owns the key, if the key may be used here.

        Raises: Unauthorised, Forbidden, StoreError.
        """
        try:
            keyring = self.keyring
        except ConfigError:
            raise Unauthorised("The key is not one of this server's.", hint="it can have none: see its log") from None
        try:
            client = await keyring.check(text, outlives_store=access.outlives_store)
        except Unauthorised:
            # In a process whose secret differs, an unknown key proves nothing about the key.
            if (problem := self._runtime.replicas.problem) is not None:
                raise problem from None
            raise
        if access.api:
            client.check_api(access.api)
        client.check_role(access.role(exchange.method))
        return client


def _client_of(name: str, scope: TicketScope) -> Client:
    """Return a logged-in person as a client, whose role lets them see the runs of all keys."""
    return Client(name=name, grant=KeyGrant(role=scope))
