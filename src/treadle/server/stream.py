"""Carries a run to the client that asked for it: as a stream, or folded into one body by the same encoder.

The status stays open until there is something to show, so that an upstream which refuses at once is an HTTP error
and not a broken stream. A client that goes away takes its run with it. Nothing here knows a protocol's words.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Protocol, TypeVar

import msgspec

from treadle.canon.errors import ErrorInfo, UnsupportedFeature
from treadle.canon.events import KeptAlive, Noted, Numbered, RoundStarted, RunEnded, RunEvent, RunStarted
from treadle.canon.ids import IdSource
from treadle.canon.request import Note, Request, Surface
from treadle.canon.request import Protocol as ProtocolName
from treadle.config import Settings
from treadle.runs import RunHandle
from treadle.server.http import EVENT_STREAM, JSON, NO_STORE, Exchange, Header
from treadle.server.service import Service
from treadle.wire.adapt import check_fidelity, fidelity
from treadle.wire.codec import Encoder
from treadle.wire.protocols import PROTOCOLS

T = TypeVar("T")
NewEncoder = Callable[[Request, IdSource], Encoder]
Retell = Callable[[RunEvent], list[RunEvent]]
OFF_LOOP_BYTES = 1_048_576
"""A body over this is parsed in a thread, so that one client's history does not hold up the others' streams."""

_UNKNOWN = ErrorInfo(code="run_failed", message="The run failed.")
_CANCELLED = ErrorInfo(code="cancelled", message="The run was cancelled before its answer was complete.", status=499)
_SILENT = (RunStarted, RoundStarted, Noted, KeptAlive, RunEnded)
"""Events that happen without anything of the upstream's answer."""


class Source(Protocol):
    """What is carried: a run, or several that answer one request together."""

    @property
    def run_id(self) -> str:
        """Return the id by which the answer is found again."""
        ...

    @property
    def has_run_tools(self) -> bool:
        """Tell whether a tool has started."""
        ...

    @property
    def notes(self) -> tuple[Note, ...]:
        """Return what was dropped, coerced, emulated or repaired so far."""
        ...

    def events(self) -> AsyncGenerator[list[Numbered], None]:
        """Yield what happens, in batches, until the end."""
        ...

    async def cancel(self) -> None:
        """End it."""
        ...

    async def wait(self) -> RunEnded:
        """Wait for the end."""
        ...


class Telling(Protocol):
    """Writes what a source says."""

    @property
    def ended(self) -> RunEnded | None:
        """Return how it ended, once it has."""
        ...

    def feed(self, numbered: Numbered) -> list[bytes]:
        """Return the frames to send for an event."""
        ...

    def body(self) -> bytes:
        """Return the whole answer, once it has ended."""
        ...


class OneRun:
    """Tells a run by its encoder; `retell` puts other events in the place of the run's own."""

    def __init__(self, encoder: Encoder, retell: Retell | None = None) -> None:
        self._encoder = encoder
        self._retell = retell
        self.ended: RunEnded | None = None

    def feed(self, numbered: Numbered) -> list[bytes]:
        """Return the frames to send for an event."""
        frames: list[bytes] = []
        for event in [numbered.event] if self._retell is None else self._retell(numbered.event):
            frames += self._encoder.feed(event)
            if isinstance(event, RunEnded):
                self.ended = event
        return frames

    def body(self) -> bytes:
        """Return the whole answer, once the run has ended."""
        return self._encoder.body()


async def answer(service: Service, exchange: Exchange, protocol: ProtocolName) -> None:
    """Answer a request of one of the client protocols by a run.

    Raises: TreadleError, before anything is sent.
    """
    request = await read(await service.body(exchange), PROTOCOLS[protocol].read_request)
    await reply(service, exchange, request)


async def reply(
    service: Service,
    exchange: Exchange,
    request: Request,
    *,
    encoder: NewEncoder | None = None,
    retell: Retell | None = None,
) -> None:
    """Answer a request that has been read; `encoder` and `retell` tell the run otherwise than its protocol does.

    Raises: TreadleError, before anything is sent.
    """
    request = as_configured(request, service.runtime.settings, exchange)
    handle = await start(service, request)
    make = encoder or PROTOCOLS[request.protocol].encoder
    telling = OneRun(make(request, service.runtime.ids), retell)
    await Reply(exchange, handle, telling, surface=request.surface).run(service.runtime.settings.server.keep_alive_s)


