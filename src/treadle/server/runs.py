"""Treadle's own API: runs and their events, and which tools there are. Nothing here runs a tool outside a run.

A run started here does not depend on its connection: whoever comes back reads on where they stopped.
"""

import asyncio
from collections.abc import AsyncGenerator
from typing import cast, get_args

import msgspec

from treadle.canon.errors import ErrorInfo, NotFound, ProtocolError
from treadle.canon.events import ENDED, KeptAlive, Numbered, Status
from treadle.canon.items import AnyItem, text_message
from treadle.canon.json import BadJson, check_bounds, type_errors, write_json
from treadle.canon.messages import Entry
from treadle.canon.request import Request
from treadle.canon.tools import ServerTool
from treadle.canon.usage import Usage
from treadle.server.http import Exchange, Header
from treadle.server.service import Service
from treadle.server.stream import read
from treadle.store.journal import RunRow
from treadle.wire.sse import write_frame

PAGE_MAX = 200
ENTRIES_MAX = 1_000
_STATUSES: tuple[str, ...] = get_args(Status)


class NewRun(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /treadle/v1/runs. `session` (a name) or `previous` (an id) go on with a conversation."""

    input: str | tuple[AnyItem, ...]
    model: str = ""
    instructions: str | None = None
    session: str | None = None
    previous: str | None = None
    stream: bool = False


class RunView(msgspec.Struct, frozen=True, kw_only=True):
    """A run as this API shows it."""

    id: str
    response_id: str
    conversation_id: str
    protocol: str
    model: str
    status: Status
    created_at: float
    previous_id: str | None = None
    session_id: str | None = None
    ended_at: float | None = None
    stop: str | None = None
    limit: str | None = None
    usage: Usage | None = None
    error: ErrorInfo | None = None
    rounds: int = 0
    calls: int = 0


class RunDetail(RunView, frozen=True, kw_only=True):
    """A run with its journal, as far as the first page goes."""

    entries: list[Entry]
    has_more: bool


class RunPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of runs, newest first; `before` the last id gives the next page."""

    runs: list[RunView]
    has_more: bool


async def create(service: Service, exchange: Exchange) -> None:
    """POST /treadle/v1/runs: start a run; answer with it, or with its events.

    Raises: TreadleError.
    """
    body = await service.body(exchange)
    new = await read(body, read_new_run)
    request = Request(
        protocol="treadle",
        model=new.model,
        items=(text_message("user", new.input),) if isinstance(new.input, str) else new.input,
        instructions=new.instructions,
        previous_response_id=new.previous,
    )
    session_id = None if new.session is None else await service.runtime.session(new.session)
    handle = await service.start(request, session_id=session_id)
    if new.stream:
        await _send_events(service, exchange, handle.run_id, after=0)
        return
    row = await _find(service, handle.run_id)
    location = (b"location", f"/treadle/v1/runs/{handle.run_id}".encode())
    await exchange.answer_json(201, _view(row), (location, *_run_header(handle.run_id)))


async def index(service: Service, exchange: Exchange) -> None:
    """GET /treadle/v1/runs?limit&before&status&session.

    Raises: ProtocolError, NotFound.
    """
    query = exchange.query()
    limit = _number(query, "limit", default=50, least=1, most=PAGE_MAX)
    status = query.get("status")
    if status is not None and status not in _STATUSES:
        raise ProtocolError(f"status must be one of {', '.join(_STATUSES)}.", param="status")
    rows = await service.runtime.store.list_runs(
        limit=limit + 1,
        before=query.get("before"),
        status=cast("Status | None", status),
        session_id=query.get("session"),
    )
    page = RunPage(runs=[_view(row) for row in rows[:limit]], has_more=len(rows) > limit)
    await exchange.answer_json(200, page)


async def get(service: Service, exchange: Exchange) -> None:
    """GET /treadle/v1/runs/{id}?after: a run and its journal.

    Raises: ProtocolError, NotFound.
    """
    after = _number(exchange.query(), "after", default=0, least=0)
    row = await _find(service, exchange.params["run_id"])
    entries = await service.runtime.store.entries(row.id, after=after, limit=ENTRIES_MAX + 1)
    fields = msgspec.structs.asdict(_view(row))
    detail = RunDetail(**fields, entries=entries[:ENTRIES_MAX], has_more=len(entries) > ENTRIES_MAX)
    await exchange.answer_json(200, detail)


async def events(service: Service, exchange: Exchange) -> None:
    """GET /treadle/v1/runs/{id}/events: what happened after `?after` or `Last-Event-ID`, then what happens.

    Raises: ProtocolError, NotFound.
    """
    query = exchange.query()
    if "after" not in query and exchange.header(b"last-event-id"):
        query["after"] = exchange.header(b"last-event-id")
    after = _number(query, "after", default=0, least=0)
    row = await _find(service, exchange.params["run_id"])
    if row.status in ENDED and not await service.runtime.store.entries(row.id, after=after, limit=1):
        # A browser's EventSource connects again after every end, until it is told that there is nothing more.
        await exchange.answer(204)
        return
    await _send_events(service, exchange, row.id, after)


async def cancel(service: Service, exchange: Exchange) -> None:
    """POST /treadle/v1/runs/{id}/cancel: end a run, and answer with how it ended.

    Raises: NotFound.
    """
    row = await _find(service, exchange.params["run_id"])
    await service.runtime.runs.cancel(row.id)
    await exchange.answer_json(200, _view(await _find(service, row.id)))


async def tools(service: Service, exchange: Exchange) -> None:
    """GET /treadle/v1/tools: the server tools and how each may be run."""
    enabled: list[ServerTool] = list(service.runtime.registry.tools())
    await exchange.answer_json(200, {"tools": enabled})


def read_new_run(body: bytes) -> NewRun:
    """Read the body of POST /treadle/v1/runs.

    Raises: ProtocolError, naming the field.
    """
    try:
        check_bounds(body)
        new = _new_runs.decode(body)
    except BadJson as error:
        raise ProtocolError(f"The body is not acceptable JSON: {error}.") from None
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `")
        raise ProtocolError(f"{problem}.", param=path.strip("`$.") or None) from None
    except type_errors as error:
        raise ProtocolError(f"The body is not JSON: {error}.") from None
    if new.session is not None and new.previous is not None:
        raise ProtocolError("A run goes on with a session or with a previous run, not both.", param="previous")
    if not new.input:
        raise ProtocolError("input is empty.", param="input")
    return new


_new_runs: msgspec.json.Decoder[NewRun] = msgspec.json.Decoder(NewRun)


async def _send_events(service: Service, exchange: Exchange, run_id: str, after: int) -> None:
    """Stream the events of a run until its end, or until the reader goes away; the run goes on without it."""
    await exchange.begin(_run_header(run_id))
    events = service.runtime.runs.events(run_id, after)
    writer = asyncio.create_task(_write_events(exchange, events))
    gone = asyncio.create_task(exchange.disconnected())
    try:
        while not await _first_of(writer, gone, service.runtime.settings.server.keep_alive_s):
            await exchange.write(_KEPT_ALIVE)
    finally:
        gone.cancel()
        writer.cancel()
    await asyncio.wait((writer,))
    if not writer.cancelled():
        writer.result()
        await exchange.end()


async def _write_events(exchange: Exchange, events: AsyncGenerator[list[Numbered], None]) -> None:
    async for batch in events:
        await exchange.write(b"".join(map(_frame, batch)))


async def _first_of(writer: "asyncio.Task[None]", gone: "asyncio.Task[None]", timeout_s: float) -> bool:
    done, _ = await asyncio.wait((writer, gone), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    return bool(done)


def _frame(numbered: Numbered) -> bytes:
    """Write an event as a frame named after its tag, with its number if it can be resumed from there."""
    name = cast("str", numbered.event.__struct_config__.tag)
    return write_frame(write_json(numbered.event), name, str(numbered.seq) if numbered.seq else None)


_KEPT_ALIVE = _frame(Numbered(event=KeptAlive()))


async def _find(service: Service, run_id: str) -> RunRow:
    row = await service.runtime.store.find_run(run_id)
    if row is None:
        raise NotFound(f"There is no run {run_id!r}.", hint="GET /treadle/v1/runs lists them.")
    return row


def _view(row: RunRow) -> RunView:
    return RunView(**{name: getattr(row, name) for name in RunView.__struct_fields__})


def _run_header(run_id: str) -> tuple[Header, ...]:
    return ((b"x-treadle-run", run_id.encode()),)


def _number(query: dict[str, str], name: str, *, default: int, least: int, most: int = 2**53) -> int:
    """Read a whole number from the query.

    Raises: ProtocolError.
    """
    text = query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 16 and least <= int(text) <= most):
        raise ProtocolError(f"{name} must be a whole number from {least} to {most}.", param=name)
    return int(text)
