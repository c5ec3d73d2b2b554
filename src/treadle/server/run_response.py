"""Delivers a run to the client that asked for it: as a stream, or folded into one body by the same encoder.

The status is sent with the first content, so that an upstream that refuses at once gives an HTTP error and not a
broken stream. A disconnect cancels the run, unless it has other readers or was asked to continue. Protocol details
belong to the encoders.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import msgspec

from treadle.config import Settings
from treadle.core.errors import ErrorInfo, NotFound
from treadle.core.events import (
    KeptAlive,
    Noted,
    Numbered,
    RoundBroken,
    RoundStarted,
    RunEnded,
    RunRecovered,
    RunStarted,
)
from treadle.core.ids import IdSource
from treadle.core.request import Request
from treadle.core.run_endings import CANCELLED, HANDED_OVER, failure_of, may_retry
from treadle.http.asgi import Header
from treadle.protocols.codec_interfaces import Encoder
from treadle.protocols.protocol_registry import PROTOCOLS, has_sequence_numbers
from treadle.protocols.translation.fidelity_report import fidelity
from treadle.server.delivery.client_disconnects import ClientPresence
from treadle.server.delivery.replay_encoders import (
    WAITING,
    EventFilter,
    FoldedWriter,
    ResponseWriter,
    RunIds,
    RunWriter,
    kinds_of,
    resumable_writer,
)
from treadle.server.delivery.request_headers import (
    NO_OPTIONS,
    OPTION_HEADERS,
    RequestOptions,
    asks_default_delivery,
    default_options,
    first_number,
    read_options,
)
from treadle.server.delivery.stream_event_ids import FrameNumbers
from treadle.server.delivery.subscribers import EventSource, Subscribers
from treadle.server.http_exchange import EVENT_STREAM, JSON, NO_RETRY, NO_STORE, OFF_LOOP_BYTES, Exchange, HttpError
from treadle.server.server_state import Service

T = TypeVar("T")
NewEncoder = Callable[[Request, IdSource], Encoder]
NewEventFilter = Callable[[IdSource], EventFilter]
LOST_RETRY_S = 2.0
"""The retry delay for a client whose run moved to another process: under its key it finds the run there."""

_SILENT = frozenset({RunStarted, RoundStarted, RoundBroken, RunRecovered, Noted, KeptAlive, RunEnded})
"""Events that contain nothing of the upstream's answer."""

_EXACT = (b"x-treadle-fidelity", fidelity(()).encode())


async def reply(
    service: Service,
    exchange: Exchange,
    request: Request,
    *,
    encoder: NewEncoder | None = None,
    event_filter: NewEventFilter | None = None,
    session_id: str | None = None,
) -> None:
    """Answer a request that has been read; `encoder` and `event_filter` replace those of its protocol.

    Raises: TreadleError, before anything is sent.
    """
    settings, options = service.runtime.settings, NO_OPTIONS
    source: EventSource | None = None
    if not (service.has_default_delivery and asks_default_delivery(exchange, request)):
        request = as_configured(request, settings, exchange)
        options = default_options(exchange, request, settings) or await options_of(service, exchange, request)
        source = find_retried(service, options)
    if source is None:
        source = await service.start(request, exchange.client, session_id=session_id, idempotency=options.idempotency)
    writer = _make_writer(request, source.run_id, options, encoder, event_filter)
    carried = RunResponse(exchange, source, writer, delivery_options(request, options), service.subscribers)
    await carried.run(settings.server.keep_alive_s)


def _make_writer(
    request: Request,
    run_id: str,
    options: RequestOptions,
    encoder: NewEncoder | None,
    event_filter: NewEventFilter | None,
) -> ResponseWriter:
    """Return the writer of the response; to a client that reconnects it writes the same frames as before."""
    make = encoder or PROTOCOLS[request.protocol].codec.encoder
    if not request.surface.stream and not has_sequence_numbers(request.protocol):
        return FoldedWriter(partial(make, request, RunIds(run_id)))
    frames = FrameNumbers(position=options.position, first=first_number(request), shows_ids=options.shows_ids)
    ids = RunIds(run_id)
    if event_filter is not None:
        return RunWriter(make(request, ids), event_filter(ids), frames)
    return resumable_writer(request, make(request, ids), frames)


