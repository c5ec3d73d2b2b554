"""One connection to a server: a request goes out, the head and the body of its answer come in as they arrive.

What one read of the network brings is handed over in one piece, however many chunks of HTTP it was. A body that
nobody reads is not read ahead without end. Silence while somebody waits ends the connection.
"""

import asyncio
import zlib
from collections.abc import Callable
from functools import lru_cache
from itertools import repeat
from typing import Any, Protocol, cast

import httptools

from treadle.http.client_errors import BadPacking, BrokenOff, TooLarge

READ_AHEAD_BYTES = 262_144
HEAD_BYTES_MAX = 262_144
LINGER_S = 0.2
"""How long the rest of an answer may take to come that nobody reads: only then can its connection be used again."""

FRAMING_BYTES_MAX = 262_144
"""What may come between two pieces of a body, or behind the last one: chunk extensions and trailers."""

UNPACKED_BYTES = 65_536
"""How much of a packed body is unpacked at a time."""

_PACKED = frozenset({"gzip", "x-gzip", "deflate"})
"""The encodings that are understood: some proxies pack although nobody asked."""

_ANY_PACKING = 47
"""How zlib is told to see for itself which of them it is."""


Take = Callable[[bytes], Any]
"""Makes something of bytes, or None where there is nothing to be made of them yet."""


class _Unpacker(Protocol):
    @property
    def eof(self) -> bool: ...

    @property
    def unconsumed_tail(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int = 0, /) -> bytes: ...


@lru_cache(maxsize=256)
def _small(name: bytes) -> str:
    """Return the name of a header in small letters: most answers have the same ones."""
    return name.decode("latin-1").lower()


_UTF8, _LENIENTLY = repeat("utf-8"), repeat("replace")
_VERSIONS = frozenset({"1.0", "1.1"})
"""How the values of headers are decoded, for each of any number of them."""


def _as_it_is(data: bytes) -> bytes:
    return data


def _again(error: OSError) -> OSError:
    """Return an error like that one, to be raised."""
    # The one that is kept would get a traceback, whose frames hold this connection and all that was made of its answer:
    # a cycle around a whole run, which stays until the collector runs.
    return type(error)(*error.args)


