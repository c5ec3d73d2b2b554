"""Treadle's own API for the chat page: a session's turns, asking in it, its branches, and what models take.

A run started here does not depend on its connection: it continues after the page is closed.
"""

from collections.abc import Sequence

import msgspec

from treadle.config.settings import DEMO_MODEL
from treadle.core.errors import Conflict, NotFound, ProtocolError
from treadle.core.events import ENDED
from treadle.core.items import AnyItem
from treadle.core.request import Request
from treadle.journal.journal_interface import RunRow, SessionRow
from treadle.server.api.model_routes import models_of
from treadle.server.api.run_routes import acting
from treadle.server.api.session_routes import SessionView, find_session, view_of
from treadle.server.auth.route_permissions import PREPARE, TREADLE
from treadle.server.chat_page.questions import QuestionFile, ask_again, question, read_files
from treadle.server.chat_page.run_view import Mode
from treadle.server.chat_page.session_turns import TURNS_MAX, SessionTurn, leaf_below, newest_of, read_turn, read_turns
from treadle.server.http_exchange import Exchange, read_body, read_number
from treadle.server.route import FLAG, TEXT, RouteGroup, fields, gives, listed, number, one_of, text
from treadle.server.server_state import Service


class NewTurn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST …/turns. `again` asks the question of an earlier run anew from its place, as another branch."""

    input: str | None = None
    files: tuple[QuestionFile, ...] = ()
    model: str = ""
    again: str | None = None


class NewHead(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST …/branch: a run of the branch that the session shall go on with."""

    run: str


class ModelView(msgspec.Struct, frozen=True, kw_only=True):
    """A model that can be asked, and what it takes beside text."""

    id: str
    upstream: str
    takes: tuple[str, ...] = ()


async def index(service: Service, exchange: Exchange) -> None:
    """Return a page of the current branch's turns, in the form that the chat page shows.

    Raises: ProtocolError, NotFound.
    """
    query = exchange.query()
    limit = read_number(query, "limit", default=TURNS_MAX, least=1, most=TURNS_MAX)
    session = await _find(service, exchange)
    talk = await read_turns(service, session, mode=read_mode(query), before=query.get("before"), limit=limit)
    fields = {"session": view_of(session), "turns": talk.turns, "has_more": talk.has_more}
    await exchange.answer_json(200, fields)


async def create(service: Service, exchange: Exchange) -> None:
    """Ask a question and return the turn that starts.

    Raises: ProtocolError, NotFound, Conflict while a run of the session is active.
    """
    mode = read_mode(exchange.query())
    new = await service.read(exchange, lambda body: read_body(body, NewTurn))
    session = await _find(service, exchange)
    await _check_idle(service, session)
    items = await _items(service, session, new)
    if new.again is not None:
        asked = await _run_of(service, session, new.again)
        await service.runtime.store.set_session_head(session.id, asked.previous_id, expected=session.head_run_id)
    request = Request(protocol="treadle", model=new.model, items=tuple(items))
    handle = await service.start(request, acting(exchange, session), session_id=session.id)
    row = await service.runtime.store.find_run(handle.run_id)
    assert row is not None, "a run that was started is there"
    await exchange.answer_json(201, await read_turn(service, row, mode))


async def branch(service: Service, exchange: Exchange) -> None:
    """Switch to another branch, at the newest run below the one named.

    Raises: ProtocolError, NotFound, Conflict while a run of the session is active.
    """
    new = await service.read(exchange, lambda body: read_body(body, NewHead))
    session = await _find(service, exchange)
    await _check_idle(service, session)
    store = service.runtime.store
    leaf = await leaf_below(store, session, new.run)
    await store.set_session_head(session.id, leaf, expected=session.head_run_id)
    await exchange.answer_json(200, view_of(await _find(service, exchange)))


async def models(service: Service, exchange: Exchange) -> None:
    """List the models, the default one, and what input each accepts."""
    runtime = service.runtime
    infos = await models_of(service, exchange)
    shown = [ModelView(id=info.id, upstream=info.upstream, takes=_takes(service, info.upstream)) for info in infos]
    await exchange.answer_json(200, {"default": runtime.settings.model, "models": shown})