async def options_of(service: Service, exchange: Exchange, request: Request) -> RequestOptions:
    """Return the delivery options; a client that resumes must have started the run.

    Raises: TreadleError.
    """
    settings = service.runtime.settings
    if len(exchange.content) > OFF_LOOP_BYTES:
        options = await asyncio.to_thread(read_options, exchange, request, settings)
    else:
        options = read_options(exchange, request, settings)
    exchange.content = b""
    if options.position is not None and options.idempotency is not None:
        key = options.idempotency.key
        if await service.runtime.store.find_idempotent(key, key_id=exchange.client.key_id) is None:
            raise NotFound(
                "There is no run under this Idempotency-Key to go on with.",
                code="idempotency_key_not_found",
                param="Last-Event-ID",
                hint="Send the request without Last-Event-ID to start anew.",
            )
    return options


def find_retried(service: Service, options: RequestOptions) -> EventSource | None:
    """Return the run of an SDK's earlier attempt, if its connection broke before anything was sent."""
    return service.subscribers.find(options.retry) if options.retry and options.attempt else None


def as_configured(request: Request, settings: Settings, exchange: Exchange) -> Request:
    """Return the request with the options from the configuration and from Treadle's own headers."""
    surface, asked = request.surface, exchange.headers
    tells_tools = settings.tools.tool_status == "text"
    is_usual = not (settings.extended_events or settings.strict_fidelity or tells_tools)
    says_nothing = not (surface.tool_status or request.strict_fidelity or request.is_fresh)
    if is_usual and says_nothing and OPTION_HEADERS.isdisjoint(asked):
        return request
    asks_events = settings.extended_events or asked.get(b"x-treadle-events") == b"extended"
    if asks_events or tells_tools or surface.tool_status:
        extended = surface.extended_events or asks_events
        surface = msgspec.structs.replace(surface, extended_events=extended, tool_status=tells_tools)
    strict = asked.get(b"x-treadle-strict-fidelity", b"").lower()
    is_strict = strict == b"true" if strict else settings.strict_fidelity
    is_fresh = wants_fresh(exchange)
    if surface is request.surface and (is_strict, is_fresh) == (request.strict_fidelity, request.is_fresh):
        return request
    return msgspec.structs.replace(request, surface=surface, strict_fidelity=is_strict, is_fresh=is_fresh)


def wants_fresh(exchange: Exchange) -> bool:
    """Return whether a client wants the model asked, although the same was answered before."""
    if b"cache-control" not in exchange.headers:
        return False
    words = {word.strip().lower() for word in exchange.header(b"cache-control").split(",")}
    return not words.isdisjoint(("no-cache", "no-store"))


async def read(body: bytes, reader: Callable[[bytes], T]) -> T:
    """Parse a body, a large one off the event loop."""
    if len(body) <= OFF_LOOP_BYTES:
        return reader(body)
    return await asyncio.to_thread(reader, body)


class DeliveryOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a response is delivered: as a stream or not, and `is_resumed` if the client has seen its beginning.

    A `stored` stream shows only what the journal has, because its clients know their position only as a number.
    `patience_s` is how long the run continues without a reader; None means until its end. An SDK that received
    nothing repeats its request, identified by `retry`, within `retry_s`. With `is_keyed` it finds the same run.
    """

    streams: bool = True
    content_type: bytes = EVENT_STREAM
    cancel_after_s: float | None = 0.0
    is_resumed: bool = False
    stored: bool = False
    retry: str = ""
    retry_s: float = 0.0
    is_keyed: bool = False


_USUAL = {
    (streams, is_array): DeliveryOptions(streams=streams, content_type=JSON if is_array else EVENT_STREAM)
    for streams in (True, False)
    for is_array in (True, False)
}


def delivery_options(request: Request, options: RequestOptions) -> DeliveryOptions:
    """Return how the response to a request is delivered."""
    surface = request.surface
    if options is NO_OPTIONS:
        return _USUAL[surface.stream, surface.is_array]
    return DeliveryOptions(
        streams=surface.stream,
        content_type=JSON if surface.is_array else EVENT_STREAM,
        cancel_after_s=options.cancel_after_s,
        is_resumed=options.position is not None,
        stored=request.background and surface.stream,
        retry=options.retry,
        retry_s=options.retry_s,
        is_keyed=options.idempotency is not None,
    )


class RunResponse:
    """Delivers one response to one client."""

    _is_gone = False
    _is_writing = False
    _is_lost = False
    _presence: ClientPresence | None = None
    _taken = 0

    def __init__(
        self,
        exchange: Exchange,
        source: EventSource,
        writer: ResponseWriter,
        manner: DeliveryOptions,
        audience: Subscribers,
    ) -> None:
        self._exchange = exchange
        self._edge = exchange.edge
        self._source = source
        self._writer = writer
        self._audience = audience
        self._options = manner
        self._streams = manner.streams
        self._frames: list[bytes] = []
        self._has_answer = self._is_visible = manner.is_resumed
        self._reading: asyncio.Task[None] | None = None

    async def run(self, keep_alive_s: float) -> None:
        """Deliver the run to its end, or until the client disconnects."""
        exchange, run_id = self._exchange, self._source.run_id
        reading = self._reading = asyncio.current_task()
        assert reading is not None
        self._audience.enter(run_id)
        is_told = exchange.watch_client(self._on_disconnect, self._unsent_bytes if self._streams else None)
        if self._streams or not is_told:
            silence = self._send_keep_alive if self._streams else None
            self._presence = ClientPresence(silence, keep_alive_s, None if is_told else self._until_gone())
        try:
            await self._read()
        except asyncio.CancelledError:
            if not self._is_gone:
                raise
            reading.uncancel()
        finally:
            self._reading = None
            exchange.watch_client(None)
            if self._presence is not None:
                self._presence.end()
                self._presence = None
            if self._writer.ended is None:
                await self._leave()
            else:
                self._audience.count_out(run_id)
        if not self._is_gone:
            await self._finish()
        elif not exchange.is_started:
            exchange.status = CANCELLED.status

    def _on_disconnect(self) -> None:
        """Stop reading the run: the client disconnected."""
        if self._reading is not None and self._writer.ended is None:
            self._is_gone = True
            self._reading.cancel()

    async def _until_gone(self) -> None:
        await self._exchange.disconnected()
        self._on_disconnect()

    def _unsent_bytes(self) -> int:
        """Return roughly how many bytes are buffered for the client."""
        return self._source.behind(self._taken)

    async def _leave(self) -> None:
        """Remove a reader that has not received the end, and set how long the run waits for it to reconnect."""
        manner = self._options
        if manner.retry and manner.cancel_after_s == 0.0 and not self._exchange.is_started:
            await self._audience.leave(self._source, manner.retry_s, manner.retry)
        else:
            await self._audience.leave(self._source, manner.cancel_after_s)

    async def _read(self) -> None:
        if self._is_visible and self._streams:
            await self._begin(((b"x-treadle-run", self._source.run_id.encode()),))
        if self._options.stored:
            events = self._source.stored_events()
        else:
            events = self._source.events(on_batch=self._try_write_now if self._streams else self._try_fold_now)
        try:
            async for batch in events:
                if self._streams:
                    await self._write_batch(batch)
                else:
                    self._writer.encode(batch)
                if self._writer.ended is not None:
                    self._is_lost = not batch[-1].stands
                    return
        finally:
            await events.aclose()
        ended = await self._source.wait()
        if ended.error is not None and ended.error.code == HANDED_OVER.code:
            headers = self._failure_headers(HANDED_OVER)
            raise HttpError(
                HANDED_OVER.status, HANDED_OVER.code, HANDED_OVER.message, headers=headers, retry_after_s=1.0
            )
        self._encode([Numbered(event=ended)])

    def _try_fold_now(self, batch: list[Numbered]) -> bool:
        """Fold a batch in the run's own turn of the event loop; the end of the run is left to the reader."""
        return self._writer.try_encode_now(batch) is not None

    def _try_write_now(self, batch: list[Numbered]) -> bool:
        """Write a batch in the run's own turn of the event loop, if nothing in it has to wait."""
        edge, presence = self._edge, self._presence
        if edge is None or presence is None or not edge.is_flowing:
            return False
        frames = self._writer.try_encode_now(batch) if self._is_visible else self._try_encode_held_now(batch)
        if frames is None:
            return False
        if self._writer.ended is not None:
            # A diverged stream ends here: the reading task sends these frames and leaves the run.
            self._frames += frames
            return False
        self._taken += len(batch)
        if frames:
            edge.write_now(b"".join(frames))
            presence.written_at = presence.loop.time()
        return True

    def _try_encode_held_now(self, batch: list[Numbered]) -> list[bytes] | None:
        """Return the frames of a batch after those held back so far; None if it has to wait."""
        if not WAITING.isdisjoint(kinds_of(batch)):
            return None
        self._encode(batch)
        frames, self._frames = self._frames, []
        return frames

    async def _write_batch(self, batch: list[Numbered]) -> None:
        self._taken += len(batch)
        self._is_writing = True
        try:
            self._encode(batch)
            if self._is_visible and self._writer.ended is None:
                await self._flush()
        finally:
            self._is_writing = False

    async def _send_keep_alive(self) -> None:
        """Send an empty event of the protocol; none before the upstream's first event, while the status is open."""
        is_open = self._has_answer and self._writer.ended is None
        if is_open and not self._is_writing:
            self._frames += self._writer.feed(Numbered(event=KeptAlive()))
            # Without the edge, later events cannot be written before this frame while its send is awaited.
            self._edge = None
            try:
                await self._flush()
            finally:
                self._edge = self._exchange.edge

    def _encode(self, batch: list[Numbered]) -> None:
        """Encode events one by one until the first that produces output, then the rest in one call."""
        writer, frames = self._writer, self._frames
        if self._is_visible:
            frames += writer.encode(batch)
            return
        for number, numbered in enumerate(batch, 1):
            encoded = writer.feed(numbered)
            frames += encoded
            if type(numbered.event) not in _SILENT:
                self._has_answer = True
                if encoded:
                    self._is_visible = True
                    frames += writer.encode(batch[number:])
                    return

    async def _flush(self) -> None:
        """Send all encoded frames in one write."""
        if not self._frames:
            return
        if self._exchange.is_started:
            await self._exchange.write(self._next_write())
        else:
            await self._begin(run_headers(self._source), self._next_write())

    async def _begin(self, headers: tuple[Header, ...], data: bytes = b"") -> None:
        await self._exchange.begin(headers, self._options.content_type, data)
        self._exchange.drop_headers()

    def _next_write(self) -> bytes:
        data, self._frames = b"".join(self._frames), []
        presence = self._presence
        assert presence is not None
        presence.written_at = presence.loop.time()
        return data

    async def _finish(self) -> None:
        """Send the end: the rest of the stream, the whole body, or a failure with its status."""
        ended = self._writer.ended
        assert ended is not None, "a run always ends"
        exchange = self._exchange
        failure = None if ended.status == "completed" else self._failure(ended)
        if failure is not None:
            await exchange.refuse(failure, self._failure_headers(failure))
        elif self._streams:
            if not exchange.is_started:
                await exchange.begin(run_headers(self._source), self._options.content_type)
            await exchange.end(b"".join(self._frames))
        else:
            limit = ((b"x-treadle-limit", ended.limit.encode()),) if ended.limit else ()
            await exchange.answer(200, self._writer.body(), JSON, (NO_STORE, *run_headers(self._source), *limit))

    def _failure(self, ended: RunEnded) -> ErrorInfo | None:
        """Return the error to answer with, if the run failed and the status has not been sent."""
        error = None if self._exchange.is_started or self._is_visible else failure_of(ended)
        if error is None or not self._is_still_running:
            return error
        # Another process recovers a run that was lost here; a retry under its key finds it there.
        return msgspec.structs.replace(error, retryable=True, retry_after_s=LOST_RETRY_S)

    @property
    def _is_still_running(self) -> bool:
        """Return whether the same request would be answered by the same run, which has not ended."""
        return self._is_lost and self._options.is_keyed

    def _failure_headers(self, error: ErrorInfo) -> tuple[Header, ...]:
        """Ask the client not to retry where that could run a tool twice, or cannot help."""
        source = self._source
        if self._is_still_running:
            return (*run_headers(source), (b"x-should-retry", b"true"))
        if may_retry(error, has_run_tools=source.has_run_tools, is_keyed=self._options.is_keyed):
            return run_headers(source)
        return (*run_headers(source), NO_RETRY)


def run_headers(source: EventSource) -> tuple[Header, ...]:
    """Return the headers that name the run, its fidelity and the result of the cache."""
    notes, cache = source.notes, source.cache
    carried = (b"x-treadle-fidelity", fidelity(notes).encode()) if notes else _EXACT
    headers = ((b"x-treadle-run", source.run_id.encode()), carried)
    return (*headers, (b"x-treadle-cache", cache.encode())) if cache else headers
