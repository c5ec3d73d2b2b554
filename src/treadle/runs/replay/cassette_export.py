"""Exports a stored run as a cassette: its requests encoded again, its replies as the provider would send them.

Each recorded event becomes one chunk; the times are those of the journal. Every reply is decoded again, and what does
not come back exactly is reported.
"""

from collections.abc import Iterator, Sequence

import msgspec

from treadle.core.events import (
    ArgumentsDelta,
    Failed,
    Finished,
    ItemAdded,
    ItemDone,
    ModelEvent,
    ReasoningDelta,
    RefusalDelta,
    RunEnded,
    RunEvent,
    RunStarted,
    Status,
    Stop,
    TextDelta,
)
from treadle.core.ids import CountingIds
from treadle.core.items import AnyItem, Blob, CallItem, MessageItem, ReasoningItem
from treadle.core.json import BadJson, canonical_json, read_json
from treadle.core.plan import Plan
from treadle.core.request import Request, Surface
from treadle.protocols.error_envelopes import write_error
from treadle.protocols.gemini.content_parts import seal
from treadle.protocols.protocol_registry import MESSAGES, PROTOCOLS, RESPONSES
from treadle.protocols.translation.adapt_plan import Adapted
from treadle.protocols.translation.custom_tools import wrapped_input
from treadle.providers.cassettes.file_format import (
    VERSION,
    Call,
    Cassette,
    CassetteEnd,
    CassetteRequest,
    CassetteResponse,
    Chunk,
    Header,
    How,
    text_or_base64,
)
from treadle.providers.provider_endpoint import Endpoint
from treadle.providers.provider_model import open_call
from treadle.runs.views.recorded_rounds import ModelCall, StoredRun

_STREAM = {"content-type": "text/event-stream"}
_JSON = {"content-type": "application/json"}
_STATUS: dict[Stop, Status] = {"length": "incomplete", "filtered": "incomplete", "calls": "requires_action"}
_HOW: dict[str, How] = {"finished": "eof", "failed": "reset", "expired": "timeout"}
"""How the connection ended for each ending of a model call; all others were closed by Treadle."""

_BOUND_ID = "item_id"
"""The kind of blob that holds the id which a provider's encrypted reasoning is bound to."""

_UNBOUND = "rs_unbound"
"""A placeholder id during encoding for reasoning that is bound to none."""

_ItemEvent = ItemAdded | TextDelta | RefusalDelta | ReasoningDelta | ArgumentsDelta | ItemDone


class CassetteExport(msgspec.Struct, frozen=True, kw_only=True):
    """A cassette, and notes on what it does not reproduce exactly."""

    cassette: Cassette
    notes: tuple[str, ...] = ()


def export_run(run: StoredRun, endpoint: Endpoint, model: str = "") -> CassetteExport:
    """Export a run as a cassette of this endpoint; `model` is the endpoint's name for the model of the run."""
    header = Header(
        version=VERSION,
        upstream=endpoint.name,
        protocol=endpoint.protocol,
        base_url=endpoint.base_url,
        quirks=endpoint.quirks,
    )
    calls: list[Call] = []
    notes: list[str] = []
    for number, made in enumerate(run.calls, 1):
        call, inexact = export_call(made, endpoint, model)
        calls.append(call)
        notes += [f"model call {number}: {note}" for note in inexact]
    return CassetteExport(cassette=Cassette(header=header, calls=tuple(calls)), notes=tuple(notes))


def export_call(made: ModelCall, endpoint: Endpoint, model: str = "") -> tuple[Call, list[str]]:
    """Export one model call as this endpoint would exchange it, with notes on what is not exact."""
    plan = msgspec.structs.replace(made.plan, model=model) if model else made.plan
    call = _export_call(made, plan, endpoint)
    return call, list(_differences(made, plan, endpoint, call))


def _export_call(made: ModelCall, plan: Plan, endpoint: Endpoint) -> Call:
    opened = open_call(endpoint.protocol, plan, CountingIds(), endpoint.name, endpoint.profile(plan.model))
    asked = CassetteRequest(
        at=made.asked_at, path=opened.path, headers=dict(opened.headers), **text_or_base64(opened.body)
    )
    took_s = round(max(0.0, made.replied_at - made.asked_at), 6)
    if made.error is not None and not any(isinstance(event, _ItemEvent) for event in made.events):
        body = write_error(endpoint.protocol, made.error)
        answered = CassetteResponse(status=max(400, made.error.status), after_s=took_s, headers=_JSON)
        chunks = (Chunk(after_s=0.0, **text_or_base64(body)),)
        return Call(asked=asked, answered=answered, chunks=chunks, ended=CassetteEnd(how="eof"))
    pieces = list(_pieces(made, plan, endpoint, opened.adapted))
    pause_s = round(took_s / len(pieces), 6) if pieces else 0.0
    return Call(
        asked=asked,
        answered=CassetteResponse(status=200, headers=_STREAM),
        chunks=tuple(Chunk(after_s=pause_s, **text_or_base64(piece)) for piece in pieces),
        ended=CassetteEnd(how=_HOW.get(made.ending, "closed")),
    )


