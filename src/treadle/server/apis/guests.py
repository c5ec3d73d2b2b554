"""Treadle's own API for WASM session guests: which there are, and running one to its end.

Only guests that the operator configured can be run: no code comes in over HTTP.
"""

import asyncio
from functools import partial

import msgspec

from treadle.canon.errors import ProtocolError
from treadle.guests.quarters import GuestModule
from treadle.guests.sandbox.grant import Grant
from treadle.guests.sandbox.limits import Stop
from treadle.guests.stage.desk import Sender
from treadle.guests.stage.lines import LEVELS, Said
from treadle.guests.stage.program import Ended
from treadle.server.http import Exchange, read_body
from treadle.server.service import Service
from treadle.server.stream import read

INPUT_BYTES_MAX = 1_048_576


class FolderView(msgspec.Struct, frozen=True, kw_only=True):
    """A folder that a guest was granted, by the name it has for the guest."""

    path: str
    is_writable: bool


class GuestView(msgspec.Struct, frozen=True, kw_only=True):
    """A configured guest: where it runs, what it was granted, and within which limits."""

    name: str
    model: str
    isolation: str
    engine: str
    grants: tuple[str, ...]
    folders: list[FolderView]
    env: list[str]
    cpu_s: float
    wall_s: float
    memory_bytes_max: int


class NewGuestRun(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /treadle/v1/guests/{name}/runs; `input` is the guest's standard input."""

    input: str = ""
    model: str = ""


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line that the guest logged."""

    level: str
    text: str


class GuestRun(msgspec.Struct, frozen=True, kw_only=True):
    """How a guest ended, what it printed and logged, and the runs that it made."""

    guest: str
    status: str
    exit_code: int | None
    stop: Stop | None
    output: str
    errors: str
    log: list[LogLine]
    runs: tuple[str, ...]
    cpu_s: float
    wall_s: float
    host_calls: int


async def index(service: Service, exchange: Exchange) -> None:
    """GET /treadle/v1/guests: the configured session guests."""
    guests = service.runtime.guests
    views = [_describe(module) for module in guests.modules]
    await exchange.answer_json(200, {"guests": views, "live": guests.live})


async def create(service: Service, exchange: Exchange) -> None:
    """POST /treadle/v1/guests/{name}/runs: run a guest to its end; a client that goes away stops it.

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
    sender = Sender(key_id=client.key_id, allowed=client.tools, admit=partial(service.admit, client))
    said: list[Said] = []
    stdin = new.input.encode("utf-8", "replace")
    work = asyncio.ensure_future(guests.run(module, stdin=stdin, hear=said.append, sender=sender))
    gone = asyncio.ensure_future(exchange.disconnected())
    try:
        await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            await exchange.answer_json(200, _view(module, work.result(), said))
    finally:
        gone.cancel()
        work.cancel()
        await asyncio.wait((work, gone))


def _describe(module: GuestModule) -> GuestView:
    """Return what may be known of a guest: no path of this machine, and of variables only their names."""
    wasi = module.wasi or Grant()
    return GuestView(
        name=module.name,
        model=module.model,
        isolation=module.isolation,
        engine=module.engine,
        grants=module.grants,
        folders=[FolderView(path=folder.guest, is_writable=folder.is_writable) for folder in wasi.folders],
        env=[name for name, _ in wasi.env],
        cpu_s=module.limits.cpu_s,
        wall_s=module.limits.wall_s,
        memory_bytes_max=module.limits.memory_bytes_max,
    )


def _view(module: GuestModule, ended: Ended, said: list[Said]) -> GuestRun:
    return GuestRun(
        guest=module.name,
        status="completed" if ended.stop is None else "stopped",
        exit_code=ended.exit_code,
        stop=ended.stop,
        output="".join(each.text for each in said if each.stream == "stdout"),
        errors="".join(each.text for each in said if each.stream == "stderr"),
        log=[LogLine(level=LEVELS[each.level], text=each.text) for each in said if each.stream == "log"],
        runs=ended.run_ids,
        cpu_s=ended.cpu_s,
        wall_s=ended.wall_s,
        host_calls=ended.host_calls,
    )
