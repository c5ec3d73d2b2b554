"""Connections that are kept and shared: at most so many at once, each with one answer at a time."""

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

from treadle.http.client_connection import ClientConnection, Take
from treadle.http.client_errors import ConnectTimeout, NoConnection, NoTls, NoTurn, TooLarge, reason_of
from treadle.http.dialing import DialTarget, HostAndPort, dial, target_of

T = TypeVar("T")
Dial = Callable[[HostAndPort], Awaitable[socket.socket]]

IDLE_S = 15.0
"""How long a connection that nobody needs is kept: shorter than servers do, so that it is not they who close it."""


class ClientReply:
    """An answer whose head has come; it is its own body. It must be closed, which gives its connection back."""

    __slots__ = ("_connection", "_pool", "content_type", "headers", "status")

    def __init__(self, connection: ClientConnection, pool: "ClientPool") -> None:
        self.status = connection.status
        self.headers: Mapping[str, str] = connection.headers
        self.content_type = _kind_of(self.headers.get("content-type", "application/octet-stream"))
        self._connection: ClientConnection | None = connection
        self._pool = pool

    @property
    def content(self) -> "ClientReply":
        """Return its body."""
        return self

    def readany(self) -> Awaitable[bytes]:
        """Return what has arrived, waiting for at least one byte; nothing at the end.

        Raises: BrokenOff, TimeoutError.
        """
        return _nothing(b"") if self._connection is None else self._connection.read()

    def read_into(self, take: Take) -> Awaitable[Any]:
        """Give what arrives to `take`, in the turn in which it does, until that makes something; None at the end.

        Raises: BrokenOff, TimeoutError.
        """
        return _nothing(None) if self._connection is None else self._connection.read_into(take)

    async def read_all(self, bytes_max: int) -> bytes:
        """Return the whole body.

        Raises: BrokenOff, TooLarge, TimeoutError.
        """
        pieces: list[bytes] = []
        while piece := await self.readany():
            pieces.append(piece)
            bytes_max -= len(piece)
            if bytes_max < 0:
                raise TooLarge("the answer is larger than it may be")
        return b"".join(pieces)

    async def end(self) -> None:
        """Let the rest of it come, which nobody reads, and give its connection back then."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.let_end(self._pool.give)

    def close(self) -> None:
        """Give it up, whether or not it was read to its end."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._pool.give(connection)


