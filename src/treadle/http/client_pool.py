"""A pool of HTTP connections: bounds how many are open, reuses idle ones, and sends one request at a time on each."""

import asyncio
import socket
import ssl
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache, partial
from itertools import chain
from operator import itemgetter
from typing import Any, TypeVar

from treadle.http.client_connection import BytesConsumer, ClientConnection
from treadle.http.client_errors import BodyTooLarge, ConnectTimeout, NoConnection, NoTls, PoolTimeout, reason_of
from treadle.http.dialing import DialTarget, HostAndPort, dial, target_of

T = TypeVar("T")
Dial = Callable[[HostAndPort], Awaitable[socket.socket]]

IDLE_S = 15.0
"""How long an idle connection stays open. Servers wait longer, so a request rarely meets a connection being closed."""


class ClientReply:
    """A response whose head has arrived; also its own body. Closing it returns its connection to the pool."""

    __slots__ = ("_connection", "_pool", "content_type", "headers", "status")

    def __init__(self, connection: ClientConnection, pool: "ClientPool") -> None:
        self.status = connection.status
        self.headers: Mapping[str, str] = connection.headers
        self.content_type = _media_type(self.headers.get("content-type", "application/octet-stream"))
        self._connection: ClientConnection | None = connection
        self._pool = pool

    @property
    def content(self) -> "ClientReply":
        """Return the body: this object."""
        return self

    def readany(self) -> Awaitable[bytes]:
        """Return what has arrived, waiting for at least one byte; empty at the end.

        Raises: ConnectionBroken, TimeoutError.
        """
        return _resolved(b"") if self._connection is None else self._connection.read()

    def read_into(self, take: BytesConsumer) -> Awaitable[Any]:
        """Pass each read to `take` until it returns a value, and return that value; None at the end.

        `take` runs in the same event loop turn as the read, without waking a task.

        Raises: BrokenOff, TimeoutError.
        """
        return _resolved(None) if self._connection is None else self._connection.read_into(take)

    async def read_all(self, bytes_max: int) -> bytes:
        """Return the whole body.

        Raises: BrokenOff, TooLarge, TimeoutError.
        """
        pieces: list[bytes] = []
        while piece := await self.readany():
            pieces.append(piece)
            bytes_max -= len(piece)
            if bytes_max < 0:
                raise BodyTooLarge("the answer is larger than it may be")
        return b"".join(pieces)

    async def end(self) -> None:
        """Discard the rest of the response, then return the connection to the pool."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.discard_rest(self._pool.release)

    def close(self) -> None:
        """Return the connection; it is only reused if the response was complete."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._pool.release(connection)