def read_mode(query: dict[str, str]) -> Mode:
    """Read whether tools are shown as cards or as lines of text.

    Raises: ProtocolError.
    """
    mode = query.get("mode", "cards")
    if mode not in ("cards", "text"):
        raise ProtocolError("mode must be cards or text.", param="mode")
    return mode


async def _items(service: Service, session: SessionRow, new: NewTurn) -> Sequence[AnyItem]:
    """Return what is asked.

    Raises: ProtocolError, NotFound.
    """
    takes = await _taken_by(service, new.model)
    parts = read_files(new.files, takes)
    if new.again is not None:
        asked = await _run_of(service, session, new.again)
        items = ask_again(await service.runtime.store.entries(asked.id), new.input, parts)
        if not any(getattr(item, "content", ()) for item in items):
            raise ProtocolError("There is nothing to ask again: the run had no question.", param="again")
        return items
    if not (new.input or "").strip() and not parts:
        raise ProtocolError("input is empty.", param="input")
    return [question(new.input or "", parts)]


async def _taken_by(service: Service, model: str) -> tuple[str, ...]:
    wanted = model or service.runtime.settings.model
    infos = await service.runtime.router.list_models()
    info = next((info for info in infos if info.id == wanted), None)
    if info is not None:
        return _takes(service, info.upstream)
    # An unlisted model can be asked too; its upstream then decides what input it accepts.
    return () if wanted == DEMO_MODEL else ("image", "file")


def _takes(service: Service, upstream: str) -> tuple[str, ...]:
    """Return what an upstream's models take; the demo model reads text alone, a model of this process all it gets."""
    found = next((row for row in service.runtime.settings.upstream if row.name == upstream), None)
    if found is not None:
        return found.takes
    return () if upstream == DEMO_MODEL else ("image", "file")


async def _run_of(service: Service, session: SessionRow, run_id: str) -> RunRow:
    row = await service.runtime.store.find_run(run_id, key_id=session.key_id)
    if row is None or row.session_id != session.id:
        raise NotFound(f"The run {run_id!r} is not one of this session.", param="again")
    return row


async def _check_idle(service: Service, session: SessionRow) -> None:
    """Refuse to move a session while one of its runs is active, because that run continues the current branch."""
    newest = await newest_of(service.runtime.store, session)
    if newest is None:
        return
    handle = service.runtime.runs.find_live(newest.id)
    if newest.status not in ENDED:
        message = "An answer is still being written in this chat."
        raise Conflict(message, code="session_busy", hint="Wait for it, or stop it.")
    if handle is not None:
        await handle.wait()


async def _find(service: Service, exchange: Exchange) -> SessionRow:
    return await find_session(service, exchange, exchange.params["session_id"])


MODE = one_of("mode", "tools as cards, or as lines of text", "cards", "text")
_ROWS = RouteGroup("Sessions", TREADLE)
_PREPARE = RouteGroup("Sessions", PREPARE)
ROUTES = (
    _ROWS.get(
        "/treadle/v1/sessions/{session_id}/turns",
        index,
        "Show the turns of a session",
        gives(fields(session=SessionView, turns=listed(SessionTurn), has_more=FLAG)),
        query=(
            number("limit", "how many, at most", least=1, most=100),
            text("before", "the first run of the page after"),
            MODE,
        ),
    ),
    _PREPARE.post(
        "/treadle/v1/sessions/{session_id}/turns",
        create,
        "Ask in a session",
        gives(SessionTurn, 201),
        query=(MODE,),
        body=NewTurn,
    ),
    _PREPARE.post(
        "/treadle/v1/sessions/{session_id}/branch",
        branch,
        "Go on with another branch",
        gives(SessionView),
        body=NewHead,
    ),
    RouteGroup("Runs", TREADLE).get(
        "/treadle/v1/models",
        models,
        "List the models and what they take",
        gives(fields(default=TEXT, models=listed(ModelView))),
    ),
)
