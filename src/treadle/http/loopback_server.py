"""A small HTTP/1.1 server on asyncio and httptools, for fake providers on loopback: one task for each connection.

It bounds what it reads and cancels a handler when its client disconnects. It has no TLS, timeouts or access control,
and must not be reachable from outside.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import cast
from urllib.parse import urlsplit

import httptools
import msgspec

log = logging.getLogger("treadle.http")

HEAD_BYTES_MAX = 262_144
WAITING_MAX = 16
"""How many pipelined requests may wait on one connection."""
CLOSING_S = 1.0
"""How long running handlers may take when the server closes."""
_BODILESS = frozenset({204, 304})


class LoopbackRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request: its raw path without the query, its headers with their names as sent."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    peer: object


class LoopbackAnswer:
    """How a handler responds: `start`, `write`, then `finish`; or `send` for a whole response."""

    def __init__(self, connection: "_Connection", *, is_kept: bool) -> None:
        self._connection = connection
        self._is_kept = is_kept
        self._is_chunked = False
        self.is_whole = False

    def start(self, status: int, headers: Mapping[str, str]) -> None:
        """Send the head; a body without a content-length is sent in chunks."""
        names = {name.lower() for name in headers}
        self._is_chunked = "content-length" not in names and status not in _BODILESS
        lines = [f"HTTP/1.1 {status} {_phrase(status)}", *(f"{name}: {value}" for name, value in headers.items())]
        lines += ["transfer-encoding: chunked"] if self._is_chunked else []
        lines += [] if self._is_kept else ["connection: close"]
        self._connection.send("\r\n".join([*lines, "", ""]).encode())

    async def write(self, data: bytes) -> None:
        """Send a piece of the body, waiting while the client does not read.

        Raises: ConnectionError, if the client has disconnected.
        """
        if data:
            self._connection.send(b"%x\r\n%b\r\n" % (len(data), data) if self._is_chunked else data)
        await self._connection.drain()

    async def finish(self) -> None:
        """End the body.

        Raises: ConnectionError.
        """
        if self._is_chunked:
            self._connection.send(b"0\r\n\r\n")
        self.is_whole = self._is_kept
        await self._connection.drain()

    async def send(self, status: int, body: bytes, content_type: str = "application/json") -> None:
        """Send a whole response.

        Raises: ConnectionError.
        """
        self.start(status, {"content-type": content_type, "content-length": str(len(body))})
        await self.write(body)
        await self.finish()


Handler = Callable[[LoopbackRequest, LoopbackAnswer], Awaitable[None]]


class Listener:
    """Serves one handler. A response that it leaves unfinished closes the connection."""

    def __init__(self, handle: Handler, *, body_bytes_max: int) -> None:
        self.handle = handle
        self.body_bytes_max = body_bytes_max
        self.connections: set[_Connection] = set()
        self._server: asyncio.Server | None = None

    async def open(self, host: str, port: int) -> int:
        """Listen and return the port.

        Raises: OSError.
        """
        self._server = await asyncio.get_running_loop().create_server(lambda: _Connection(self), host, port)
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stop listening, give running handlers `CLOSING_S` to finish, and close all connections."""
        if self._server is None:
            return
        self._server.close()
        tasks = {each.task for each in self.connections if each.task is not None}
        if tasks:
            _, left = await asyncio.wait(tasks, timeout=CLOSING_S)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
        for connection in list(self.connections):
            connection.close()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._server.wait_closed(), CLOSING_S)
        # asyncio closes the sockets in the next turn of the loop.
        await asyncio.sleep(0)


class _Connection(asyncio.Protocol):
    """One client: requests are parsed as they arrive and answered one after the other."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._waiting: deque[tuple[LoopbackRequest, bool]] = deque()
        self._writable: asyncio.Future[None] | None = None
        self.task: asyncio.Task[None] | None = None
        self.on_message_begin()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        self._transport = cast("asyncio.Transport", transport)
        self._listener.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the handler."""
        self._transport = None
        self._listener.connections.discard(self)
        self.resume_writing()
        if self.task is not None:
            self.task.cancel()

    def data_received(self, data: bytes) -> None:
        """Parse what arrived; refuse what is not HTTP or over a bound."""
        self._head_bytes += 0 if self._is_body else len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._refuse(400)
        except httptools.HttpParserError:
            self._refuse(400)
        else:
            if self._head_bytes > HEAD_BYTES_MAX:
                self._refuse(431)
            elif len(self._waiting) > WAITING_MAX:
                self._refuse(429)

    def pause_writing(self) -> None:
        """Make `drain` wait."""
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        """Wake the writer in `drain`."""
        writable, self._writable = self._writable, None
        if writable is not None and not writable.done():
            writable.set_result(None)

    def on_message_begin(self) -> None:
        """Reset for a new request."""
        self._target = b""
        self._headers: dict[str, str] = {}
        self._pieces: list[bytes] = []
        self._body_bytes = self._head_bytes = 0
        self._is_body = False

    def on_url(self, url: bytes) -> None:
        """Append to the request target, which may arrive in pieces."""
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Set a header; of a repeated one the last value is used."""
        self._headers[name.decode("latin-1")] = value.decode("utf-8", "replace")

    def on_headers_complete(self) -> None:
        """Send `100 Continue` to a client that expects it."""
        self._is_body = True
        if any(name.lower() == "expect" for name in self._headers) and self._transport is not None:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        """Add a piece of the body, up to the bound."""
        self._body_bytes += len(body)
        if self._body_bytes <= self._listener.body_bytes_max:
            self._pieces.append(body)
        else:
            self._pieces.clear()

    def on_message_complete(self) -> None:
        """Queue the request for the handler."""
        if self._body_bytes > self._listener.body_bytes_max:
            self._refuse(413)
            return
        request = LoopbackRequest(
            method=self._parser.get_method().decode("latin-1"),
            path=urlsplit(self._target.decode("latin-1")).path,
            headers=self._headers,
            body=b"".join(self._pieces),
            peer=self._transport.get_extra_info("peername") if self._transport is not None else None,
        )
        self._is_body = False
        self._waiting.append((request, self._parser.should_keep_alive()))
        if self.task is None:
            self.task = self._loop.create_task(self._answer())
            self.task.add_done_callback(_log_failure)

    async def _answer(self) -> None:
        while self._waiting:
            request, is_kept = self._waiting.popleft()
            answer = LoopbackAnswer(self, is_kept=is_kept)
            try:
                await self._listener.handle(request, answer)
            finally:
                if not answer.is_whole:
                    self.close()
        self.task = None

    def send(self, data: bytes) -> None:
        """Write bytes. Raises: ConnectionResetError, if the client has disconnected."""
        if self._transport is None or self._transport.is_closing():
            raise ConnectionResetError("the client is gone")
        self._transport.write(data)

    async def drain(self) -> None:
        """Wait until the client has read enough."""
        if self._writable is not None:
            await self._writable

    def close(self) -> None:
        """Close the connection once its buffer is sent."""
        if self._transport is not None:
            self._transport.close()

    def _refuse(self, status: int) -> None:
        if self._transport is not None and not self._transport.is_closing():
            words = f"HTTP/1.1 {status} {_phrase(status)}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            self._transport.write(words.encode())
            self._transport.close()


def _log_failure(task: "asyncio.Task[None]") -> None:
    """Log a handler's error, unless its client has disconnected."""
    error = None if task.cancelled() else task.exception()
    if error is not None and not isinstance(error, ConnectionError):
        log.error("a request could not be answered", exc_info=error)


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Status"