class ClientPool:
    """Sends requests over reused connections. `connections_max` bounds those in use, over all hosts.

    `dial` opens the socket, so its owner decides which addresses may be connected to. A body over `body_bytes_max`
    is an error.
    """

    def __init__(self, connections_max: int, *, dial: Dial = dial, body_bytes_max: int = sys.maxsize) -> None:
        self._left = connections_max
        self._dial = dial
        self._body_bytes_max = body_bytes_max
        self._waiters: deque[asyncio.Future[None]] = deque()
        # Idle connections and since when, the most recently used last.
        self._idle: dict[HostAndPort, dict[ClientConnection, float]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._busy: dict[ClientConnection, HostAndPort] = {}

    @property
    def idle(self) -> int:
        """Return the number of idle connections."""
        return sum(map(len, self._idle.values()))

    async def request(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes = b"",
        *,
        connect_s: float,
        idle_s: float,
    ) -> ClientReply:
        """Send a request and return its response; the body is still to be read.

        Raises: NoAddress, NoConnection, NoTls, ConnectTimeout, BrokenOff, TimeoutError.
        """
        target, headers = self._route(url, headers)
        length = b"\r\n" if method == "GET" else b"Content-Length: %d\r\n\r\n" % len(body)
        request = b"".join((write_head(method, target, tuple(headers.items())), length, body))
        connection = self._take_idle(target.place) if self._left > 0 else None
        if connection is not None:
            self._left -= 1
        else:
            connection = await self._acquire(target.place, connect_s)
        try:
            await connection.send_request(request, idle_s)
        except BaseException:
            connection.abort()
            self.release(connection)
            raise
        return ClientReply(connection, self)

    def _route(self, url: str, headers: Mapping[str, str]) -> tuple[DialTarget, Mapping[str, str]]:
        """Return where a request is sent, and its headers; subclasses add proxies."""
        return target_of(url), headers

    def release(self, connection: ClientConnection) -> None:
        """Take a connection back; it stays open if it can be reused."""
        place = self._busy.pop(connection, None)
        if place is None:
            return
        self._left += 1
        if self._waiters:
            self._wake_next()
        if not connection.try_reset():
            connection.abort()
            return
        loop = connection.loop
        self._idle.setdefault(place, {})[connection] = loop.time()
        if self._timer is None:
            self._timer = loop.call_later(IDLE_S, self._close_idle, loop)

    def _close_idle(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close connections that were idle for too long, and schedule the next check for when another one is due."""
        self._timer = None
        idle = [each for of_place in self._idle.values() for each in of_place.items()]
        for connection, since in sorted(idle, key=itemgetter(1)):
            left_s = since + IDLE_S - loop.time()
            if left_s > 0:
                self._timer = loop.call_later(left_s, self._close_idle, loop)
                return
            connection.abort()

    async def close(self) -> None:
        """Close all connections."""
        if self._timer is not None:
            self._timer.cancel()
        for connection in [*chain.from_iterable(self._idle.values()), *self._busy]:
            connection.abort()
        # asyncio closes the sockets in the next turn of the loop.
        await asyncio.sleep(0)

    def _take_idle(self, place: HostAndPort) -> ClientConnection | None:
        """Return the most recently used idle connection: it is the least likely to have been closed by the server."""
        idle = self._idle.get(place)
        while idle:
            connection, _ = idle.popitem()
            if connection.is_open:
                self._busy[connection] = place
                return connection
        return None

    async def _acquire(self, place: HostAndPort, connect_s: float) -> ClientConnection:
        """Return a new connection, or one that became idle while this request waited for a slot."""
        failure: type[ConnectTimeout] = PoolTimeout
        try:
            async with asyncio.timeout(connect_s):
                await self._wait_for_slot()
                failure = ConnectTimeout
                try:
                    return self._take_idle(place) or await self._open(place)
                except BaseException:
                    self._left += 1
                    self._wake_next()
                    raise
        except TimeoutError:
            raise failure from None

    async def _wait_for_slot(self) -> None:
        """Wait until another connection may be in use, and count it."""
        while self._left <= 0:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except BaseException:
                # Cancelled after it was woken: pass the slot on, or it would be lost.
                if waiter.done() and not waiter.cancelled():
                    self._wake_next()
                raise
        self._left -= 1

    def _wake_next(self) -> None:
        """Wake the first waiter that was not cancelled."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    async def _open(self, place: HostAndPort) -> ClientConnection:
        connecting = await self._dial(place)
        make = partial(ClientConnection, self._drop_closed, self._body_bytes_max)
        loop = asyncio.get_running_loop()
        try:
            if place.is_tls:
                made = loop.create_connection(make, sock=connecting, ssl=tls_context(), server_hostname=place.host)
            else:
                made = loop.create_connection(make, sock=connecting)
            _, connection = await made
        except ssl.SSLError as error:
            raise NoTls(reason_of(error)) from None
        except OSError as error:
            raise NoConnection(reason_of(error)) from None
        self._busy[connection] = place
        return connection

    def _drop_closed(self, connection: ClientConnection) -> None:
        """Remove a closed connection from the idle ones; one in use is released by its reply."""
        for idle in self._idle.values():
            idle.pop(connection, None)


@lru_cache(maxsize=1)
def tls_context() -> ssl.SSLContext:
    """Return the TLS settings: the system's trusted certificates, HTTP/1.1 only."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


@lru_cache(maxsize=256)
def _media_type(content_type: str) -> str:
    """Return the media type without its parameters. Cached, because most responses have the same one."""
    return content_type.partition(";")[0].strip()


async def _resolved(end: T) -> T:
    return end


@lru_cache(maxsize=256)
def write_head(method: str, target: DialTarget, headers: tuple[tuple[str, str], ...]) -> bytes:
    """Encode the request line and the headers, without the body's length. Cached, because they repeat for each host.

    Raises: ValueError for a header that would be more than one line.
    """
    lines = [f"{method} {target.path} HTTP/1.1", f"Host: {target.host}"]
    lines += [f"{name}: {value}" for name, value in headers]
    text = "\r\n".join(lines)
    if text.count("\r") != len(lines) - 1 or text.count("\n") != len(lines) - 1 or "\0" in text:
        raise ValueError("a header of a request holds a line break")
    return text.encode() + b"\r\n"