async def start(service: Service, request: Request) -> RunHandle:
    """Start a run, unless something of the request is lost and its client would rather have an error.

    Raises: TreadleError.
    """
    if not request.strict_fidelity:
        return await service.start(request)
    check_fidelity(request.notes)
    handle = await service.start(request)
    try:
        check_fidelity(handle.notes)
    except UnsupportedFeature:
        await handle.cancel()
        raise
    return handle


def as_configured(request: Request, settings: Settings, exchange: Exchange) -> Request:
    """Return the request with what the configuration and Treadle's own headers say of how to answer it."""
    asks_events = settings.extended_events or exchange.header(b"x-treadle-events") == "extended"
    surface = msgspec.structs.replace(
        request.surface,
        extended_events=request.surface.extended_events or asks_events,
        tool_status=settings.tools.tool_status == "text",
    )
    strict = exchange.header(b"x-treadle-strict-fidelity").lower()
    is_strict = strict == "true" if strict else settings.strict_fidelity
    return msgspec.structs.replace(request, surface=surface, strict_fidelity=is_strict)


async def read(body: bytes, reader: Callable[[bytes], T]) -> T:
    """Parse a body, a large one off the event loop."""
    if len(body) <= OFF_LOOP_BYTES:
        return reader(body)
    return await asyncio.to_thread(reader, body)


class Reply:
    """One answer on its way to one client."""

    def __init__(self, exchange: Exchange, source: Source, telling: Telling, *, surface: Surface) -> None:
        self._exchange = exchange
        self._source = source
        self._telling = telling
        self._streams = surface.stream
        self._content_type = JSON if surface.is_array else EVENT_STREAM
        self._frames: list[bytes] = []
        self._has_answer = False
        self._is_visible = False
        self._sending = asyncio.Lock()
        self._written_at = 0.0

    async def run(self, keep_alive_s: float) -> None:
        """Carry the run to its end; a client that goes away cancels it."""
        companion = asyncio.create_task(self._attend(keep_alive_s))
        try:
            async with aclosing(self._source.events()) as events:
                async for batch in events:
                    await self._carry(batch)
        finally:
            companion.cancel()
            if self._telling.ended is None:
                await self._source.cancel()
        if self._telling.ended is None:
            self._encode([Numbered(event=await self._source.wait())])
        await self._finish()

    async def _carry(self, batch: list[Numbered]) -> None:
        async with self._sending:
            self._encode(batch)
            if self._is_visible and self._telling.ended is None:
                await self._flush()

    async def _attend(self, keep_alive_s: float) -> None:
        """Wait for the client to go away; meanwhile break the silence of a stream that is already open."""
        loop = asyncio.get_running_loop()
        self._written_at = loop.time()
        while True:
            try:
                async with asyncio.timeout_at(self._written_at + keep_alive_s):
                    await self._exchange.disconnected()
            except TimeoutError:
                if loop.time() - self._written_at >= keep_alive_s:
                    await self._break_silence()
            else:
                return await self._source.cancel()

    async def _break_silence(self) -> None:
        """Send an empty event of the protocol; none before the upstream said anything, for the status is still open."""
        async with self._sending:
            self._written_at = asyncio.get_running_loop().time()
            if self._has_answer and self._telling.ended is None:
                self._frames += self._telling.feed(Numbered(event=KeptAlive()))
                await self._flush()

    def _encode(self, batch: list[Numbered]) -> None:
        for numbered in batch:
            frames = self._telling.feed(numbered)
            self._frames += frames
            if not isinstance(numbered.event, _SILENT):
                self._has_answer = True
                self._is_visible = self._is_visible or bool(frames)

    async def _flush(self) -> None:
        """Send what has been encoded in one write."""
        if not self._streams or not self._frames:
            return
        if not self._exchange.begun:
            await self._exchange.begin(self._headers(), self._content_type)
        data, self._frames = b"".join(self._frames), []
        self._written_at = asyncio.get_running_loop().time()
        await self._exchange.write(data)

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
                await exchange.begin(self._headers(), self._content_type)
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
        """Name the run, and say how much of the request was carried to the upstream."""
        run_id, carried = self._source.run_id, fidelity(self._source.notes)
        return ((b"x-treadle-run", run_id.encode()), (b"x-treadle-fidelity", carried.encode()))

    def _failure_headers(self, error: ErrorInfo) -> tuple[Header, ...]:
        """Ask the client not to retry where that could run a tool twice, or cannot help."""
        if self._source.has_run_tools or not error.retryable:
            return (*self._headers(), (b"x-should-retry", b"false"))
        return self._headers()
