"""The Responses API: create, and what is kept of a response."""

import msgspec

from treadle.canon.errors import NotFound, UnsupportedFeature
from treadle.canon.request import Request
from treadle.server import stream
from treadle.server.http import JSON, NO_STORE, Exchange, HttpError
from treadle.server.service import Service
from treadle.store.journal import RunRow
from treadle.wire.protocols import PROTOCOLS


async def create(service: Service, exchange: Exchange) -> None:
    """POST /v1/responses."""
    await stream.answer(service, exchange, "responses")


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
    row = await _find(service, exchange.params["response_id"])
    request = msgspec.json.decode(row.request or b"{}", type=Request)
    encoder = PROTOCOLS["responses"].encoder(request, service.runtime.ids)
    for numbered in await service.runtime.runs.replay(row.id):
        encoder.feed(numbered.event)
    await exchange.answer(200, encoder.body(), JSON, (NO_STORE, (b"x-treadle-run", row.id.encode())))


async def delete(service: Service, exchange: Exchange) -> None:
    """DELETE /v1/responses/{id}.

    Raises: NotFound.
    """
    row = await _find(service, exchange.params["response_id"])
    await service.runtime.store.delete_run(row.id)
    await exchange.answer_json(200, {"id": row.response_id, "object": "response", "deleted": True})


async def _find(service: Service, response_id: str) -> RunRow:
    row = await service.runtime.store.find_run(response_id)
    if row is None or row.response_id != response_id or row.protocol != "responses" or not row.store:
        raise NotFound(
            f"Response with id {response_id!r} not found.",
            hint="It was never stored, was deleted, or was sent with store: false.",
        )
    return row
