"""Treadle's own API: creates, lists and revokes API keys, for admins. A key is shown once."""

import msgspec

from treadle.access.key_revocation import stop_runs
from treadle.access.key_views import KeyView, MadeKey, view_of
from treadle.access.keyring import Keyring
from treadle.core.errors import ConfigError, UnsupportedFeature
from treadle.journal.keys_interface import KeyBudget, KeyGrant, KeyRates, KeyRow, Role
from treadle.server.auth.route_permissions import ADMIN
from treadle.server.http_exchange import Exchange, read_body, read_number
from treadle.server.route import BEFORE, LIMIT, RouteGroup, gives
from treadle.server.server_state import Service

PAGE_MAX = 200


class NewKey(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /treadle/v1/keys. What is left out sets no bound, except that a key has no role."""

    name: str
    apis: tuple[str, ...] = ("*",)
    models: tuple[str, ...] = ("*",)
    tools: tuple[str, ...] = ("*",)
    role: Role = "none"
    expires_s: float | None = None
    rates: KeyRates = KeyRates()
    budget: KeyBudget = KeyBudget()


class KeyPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of keys, newest first; `before` the last id gives the next page."""

    keys: list[KeyView]
    has_more: bool


async def index(service: Service, exchange: Exchange) -> None:
    """Return a page of keys with their usage of today, this month and in total. Raises: ProtocolError."""
    query = exchange.query()
    limit = read_number(query, "limit", default=50, least=1, most=PAGE_MAX)
    rows = await service.runtime.store.keys.page(limit + 1, before=query.get("before"))
    views = [await _view(service, row) for row in rows[:limit]]
    await exchange.answer_json(200, KeyPage(keys=views, has_more=len(rows) > limit))


async def create(service: Service, exchange: Exchange) -> None:
    """Create a key. Only this response contains it.

    Raises: ProtocolError, naming the field; Conflict, where the name is taken; UnsupportedFeature.
    """
    new = await service.read(exchange, lambda body: read_body(body, NewKey))
    grant = KeyGrant(
        apis=new.apis, models=new.models, tools=new.tools, role=new.role, rates=new.rates, budget=new.budget
    )
    row, token = await _keyring(service).create(new.name, grant, expires_in_s=new.expires_s)
    view = await _view(service, row)
    location = (b"location", f"/treadle/v1/keys/{row.id}".encode())
    await exchange.answer_json(201, MadeKey(**msgspec.structs.asdict(view), key=token.text), (location,))


async def revoke(service: Service, exchange: Exchange) -> None:
    """Revoke a key by its id or name, permanently, and cancel its runs. Raises: NotFound, UnsupportedFeature."""
    row = await _keyring(service).revoke(exchange.params["key"])
    await stop_runs(service.runtime.store, row.id)
    await exchange.answer_json(200, await _view(service, row))


async def _view(service: Service, row: KeyRow) -> KeyView:
    accounts = service.runtime.accounts
    await accounts.collect()
    return await view_of(row, accounts.ledger, service.runtime.clock.now())


def _keyring(service: Service) -> Keyring:
    try:
        return service.clients.keyring
    except ConfigError as error:
        raise UnsupportedFeature(
            "This server can have no keys: it keeps no secret that lasts.", hint=error.hint
        ) from error


_ROWS = RouteGroup("Keys", ADMIN)
ROUTES = (
    _ROWS.get("/treadle/v1/keys", index, "List the keys and what each has used", gives(KeyPage), query=(LIMIT, BEFORE)),
    _ROWS.post("/treadle/v1/keys", create, "Make a key, and show it this once", gives(MadeKey, 201), body=NewKey),
    _ROWS.row("DELETE", "/treadle/v1/keys/{key}", revoke, "Revoke a key", gives(KeyView)),
)
