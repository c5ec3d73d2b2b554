"""Carries a run to the client that asked for it: as a stream, or folded into one body by the same encoder.

The status stays open until there is something to show, so that an upstream which refuses at once is an HTTP error
and not a broken stream. A client that goes away takes its run with it, unless somebody else reads it or it was asked
to go on. Nothing here knows a protocol's words.
"""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from functools import partial
from typing import TypeVar

import msgspec

from treadle.access.client import Client
from treadle.canon.errors import ErrorInfo, NotFound, UnsupportedFeature
from treadle.canon.events import KeptAlive, Noted, Numbered, RoundBroken, RoundStarted, RunEnded, RunStarted
from treadle.canon.ids import IdSource
from treadle.canon.request import Request, Surface
from treadle.config import Settings
from treadle.runs import RunHandle
from treadle.server.delivery.audience import Audience, Source
from treadle.server.delivery.presence import Presence
from treadle.server.delivery.telling import FoldedRun, Frames, MendedRun, NumberedRun, Retell, RunIds, Telling
from treadle.server.delivery.wishes import Wishes, first_number, read_wishes
from treadle.server.http import EVENT_STREAM, JSON, NO_STORE, OFF_LOOP_BYTES, Exchange, Header, HttpError
from treadle.server.service import Service
from treadle.wire.adapt import check_fidelity, fidelity
from treadle.wire.codec import Encoder
from treadle.wire.protocols import PROTOCOLS

T = TypeVar("T")
NewEncoder = Callable[[Request, IdSource], Encoder]
NewRetell = Callable[[IdSource], Retell]
_UNKNOWN = ErrorInfo(code="run_failed", message="The run failed.")
_CANCELLED = ErrorInfo(code="cancelled", message="The run was cancelled before its answer was complete.", status=499)
HANDED_OVER = ErrorInfo(code="handed_over", message="Another process goes on with this run: ask again for the rest.")
_SILENT = frozenset({RunStarted, RoundStarted, RoundBroken, Noted, KeptAlive, RunEnded})
"""Events that happen without anything of the upstream's answer."""

_WAITING = frozenset({RoundBroken, RunEnded})
"""Events that are not carried without waiting: for what the store knows, or for the end to be taken."""


async def reply(
    service: Service,
    exchange: Exchange,
    request: Request,
    *,
    encoder: NewEncoder | None = None,
    retell: NewRetell | None = None,
    session_id: str | None = None,
) -> None:
    """Answer a request that has been read; `encoder` and `retell` tell the run otherwise than its protocol does.

    Raises: TreadleError, before anything is sent.
    """
    request = as_configured(request, service.runtime.settings, exchange)
    wishes = await wishes_of(service, exchange, request)
    source = find_again(service, wishes) or await start(
        service, request, exchange.client, wishes, session_id=session_id
    )
    telling = _telling(service, request, source.run_id, wishes, encoder, retell)
    carried = Reply(exchange, source, telling, manner_of(request.surface, wishes), service.audience)
    await carried.run(service.runtime.settings.server.keep_alive_s)


def _telling(
    service: Service,
    request: Request,
    run_id: str,
    wishes: Wishes,
    encoder: NewEncoder | None,
    retell: NewRetell | None,
) -> Telling:
    """Return how a run is told: again as before to a client that comes back, whatever has happened since."""
    make = encoder or PROTOCOLS[request.protocol].encoder
    if not request.surface.stream and request.protocol != "responses":
        return FoldedRun(lambda: make(request, RunIds(run_id)))
    frames = Frames(after=wishes.after, first=first_number(request), shows_numbers=wishes.shows_numbers)
    if request.protocol == "responses":
        ids = RunIds(run_id)
        told = None if retell is None else retell(ids)
        return NumberedRun(
            make(request, ids), pin=partial(service.runtime.store.pin, run_id), retell=told, frames=frames
        )
    return MendedRun(make(request, RunIds(run_id)), frames)


async def wishes_of(service: Service, exchange: Exchange, request: Request) -> Wishes:
    """Return what the headers ask for; a client that comes back must have been here.

    Raises: TreadleError.
    """
    read_all = partial(read_wishes, exchange, request, service.runtime.settings)
    is_large = len(exchange.content) > OFF_LOOP_BYTES
    wishes = await asyncio.to_thread(read_all) if is_large else read_all()
    exchange.content = b""
    if wishes.after and wishes.idempotency is not None:
        key = wishes.idempotency.key
        if await service.runtime.store.find_idempotent(key, key_id=exchange.client.key_id) is None:
            raise NotFound(
                "There is no run under this Idempotency-Key to go on with.",
                code="idempotency_key_not_found",
                param="Last-Event-ID",
                hint="Send the request without Last-Event-ID to start anew.",
            )
    return wishes


