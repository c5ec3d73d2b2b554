"""Conversations of the Responses API: sessions whose items can be read, added and deleted one by one.

Items that are added directly form a run without a model call, so that a conversation is a chain of runs like any other
session. The journal is append-only: deleting an item appends an entry that hides it from models.
"""

from collections.abc import Sequence
from functools import partial

import msgspec

from treadle.core.errors import Conflict, NotFound, ProtocolError, UnsupportedFeature
from treadle.core.events import ENDED, RunEnded, RunEvent, RunStarted
from treadle.core.ids import (
    CALL_ITEM,
    CONVERSATION,
    ITEM,
    MESSAGE,
    REASONING,
    RESPONSE,
    RESULT,
    RUN,
    stored_call_id,
)
from treadle.core.items import AnyItem, CallItem, MessageItem, ReasoningItem, ReferenceItem, ResultItem
from treadle.core.journal_entries import Entry, entry_of_item, item_of_entry
from treadle.core.request import Request
from treadle.journal.journal_interface import SESSION_BUSY, RunRow, SessionRow
from treadle.protocols import responses
from treadle.protocols.protocol_registry import RESPONSES
from treadle.protocols.responses.client_item_order import server_call_id
from treadle.runs.conversation_history import read_history
from treadle.server import run_response as stream
from treadle.server.api.response_items import LISTED, PAGES, ShownItem, list_of, read_page, show_items
from treadle.server.auth.route_permissions import RESPONSES_API
from treadle.server.http_exchange import Exchange, read_body
from treadle.server.route import ANY, COUNT, FLAG, TEXT, RouteGroup, fields, gives, listed, request
from treadle.server.server_state import Service

ITEMS_MAX = 20
METADATA_MAX, METADATA_KEY_CHARS_MAX, METADATA_CHARS_MAX = 16, 64, 512
LOCKED = "conversation_locked"
LEASE_S = 15.0
TRIES_MAX = 5
_PREFIX: dict[type, str] = {MessageItem: MESSAGE, ReasoningItem: REASONING, CallItem: CALL_ITEM, ResultItem: RESULT}
_EMPTY = msgspec.Raw(b"{}")


class _Body(msgspec.Struct, frozen=True, kw_only=True):
    items: list[msgspec.Raw] | None = None
    metadata: dict[str, str] | None = None


class _Named(msgspec.Struct, frozen=True, kw_only=True):
    id: str


_references: msgspec.json.Decoder[str | _Named] = msgspec.json.Decoder(str | _Named)


async def create(service: Service, exchange: Exchange) -> None:
    """Create a conversation. Raises: TreadleError."""
    if service.runtime.settings.store.persistence == "off":
        raise UnsupportedFeature("Conversations need a store, and this server keeps nothing.", hint="store.persistence")
    body = await _read(service, exchange)
    items = _items(body)
    runtime = service.runtime
    now = runtime.clock.now()
    row = SessionRow(
        id=runtime.ids.new(CONVERSATION),
        key_id=exchange.client.key_id,
        created_at=now,
        updated_at=now,
        kind="conversation",
        metadata=_metadata(body),
    )
    added = await _resolved(service, exchange, items)
    await runtime.store.create_session(row)
    if added:
        await _write(service, row, added)
    await exchange.answer_json(200, _view(row))


async def get(service: Service, exchange: Exchange) -> None:
    """Return a conversation. Raises: NotFound."""
    await exchange.answer_json(200, _view(await _find(service, exchange)))


async def update(service: Service, exchange: Exchange) -> None:
    """Replace the metadata. Raises: NotFound, ProtocolError."""
    body = await _read(service, exchange)
    row = await _find(service, exchange)
    renewed = await service.runtime.store.update_session(row.id, metadata=_metadata(body))
    await exchange.answer_json(200, _view(renewed))


async def delete(service: Service, exchange: Exchange) -> None:
    """Delete a conversation; its responses stay. Raises: NotFound, Conflict."""
    row = await _find(service, exchange)
    try:
        await service.runtime.store.delete_session(row.id, with_runs=False)
    except Conflict as error:
        raise locked(error) from None
    await exchange.answer_json(200, {"id": row.id, "object": "conversation.deleted", "deleted": True})


async def list_items(service: Service, exchange: Exchange) -> None:
    """Return a page of items. Raises: NotFound, ProtocolError."""
    page = read_page(exchange.query())
    items = await _history(service, await _find(service, exchange))
    await exchange.answer_json(200, page.of(show_items(items), "item"))


async def create_items(service: Service, exchange: Exchange) -> None:
    """Append items. Raises: TreadleError."""
    body = await _read(service, exchange)
    items = _items(body)
    if not items:
        raise ProtocolError("items is missing or empty.", param="items")
    row = await _find(service, exchange)
    added = await _resolved(service, exchange, items)
    await _write(service, row, added)
    await exchange.answer_json(200, list_of(show_items(added)))


