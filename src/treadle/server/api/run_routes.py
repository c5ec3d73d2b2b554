"""Treadle's own API: runs and their events. Tools run only inside a run.

A run started here does not depend on its connection: a client that reconnects continues reading where it stopped.
"""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from typing import cast, get_args

import msgspec

from treadle.access.client_identity import Client
from treadle.core.errors import ErrorInfo, NotFound, ProtocolError
from treadle.core.events import (
    ENDED,
    KeptAlive,
    Numbered,
    Numbering,
    RunEnded,
    RunEvent,
    RunRecovered,
    Status,
    last_number,
    write_event,
)
from treadle.core.items import AnyItem, text_message
from treadle.core.journal_entries import Entry
from treadle.core.json import OptionalRaw
from treadle.core.request import Options, Request, answer_form
from treadle.core.run_endings import HANDED_OVER
from treadle.core.usage import Usage
from treadle.http.asgi import Header
from treadle.journal.journal_interface import RunRow, RunSearch, SessionRow
from treadle.journal.keys_interface import KeyBudget, KeyRates
from treadle.protocols.sse import write_frame
from treadle.runs import RunHandle
from treadle.server.api.page_cursor import read_before
from treadle.server.auth.route_permissions import PREPARE, TREADLE
from treadle.server.delivery.request_headers import read_idempotency, read_last
from treadle.server.http_exchange import Exchange, HttpError, read_body, read_number
from treadle.server.route import (
    AFTER,
    BEFORE,
    EVENTS,
    KEY,
    LIMIT,
    Content,
    RouteGroup,
    gives,
    number,
    one_of,
    streams,
    text,
)
from treadle.server.run_response import read, wants_fresh
from treadle.server.server_state import Service

PAGE_MAX = 200
ENTRIES_MAX = 1_000
_STATUSES: tuple[str, ...] = get_args(Status)
_NOT_OF_ROW = frozenset({"question", "cost_usd"})
SEARCH_CHARS_MAX = 500
WAITING = "waiting"
PENDING_MAX = 1_000


