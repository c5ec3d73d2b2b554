"""One request of a connection and the answer to it, as uvicorn has them, with what is done at once: see `asgi.Edge`.

Thousands of streams may be open: what uvicorn makes for somebody to wait on is made here when somebody waits.
"""

import asyncio
import logging
from typing import Any

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from treadle.http.asgi import Header, Receive, Send

_BODILESS = frozenset({204, 304})
_CONTROLS = bytes(each for each in (*range(32), 127) if each != ord("\t"))
"""What ends a line of a head, or may not be in one."""

_write_header = b"%b: %b\r\n".__mod__


class WakeSignal:
    """Tells whoever waits that something happened, as asyncio's `Event` does."""

    __slots__ = ("_is_set", "_waiters")

    def __init__(self, *, is_set: bool = False) -> None:
        self._is_set = is_set
        self._waiters: list[asyncio.Future[None]] | None = None

    def set(self) -> None:
        """Let all go on that wait, and whoever comes until it is cleared."""
        self._is_set = True
        if self._waiters is not None:
            waiters, self._waiters = self._waiters, None
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    def clear(self) -> None:
        """Let wait whoever comes now."""
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
    """Whether a connection is read from and taken from."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.read_paused = False
        self.write_paused = False
        self._is_writable_event = WakeSignal(is_set=True)  # type: ignore[assignment]


_UNHEARD = WakeSignal()
"""The bell of all requests that nobody waits for."""


class Cycle(RequestResponseCycle):
    """Answers one request of a connection. Fits `asgi.Edge`: what `is_flowing` is a stream that it began at once.

    What is so with every request in the beginning stands here and not in each of them. Most bodies come in one piece,
    which is the body; who has to wait for one `is_awaited` by, and has a bell of its own.
    """

    logger = logging.getLogger("uvicorn.error")
    access_logger = logging.getLogger("uvicorn.access")
    access_log = False  # requests are logged by whoever answers them
    body: bytes | bytearray = b""  # type: ignore[assignment]
    message_event = _UNHEARD  # type: ignore[assignment]
    is_awaited = False
    waiting_for_100_continue = False
    disconnected = False
    more_body = True
    response_started = False
    response_complete = False
    chunked_encoding: bool | None = None
    expected_content_length = 0
    is_flowing = False
    _is_taken = False

    def __init__(self, connection: HttpToolsProtocol, scope: Any, *, is_kept: bool) -> None:
        self.scope = scope
        self.transport = connection.transport
        self.flow = connection.flow
        self.default_headers = connection.server_state.default_headers
        self.keep_alive = is_kept
        self.on_response = connection.on_response_complete

    def is_asked_by(self, receive: Receive, send: Send) -> bool:
        """Tell whether these are of this request, and not wrapped in others."""
        return receive == self.receive and send == self.send

    async def receive(self) -> Any:
        """Return what came of the body; what is left of it at once, when that is there."""
        body = self.take_now()
        if body is not None:
            return {"type": "http.request", "body": body, "more_body": False}
        if not self.is_awaited:
            self.is_awaited = True
            self.message_event = WakeSignal(is_set=bool(self.body) or not (self.more_body or self._is_taken))  # type: ignore[assignment]
        message: Any = await super().receive()
        self._is_taken |= not message.get("more_body", True)
        return message

    async def send(self, message: Any) -> None:
        """Send more of the answer; who speaks HTTP/1.0 knows no chunks, and reads until the connection ends."""
        if self.scope["http_version"] == "1.0":
            self.chunked_encoding, self.expected_content_length = False, len(message.get("body", b""))
        await super().send(message)

    def add(self, piece: bytes) -> None:
        """Take a further piece of the body."""
        if type(self.body) is not bytearray:
            self.body = bytearray(self.body)
        self.body += piece

    def take_now(self) -> bytes | None:
        """Return what is left of the body, if it is there to its end and was not taken yet."""
        if self.more_body or self._is_taken or self.waiting_for_100_continue:
            return None
        if self.disconnected or self.response_complete:
            return None
        self._is_taken = True
        if self.is_awaited:
            self.message_event.clear()
        if self.flow.read_paused:
            self.flow.resume_reading()
        body, self.body = self.body, b""
        return bytes(body)

    def begin_now(self, status: int, headers: tuple[Header, ...], data: bytes, *, is_whole: bool) -> bool:
        """Send the head of an answer with all of its body, or with the beginning of its stream, in one write."""
        scope, flow = self.scope, self.flow
        is_plain = scope["http_version"] == "1.1" and scope["method"] != "HEAD" and status not in _BODILESS
        if not is_plain or self.response_started or self.disconnected or flow.write_paused:
            return False
        headers = (*self.default_headers, *headers)
        said = b"".join(map(_write_header, headers))
        if b"connection: " in said or len(said.translate(None, _CONTROLS)) != len(said) - 2 * len(headers):
            return False  # uvicorn says what is wrong with it, or closes the connection
        self.response_started = True
        self.waiting_for_100_continue = False
        closing = b"" if self.keep_alive else b"connection: close\r\n"
        if is_whole:
            self.transport.write(b"%b%b%b\r\n%b" % (STATUS_LINE[status], said, closing, data))
            self.response_complete = True
            if self.is_awaited:
                self.message_event.set()
            if not self.keep_alive:
                self.transport.close()
            self.on_response()
        else:
            self.chunked_encoding = self.is_flowing = True
            chunk = b"%x\r\n%b\r\n" % (len(data), data) if data else b""
            head = b"%b%b%btransfer-encoding: chunked\r\n\r\n%b" % (STATUS_LINE[status], said, closing, chunk)
            self.transport.write(head)
        return True

    def write_now(self, data: bytes) -> None:
        """Send more of a stream that is flowing; a piece of nothing would be the end."""
        if data:
            self.transport.write(b"%x\r\n%b\r\n" % (len(data), data))

    def pause(self) -> None:
        """Hear that the client takes less than it is sent."""
        self.is_flowing = False

    def resume(self) -> None:
        """Hear that it takes more."""
        self.is_flowing = bool(self.chunked_encoding) and not (self.disconnected or self.response_complete)

    def leave(self) -> None:
        """Hear that the client is gone."""
        self.disconnected = True
        self.is_flowing = False
        self.message_event.set()