async def get_item(service: Service, exchange: Exchange) -> None:
    """Return one item. Raises: NotFound."""
    items = await _history(service, await _find(service, exchange))
    await exchange.answer_json(200, _shown(items, exchange.params["item_id"]))


async def delete_item(service: Service, exchange: Exchange) -> None:
    """Remove an item from what the model reads; the journal still has it. Raises: NotFound, Conflict."""
    row = await _find(service, exchange)
    item_id = exchange.params["item_id"]
    items = await _history(service, row)
    _shown(items, item_id)
    stored = stored_call_id(item_id)
    call_ids = [
        item.call_id
        for item in items
        if isinstance(item, CallItem) and item.side == "server" and server_call_id(item) == item_id
    ]
    void: dict[str, object] = {"items": [] if call_ids else [stored], "calls": call_ids, "round": 0, "indexes": ()}
    await _write(service, row, (), void)
    await exchange.answer_json(200, _view(row))


async def session_of(service: Service, exchange: Exchange, request: Request) -> str | None:
    """Return the session of the conversation that a request continues, if it names one.

    Raises: ProtocolError, NotFound.
    """
    raw = request.options.extra.get("conversation")
    if raw is None or request.options.extra_protocol != RESPONSES:
        return None
    try:
        named = _references.decode(raw)
    except msgspec.MsgspecError:
        message = "conversation must be the id of one, or an object with that id."
        raise ProtocolError(message, param="conversation") from None
    conversation_id = named if isinstance(named, str) else named.id
    return (await _find_row(service, conversation_id, exchange.client.key_id, param="conversation")).id


def locked(error: Conflict) -> Conflict:
    """Return the conflict with this API's code if a conversation is locked; any other unchanged."""
    if error.info.code not in (Conflict.code, SESSION_BUSY):
        return error
    return Conflict(
        "Another response is being made in this conversation.",
        code=LOCKED,
        param="conversation",
        hint="Wait until it has ended, or cancel it.",
    )


async def _find(service: Service, exchange: Exchange) -> SessionRow:
    return await _find_row(service, exchange.params["conversation_id"], exchange.client.key_id)


async def _find_row(service: Service, conversation_id: str, key_id: str, param: str | None = None) -> SessionRow:
    row = await service.runtime.store.find_session(conversation_id, key_id=key_id)
    if row is None or row.kind != "conversation" or row.id != conversation_id:
        raise NotFound(f"Conversation with id {conversation_id!r} not found.", param=param)
    return row


async def _history(service: Service, row: SessionRow) -> list[AnyItem]:
    await _newest(service, row)
    head = (await _find_row(service, row.id, row.key_id)).head_run_id
    return [] if head is None else await read_history(service.runtime.store, head)


async def _newest(service: Service, row: SessionRow) -> RunRow | None:
    """Return the newest run of a conversation, including one that has just published its end."""
    newest = await service.runtime.store.list_runs(limit=1, session_id=row.id)
    if not newest:
        return None
    handle = service.runtime.runs.find_live(newest[0].id)
    if handle is not None and newest[0].status in ENDED:
        await handle.wait()
    return newest[0]


async def _read(service: Service, exchange: Exchange) -> _Body:
    """Read a body.

    Raises: ProtocolError, naming the field.
    """
    return await stream.read(await service.body(exchange) or b"{}", partial(read_body, kind=_Body))


def _metadata(body: _Body) -> msgspec.Raw:
    given = body.metadata or {}
    if len(given) > METADATA_MAX:
        raise ProtocolError(f"metadata has more than {METADATA_MAX} pairs.", param="metadata")
    for name, value in given.items():
        if len(name) > METADATA_KEY_CHARS_MAX or len(value) > METADATA_CHARS_MAX:
            message = f"A key of metadata has up to {METADATA_KEY_CHARS_MAX} characters, a value {METADATA_CHARS_MAX}."
            raise ProtocolError(message, param=f"metadata.{name[:METADATA_KEY_CHARS_MAX]}")
    return msgspec.Raw(msgspec.json.encode(given))


def _items(body: _Body) -> tuple[AnyItem, ...]:
    """Read items in the format of a response's input.

    Raises: ProtocolError, naming the field.
    """
    if not body.items:
        return ()
    if len(body.items) > ITEMS_MAX:
        raise ProtocolError(f"items has more than {ITEMS_MAX} items.", param="items")
    try:
        request = responses.read_request(msgspec.json.encode({"model": "-", "input": body.items}))
    except ProtocolError as error:
        param = (error.param or "input").replace("input", "items", 1)
        raise ProtocolError(error.message.replace("'input", "'items"), param=param, hint=error.hint) from None
    return request.items


