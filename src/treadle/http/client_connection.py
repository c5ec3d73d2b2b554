"""One HTTP/1.1 client connection: sends a request, and reads the head and body of its response as they arrive.

All of one network read is handed over in one piece, however many HTTP chunks it held. If the body is not read, reading
from the socket pauses. If the server is silent for too long while someone waits, the connection is closed.
"""

import asyncio
import zlib
from collections.abc import Callable
from functools import lru_cache
from itertools import repeat
from typing import Any, Protocol, cast

import httptools

from treadle.http.client_errors import BadContentEncoding, BodyTooLarge, ConnectionBroken

READ_AHEAD_BYTES = 262_144
HEAD_BYTES_MAX = 262_144
LINGER_S = 0.2
"""How long to wait for the unread rest of a response, so that its connection can be reused."""

FRAMING_BYTES_MAX = 262_144
"""Bound on the bytes between two pieces of a body, or after the last one: chunk extensions and trailers."""

UNPACKED_BYTES = 65_536
"""How much of a compressed body is decompressed at a time."""

_COMPRESSED = frozenset({"gzip", "x-gzip", "deflate"})
"""The content encodings that are understood: some proxies compress although the request asks for none."""

_ANY_WBITS = 47
"""zlib's `wbits` for detecting gzip or deflate by itself."""


BytesConsumer = Callable[[bytes], Any]
"""Takes bytes and returns a value, or None if it needs more bytes for one."""


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...

    @property
    def unconsumed_tail(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int = 0, /) -> bytes: ...


@lru_cache(maxsize=256)
def _lower_name(name: bytes) -> str:
    """Return a header's name in lower case. Cached, because most responses have the same headers."""
    return name.decode("latin-1").lower()


# Arguments of `str` for each of any number of header values, for one `map` without a Python loop.
_UTF8, _REPLACE = repeat("utf-8"), repeat("replace")
_VERSIONS = frozenset({"1.0", "1.1"})


def _identity(data: bytes) -> bytes:
    return data


def _copy_error(error: OSError) -> OSError:
    """Return a copy of an error, to be raised."""
    # Raising the stored error would give it a traceback, whose frames reference this connection and everything decoded
    # from its response: a cycle around a whole run that only the garbage collector frees.
    return type(error)(*error.args)