def find_again(service: Service, wishes: Wishes) -> Source | None:
    """Return the run of an SDK's earlier attempt, if its connection broke before anything was sent."""
    return service.audience.find(wishes.retry) if wishes.retry and wishes.attempt else None


async def start(
    service: Service, request: Request, client: Client, wishes: Wishes | None = None, *, session_id: str | None = None
) -> RunHandle:
    """Start a run of a client's, unless something of the request is lost and its client would rather have an error.

    Raises: TreadleError.
    """
    idempotency = None if wishes is None else wishes.idempotency
    if request.strict_fidelity:
        check_fidelity(request.notes)
    handle = await service.start(request, client, session_id=session_id, idempotency=idempotency)
    if not request.strict_fidelity or handle.is_attached:
        return handle
    try:
        check_fidelity(handle.notes)
    except UnsupportedFeature:
        await handle.cancel()
        raise
    return handle


def as_configured(request: Request, settings: Settings, exchange: Exchange) -> Request:
    """Return the request with what the configuration and Treadle's own headers say of how to answer it."""
    surface = request.surface
    asks_events = settings.extended_events or exchange.headers.get(b"x-treadle-events") == b"extended"
    tells_tools = settings.tools.tool_status == "text"
    if asks_events or tells_tools or surface.tool_status:
        extended = surface.extended_events or asks_events
        surface = msgspec.structs.replace(surface, extended_events=extended, tool_status=tells_tools)
    strict = exchange.headers.get(b"x-treadle-strict-fidelity", b"").lower()
    is_strict = strict == b"true" if strict else settings.strict_fidelity
    is_fresh = wants_fresh(exchange)
    if surface is request.surface and (is_strict, is_fresh) == (request.strict_fidelity, request.is_fresh):
        return request
    return msgspec.structs.replace(request, surface=surface, strict_fidelity=is_strict, is_fresh=is_fresh)


def wants_fresh(exchange: Exchange) -> bool:
    """Tell whether a client wants the model asked, although the same was answered before."""
    if b"cache-control" not in exchange.headers:
        return False
    words = {word.strip().lower() for word in exchange.header(b"cache-control").split(",")}
    return not words.isdisjoint(("no-cache", "no-store"))


async def read(body: bytes, reader: Callable[[bytes], T]) -> T:
    """Parse a body, a large one off the event loop."""
    if len(body) <= OFF_LOOP_BYTES:
        return reader(body)
    return await asyncio.to_thread(reader, body)


class Manner(msgspec.Struct, frozen=True, kw_only=True):
    """How an answer is carried: as a stream, of that type, which `is_resumed` if its client has seen the beginning.

    `patience_s` is how long the run goes on without a reader; None for as long as it takes. An SDK that has heard
    nothing yet asks the same again, known by `retry`, within `retry_s`.
    """

    streams: bool = True
    content_type: bytes = EVENT_STREAM
    patience_s: float | None = 0.0
    is_resumed: bool = False
    retry: str = ""
    retry_s: float = 0.0


def manner_of(surface: Surface, wishes: Wishes) -> Manner:
    """Return how the answer to a request is carried."""
    return Manner(
        streams=surface.stream,
        content_type=JSON if surface.is_array else EVENT_STREAM,
        patience_s=wishes.patience_s,
        is_resumed=wishes.after > 0,
        retry=wishes.retry,
        retry_s=wishes.retry_s,
    )