async def _resolved(service: Service, exchange: Exchange, items: Sequence[AnyItem]) -> list[AnyItem]:
    """Replace references by the items that they name, and give an id to items without one.

    Raises: NotFound.
    """
    found: list[AnyItem] = []
    for item in items:
        if isinstance(item, ReferenceItem):
            stored = stored_call_id(item.id)
            entries = await service.runtime.store.find_item(stored, key_id=exchange.client.key_id)
            if not entries:
                raise NotFound(f"Item with id {item.id!r} not found.", param="items", code="item_not_found")
            found += [item_of_entry(entry) for entry in entries]
        else:
            name = item.id or service.runtime.ids.new(_PREFIX.get(type(item), ITEM))
            found.append(msgspec.structs.replace(item, id=name))
    return found


async def _write(
    service: Service, row: SessionRow, items: Sequence[AnyItem], void: dict[str, object] | None = None
) -> None:
    """Append items, or entries that void some, as a separate run at the end of the conversation.

    Raises: Conflict, while a response is being made in it.
    """
    store = service.runtime.store
    for _ in range(TRIES_MAX):
        newest = await _newest(service, row)
        if newest is not None and newest.status not in ENDED:
            raise locked(Conflict("A run is going on."))
        head = (await _find_row(service, row.id, row.key_id)).head_run_id
        run_id = await _write_run(service, row, head, items, void)
        try:
            await store.set_session_head(row.id, run_id, expected=head)
        except Conflict:
            await store.delete_run(run_id)
        else:
            return
    raise locked(Conflict("The conversation moves on too fast."))


async def _write_run(
    service: Service, row: SessionRow, head: str | None, items: Sequence[AnyItem], void: dict[str, object] | None
) -> str:
    runtime = service.runtime
    now = runtime.clock.now()
    previous = None if head is None else await runtime.store.find_run(head)
    run = RunRow(
        id=runtime.ids.new(RUN),
        response_id=runtime.ids.new(RESPONSE),
        conversation_id=previous.conversation_id if previous else runtime.ids.new(CONVERSATION),
        previous_id=previous.id if previous else None,
        session_id=row.id,
        key_id=row.key_id,
        protocol="treadle",
        model="",
        created_at=now,
    )
    started = RunStarted(run_id=run.id, response_id=run.response_id, model="", created_at=now)
    ended = RunEnded(status="completed", ended_at=now)
    entries = [_status("running", started, now)]
    entries += [entry_of_item(item, at=now, is_input=True) for item in items]
    if void is not None:
        entries.append(Entry(kind="void", data=msgspec.Raw(msgspec.json.encode(void)), at=now))
    journal = await runtime.store.start_run(run, entries, owner=run.id, lease_s=LEASE_S)
    await journal.finish([_status("completed", ended, now)], ended)
    return run.id


def _status(content: str, event: RunEvent, at: float) -> Entry:
    return Entry(kind="status", content=content, data=msgspec.Raw(msgspec.json.encode(event)), at=at)


def _shown(items: Sequence[AnyItem], item_id: str) -> ShownItem:
    found = next((shown for shown in show_items(items) if shown["id"] == item_id), None)
    if found is None:
        raise NotFound(f"Item with id {item_id!r} not found in this conversation.", code="item_not_found")
    return found


def _view(row: SessionRow) -> dict[str, object]:
    return {
        "id": row.id,
        "object": "conversation",
        "created_at": int(row.created_at),
        "metadata": row.metadata or _EMPTY,
    }


_METADATA = request(metadata={}, items={})
_SHOWN = fields(id=TEXT, object={"const": "conversation"}, created_at=COUNT, metadata=ANY)
_ROWS = RouteGroup("Conversations", RESPONSES_API)
ROUTES = (
    _ROWS.post("/v1/conversations", create, "Make a conversation", gives(_SHOWN), body=_METADATA, needs_body=False),
    _ROWS.get("/v1/conversations/{conversation_id}", get, "Show a conversation", gives(_SHOWN)),
    _ROWS.post(
        "/v1/conversations/{conversation_id}",
        update,
        "Give a conversation other metadata",
        gives(_SHOWN),
        body=_METADATA,
        needs_body=False,
    ),
    _ROWS.row(
        "DELETE",
        "/v1/conversations/{conversation_id}",
        delete,
        "Forget a conversation; its responses stay",
        gives(fields(id=TEXT, object=TEXT, deleted=FLAG)),
    ),
    _ROWS.get(
        "/v1/conversations/{conversation_id}/items",
        list_items,
        "List the items of a conversation",
        gives(LISTED),
        query=PAGES,
    ),
    _ROWS.post(
        "/v1/conversations/{conversation_id}/items",
        create_items,
        "Add items to a conversation",
        gives(LISTED),
        body=request("items", items=listed({})),
    ),
    _ROWS.get(
        "/v1/conversations/{conversation_id}/items/{item_id}", get_item, "Show an item of a conversation", gives(ANY)
    ),
    _ROWS.row(
        "DELETE",
        "/v1/conversations/{conversation_id}/items/{item_id}",
        delete_item,
        "Take an item out of a conversation",
        gives(_SHOWN),
    ),
)