class ClientConnection(asyncio.Protocol):
    """A connection. One answer at a time, each of at most `bytes_max`; `lost` is called when it is gone."""

    def __init__(self, lost: "Callable[[ClientConnection], None]", bytes_max: int) -> None:
        self.loop = asyncio.get_running_loop()
        self._lost = lost
        self._bytes_max = bytes_max
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[Any] | None = None
        self._take: Take | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._over: Callable[[ClientConnection], None] | None = None
        self._linger: asyncio.TimerHandle | None = None
        self._silent_since = 0.0
        self._pieces: list[bytes] = []
        self._said: dict[bytes, bytes] = {}
        # The parser tells pieces and headers to these themselves; of a header that is repeated the first is kept.
        self.on_body = self._pieces.append
        self.on_header = self._said.setdefault
        self._parser = httptools.HttpResponseParser(self)
        self.status = 0
        self.headers: dict[str, str] = {}
        self._idle_s = 0.0
        self._error: OSError | None = None
        self._unpacker: _Unpacker | None = None
        self._packed = b""
        self._bytes_left = self._packed_bytes_left = bytes_max
        self._framing_bytes = self._surplus_bytes = 0
        self._unread = 0
        self._is_busy = self._is_paused = self._is_passing = self._is_whole = self._is_kept = False

    @property
    def is_open(self) -> bool:
        """Tell whether a request can be sent."""
        return self._transport is not None and not self._transport.is_closing()

    def rest(self) -> bool:
        """Have no answer any more, and hold nothing of it: whatever comes now ends the connection.

        False, where it cannot be used again: the answer was not whole, or the request did not go out, or the other
        side does not want to go on.
        """
        transport = self._transport
        if transport is None or not (self._is_whole and self._is_kept) or self._error is not None:
            return False
        if transport.get_write_buffer_size() or transport.is_closing():
            return False
        self._is_busy = False
        if self._pieces or self._said:
            # What nobody read of this answer is not the next one's.
            self._pieces.clear()
            self._said.clear()
        return True

    def let_end(self, over: "Callable[[ClientConnection], None]") -> None:
        """Pass over what is left of the answer, and tell when that is done; a connection that takes long is ended."""
        if self._is_whole or self._transport is None:
            over(self)
            return
        self._over, self._take = over, None
        self._linger = self.loop.call_later(LINGER_S, self.abort)
        self._pass_over()

    def _pass_over(self) -> None:
        """Forget what has come, and tell if it was the end."""
        self._pieces.clear()
        self._unread = 0
        if self._is_paused:
            self._resume()
        if self._is_whole or self._transport is None:
            over, self._over = self._over, None
            assert over is not None
            assert self._linger is not None
            self._linger.cancel()
            over(self)

    def abort(self) -> None:
        """End the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    async def ask(self, request: bytes, idle_s: float) -> None:
        """Send a request and wait for the head of its answer.

        Raises: BrokenOff, TimeoutError.
        """
        if self._transport is None:
            raise BrokenOff("the connection was closed")
        if idle_s != self._idle_s:
            self._stop_looking()
            self._idle_s = idle_s
        if self._unpacker is not None:
            self._unpacker, self._packed = None, b""
        self._bytes_left = self._packed_bytes_left = self._bytes_max
        self.status = self._unread = self._framing_bytes = self._surplus_bytes = 0
        self._is_whole = False
        self._is_busy = True
        self._transport.write(request)
        while not self.status:
            if self._error is not None:
                raise _again(self._error)
            await self._wait()
        if "content-encoding" in self.headers:
            self._heed_packing(self.headers["content-encoding"].strip().lower())

    def _heed_packing(self, packing: str) -> None:
        if packing in _PACKED:
            self._unpacker = zlib.decompressobj(_ANY_PACKING)
        elif packing not in ("", "identity"):
            raise BadPacking(f"the body is packed as {packing[:40]}, which nobody asked for")

    async def read(self) -> bytes:
        """Return what has arrived of the body, waiting for at least one byte; nothing at its end.

        Raises: BrokenOff, TimeoutError.
        """
        return await self.read_into(_as_it_is) or b""

    async def read_into(self, take: Take) -> Any:
        """Give the body to `take` until that makes something, and return it; None at the end.

        While this waits, `take` is called in the turn in which bytes arrive.
        Raises: BrokenOff, TimeoutError.
        """
        while True:
            if self._pieces or self._packed:
                data = self._next()
                made = take(data) if data else None
            elif self._is_whole:
                self._check_packing()
                return None
            elif self._error is not None:
                raise _again(self._error)
            else:
                # What is packed is unpacked, a bit at a time, by whoever waits.
                self._take = take if self._unpacker is None else None
                try:
                    made = await self._wait()
                finally:
                    # A connection that rests must not hold what was made.
                    self._take = self._waiter = None
            if made is not None:
                return made

    def _next(self) -> bytes:
        """Return what has come and is not taken yet, unpacked."""
        if self._unread:
            self._unread = 0
            if self._is_paused:
                self._resume()
        if self._unpacker is not None:
            self._packed_bytes_left -= sum(map(len, self._pieces))
            if self._packed_bytes_left < 0:
                raise TooLarge("the answer is larger than it may be")
            self._pieces[:] = [self._unpack(self._unpacker, self._packed + b"".join(self._pieces))]
        return self._join()

    def _join(self) -> bytes:
        """Return the pieces that there are as one; the only one is not copied."""
        pieces = self._pieces
        data = b"".join(pieces)
        pieces.clear()
        self._bytes_left -= len(data)
        if self._bytes_left < 0:
            raise TooLarge("the answer is larger than it may be")
        return data

    def _resume(self) -> None:
        """Let more come, now that what came is taken."""
        self._is_paused = False
        if self._transport is not None:
            self._transport.resume_reading()

    def _check_packing(self) -> None:
        """Refuse a packed body that ends before its packing does: what is missing would go unnoticed."""
        is_empty = self._packed_bytes_left == self._bytes_max
        if self._unpacker is not None and not self._unpacker.eof and not is_empty:
            raise BadPacking("the packed body is cut off")

    def _unpack(self, unpacker: _Unpacker, data: bytes) -> bytes:
        """Unpack what came, at most so much at a time. What follows the packed body is dropped, and bounded: the
        unpacker would keep all of it."""
        if unpacker.eof:
            self._surplus_bytes += len(data)
            if self._surplus_bytes > FRAMING_BYTES_MAX:
                raise BadPacking("more follows the packed body than belongs to it")
            return b""
        try:
            unpacked = unpacker.decompress(data, UNPACKED_BYTES)
        except zlib.error:
            raise BadPacking("the body is not packed as it says") from None
        self._packed = b"" if unpacker.eof else unpacker.unconsumed_tail
        return unpacked

    def _wait(self) -> "asyncio.Future[Any]":
        """Return what ends when something has happened, which is an error if it takes too long."""
        waiter = self._waiter = self.loop.create_future()
        self._silent_since = self.loop.time()
        if self._timer is None:
            # One timer for many waits: to set one for each would cost more than to read what comes.
            self._timer = self.loop.call_later(self._idle_s, self._look)
        return waiter

    def _look(self) -> None:
        """End a connection that has been silent for too long while somebody waits."""
        self._timer = None
        if self._waiter is None or self._waiter.done():
            return
        left_s = self._silent_since + self._idle_s - self.loop.time()
        if left_s <= 0:
            self._fail(TimeoutError())
        else:
            self._timer = self.loop.call_later(left_s, self._look)

    def _stop_looking(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _fail(self, error: OSError) -> None:
        if self._error is None and not self._is_whole:
            self._error = error
        self.abort()
        self._wake()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way out."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Read what came; whoever waits goes on once, and only if something is made of it."""
        if not self._is_busy:
            self.abort()
            return
        before = len(self._pieces)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._fail(BrokenOff("what came is not HTTP"))
            return
        if len(self._pieces) == before:
            self._count_framing(len(data))
        elif self._framing_bytes:
            self._framing_bytes = 0
        waiter, take = self._waiter, self._take
        if take is None or waiter is None or self._is_whole or waiter.done():
            self._keep(len(data))
            return
        self._silent_since = self.loop.time()
        if not self._pieces:
            return
        try:
            made = take(self._join())
        except Exception as error:
            if not waiter.done():
                waiter.set_exception(error)
            raise
        if made is not None and not waiter.done():
            waiter.set_result(made)

    def _count_framing(self, size: int) -> None:
        """Bound what comes behind a head without being body, and keep none of it: trailers are not read."""
        if not self.status or self._is_whole:
            return
        self._said.clear()
        self._framing_bytes += size
        if self._framing_bytes > FRAMING_BYTES_MAX:
            self._fail(BrokenOff("the trailers of the answer have no end"))

    def _keep(self, size: int) -> None:
        """Keep what came until somebody takes it, and wake whoever waits for it."""
        self._unread += size
        if not self.status:
            if self._unread > HEAD_BYTES_MAX:
                self._fail(BrokenOff("the head of the answer has no end"))
            return
        if self._unread > READ_AHEAD_BYTES and not self._is_paused and not self._is_whole:
            self._is_paused = True
            assert self._transport is not None
            self._transport.pause_reading()
        if self._over is not None:
            self._pass_over()
        elif (waiter := self._waiter) is not None and not waiter.done():
            waiter.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Take the end: of a body that only the end of its connection ends it is the end, of any other it is a cut."""
        if self._is_busy and not self._is_whole:
            is_bounded = "content-length" in self.headers or "chunked" in self.headers.get("transfer-encoding", "")
            if self.status and not is_bounded and exc is None and self._error is None:
                self._is_whole = True
            elif self._error is None:
                self._error = BrokenOff("the connection was closed")
        self._transport = None
        self._stop_looking()
        self._wake()
        if self._over is not None:
            self._pass_over()
        # It holds this connection, and nothing more will come.
        del self._parser
        self._lost(self)

    def on_message_begin(self) -> None:
        """Refuse an answer behind the one that was asked for."""
        if self._is_whole:
            raise BrokenOff("more came than was asked for")

    def on_headers_complete(self) -> None:
        """Take the status and the headers, unless this only says that the answer is still to come."""
        if self._parser.get_http_version() not in _VERSIONS:
            raise ValueError("an answer of another version of HTTP")
        status = self._parser.get_status_code()
        self._is_passing = status // 100 == 1
        if not self._is_passing:
            self.status = status
            said = self._said
            self.headers = dict(zip(map(_small, said), map(str, said.values(), _UTF8, _LENIENTLY), strict=True))
            if len(self.headers) != len(said):
                for name, value in reversed(said.items()):
                    self.headers[_small(name)] = value.decode("utf-8", "replace")
        self._said.clear()

    def on_message_complete(self) -> None:
        """Take the end of the body."""
        if not self._is_passing:
            self._is_whole = True
            self._is_kept = self._parser.should_keep_alive()
