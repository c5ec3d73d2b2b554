"""Carries one run to the client that asked for it: as a stream, or folded into one body by the same encoder.

The status stays open until there is something to show, so that an upstream which refuses at once is an HTTP error
and not a broken stream. A client that goes away takes its run with it. Nothing here knows a protocol's words.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

import msgspec

from treadle.canon.errors import ErrorInfo
from treadle.canon.events import KeptAlive, Noted, Numbered, RoundStarted, RunEnded, RunStarted
from treadle.canon.request import Protocol
from treadle.runs import RunHandle
from treadle.server.http import JSON, NO_STORE, Exchange, Header
from treadle.server.service import Service
from treadle.wire.codec import Encoder
from treadle.wire.protocols import PROTOCOLS

T = TypeVar("T")
OFF_LOOP_BYTES = 1_048_576
"""A body over this is parsed in a thread, so that one client's history does not hold up the others' streams."""

_UNKNOWN = ErrorInfo(code="run_failed", message="The run failed.")
_CANCELLED = ErrorInfo(code="cancelled", message="The run was cancelled before its answer was complete.", status=499)
_PREAMBLE = (RunStarted, RoundStarted, Noted, KeptAlive)
"""Events that happen before, or without, anything of the upstream's answer."""


async def answer(service: Service, exchange: Exchange, protocol: Protocol) -> None:
    """Answer a request of one of the client protocols by a run.

    Raises: TreadleError, before anything is sent.
    """
    request = await read(await service.body(exchange), PROTOCOLS[protocol].read_request)
    if service.runtime.settings.extended_events or exchange.header(b"x-treadle-events") == "extended":
        surface = msgspec.structs.replace(request.surface, extended_events=True)
        request = msgspec.structs.replace(request, surface=surface)
    handle = await service.start(request)
    encoder = PROTOCOLS[protocol].encoder(request, service.runtime.ids)
    reply = Reply(exchange, handle, encoder, streams=request.surface.stream)
    await reply.run(service.runtime.settings.server.keep_alive_s)


async def read(body: bytes, reader: Callable[[bytes], T]) -> T:
    """Parse a body, a large one off the event loop."""
    if len(body) <= OFF_LOOP_BYTES:
        return reader(body)
    return await asyncio.to_thread(reader, body)


class Reply:
    """One run on its way to one client."""

    def __init__(self, exchange: Exchange, handle: RunHandle, encoder: Encoder, *, streams: bool) -> None:
        self._exchange = exchange
        self._handle = handle
        self._encoder = encoder
        self._streams = streams
        self._frames: list[bytes] = []
        self._has_answer = False
        self._is_visible = False
        self._ended: RunEnded | None = None
        self._sending = asyncio.Lock()
        self._written_at = 0.0

    async def run(self, keep_alive_s: float) -> None:
        """Carry the run to its end; a client that goes away cancels it."""
        companion = asyncio.create_task(self._attend(keep_alive_s))
        try:
            async for batch in self._handle.events():
                async with self._sending:
                    self._encode(batch)
                    if self._is_visible and self._ended is None:
                        await self._flush()
        finally:
            companion.cancel()
            if self._ended is None:
                await self._handle.cancel()
        if self._ended is None:
            self._encode([Numbered(event=await self._handle.wait())])
        await self._finish()

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
                return await self._handle.cancel()

    async def _break_silence(self) -> None:
        """Send an empty event of the protocol; none before the upstream said anything, for the status is still open."""
        async with self._sending:
            self._written_at = asyncio.get_running_loop().time()
            if self._has_answer and self._ended is None:
                self._frames += self._encoder.feed(KeptAlive())
                await self._flush()

    def _encode(self, batch: list[Numbered]) -> None:
        for numbered in batch:
            event = numbered.event
            frames = self._encoder.feed(event)
            self._frames += frames
            if isinstance(event, RunEnded):
                self._ended = event
            elif not isinstance(event, _PREAMBLE):
                self._has_answer = True
                self._is_visible = self._is_visible or bool(frames)

    async def _flush(self) -> None:
        """Send what has been encoded in one write."""
        if not self._streams or not self._frames:
            return
        if not self._exchange.begun:
            await self._exchange.begin(self._headers())
        data, self._frames = b"".join(self._frames), []
        self._written_at = asyncio.get_running_loop().time()
        await self._exchange.write(data)

    async def _finish(self) -> None:
        """Send the end: the rest of the stream, the whole body, or a failure as the status it deserves."""
        ended = self._ended
        assert ended is not None, "a run always ends"
        exchange = self._exchange
        failure = self._failure(ended)
        if failure is not None:
            await exchange.refuse(failure, self._failure_headers(failure))
        elif self._streams:
            if not exchange.begun:
                await exchange.begin(self._headers())
            await exchange.end(b"".join(self._frames))
        else:
            limit = ((b"x-treadle-limit", ended.limit.encode()),) if ended.limit else ()
            await exchange.answer(200, self._encoder.body(), JSON, (NO_STORE, *self._headers(), *limit))

    def _failure(self, ended: RunEnded) -> ErrorInfo | None:
        """Return what to answer instead of the run's result, if its end is a failure and the status still open."""
        if self._exchange.begun or self._is_visible:
            return None
        if ended.status == "failed":
            return ended.error or _UNKNOWN
        return _CANCELLED if ended.status == "cancelled" and not self._streams else None

    def _headers(self) -> tuple[Header, ...]:
        return ((b"x-treadle-run", self._handle.run_id.encode()),)

    def _failure_headers(self, error: ErrorInfo) -> tuple[Header, ...]:
        """Ask the client not to retry where that could run a tool twice, or cannot help."""
        if self._handle.has_run_tools or not error.retryable:
            return (*self._headers(), (b"x-should-retry", b"false"))
        return self._headers()
