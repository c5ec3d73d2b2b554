"""One request of a connection and the answer to it, as uvicorn has them, with what is done at once: see `http.Edge`.

Thousands of streams may be open: what uvicorn makes for somebody to wait on is made here when somebody waits.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from treadle.server.http import Header, Receive, Send

_BODILESS = frozenset({204, 304})
_CONTROLS = bytes(each for each in (*range(32), 127) if each != ord("\t"))
"""What ends a line of a head, or may not be in one."""


class Bell:
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
        self._is_writable_event = Bell(is_set=True)  # type: ignore[assignment]


class Cycle(RequestResponseCycle):
    """Answers one request of a connection. Fits `http.Edge`: what `is_flowing` is a stream that it began at once.

    What is so with every request in the beginning stands here and not in each of them.
    """

    disconnected = False
    more_body = True
    response_started = False
    response_complete = False
    chunked_encoding: bool | None = None
    expected_content_length = 0
    is_flowing = False
    _is_taken = False

    def __init__(self, connection: HttpToolsProtocol, *, is_kept: bool) -> None:
        self.scope = connection.scope
        self.transport = connection.transport
        self.flow = connection.flow
        self.logger = connection.logger
        self.access_logger = connection.access_logger
        self.access_log = connection.access_log
        self.default_headers = connection.server_state.default_headers
        self.message_event = Bell()  # type: ignore[assignment]
        self.waiting_for_100_continue = connection.expect_100_continue
        self.keep_alive = is_kept
        self.on_response = connection.on_response_complete
        self.body = bytearray()

    def is_asked_by(self, receive: Receive, send: Send) -> bool:
        """Tell whether these are of this request, and not wrapped in others."""
        return getattr(receive, "__self__", None) is self and getattr(send, "__self__", None) is self

    async def receive(self) -> Any:
        """Return what came of the body; what is left of it at once, when that is there."""
        body = self.take_now()
        if body is None:
            message: Any = await super().receive()
            self._is_taken |= not message.get("more_body", True)
            return message
        return {"type": "http.request", "body": body, "more_body": False}

    def take_now(self) -> bytes | None:
        """Return what is left of the body, if it is there to its end and was not taken yet."""
        is_over = self.disconnected or self.response_complete
        if self.more_body or self._is_taken or self.waiting_for_100_continue or is_over:
            return None
        self._is_taken = True
        self.message_event.clear()
        if self.flow.read_paused:
            self.flow.resume_reading()
        body, self.body = bytes(self.body), bytearray()
        return body

    def begin_now(self, status: int, headers: tuple[Header, ...], data: bytes, *, is_whole: bool) -> bool:
        """Send the head of an answer with all of its body, or with the beginning of its stream, in one write."""
        scope, flow = self.scope, self.flow
        is_plain = scope["http_version"] == "1.1" and scope["method"] != "HEAD" and status not in _BODILESS
        if not is_plain or self.response_started or self.disconnected or flow.write_paused:
            return False
        said = b"".join([b"%b: %b\r\n" % header for header in (*self.default_headers, *headers)])
        lines = len(self.default_headers) + len(headers)
        if b"connection: " in said or len(said.translate(None, _CONTROLS)) != len(said) - 2 * lines:
            return False  # uvicorn says what is wrong with it, or closes the connection
        self.response_started = True
        self.waiting_for_100_continue = False
        closing = b"" if self.keep_alive else b"connection: close\r\n"
        if is_whole:
            self.transport.write(b"%b%b%b\r\n%b" % (STATUS_LINE[status], said, closing, data))
            self._complete()
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

    def _complete(self) -> None:
        """Be done with an answer as uvicorn is."""
        self.response_complete = True
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()