class ClientPool:
    """Makes requests, reusing connections. `connections_max` bounds those in use, of all places together.

    `dial` makes the socket to a place: whoever gives one decides which addresses are connected to. A body over
    `body_bytes_max` is broken off.
    """

    def __init__(self, connections_max: int, *, dial: Dial = dial, body_bytes_max: int = sys.maxsize) -> None:
        self._left = connections_max
        self._dial = dial
        self._body_bytes_max = body_bytes_max
        self._waiters: deque[asyncio.Future[None]] = deque()
        # Those that wait for work, and since when: the one used last is the last.
        self._idle: dict[HostAndPort, dict[ClientConnection, float]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._busy: dict[ClientConnection, HostAndPort] = {}

    @property
    def idle(self) -> int:
        """Return how many connections wait for work."""
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
        """Send a request and return its answer, the body still to be read.

        Raises: NoAddress, NoConnection, NoTls, ConnectTimeout, BrokenOff, TimeoutError.
        """
        target, headers = self._aim(url, headers)
        length = b"\r\n" if method == "GET" else b"Content-Length: %d\r\n\r\n" % len(body)
        request = b"".join((write_head(method, target, tuple(headers.items())), length, body))
        connection = self._idle_one(target.place) if self._left > 0 else None
        if connection is not None:
            self._left -= 1
        else:
            connection = await self._open_within(target.place, connect_s)
        try:
            await connection.ask(request, idle_s)
        except BaseException:
            connection.abort()
            self.give(connection)
            raise
        return ClientReply(connection, self)

    def _aim(self, url: str, headers: Mapping[str, str]) -> tuple[DialTarget, Mapping[str, str]]:
        """Return where a request is sent, and with which headers."""
        return target_of(url), headers

    def give(self, connection: ClientConnection) -> None:
        """Take a connection back: it is kept if it can be used again."""
        place = self._busy.pop(connection, None)
        if place is None:
            return
        self._left += 1
        if self._waiters:
            self._pass_turn()
        if not connection.rest():
            connection.abort()
            return
        loop = connection.loop
        self._idle.setdefault(place, {})[connection] = loop.time()
        if self._timer is None:
            self._timer = loop.call_later(IDLE_S, self._end_idle, loop)

    def _end_idle(self, loop: asyncio.AbstractEventLoop) -> None:
        """End the connections that nobody needed for long, and look again when the next one of them is due."""
        self._timer = None
        idle = [each for of_place in self._idle.values() for each in of_place.items()]
        for connection, since in sorted(idle, key=itemgetter(1)):
            left_s = since + IDLE_S - loop.time()
            if left_s > 0:
                self._timer = loop.call_later(left_s, self._end_idle, loop)
                return
            connection.abort()

    async def close(self) -> None:
        """End all connections."""
        if self._timer is not None:
            self._timer.cancel()
        for connection in [*chain.from_iterable(self._idle.values()), *self._busy]:
            connection.abort()
        # Sockets are closed when the loop comes to it.
        await asyncio.sleep(0)

    def _idle_one(self, place: HostAndPort) -> ClientConnection | None:
        """Return a connection that waits for work, the one used last."""
        idle = self._idle.get(place)
        while idle:
            connection, _ = idle.popitem()
            if connection.is_open:
                self._busy[connection] = place
                return connection
        return None

    async def _open_within(self, place: HostAndPort, connect_s: float) -> ClientConnection:
        """Return a new connection, or one that became free while this request waited for its turn."""
        failure: type[ConnectTimeout] = NoTurn
        try:
            async with asyncio.timeout(connect_s):
                await self._take_turn()
                failure = ConnectTimeout
                try:
                    return self._idle_one(place) or await self._open(place)
                except BaseException:
                    self._left += 1
                    self._pass_turn()
                    raise
        except TimeoutError:
            raise failure from None

    async def _take_turn(self) -> None:
        """Wait until another connection may be used."""
        while self._left <= 0:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except BaseException:
                if waiter.done() and not waiter.cancelled():
                    self._pass_turn()
                raise
        self._left -= 1

    def _pass_turn(self) -> None:
        """Wake the first that waits."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    async def _open(self, place: HostAndPort) -> ClientConnection:
        connecting = await self._dial(place)
        make = partial(ClientConnection, self._forget, self._body_bytes_max)
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

    def _forget(self, connection: ClientConnection) -> None:
        """Know nothing more of a connection that is gone; one in use is given back by whoever uses it."""
        for idle in self._idle.values():
            idle.pop(connection, None)


@lru_cache(maxsize=1)
def tls_context() -> ssl.SSLContext:
    """Return whom TLS trusts: as the system does."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


@lru_cache(maxsize=256)
def _kind_of(content_type: str) -> str:
    """Return the type of a body without its parameters: most answers have the same ones."""
    return content_type.partition(";")[0].strip()


async def _nothing(end: T) -> T:
    return end


@lru_cache(maxsize=256)
def write_head(method: str, target: DialTarget, headers: tuple[tuple[str, str], ...]) -> bytes:
    """Write the first line and the headers of a request, all but the length of its body: the same go to a place often.

    Raises: ValueError for a header that would be more than one line.
    """
    lines = [f"{method} {target.path} HTTP/1.1", f"Host: {target.host}"]
    lines += [f"{name}: {value}" for name, value in headers]
    text = "\r\n".join(lines)
    if text.count("\r") != len(lines) - 1 or text.count("\n") != len(lines) - 1 or "\0" in text:
        raise ValueError("a header of a request holds a line break")
    return text.encode() + b"\r\n"