class NewRun(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /treadle/v1/runs. `session` (a name) or `previous` (an id) go on with a conversation.

    `schema` is a JSON Schema that the answer shall follow.
    """

    input: str | tuple[AnyItem, ...]
    model: str = ""
    instructions: str | None = None
    session: str | None = None
    previous: str | None = None
    schema: OptionalRaw = None
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
    question: str | None = None
    cost_usd: float | None = None


class RunDetail(RunView, frozen=True, kw_only=True):
    """A run with its journal, as far as the first page goes.

    `kept_until` is there where a run that is not stored has ended with open calls: what the answers to them need is
    kept until then at the latest, and cannot be read.
    """

    entries: list[Entry]
    has_more: bool
    kept_until: float | None = None


class RunPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of runs, newest first; `before` the last id gives the next page."""

    runs: list[RunView]
    has_more: bool


async def create(service: Service, exchange: Exchange) -> None:
    """Start a run; answer with it or, if asked, with its events. Raises: TreadleError."""
    body = await service.body(exchange)
    new = await read(body, read_new_run)
    request = Request(
        protocol="treadle",
        model=new.model,
        items=(text_message("user", new.input),) if isinstance(new.input, str) else new.input,
        instructions=new.instructions,
        previous_response_id=new.previous,
        options=Options() if new.schema is None else Options(output_schema=answer_form(new.schema)),
        is_fresh=wants_fresh(exchange),
    )
    idempotency, last = read_idempotency(exchange), read_last(exchange)
    client = exchange.client
    session_id = None if new.session is None else await service.runtime.session(new.session, key_id=client.key_id)
    handle = await service.start(request, client, session_id=session_id, idempotency=idempotency)
    if new.stream:
        await _send_events(service, exchange, handle, after=last.number if last and handle.is_attached else 0)
        return
    row = await find_run(service, exchange, handle.run_id)
    location = (b"location", f"/treadle/v1/runs/{handle.run_id}".encode())
    status = 200 if handle.is_attached else 201
    await exchange.answer_json(status, view_of(service, row), (location, *_run_header(handle.run_id)))


async def index(service: Service, exchange: Exchange) -> None:
    """Return a page of runs. Raises: ProtocolError, NotFound."""
    query = exchange.query()
    limit = read_number(query, "limit", default=50, least=1, most=PAGE_MAX)
    store = service.runtime.store
    search = _read_search(query)
    if exchange.reach is not None:
        search = msgspec.structs.replace(search, key_id=exchange.reach)
    before = await read_before(exchange, store.find_run)
    if query.get("status") == WAITING:
        rows = await _waiting(service, search, limit + 1, before)
    else:
        rows = await mark_waiting(service, await store.search_runs(search, limit=limit + 1, before=before))
    shown = rows[:limit]
    asked = await store.questions([row.id for row in shown])
    page = RunPage(runs=[view_of(service, row, asked.get(row.id)) for row in shown], has_more=len(rows) > limit)
    await exchange.answer_json(200, page)


async def get(service: Service, exchange: Exchange) -> None:
    """Return a run and its journal. Raises: ProtocolError, NotFound."""
    after = read_number(exchange.query(), "after", default=0, least=0)
    row = await find_run(service, exchange, exchange.params["run_id"])
    store = service.runtime.store
    entries = await store.entries(row.id, after=after, limit=ENTRIES_MAX + 1)
    is_open = not row.store and row.status == "requires_action"
    is_kept = is_open and await store.entries(row.id, limit=1, for_next=True)
    fields = msgspec.structs.asdict(view_of(service, row))
    detail = RunDetail(
        **fields,
        entries=entries[:ENTRIES_MAX],
        has_more=len(entries) > ENTRIES_MAX,
        kept_until=row.expires_at if is_kept else None,
    )
    await exchange.answer_json(200, detail)


async def events(service: Service, exchange: Exchange) -> None:
    """Stream the events after `?after` or `Last-Event-ID`, then new ones as they come.

    Raises: ProtocolError, NotFound.
    """
    query = exchange.query()
    if "after" not in query and exchange.header(b"last-event-id"):
        query["after"] = exchange.header(b"last-event-id")
    after = read_number(query, "after", default=0, least=0)
    row = await find_run(service, exchange, exchange.params["run_id"])
    handle = service.runtime.runs.attach(row)
    if row.status in ENDED and after >= last_number(await service.runtime.runs.replay(row.id)):
        # A browser's EventSource reconnects after every end of a stream, until it gets a 204.
        await exchange.answer(204)
        return
    await _send_events(service, exchange, handle, after)


async def cancel(service: Service, exchange: Exchange) -> None:
    """Cancel a run and return how it ended. Raises: NotFound."""
    row = await find_run(service, exchange, exchange.params["run_id"])
    await service.runtime.runs.cancel(row.id)
    await exchange.answer_json(200, view_of(service, await find_run(service, exchange, row.id)))


def read_new_run(body: bytes) -> NewRun:
    """Read the body of POST /treadle/v1/runs.

    Raises: ProtocolError, naming the field.
    """
    new = read_body(body, NewRun)
    if new.session is not None and new.previous is not None:
        raise ProtocolError("A run goes on with a session or with a previous run, not both.", param="previous")
    if not new.input:
        raise ProtocolError("input is empty.", param="input")
    return new


def _read_search(query: dict[str, str]) -> RunSearch:
    """Read the filters of a list of runs.

    Raises: ProtocolError, naming the field.
    """
    status, text = query.get("status"), query.get("text") or None
    if status is not None and status not in _STATUSES:
        raise ProtocolError(f"status must be one of {', '.join(_STATUSES)}.", param="status")
    if text is not None and len(text) > SEARCH_CHARS_MAX:
        raise ProtocolError(f"text has at most {SEARCH_CHARS_MAX} characters.", param="text")
    return RunSearch(
        status=cast("Status | None", "running" if status == WAITING else status),
        session_id=query.get("session") or None,
        key_id=query.get("key") or None,
        model=query.get("model") or None,
        tool=query.get("tool") or None,
        error=query.get("error"),
        text=text,
        since=float(read_number(query, "since", default=0, least=0)) or None,
    )


async def _send_events(service: Service, exchange: Exchange, handle: RunHandle, after: int) -> None:
    """Stream the events of a run until its end, or until the client disconnects or loses its permission.

    The run continues without it.
    """
    await exchange.begin(_run_header(handle.run_id))
    writer = asyncio.create_task(_write_events(exchange, handle, after))
    gone = asyncio.create_task(exchange.disconnected())
    refused = asyncio.create_task(service.clients.wait_until_refused(exchange))
    try:
        while not await _any_of(writer, gone, refused, timeout_s=service.runtime.settings.server.keep_alive_s):
            await exchange.write(_KEPT_ALIVE)
    finally:
        exchange.watch_client(None)
        for task in (gone, refused, writer):
            task.cancel()
    await asyncio.wait((writer,))
    if not writer.cancelled():
        writer.result()
        await exchange.end()


async def _write_events(exchange: Exchange, handle: RunHandle, after: int) -> None:
    """Write the events numbered above `after`: the first one of a run is number 1.

    Raises: HttpError, if they stop before the end, because another process recovers the run.
    """
    numbering, taken, is_whole = Numbering(), 0, False
    exchange.watch_client(None, lambda: handle.behind(taken))
    async with aclosing(handle.events()) as events:
        async for batch in events:
            taken += len(batch)
            is_whole = isinstance(batch[-1].event, RunEnded)
            if frames := [frame for numbered in batch if (frame := _next_frame(numbered, numbering, after))]:
                await exchange.write(b"".join(frames))
    # A clean end of the stream would look like the end of the run, so it is cut by an error.
    if not is_whole and (await handle.wait()).error == HANDED_OVER:
        raise HttpError(HANDED_OVER.status, HANDED_OVER.code, HANDED_OVER.message)


def _next_frame(numbered: Numbered, numbering: Numbering, after: int) -> bytes:
    """Return an event as a numbered frame, no bytes if the client has it; an event that may be undone has no number."""
    event, last = numbered.event, numbering.number
    if not numbered.stands:
        return _frame(event)
    number = numbering.take(event)
    if number < after and type(event) is RunEnded and event.status in ("failed", "cancelled"):
        return _frame(event)  # the client names events that this run never had, and must not take it for a success
    if number <= after:
        return b""
    if type(event) is RunRecovered:
        event = RunRecovered(after=last)
    return _frame(event, number)


async def _any_of(*tasks: "asyncio.Task[None]", timeout_s: float) -> bool:
    done, _ = await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    return bool(done)


def _frame(event: RunEvent, number: int | None = None) -> bytes:
    """Write an event as a frame named after its tag, with its number if it has one."""
    name = cast("str", event.__struct_config__.tag)
    return write_frame(write_event(event), name, None if number is None else str(number))


_KEPT_ALIVE = _frame(KeptAlive())


async def find_run(service: Service, exchange: Exchange, run_id: str) -> RunRow:
    """Return the run with that run id or response id; another key's run is treated as missing.

    Raises: NotFound.
    """
    row = await service.runtime.store.find_run(run_id, key_id=exchange.reach)
    if row is None:
        raise NotFound(f"There is no run {run_id!r}.", param="run_id", hint="GET /treadle/v1/runs lists them.")
    return row


def acting(exchange: Exchange, row: RunRow | SessionRow) -> Client:
    """Return the client with which a run or a session is continued: the new runs belong to that one's key.

    The client's own budget and rates do not apply then, because they do not limit another key.
    """
    client = exchange.client
    if row.key_id == client.key_id:
        return client
    grant = msgspec.structs.replace(client.grant, budget=KeyBudget(), rates=KeyRates())
    return msgspec.structs.replace(client, key_id=row.key_id, grant=grant)


async def mark_waiting(service: Service, rows: Sequence[RunRow]) -> list[RunRow]:
    """Return the runs, with a `waiting` status for those that need a person's decision about a call."""
    if not any(row.status == "running" for row in rows):
        return list(rows)
    asking = await _asking(service)
    return [msgspec.structs.replace(row, status=WAITING) if _waits(row, asking) else row for row in rows]


async def _waiting(service: Service, search: RunSearch, limit: int, before: str | None) -> list[RunRow]:
    """Return the runs that wait for a person. The store lists them as running, so it is read until there are enough."""
    found: list[RunRow] = []
    asking = await _asking(service)
    while asking and len(found) < limit:
        rows = await service.runtime.store.search_runs(search, limit=PAGE_MAX, before=before)
        found += [msgspec.structs.replace(row, status=WAITING) for row in rows if _waits(row, asking)]
        if len(rows) < PAGE_MAX:
            break
        before = rows[-1].id
    return found[:limit]


async def _asking(service: Service) -> frozenset[str]:
    """Return the ids of the runs with pending approvals."""
    pending = await service.runtime.store.approvals.page(PENDING_MAX, status="pending")
    return frozenset(each.run_id for each in pending)


def _waits(row: RunRow, asking: frozenset[str]) -> bool:
    return row.status == "running" and row.id in asking


def view_of(service: Service, row: RunRow, question: str | None = None) -> RunView:
    """Return a run as this API shows it."""
    fields = {name: getattr(row, name) for name in RunView.__struct_fields__ if name not in _NOT_OF_ROW}
    return RunView(**fields, question=question, cost_usd=service.runtime.prices.cost(row.model, row.usage))


def _run_header(run_id: str) -> tuple[Header, ...]:
    return ((b"x-treadle-run", run_id.encode()),)


_ROWS = RouteGroup("Runs", TREADLE)
_PREPARE = RouteGroup("Runs", PREPARE)
ROUTES = (
    _PREPARE.post(
        "/treadle/v1/runs",
        create,
        "Start a run; answer with it, or with its events",
        {**streams(RunView), **gives(RunView, 201)},
        headers=(KEY,),
        body=NewRun,
    ),
    _ROWS.get(
        "/treadle/v1/runs",
        index,
        "List runs, newest first",
        gives(RunPage),
        query=(
            LIMIT,
            BEFORE,
            one_of("status", "only those", *_STATUSES),
            text("session", "of this session"),
            text("key", "of the client with this key, by its id"),
            text("model", "of this model"),
            text("tool", "that called this tool"),
            text("error", "that failed with this code; empty for any"),
            text("text", "in which this was said"),
            number("since", "begun after, in seconds since 1970"),
        ),
    ),
    _ROWS.get("/treadle/v1/runs/{run_id}", get, "Show a run and its journal", gives(RunDetail), query=(AFTER,)),
    _ROWS.row(
        "GET",
        "/treadle/v1/runs/{run_id}/events",
        events,
        "Follow the events of a run",
        {200: (Content(EVENTS),), 204: ()},
        query=(number("after", "the number of the last event that is known"),),
    ),
    _ROWS.post("/treadle/v1/runs/{run_id}/cancel", cancel, "End a run", gives(RunView)),
)