def _pieces(made: ModelCall, plan: Plan, endpoint: Endpoint, adapted: Adapted) -> Iterator[bytes]:
    """Encode the reply with the protocol's client encoder, the frames of one event as one chunk."""
    surface = Surface(stream=True, include_usage=True)
    request = Request(protocol=endpoint.protocol, model=plan.model, surface=surface, tools=adapted.plan.tools)
    ids = CountingIds(namespace="u")
    encoder = PROTOCOLS[endpoint.protocol].codec.encoder(request, ids)
    started = RunStarted(run_id=ids.new("run"), response_id=ids.new("resp"), model=plan.model, created_at=made.asked_at)
    own_words = _WITH_OWN_STATE.get(endpoint.protocol)
    for event in (started, *_sent(made.events, adapted)):
        sent = event if own_words is None or not isinstance(event, ItemAdded | ItemDone) else own_words(event)
        if piece := b"".join(encoder.feed(sent)):
            yield _unsealed(piece, event)


def _sent(events: Sequence[ModelEvent], adapted: Adapted) -> Iterator[RunEvent]:
    """Yield the events of a model call as those of a run of one round, with the provider's tool names."""
    wrapped: set[int] = set()
    for event in events:
        match event:
            case ItemAdded(item=CallItem() as call):
                if call.name in adapted.wrapped:
                    wrapped.add(event.index)
                yield ItemAdded(index=event.index, item=_sent_call(call, adapted, is_start=True))
            case ItemDone(item=CallItem() as call):
                done = _sent_call(call, adapted)
                if event.index in wrapped:
                    yield ArgumentsDelta(index=event.index, text=done.arguments)
                yield ItemDone(index=event.index, item=done)
            case ArgumentsDelta() if event.index in wrapped:
                pass
            case Finished():
                status = _STATUS.get(event.stop, "completed")
                yield RunEnded(status=status, stop=event.stop, usage=event.usage, rounds=1)
            case ItemAdded() | TextDelta() | RefusalDelta() | ReasoningDelta() | ArgumentsDelta() | ItemDone():
                yield event
            case _:
                pass


def _own_state(event: ItemAdded | ItemDone) -> ItemAdded | ItemDone:
    """Return an item with its opaque state as its provider sends it: unwrapped, under the id that it is bound to."""
    item = event.item
    if not isinstance(item, ReasoningItem):
        return event
    bound = next((blob.data for blob in item.blobs if blob.kind == _BOUND_ID), _UNBOUND)
    unwrapped = tuple(
        Blob(provider="", kind=blob.kind, data=blob.data) for blob in item.blobs if blob.kind != _BOUND_ID
    )
    return msgspec.structs.replace(event, item=msgspec.structs.replace(item, id=bound, blobs=unwrapped))


_WITH_OWN_STATE = {RESPONSES: _own_state, MESSAGES: _own_state}
"""How opaque state is unwrapped, in the protocols whose client encoder seals it."""


def _unsealed(piece: bytes, event: RunEvent) -> bytes:
    """Replace the sealed signature by Gemini's own, and remove the placeholder id."""
    piece = piece.replace(f'"id":"{_UNBOUND}",'.encode(), b"")
    item = event.item if isinstance(event, ItemDone) else None
    if not isinstance(item, CallItem | ReasoningItem | MessageItem) or len(item.blobs) != 1:
        return piece
    return piece.replace(seal(item.blobs).encode(), item.blobs[0].data.encode())


def _sent_call(call: CallItem, adapted: Adapted, *, is_start: bool = False) -> CallItem:
    """Return a call as a client call with the provider's tool name; the id stays, so that results still match."""
    sent = msgspec.structs.replace(call, side="client", name=adapted.names.there(call.name), upstream_id=None)
    if call.name in adapted.wrapped:
        arguments = "" if is_start else wrapped_input(call.arguments)
        return msgspec.structs.replace(sent, kind="function", arguments=arguments)
    return sent


def _differences(made: ModelCall, plan: Plan, endpoint: Endpoint, call: Call) -> Iterator[str]:
    """Decode a reply as a playback would, and yield what does not come back as it was."""
    if made.ending != "finished":
        return
    opened = open_call(endpoint.protocol, plan, CountingIds(), endpoint.name, endpoint.profile(plan.model))
    events = [event for chunk in call.chunks for event in opened.decoder.feed((chunk.text or "").encode())]
    if not any(isinstance(event, Finished | Failed) for event in events):
        events += opened.decoder.finish()
    decoded = [event.item for event in events if isinstance(event, ItemDone)]
    recorded = [event.item for event in made.events if isinstance(event, ItemDone)]
    if [type(item) for item in decoded] != [type(item) for item in recorded]:
        yield f"{len(recorded)} items are spelled as {len(decoded)}"
        return
    for item, again in zip(recorded, decoded, strict=True):
        if _compared(item) != _compared(again):
            yield f"{_name(item)} is not spelled exactly"


def _compared(item: AnyItem) -> object:
    """Return the parts of an item that must come back: all but the ids and sides that Treadle assigns."""
    bare = msgspec.structs.replace(item, id="")
    if isinstance(bare, CallItem):
        return bare.call_id, bare.name, bare.kind, _canonical(bare.arguments), bare.blobs
    return bare


def _canonical(arguments: str) -> bytes:
    try:
        return canonical_json(read_json(arguments))
    except BadJson:
        return arguments.encode("utf-8", "replace")


def _name(item: AnyItem) -> str:
    match item:
        case CallItem():
            return f"the call of {item.name}"
        case ReasoningItem():
            return "the reasoning"
        case _:
            return "the message"
