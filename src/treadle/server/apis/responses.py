"""The Responses API: create, compact, count, and what is kept of a response."""

import msgspec

from treadle.canon.errors import NotFound, ProtocolError, RequestError, UnsupportedFeature
from treadle.canon.messages import item_of_entry
from treadle.canon.request import Request
from treadle.server import stream, tokens
from treadle.server.apis.items import ShownItem, show_items
from treadle.server.http import JSON, NO_STORE, Exchange, HttpError
from treadle.server.service import Service
from treadle.store.journal import RunRow
from treadle.wire import compaction
from treadle.wire.protocols import PROTOCOLS

PAGE_DEFAULT, PAGE_MAX = 20, 100
_COUNTED = {"model": b'""', "input": b"[]"}
"""What may be left out where nothing is generated."""


async def create(service: Service, exchange: Exchange) -> None:
    """POST /v1/responses; with a `compaction_trigger` in its input it asks for a compacted conversation.

    Raises: TreadleError.
    """
    request = await _read(service, exchange)
    _refuse_unserved(request)
    if not compaction.is_asked(request):
        await stream.reply(service, exchange, request)
        return
    retelling = compaction.Retelling(service.runtime.ids)
    await stream.reply(service, exchange, compaction.ask(request), retell=retelling.feed)


def _refuse_unserved(request: Request) -> None:
    """Say no to what would be answered, but not as it was asked for.

    Raises: UnsupportedFeature.
    """
    if request.background and not request.surface.stream:
        raise UnsupportedFeature(
            "Background responses are served only as streams so far.",
            param="background",
            hint="Set stream, or leave it out.",
        )
    if "conversation" in request.options.extra:
        raise UnsupportedFeature(
            "Conversations are not kept yet.", param="conversation", hint="Use previous_response_id."
        )


async def compact(service: Service, exchange: Exchange) -> None:
    """POST /v1/responses/compact: a window to send instead of the conversation, in one piece.

    Raises: TreadleError.
    """
    request = compaction.ask(await _read(service, exchange))
    whole = msgspec.structs.replace(request, surface=msgspec.structs.replace(request.surface, stream=False))
    retelling = compaction.Retelling(service.runtime.ids)
    await stream.reply(service, exchange, whole, encoder=compaction.WindowEncoder, retell=retelling.feed)


async def input_tokens(service: Service, exchange: Exchange) -> None:
    """POST /v1/responses/input_tokens.

    Raises: TreadleError.
    """
    body = tokens.filled(await service.body(exchange), _COUNTED)
    count = await tokens.count(service, await stream.read(body, _read_request))
    await exchange.answer_json(200, {"object": "response.input_tokens", "input_tokens": count}, tokens.ESTIMATE)


async def upgrade(service: Service, exchange: Exchange) -> None:
    """GET /v1/responses: the WebSocket probe of some clients, which only a 426 sends back to POST at once.

    Raises: HttpError.
    """
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
    """GET /v1/responses/{id}: a stored response, told again by the encoder that first wrote it.

    Raises: NotFound, UnsupportedFeature.
    """
    if exchange.query().get("stream", "false") != "false":
        raise UnsupportedFeature("A stored response cannot be streamed again.", param="stream")
    await _show(service, exchange, await _find(service, exchange))


async def delete(service: Service, exchange: Exchange) -> None:
    """DELETE /v1/responses/{id}.

    Raises: NotFound.
    """
    row = await _find(service, exchange)
    await service.runtime.store.delete_run(row.id)
    await exchange.answer_json(200, {"id": row.response_id, "object": "response", "deleted": True})


async def cancel(service: Service, exchange: Exchange) -> None:
    """POST /v1/responses/{id}/cancel: end a background response; one that has ended is answered as it is.

    Raises: NotFound, RequestError.
    """
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
    """GET /v1/responses/{id}/input_items?limit&order&after: what the response was asked with, newest first.

    Raises: NotFound, ProtocolError.
    """
    query = exchange.query()
    limit = query.get("limit", str(PAGE_DEFAULT))
    if not (limit.isascii() and limit.isdigit() and len(limit) < 4 and 1 <= int(limit) <= PAGE_MAX):
        raise ProtocolError(f"limit must be a whole number from 1 to {PAGE_MAX}.", param="limit")
    order = query.get("order", "desc")
    if order not in ("asc", "desc"):
        raise ProtocolError("order must be asc or desc.", param="order")
    row = await _find(service, exchange)
    entries = await service.runtime.store.entries(row.id)
    shown = show_items([item_of_entry(entry) for entry in entries if entry.is_input])
    await exchange.answer_json(200, _page(shown if order == "asc" else shown[::-1], int(limit), query.get("after")))


async def _read(service: Service, exchange: Exchange) -> Request:
    return await stream.read(await service.body(exchange), _read_request)


def _read_request(body: bytes) -> Request:
    """Read a request in which the summaries that Treadle sealed are text again."""
    return compaction.restore(PROTOCOLS["responses"].read_request(body))


async def _find(service: Service, exchange: Exchange) -> RunRow:
    response_id = exchange.params["response_id"]
    row = await service.runtime.store.find_run(response_id)
    if row is None or row.response_id != response_id or row.protocol != "responses" or not row.store:
        raise NotFound(
            f"Response with id {response_id!r} not found.",
            hint="It was never stored, was deleted, or was sent with store: false.",
        )
    return row


async def _show(service: Service, exchange: Exchange, row: RunRow) -> None:
    request = msgspec.json.decode(row.request or b"{}", type=Request)
    encoder = PROTOCOLS["responses"].encoder(request, service.runtime.ids)
    for numbered in await service.runtime.runs.replay(row.id):
        encoder.feed(numbered.event)
    await exchange.answer(200, encoder.body(), JSON, (NO_STORE, (b"x-treadle-run", row.id.encode())))


def _page(items: list[ShownItem], limit: int, after: str | None) -> dict[str, object]:
    """Return the page that begins after an item's id.

    Raises: NotFound.
    """
    ids = [str(item["id"]) for item in items]
    if after is not None and after not in ids:
        raise NotFound(f"There is no input item {after!r}.", param="after")
    start = 0 if after is None else ids.index(after) + 1
    page = items[start : start + limit]
    first, last = (page[0]["id"], page[-1]["id"]) if page else (None, None)
    has_more = start + limit < len(items)
    return {"object": "list", "data": page, "first_id": first, "last_id": last, "has_more": has_more}
