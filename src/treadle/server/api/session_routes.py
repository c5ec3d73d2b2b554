"""Treadle's own API: sessions, which are conversations with a name. Listed, searched, renamed, forked, exported."""

import re
from urllib.parse import quote

import msgspec

from treadle.core.errors import ProtocolError
from treadle.core.ids import SESSION
from treadle.core.journal_entries import Entry
from treadle.core.json import OptionalRaw
from treadle.http.asgi import Header
from treadle.journal.journal_interface import SessionRow, Store
from treadle.journal.jsonl_export import write_run
from treadle.journal.session_operations import (
    chain_of,
    check_name,
    create_numbered,
    forget_session,
    fork_session,
    get_session,
    read_items,
    write_markdown,
)
from treadle.server.api.page_cursor import read_before
from treadle.server.auth.route_permissions import PREPARE, TREADLE
from treadle.server.http_exchange import Exchange, read_body, read_number
from treadle.server.route import (
    AFTER,
    BEFORE,
    JOURNAL,
    LIMIT,
    NOTHING,
    Content,
    RouteGroup,
    gives,
    number,
    one_of,
    text,
)
from treadle.server.run_response import read
from treadle.server.server_state import Service

PAGE_MAX = 200
MESSAGES_MAX = 1_000
METADATA_BYTES_MAX = 65_536
SEARCH_CHARS_MAX = 500
_PLAIN = re.compile(r"[^A-Za-z0-9._ -]")