class ClientConnection(asyncio.Protocol):
    """A connection with one response at a time, each of at most `bytes_max`. `lost` is called once it is closed."""

    def __init__(self, lost: "Callable[[ClientConnection], None]", bytes_max: int) -> None:
        self.loop = asyncio.get_running_loop()
        self._on_lost = lost
        self._bytes_max = bytes_max
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[Any] | None = None
        self._consumer: BytesConsumer | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._on_rest_discarded: Callable[[ClientConnection], None] | None = None
        self._linger: asyncio.TimerHandle | None = None
        self._silent_since = 0.0
        self._pieces: list[bytes] = []
        self._header_bytes: dict[bytes, bytes] = {}
        # The parser calls these C methods directly, without a Python frame. Of a repeated header the first one is used.
        self.on_body = self._pieces.append
        self.on_header = self._header_bytes.setdefault
        self._parser = httptools.HttpResponseParser(self)
        self.status = 0
        self.headers: dict[str, str] = {}
        self._idle_s = 0.0
        self._error: OSError | None = None
        self._decompressor: _Decompressor | None = None
        self._compressed = b""
        self._bytes_left = self._compressed_bytes_left = bytes_max
        self._framing_bytes = self._surplus_bytes = 0
        self._unread = 0
        self._is_busy = self._is_paused = self._is_informational = self._is_complete = self._is_reusable = False

    @property
    def is_open(self) -> bool:
        """Return whether a request can be sent."""
        return self._transport is not None and not self._transport.is_closing()

    def try_reset(self) -> bool:
        """Drop the response and become idle, so that bytes from the server close the connection.

        False if the connection cannot be reused: the response is incomplete, the request was not sent completely, or
        the server does not keep the connection alive.
        """
        transport = self._transport
        if transport is None or not (self._is_complete and self._is_reusable) or self._error is not None:
            return False
        if transport.get_write_buffer_size() or transport.is_closing():
            return False
        self._is_busy = False
        if self._pieces or self._header_bytes:
            # Unread parts of this response must not become part of the next one.
            self._pieces.clear()
            self._header_bytes.clear()
        return True

    def discard_rest(self, over: "Callable[[ClientConnection], None]") -> None:
        """Discard the rest of the response, then call `over`. If that takes over `LINGER_S`, close the connection."""
        if self._is_complete or self._transport is None:
            over(self)
            return
        self._on_rest_discarded, self._consumer = over, None
        self._linger = self.loop.call_later(LINGER_S, self.abort)
        self._discard_read()

    def _discard_read(self) -> None:
        """Discard what has arrived; at the end of the response, call the callback."""
        self._pieces.clear()
        self._unread = 0
        if self._is_paused:
            self._resume()
        if self._is_complete or self._transport is None:
            over, self._on_rest_discarded = self._on_rest_discarded, None
            assert over is not None
            assert self._linger is not None
            self._linger.cancel()
            over(self)

    def abort(self) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    async def send_request(self, request: bytes, idle_s: float) -> None:
        """Send a request and wait for the head of its response.

        Raises: BrokenOff, TimeoutError.
        """
        if self._transport is None:
            raise ConnectionBroken("the connection was closed")
        if idle_s != self._idle_s:
            self._stop_silence_timer()
            self._idle_s = idle_s
        if self._decompressor is not None:
            self._decompressor, self._compressed = None, b""
        self._bytes_left = self._compressed_bytes_left = self._bytes_max
        self.status = self._unread = self._framing_bytes = self._surplus_bytes = 0
        self._is_complete = False
        self._is_busy = True
        self._transport.write(request)
        while not self.status:
            if self._error is not None:
                raise _copy_error(self._error)
            await self._wait()
        if "content-encoding" in self.headers:
            self._set_encoding(self.headers["content-encoding"].strip().lower())

    def _set_encoding(self, encoding: str) -> None:
        if encoding in _COMPRESSED:
            self._decompressor = zlib.decompressobj(_ANY_WBITS)
        elif encoding not in ("", "identity"):
            raise BadContentEncoding(f"the body is packed as {encoding[:40]}, which nobody asked for")

    async def read(self) -> bytes:
        """Return what has arrived of the body, waiting for at least one byte; empty at its end.

        Raises: BrokenOff, TimeoutError.
        """
        return await self.read_into(_identity) or b""

    async def read_into(self, take: BytesConsumer) -> Any:
        """Pass the body to `take` until it returns a value, and return that; None at the end.

        While this waits, `take` is called in the event loop turn in which the bytes arrive.

        Raises: BrokenOff, TimeoutError.
        """
        while True:
            if self._pieces or self._compressed:
                data = self._take_body()
                made = take(data) if data else None
            elif self._is_complete:
                self._check_decompressed()
                return None
            elif self._error is not None:
                raise _copy_error(self._error)
            else:
                # A compressed body is decompressed here, a piece at a time, and not in `data_received`.
                self._consumer = take if self._decompressor is None else None
                try:
                    made = await self._wait()
                finally:
                    # An idle connection must not reference the decoded value.
                    self._consumer = self._waiter = None
            if made is not None:
                return made

    def _take_body(self) -> bytes:
        """Return the unread part of the body, decompressed."""
        if self._unread:
            self._unread = 0
            if self._is_paused:
                self._resume()
        if self._decompressor is not None:
            self._compressed_bytes_left -= sum(map(len, self._pieces))
            if self._compressed_bytes_left < 0:
                raise BodyTooLarge("the answer is larger than it may be")
            self._pieces[:] = [self._decompress(self._decompressor, self._compressed + b"".join(self._pieces))]
        return self._join()

    def _join(self) -> bytes:
        """Join the buffered pieces; joining a single one does not copy it."""
        pieces = self._pieces
        data = b"".join(pieces)
        pieces.clear()
        self._bytes_left -= len(data)
        if self._bytes_left < 0:
            raise BodyTooLarge("the answer is larger than it may be")
        return data

    def _resume(self) -> None:
        """Read from the socket again, now that the buffer is empty."""
        self._is_paused = False
        if self._transport is not None:
            self._transport.resume_reading()

    def _check_decompressed(self) -> None:
        """Refuse a compressed body that was cut off: without this check the missing rest would go unnoticed."""
        is_empty = self._compressed_bytes_left == self._bytes_max
        if self._decompressor is not None and not self._decompressor.eof and not is_empty:
            raise BadContentEncoding("the packed body is cut off")

    def _decompress(self, decompressor: _Decompressor, data: bytes) -> bytes:
        """Decompress up to `UNPACKED_BYTES`. Bytes after the compressed body are dropped, up to a bound.

        They are not passed to the decompressor, which would store all of them.
        """
        if decompressor.eof:
            self._surplus_bytes += len(data)
            if self._surplus_bytes > FRAMING_BYTES_MAX:
                raise BadContentEncoding("more follows the packed body than belongs to it")
            return b""
        try:
            decompressed = decompressor.decompress(data, UNPACKED_BYTES)
        except zlib.error:
            raise BadContentEncoding("the body is not packed as it says") from None
        self._compressed = b"" if decompressor.eof else decompressor.unconsumed_tail
        return decompressed

    def _wait(self) -> "asyncio.Future[Any]":
        """Return a future for the next event on this connection; it fails if the server is silent for too long."""
        waiter = self._waiter = self.loop.create_future()
        self._silent_since = self.loop.time()
        if self._timer is None:
            # One timer serves many waits: setting one for each would cost more than reading the data.
            self._timer = self.loop.call_later(self._idle_s, self._check_silence)
        return waiter

    def _check_silence(self) -> None:
        """Close a connection whose server was silent for too long while a reader waits."""
        self._timer = None
        if self._waiter is None or self._waiter.done():
            return
        left_s = self._silent_since + self._idle_s - self.loop.time()
        if left_s <= 0:
            self._fail(TimeoutError())
        else:
            self._timer = self.loop.call_later(left_s, self._check_silence)

    def _stop_silence_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _fail(self, error: OSError) -> None:
        if self._error is None and not self._is_complete:
            self._error = error
        self.abort()
        self._wake()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Parse a read and pass its body to the consumer; the reader is woken only if that returns a value."""
        if not self._is_busy:
            self.abort()
            return
        before = len(self._pieces)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._fail(ConnectionBroken("what came is not HTTP"))
            return
        if len(self._pieces) == before:
            self._count_framing(len(data))
        elif self._framing_bytes:
            self._framing_bytes = 0
        waiter, take = self._waiter, self._consumer
        if take is None or waiter is None or self._is_complete or waiter.done():
            self._buffer(len(data))
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
        """Bound the bytes after the head that are not body, and drop them: trailers are ignored."""
        if not self.status or self._is_complete:
            return
        self._header_bytes.clear()
        self._framing_bytes += size
        if self._framing_bytes > FRAMING_BYTES_MAX:
            self._fail(ConnectionBroken("the trailers of the answer have no end"))

    def _buffer(self, size: int) -> None:
        """Count unread bytes, pause reading above the bound, and wake the waiting reader."""
        self._unread += size
        if not self.status:
            if self._unread > HEAD_BYTES_MAX:
                self._fail(ConnectionBroken("the head of the answer has no end"))
            return
        if self._unread > READ_AHEAD_BYTES and not self._is_paused and not self._is_complete:
            self._is_paused = True
            assert self._transport is not None
            self._transport.pause_reading()
        if self._on_rest_discarded is not None:
            self._discard_read()
        elif (waiter := self._waiter) is not None and not waiter.done():
            waiter.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Handle a closed connection: it completes a body without length or chunks, and cuts off any other."""
        if self._is_busy and not self._is_complete:
            is_bounded = "content-length" in self.headers or "chunked" in self.headers.get("transfer-encoding", "")
            if self.status and not is_bounded and exc is None and self._error is None:
                self._is_complete = True
            elif self._error is None:
                self._error = ConnectionBroken("the connection was closed")
        self._transport = None
        self._stop_silence_timer()
        self._wake()
        if self._on_rest_discarded is not None:
            self._discard_read()
        # The parser references this connection; without this the cycle waits for the garbage collector.
        del self._parser
        self._on_lost(self)

    def on_message_begin(self) -> None:
        """Refuse a second response to one request."""
        if self._is_complete:
            raise ConnectionBroken("more came than was asked for")

    def on_headers_complete(self) -> None:
        """Store status and headers; an informational response (1xx) is skipped."""
        if self._parser.get_http_version() not in _VERSIONS:
            raise ValueError("an answer of another version of HTTP")
        status = self._parser.get_status_code()
        self._is_informational = status // 100 == 1
        if not self._is_informational:
            self.status = status
            raw = self._header_bytes
            self.headers = dict(zip(map(_lower_name, raw), map(str, raw.values(), _UTF8, _REPLACE), strict=True))
            # Names that differ only in case collided above, and the last one won; the first one must.
            if len(self.headers) != len(raw):
                for name, value in reversed(raw.items()):
                    self.headers[_lower_name(name)] = value.decode("utf-8", "replace")
        self._header_bytes.clear()

    def on_message_complete(self) -> None:
        """Mark the response as complete; an informational one is not the response."""
        if not self._is_informational:
            self._is_complete = True
            self._is_reusable = self._parser.should_keep_alive()
