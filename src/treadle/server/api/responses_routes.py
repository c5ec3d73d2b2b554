"""The Responses API: create, compact and count, and read, cancel or delete stored responses."""

from contextlib import aclosing

import msgspec

from treadle.core.errors import Conflict, NotFound, ProtocolError, RequestError
from treadle.core.events import ENDED
from treadle.core.ids import IdSource
from treadle.core.journal_entries import item_of_entry
from treadle.core.request import Request
from treadle.journal.journal_interface import RunRow
from treadle.protocols import compaction, responses
from treadle.protocols.codec_interfaces import Encoder
from treadle.protocols.protocol_registry import RESPONSES
from treadle.runs.conversation_history import read_history
from treadle.server import run_response as stream
from treadle.server import token_estimate as tokens
from treadle.server.api import conversation_routes as conversations
from treadle.server.api.response_items import LISTED, PAGES, read_page, show_items
from treadle.server.auth.route_permissions import RESPONSES_API
from treadle.server.delivery.replay_encoders import RunIds, resumable_writer
from treadle.server.delivery.stream_event_ids import FrameNumbers, Position
from treadle.server.http_exchange import JSON, NO_STORE, Exchange, HttpError, read_number
from treadle.server.route import (
    ANY,
    COUNT,
    FLAG,
    KEY,
    TEXT,
    RouteGroup,
    fields,
    gives,
    number,
    one_of,
    request,
    streams,
)
from treadle.server.server_state import Service

_FLAGS = {"true": True, "1": True, "false": False, "0": False}
_COUNTED = {"model": b'""', "input": b"[]"}
"""Defaults for fields that are optional if nothing is generated."""


async def create(service: Service, exchange: Exchange) -> None:
    """Answer a response request; a `compaction_trigger` in its input asks for a compacted conversation.

    Raises: TreadleError.
    """
    request = await _read(service, exchange)
    names_one = "conversation" in request.options.extra
    session_id = await conversations.session_of(service, exchange, request) if names_one else None
    event_filter = None
    if compaction.is_asked(request):
        request = msgspec.structs.replace(compaction.ask(request), background=False)
        event_filter = _seeded
    try:
        if request.background and not request.surface.stream:
            await _begin(service, exchange, request, session_id)
        else:
            await stream.reply(service, exchange, request, event_filter=event_filter, session_id=session_id)
    except Conflict as error:
        raise conversations.locked(error) if session_id is not None else error from None


async def _begin(service: Service, exchange: Exchange, request: Request, session_id: str | None) -> None:
    """Start a background response and answer with its current state.

    Raises: TreadleError.
    """
    request = stream.as_configured(request, service.runtime.settings, exchange)
    options = await stream.options_of(service, exchange, request)
    handle = await service.start(request, exchange.client, session_id=session_id, idempotency=options.idempotency)
    writer = resumable_writer(request, _encoder(request, handle.run_id))
    async with aclosing(handle.events()) as events:
        async for batch in events:
            writer.encode(batch)
            break
    await exchange.answer(200, writer.body(), JSON, (NO_STORE, *stream.run_headers(handle)))


async def compact(service: Service, exchange: Exchange) -> None:
    """Return a compacted conversation in one piece, to send instead of the original. Raises: TreadleError."""
    request = compaction.ask(await _read(service, exchange))
    whole = msgspec.structs.replace(request, surface=msgspec.structs.replace(request.surface, stream=False))
    await stream.reply(service, exchange, whole, encoder=compaction.WindowEncoder, event_filter=_seeded)


async def input_tokens(service: Service, exchange: Exchange) -> None:
    """Estimate the tokens of a request. Raises: TreadleError."""
    request = await service.read(exchange, _read_counted)
    count = await tokens.count(service, request, exchange.client)
    await exchange.answer_json(200, {"object": "response.input_tokens", "input_tokens": count}, tokens.ESTIMATE)


def _read_counted(body: bytes) -> Request:
    return _read_request(tokens.filled(body, _COUNTED))


async def upgrade(service: Service, exchange: Exchange) -> None:
    """Answer the WebSocket probe of some clients: only a 426 makes them use POST at once. Raises: HttpError."""
    if not exchange.header(b"upgrade"):
        raise HttpError(405, "method_not_allowed", "/v1/responses takes POST.", headers=((b"allow", b"POST"),))
    raise HttpError(
        426,
        "upgrade_required",
        "WebSockets are not spoken here.",
        hint="POST to the same path.",
        headers=((b"upgrade", b"HTTP/1.1"), (b"connection", b"upgrade")),
    )


async def get(service: Service, exchange: Exchange) -> None:
    """Return a stored response, encoded again by the encoder that first wrote it. Raises: NotFound, ProtocolError."""
    query = exchange.query()
    wanted = query.get("stream", "false").lower()
    if wanted not in _FLAGS:
        raise ProtocolError("stream must be true or false.", param="stream")
    after = _starting_after(query, streams=_FLAGS[wanted])
    row = await _find(service, exchange)
    if not _FLAGS[wanted] or exchange.method == "HEAD":
        await _show(service, exchange, row)
        return
    request = _request_of(row)
    surface = msgspec.structs.replace(request.surface, stream=True)
    request = msgspec.structs.replace(request, surface=surface)
    writer = resumable_writer(request, _encoder(request, row.id), FrameNumbers(position=after, first=0))
    handle = service.runtime.runs.attach(row)
    manner = stream.DeliveryOptions(cancel_after_s=None, is_resumed=True, stored=request.background)
    carried = stream.RunResponse(exchange, handle, writer, manner, service.subscribers)
    await carried.run(service.runtime.settings.server.keep_alive_s)