class Reply:
    """One answer on its way to one client."""

    def __init__(
        self, exchange: Exchange, source: Source, telling: Telling, manner: Manner, audience: Audience
    ) -> None:
        self._exchange = exchange
        self._source = source
        self._telling = telling
        self._audience = audience
        self._manner = manner
        self._streams = manner.streams
        self._frames: list[bytes] = []
        self._has_answer = self._is_visible = manner.is_resumed
        self._is_gone = False
        self._is_carrying = False
        self._is_breaking = False
        self._presence: Presence | None = None
        self._taken = 0

    async def run(self, keep_alive_s: float) -> None:
        """Carry the run to its end, or until the client goes away."""
        reading = asyncio.current_task()
        assert reading is not None
        self._audience.enter(self._source.run_id)
        self._exchange.watch(lambda: self._source.behind(self._taken))

        def leave() -> None:
            if self._telling.ended is None:
                self._is_gone = True
                reading.cancel()

        presence = Presence(self._exchange, leave, self._break_silence if self._streams else None, keep_alive_s)
        self._presence = presence
        try:
            await self._read()
        except asyncio.CancelledError:
            if not self._is_gone:
                raise
            reading.uncancel()
        finally:
            presence.end()
            self._presence = None
            self._exchange.watch(None)
            await self._leave()
        if not self._is_gone:
            await self._finish()
        elif not self._exchange.begun:
            self._exchange.status = _CANCELLED.status

    async def _leave(self) -> None:
        """Count this reader out, and say how long the run is to wait for it to come back."""
        manner = self._manner
        if self._telling.ended is not None:
            await self._audience.leave(self._source, None)
        elif manner.retry and manner.patience_s == 0.0 and not self._exchange.begun:
            await self._audience.leave(self._source, manner.retry_s, manner.retry)
        else:
            await self._audience.leave(self._source, manner.patience_s)

    async def _read(self) -> None:
        if self._is_visible and self._streams:
            await self._exchange.begin((_run_header(self._source),), self._manner.content_type)
        async with aclosing(self._source.events(hear=self._hear)) as events:
            async for batch in events:
                await self._carry(batch)
                if self._telling.ended is not None:
                    return
        ended = await self._source.wait()
        if ended.error is not None and ended.error.code == HANDED_OVER.code:
            raise HttpError(503, HANDED_OVER.code, HANDED_OVER.message, retry_after_s=1.0)
        self._encode([Numbered(event=ended)])

    def _hear(self, batch: list[Numbered]) -> bool:
        """Carry a batch in the turn of the run itself, if nothing about it has to wait."""
        if self._is_breaking or (self._streams and not self._exchange.is_flowing):
            return False
        for numbered in batch:
            if type(numbered.event) in _WAITING:
                return False
        self._taken += len(batch)
        self._encode(batch)
        if self._streams and self._frames:
            self._exchange.write_now(self._next_write())
        return True

    async def _carry(self, batch: list[Numbered]) -> None:
        self._taken += len(batch)
        self._is_carrying = True
        try:
            start = 0
            for number, numbered in enumerate(batch):
                if type(numbered.event) is RoundBroken:
                    self._encode(batch[start:number])
                    self._frames += await self._telling.meet_break(numbered)
                    start = number
            self._encode(batch[start:] if start else batch)
            if self._is_visible and self._telling.ended is None:
                await self._flush()
        finally:
            self._is_carrying = False

    async def _break_silence(self) -> None:
        """Send an empty event of the protocol; none before the upstream said anything, for the status is still open."""
        is_open = self._has_answer and self._telling.ended is None
        if is_open and not self._is_carrying:
            self._frames += self._telling.feed(Numbered(event=KeptAlive()))
            self._is_breaking = True
            try:
                await self._flush()
            finally:
                self._is_breaking = False

    def _encode(self, batch: list[Numbered]) -> None:
        feed = self._telling.feed
        for numbered in batch:
            frames = feed(numbered)
            self._frames += frames
            if not self._is_visible and type(numbered.event) not in _SILENT:
                self._has_answer = True
                self._is_visible = bool(frames)

    async def _flush(self) -> None:
        """Send what has been encoded in one write."""
        if not self._streams or not self._frames:
            return
        if self._exchange.begun:
            await self._exchange.write(self._next_write())
        else:
            await self._exchange.begin(self._headers(), self._manner.content_type, self._next_write())

    def _next_write(self) -> bytes:
        data, self._frames = b"".join(self._frames), []
        assert self._presence is not None
        self._presence.wrote()
        return data

    async def _finish(self) -> None:
        """Send the end: the rest of the stream, the whole body, or a failure as the status it deserves."""
        ended = self._telling.ended
        assert ended is not None, "a run always ends"
        exchange = self._exchange
        failure = self._failure(ended)
        if failure is not None:
            await exchange.refuse(failure, self._failure_headers(failure))
        elif self._streams:
            if not exchange.begun:
                await exchange.begin(self._headers(), self._manner.content_type)
            await exchange.end(b"".join(self._frames))
        else:
            limit = ((b"x-treadle-limit", ended.limit.encode()),) if ended.limit else ()
            await exchange.answer(200, self._telling.body(), JSON, (NO_STORE, *self._headers(), *limit))

    def _failure(self, ended: RunEnded) -> ErrorInfo | None:
        """Return what to answer instead of the run's result, if its end is a failure and the status still open."""
        if self._exchange.begun or self._is_visible:
            return None
        if ended.status == "failed":
            return ended.error or _UNKNOWN
        return _CANCELLED if ended.status == "cancelled" and not self._streams else None

    def _headers(self) -> tuple[Header, ...]:
        return run_headers(self._source)

    def _failure_headers(self, error: ErrorInfo) -> tuple[Header, ...]:
        """Ask the client not to retry where that could run a tool twice, or cannot help."""
        if self._source.has_run_tools or not error.retryable:
            return (*self._headers(), (b"x-should-retry", b"false"))
        return self._headers()


def run_headers(source: Source) -> tuple[Header, ...]:
    """Name the run, say how much of the request was carried to the upstream, and whether it had to be."""
    cache: tuple[Header, ...] = ((b"x-treadle-cache", source.cache.encode()),) if source.cache else ()
    return (_run_header(source), (b"x-treadle-fidelity", fidelity(source.notes).encode()), *cache)


def _run_header(source: Source) -> Header:
    return b"x-treadle-run", source.run_id.encode()