class NewSession(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /treadle/v1/sessions. `numbered` takes the next free number where the name is taken."""

    name: str
    metadata: OptionalRaw = None
    numbered: bool = False


class SessionChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of PATCH: what is left out stays."""

    name: str | None = None
    metadata: OptionalRaw = None


class SessionFork(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST …/fork: a name, and the run of the session to go on from."""

    name: str | None = None
    at: str | None = None


class SessionView(msgspec.Struct, frozen=True, kw_only=True):
    """A session as this API shows it."""

    id: str
    name: str
    created_at: float
    updated_at: float
    head_run_id: str | None = None
    metadata: msgspec.Raw | None = None


class SessionDetail(SessionView, frozen=True, kw_only=True):
    """A session with what was said in it, oldest first; `after` the number of messages read gives the next page."""

    messages: list[Entry]
    has_more: bool


class SessionPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of sessions, the one used last first; `before` the last id gives the next page."""

    sessions: list[SessionView]
    has_more: bool


async def index(service: Service, exchange: Exchange) -> None:
    """Return a page of sessions. Raises: ProtocolError, NotFound."""
    query = exchange.query()
    limit = read_number(query, "limit", default=50, least=1, most=PAGE_MAX)
    search = query.get("search") or None
    if search is not None and len(search) > SEARCH_CHARS_MAX:
        raise ProtocolError(f"search has at most {SEARCH_CHARS_MAX} characters.", param="search")
    before = await read_before(exchange, _store(service).find_session)
    rows = await _store(service).list_sessions(limit + 1, key_id=exchange.reach, before=before, search=search)
    page = SessionPage(sessions=[view_of(row) for row in rows[:limit]], has_more=len(rows) > limit)
    await exchange.answer_json(200, page)


async def create(service: Service, exchange: Exchange) -> None:
    """Create an empty session. Raises: ProtocolError, Conflict."""
    new = await service.read(exchange, lambda body: read_body(body, NewSession))
    row = _new_row(service, exchange, check_name(new.name), _checked(new.metadata))
    if new.numbered:
        row = await create_numbered(_store(service), row)
    else:
        await _store(service).create_session(row)
    await _answer_created(exchange, row)


async def get(service: Service, exchange: Exchange) -> None:
    """Return a session and its messages. Raises: ProtocolError, NotFound."""
    query = exchange.query()
    after = read_number(query, "after", default=0, least=0)
    limit = read_number(query, "limit", default=MESSAGES_MAX, least=1, most=MESSAGES_MAX)
    row = await _find(service, exchange)
    messages = await read_items(_store(service), row)
    fields = msgspec.structs.asdict(view_of(row))
    has_more = len(messages) > after + limit
    await exchange.answer_json(
        200, SessionDetail(**fields, messages=messages[after : after + limit], has_more=has_more)
    )


async def change(service: Service, exchange: Exchange) -> None:
    """Change the name or the metadata. Raises: ProtocolError, NotFound, Conflict."""
    wanted = await service.read(exchange, lambda body: read_body(body, SessionChange))
    if wanted.name is None and wanted.metadata is None:
        raise ProtocolError("There is nothing to change: give a name or metadata.", param="name")
    name = None if wanted.name is None else check_name(wanted.name)
    row = await _find(service, exchange)
    changed = await _store(service).update_session(row.id, name=name, metadata=_checked(wanted.metadata))
    await exchange.answer_json(200, view_of(changed))


async def fork(service: Service, exchange: Exchange) -> None:
    """Create a session that continues from the same run, or from an earlier one.

    Raises: ProtocolError, NotFound, Conflict.
    """
    body = await service.body(exchange)
    wanted = await read(body or b"{}", lambda data: read_body(data, SessionFork))
    source = await _find(service, exchange)
    row = _new_row(service, exchange, "", None)
    await _answer_created(exchange, await fork_session(_store(service), source, row, at=wanted.at, name=wanted.name))


async def delete(service: Service, exchange: Exchange) -> None:
    """Delete a session; with `runs=true` also its runs.

    Raises: ProtocolError, NotFound, Conflict while one of its runs is active, or a fork depends on them.
    """
    wish = exchange.query().get("runs", "false")
    if wish not in ("true", "false"):
        raise ProtocolError("runs must be true or false.", param="runs")
    row = await _find(service, exchange)
    await forget_session(_store(service), row, with_runs=wish == "true")
    await exchange.answer(204)


async def export(service: Service, exchange: Exchange) -> None:
    """Export a session as JSON Lines (exact) or as Markdown (to read). Raises: ProtocolError, NotFound."""
    form = exchange.query().get("format", "jsonl")
    if form not in ("jsonl", "md"):
        raise ProtocolError("format must be jsonl or md.", param="format")
    store = _store(service)
    row = await _find(service, exchange)
    if form == "md":
        text = write_markdown(row, await read_items(store, row))
        await exchange.answer(200, text.encode(), b"text/markdown; charset=utf-8", (_attachment(row, "md"),))
        return
    runs = list(reversed(await chain_of(store, row.head_run_id)))
    await exchange.begin((_attachment(row, "jsonl"),), b"application/x-ndjson")
    for run in runs:
        for line in write_run(await store.evidence(run.id)):
            await exchange.write(line)
    await exchange.end()


def view_of(row: SessionRow) -> SessionView:
    """Return a session as this API shows it."""
    return SessionView(**{name: getattr(row, name) for name in SessionView.__struct_fields__})


def _checked(metadata: msgspec.Raw | None) -> msgspec.Raw | None:
    if metadata is None:
        return None
    raw = bytes(metadata)
    if not raw.startswith(b"{") or len(raw) > METADATA_BYTES_MAX:
        raise ProtocolError(f"metadata is an object of at most {METADATA_BYTES_MAX} bytes.", param="metadata")
    return msgspec.Raw(raw)


def _new_row(service: Service, exchange: Exchange, name: str, metadata: msgspec.Raw | None) -> SessionRow:
    now = service.runtime.clock.now()
    return SessionRow(
        id=service.runtime.ids.new(SESSION),
        name=name,
        key_id=exchange.client.key_id,
        created_at=now,
        updated_at=now,
        metadata=metadata,
    )


async def _answer_created(exchange: Exchange, row: SessionRow) -> None:
    location = (b"location", f"/treadle/v1/sessions/{row.id}".encode())
    await exchange.answer_json(201, view_of(row), (location,))


async def _find(service: Service, exchange: Exchange) -> SessionRow:
    return await find_session(service, exchange, exchange.params["session_id"])


async def find_session(service: Service, exchange: Exchange, id_or_name: str) -> SessionRow:
    """Return a session that the client may access; if two have the same name, its own.

    Raises: NotFound.
    """
    own = await _store(service).find_session(id_or_name, key_id=exchange.client.key_id)
    return own or await get_session(_store(service), id_or_name, key_id=exchange.reach)


def _store(service: Service) -> Store:
    return service.runtime.store


def _attachment(row: SessionRow, suffix: str) -> Header:
    """Return the header that names the downloaded file, in ASCII and in its exact form."""
    name = f"{row.name or row.id}.{suffix}"
    plain = _PLAIN.sub("_", name)
    exact = quote(name.encode("utf-8", "replace"), safe="")
    return (b"content-disposition", f"attachment; filename=\"{plain}\"; filename*=UTF-8''{exact}".encode())


_ROWS = RouteGroup("Sessions", TREADLE)
_PREPARE = RouteGroup("Sessions", PREPARE)
ROUTES = (
    _ROWS.get(
        "/treadle/v1/sessions",
        index,
        "List sessions, the one used last first",
        gives(SessionPage),
        query=(LIMIT, BEFORE, text("search", "in names and in what was said")),
    ),
    _PREPARE.post("/treadle/v1/sessions", create, "Make an empty session", gives(SessionView, 201), body=NewSession),
    _ROWS.get(
        "/treadle/v1/sessions/{session_id}",
        get,
        "Show a session and its messages",
        gives(SessionDetail),
        query=(AFTER, number("limit", "how many, at most", least=1, most=1000)),
    ),
    _PREPARE.row(
        "PATCH",
        "/treadle/v1/sessions/{session_id}",
        change,
        "Give a session another name or other metadata",
        gives(SessionView),
        body=SessionChange,
    ),
    _ROWS.row(
        "DELETE",
        "/treadle/v1/sessions/{session_id}",
        delete,
        "Forget a session",
        NOTHING,
        query=(one_of("runs", "also what was said in it", "true", "false"),),
    ),
    _PREPARE.post(
        "/treadle/v1/sessions/{session_id}/fork",
        fork,
        "Make a session that goes on from the same place",
        gives(SessionView, 201),
        body=SessionFork,
        needs_body=False,
    ),
    _ROWS.row(
        "GET",
        "/treadle/v1/sessions/{session_id}/export",
        export,
        "Export a session",
        {200: (JOURNAL, Content("text/markdown; charset=utf-8"))},
        query=(one_of("format", "as what", "jsonl", "md"),),
    ),
)