def _starting_after(query: dict[str, str], *, streams: bool) -> Position | None:
    """Return the client's position in the stream.

    Raises: ProtocolError.
    """
    if "starting_after" not in query:
        return None
    number = read_number(query, "starting_after", default=0, least=0)
    if not streams:
        raise ProtocolError("starting_after needs stream=true.", param="starting_after")
    return Position(number)


async def delete(service: Service, exchange: Exchange) -> None:
    """Delete a response; one that is running is cancelled first. Raises: NotFound."""
    row = await _find(service, exchange)
    if row.status not in ENDED:
        await service.runtime.runs.cancel(row.id)
    await service.runtime.store.delete_run(row.id)
    await exchange.answer_json(200, {"id": row.response_id, "object": "response", "deleted": True})


async def cancel(service: Service, exchange: Exchange) -> None:
    """Cancel a background response; one that has ended is returned unchanged. Raises: NotFound, RequestError."""
    row = await _find(service, exchange)
    if not row.background:
        raise RequestError(
            "Cannot cancel a synchronous response.",
            code="not_a_background_response",
            hint="Only a response made with background: true can be cancelled; close the connection of any other.",
        )
    await service.runtime.runs.cancel(row.id)
    await _show(service, exchange, row)


async def input_items(service: Service, exchange: Exchange) -> None:
    """Return a page of everything that the model read, newest first. Raises: NotFound, ProtocolError."""
    page = read_page(exchange.query())
    row = await _find(service, exchange)
    store = service.runtime.store
    before = [] if row.previous_id is None else await read_history(store, row.previous_id)
    own = [item_of_entry(entry) for entry in await store.entries(row.id) if entry.is_input]
    await exchange.answer_json(200, page.of(show_items([*before, *own]), "input item"))


async def _read(service: Service, exchange: Exchange) -> Request:
    return await service.read(exchange, _read_request)


def _read_request(body: bytes) -> Request:
    """Read a request, with summaries that Treadle encrypted turned back into text."""
    return compaction.restore(responses.read_request(body))


async def _find(service: Service, exchange: Exchange) -> RunRow:
    response_id = exchange.params["response_id"]
    row = await service.runtime.store.find_run(response_id, key_id=exchange.client.key_id)
    if row is None or row.response_id != response_id or row.protocol != RESPONSES or not row.store:
        raise NotFound(
            f"Response with id {response_id!r} not found.",
            hint="It was never stored, was deleted, or was sent with store: false.",
        )
    return row


async def _show(service: Service, exchange: Exchange, row: RunRow) -> None:
    """Answer with the current state of a response."""
    request = _request_of(row)
    writer = resumable_writer(request, _encoder(request, row.id))
    writer.encode(await service.runtime.runs.replay(row.id))
    await exchange.answer(200, writer.body(), JSON, (NO_STORE, (b"x-treadle-run", row.id.encode())))


def _request_of(row: RunRow) -> Request:
    return msgspec.json.decode(row.request or b"{}", type=Request)


def _encoder(request: Request, run_id: str) -> Encoder:
    return responses.Encoder(request, RunIds(run_id))


def _seeded(ids: IdSource) -> stream.EventFilter:
    return compaction.CompactedText(ids).feed


_BODY = request(model={}, input={}, stream={}, tools={}, previous_response_id={}, background={}, store={})
_ROWS = RouteGroup("Responses", RESPONSES_API)
ROUTES = (
    _ROWS.post(
        "/v1/responses",
        create,
        "Make a response, streamed or not, perhaps in the background",
        streams(ANY),
        headers=(KEY,),
        body=_BODY,
    ),
    _ROWS.row("GET", "/v1/responses", upgrade, "A WebSocket is not spoken: clients are sent back to POST", {}),
    _ROWS.post(
        "/v1/responses/input_tokens",
        input_tokens,
        "Estimate the tokens of a request",
        gives(fields(object=TEXT, input_tokens=COUNT)),
        body=_BODY,
    ),
    _ROWS.post("/v1/responses/compact", compact, "Compact a conversation into one item", gives(ANY), body=_BODY),
    _ROWS.get(
        "/v1/responses/{response_id}",
        get,
        "Show a stored response, or stream it again",
        streams(ANY),
        query=(
            one_of("stream", "tell it as events", "true", "false"),
            number("starting_after", "the number of the last event that is known; needs stream=true"),
        ),
    ),
    _ROWS.row(
        "DELETE",
        "/v1/responses/{response_id}",
        delete,
        "Forget a response; one that goes on is cancelled first",
        gives(fields(id=TEXT, object=TEXT, deleted=FLAG)),
    ),
    _ROWS.get(
        "/v1/responses/{response_id}/input_items",
        input_items,
        "List all that the model read",
        gives(LISTED),
        query=PAGES,
    ),
    _ROWS.post("/v1/responses/{response_id}/cancel", cancel, "End a background response", gives(ANY)),
)
