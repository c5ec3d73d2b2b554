"""Treadle's own API for WASM session guests: lists them, and runs one to its end.

Only guests that the operator configured can be run: no code is accepted over HTTP.
"""

import asyncio
from functools import partial

import msgspec

from treadle.core.errors import ProtocolError
from treadle.runtime.guest_runs import GuestRun, GuestView, describe_guest, run_guest
from treadle.server.auth.route_permissions import PREPARE, TREADLE
from treadle.server.http_exchange import Exchange, read_body
from treadle.server.route import COUNT, RouteGroup, fields, gives, listed
from treadle.server.run_response import read
from treadle.server.server_state import Service

INPUT_BYTES_MAX = 1_048_576


class NewGuestRun(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /treadle/v1/guests/{name}/runs; `input` is the guest's standard input."""

    input: str = ""
    model: str = ""


async def index(service: Service, exchange: Exchange) -> None:
    """List the configured session guests."""
    guests = service.runtime.guests
    views = [describe_guest(module) for module in guests.modules]
    await exchange.answer_json(200, {"guests": views, "live": guests.live})


async def create(service: Service, exchange: Exchange) -> None:
    """Run a guest to its end; a client that disconnects stops it.

    Raises: NotFound, ProtocolError, TooManyGuests, BadGuest, ConfigError.
    """
    guests = service.runtime.guests
    module = guests.find(exchange.params["name"])
    body = await service.body(exchange)
    new = await read(body if body.strip() else b"{}", lambda data: read_body(data, NewGuestRun))
    if len(new.input.encode("utf-8", "replace")) > INPUT_BYTES_MAX:
        raise ProtocolError(f"input is over {INPUT_BYTES_MAX} bytes.", param="input")
    client = exchange.client
    module = msgspec.structs.replace(module, model=new.model or module.model)
    await service.admit(client, module.model)
    admit = partial(service.admit, client)
    stdin = new.input.encode("utf-8", "replace")
    run = run_guest(guests, module, stdin=stdin, key_id=client.key_id, allowed=client.tools, admit=admit)
    work = asyncio.ensure_future(run)
    gone = asyncio.ensure_future(exchange.disconnected())
    try:
        await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            await exchange.answer_json(200, work.result())
    finally:
        gone.cancel()
        work.cancel()
        await asyncio.wait((work, gone))


_ROWS = RouteGroup("Guests", TREADLE)
_PREPARE = RouteGroup("Guests", PREPARE)
ROUTES = (
    _ROWS.get(
        "/treadle/v1/guests", index, "List the session guests", gives(fields(guests=listed(GuestView), live=COUNT))
    ),
    _PREPARE.post(
        "/treadle/v1/guests/{name}/runs",
        create,
        "Run a guest to its end",
        gives(GuestRun),
        body=NewGuestRun,
        needs_body=False,
    ),
)
