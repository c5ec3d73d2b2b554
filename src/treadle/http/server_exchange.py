"""One request and its response on uvicorn's connection, with the synchronous methods of `asgi.Edge`.

Thousands of streams may be open, so per-request objects that uvicorn always creates are created here only when needed.
"""

import asyncio
import logging
from typing import Any

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from treadle.http.asgi import Header, Receive, Send

_BODILESS = frozenset({204, 304})
_CONTROLS = bytes(each for each in (*range(32), 127) if each != ord("\t"))
"""Control characters that end a header line or are not allowed in one."""

_write_header = b"%b: %b\r\n".__mod__


class WakeSignal:
    """A smaller `asyncio.Event`: the list of waiters is created by the first one."""

    __slots__ = ("_is_set", "_waiters")

    def __init__(self, *, is_set: bool = False) -> None:
        self._is_set = is_set
        self._waiters: list[asyncio.Future[None]] | None = None

    def set(self) -> None:
        """Wake all waiters; until `clear`, `wait` returns at once."""
        self._is_set = True
        if self._waiters is not None:
            waiters, self._waiters = self._waiters, None
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    def clear(self) -> None:
        """Make `wait` block again."""
        self._is_set = False

    async def wait(self) -> bool:
        """Wait until it is set."""
        if not self._is_set:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters = [*(self._waiters or ()), waiter]
            try:
                await waiter
            finally:
                if waiter in (self._waiters or ()):
                    self._waiters.remove(waiter)
        return True


class Flow(FlowControl):
    """uvicorn's flow control with a `WakeSignal` instead of an `asyncio.Event`."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.read_paused = False
        self.write_paused = False
        self._is_writable_event = WakeSignal(is_set=True)  # type: ignore[assignment]


_UNAWAITED = WakeSignal()
"""Shared by all requests whose body nothing waits for; never waited on."""


class Cycle(RequestResponseCycle):
    """Responds to one request of a connection; implements `asgi.Edge`.

    Initial values are class attributes, so that an instance only stores what changed. Most bodies arrive in one piece
    and are never waited for; `is_awaited` is set by a `receive` that waits, which creates its own `message_event`.
    """

    logger = logging.getLogger("uvicorn.error")
    access_logger = logging.getLogger("uvicorn.access")
    access_log = False  # the application logs its requests
    body: bytes | bytearray = b""  # type: ignore[assignment]
    message_event = _UNAWAITED  # type: ignore[assignment]
    is_awaited = False
    waiting_for_100_continue = False
    disconnected = False
    more_body = True
    response_started = False
    response_complete = False
    chunked_encoding: bool | None = None
    expected_content_length = 0
    is_flowing = False
    _is_body_taken = False

    def __init__(self, connection: HttpToolsProtocol, scope: Any, *, is_kept: bool) -> None:
        self.scope = scope
        self.transport = connection.transport
        self.flow = connection.flow
        self.default_headers = connection.server_state.default_headers
        self.keep_alive = is_kept
        self.on_response = connection.on_response_complete

    def is_direct(self, receive: Receive, send: Send) -> bool:
        """Return whether these are this request's own callables, not wrapped by a middleware."""
        return receive == self.receive and send == self.send

    async def receive(self) -> Any:
        """Return the next part of the body; all of it, without waiting, if it has arrived."""
        body = self.try_take_body_now()
        if body is not None:
            return {"type": "http.request", "body": body, "more_body": False}
        if not self.is_awaited:
            self.is_awaited = True
            self.message_event = WakeSignal(is_set=bool(self.body) or not (self.more_body or self._is_body_taken))  # type: ignore[assignment]
        message: Any = await super().receive()
        self._is_body_taken |= not message.get("more_body", True)
        return message

    async def send(self, message: Any) -> None:
        """Send a part of the response. HTTP/1.0 has no chunks: its body ends with the connection."""
        if self.scope["http_version"] == "1.0":
            self.chunked_encoding, self.expected_content_length = False, len(message.get("body", b""))
        await super().send(message)

    def add(self, piece: bytes) -> None:
        """Append a piece of the body."""
        if type(self.body) is not bytearray:
            self.body = bytearray(self.body)
        self.body += piece

    def try_take_body_now(self) -> bytes | None:
        """Return the rest of the body if all of it has arrived and it was not taken yet."""
        if self.more_body or self._is_body_taken or self.waiting_for_100_continue:
            return None
        if self.disconnected or self.response_complete:
            return None
        self._is_body_taken = True
        if self.is_awaited:
            self.message_event.clear()
        if self.flow.read_paused:
            self.flow.resume_reading()
        body, self.body = self.body, b""
        return bytes(body)

    def try_start_now(self, status: int, headers: tuple[Header, ...], data: bytes, *, is_whole: bool) -> bool:
        """Send the head with the body, or the start of the stream, in one write; False if ASGI must do it."""
        scope, flow = self.scope, self.flow
        is_plain = scope["http_version"] == "1.1" and scope["method"] != "HEAD" and status not in _BODILESS
        if not is_plain or self.response_started or self.disconnected or flow.write_paused:
            return False
        headers = (*self.default_headers, *headers)
        encoded_headers = b"".join(map(_write_header, headers))
        if b"connection: " in encoded_headers or len(encoded_headers.translate(None, _CONTROLS)) != len(
            encoded_headers
        ) - 2 * len(headers):
            return False  # uvicorn reports the invalid header, or closes the connection
        self.response_started = True
        self.waiting_for_100_continue = False
        closing = b"" if self.keep_alive else b"connection: close\r\n"
        if is_whole:
            self.transport.write(b"%b%b%b\r\n%b" % (STATUS_LINE[status], encoded_headers, closing, data))
            self.response_complete = True
            if self.is_awaited:
                self.message_event.set()
            if not self.keep_alive:
                self.transport.close()
            self.on_response()
        else:
            self.chunked_encoding = self.is_flowing = True
            chunk = b"%x\r\n%b\r\n" % (len(data), data) if data else b""
            head = b"%b%b%btransfer-encoding: chunked\r\n\r\n%b" % (
                STATUS_LINE[status],
                encoded_headers,
                closing,
                chunk,
            )
            self.transport.write(head)
        return True

    def write_now(self, data: bytes) -> None:
        """Send a chunk of a flowing stream."""
        if data:  # an empty chunk would end the body
            self.transport.write(b"%x\r\n%b\r\n" % (len(data), data))

    def pause(self) -> None:
        """The client reads slower than it is sent: use ASGI, which waits."""
        self.is_flowing = False

    def resume(self) -> None:
        """The client has caught up."""
        self.is_flowing = bool(self.chunked_encoding) and not (self.disconnected or self.response_complete)

    def disconnect(self) -> None:
        """The client has disconnected."""
        self.disconnected = True
        self.is_flowing = False
        self.message_event.set()
