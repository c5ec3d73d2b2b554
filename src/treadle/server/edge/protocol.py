"""HTTP/1.1 with bounds on what comes before a request is whole: how long its head may take, and how large it may be.

uvicorn reads a head for as long and as far as somebody sends it, and a body that nobody wants any more to its end.
Here a slow or endless head is answered and the connection closed, and after an early answer the rest is not waited for.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from treadle.canon.errors import ErrorInfo
from treadle.server.http import envelope_of, write_refusal

HEAD_BYTES_MAX = 131_072
"""Of request line and headers together; the guard's own bounds are smaller, and it answers in more detail."""

LINGER_S = 2.0
"""How long a client that still sends may take to read an answer that came early."""

_PHRASES = {400: "Bad Request", 408: "Request Timeout", 414: "URI Too Long", 431: "Request Header Fields Too Large"}


class BoundedProtocol(HttpToolsProtocol):
    """One connection."""

    def __init__(self, *args: Any, head_timeout_s: float, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.url = b""
        self._head_timeout_s = head_timeout_s
        self._head_timer: asyncio.TimerHandle | None = None
        self._linger_timer: asyncio.TimerHandle | None = None
        self._head_bytes = 0
        self._is_in_body = False
        self._is_refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first head."""
        super().connection_made(transport)
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing any more."""
        self._stop_waiting()
        self._stop_lingering()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on, unless this head is larger than any may be."""
        if self._is_refused:
            return
        if not self._is_in_body:
            self._head_bytes += len(data)
            if self._head_timer is None:
                self._wait_for_head()
        super().data_received(data)
        if not self._is_in_body and self._head_bytes > HEAD_BYTES_MAX and not self._is_refused:
            status, code = (431, "headers_too_large") if self.headers else (414, "path_too_long")
            self._refuse(status, code, f"The head of the request is over {HEAD_BYTES_MAX} bytes.")

    def on_headers_complete(self) -> None:
        """Stop waiting for the head: what comes now is the body's, which has bounds of its own."""
        self._stop_waiting()
        self._head_bytes = 0
        self._is_in_body = True
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Note that the request is whole."""
        self._is_in_body = False
        self._stop_lingering()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Leave a client that has its answer and still sends what nobody reads."""
        super().on_response_complete()
        if self._is_in_body and not self.transport.is_closing():
            self._linger()

    def send_400_response(self, msg: str) -> None:
        """Say that this is not HTTP, in the envelope of the API that was called, if that much was readable."""
        self._refuse(400, "invalid_http", "This is not a request that HTTP/1.1 allows.")

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete  # pyright: ignore[reportUnnecessaryComparison]

    def _wait_for_head(self) -> None:
        self._head_timer = self.loop.call_later(self._head_timeout_s, self._time_out)

    def _stop_waiting(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _time_out(self) -> None:
        """Give up on a head; a stray byte behind a request does not end the answer to it."""
        self._head_timer = None
        if self._is_answering():
            return
        if self._head_bytes:
            message = f"The head of the request did not arrive within {self._head_timeout_s:g} s."
            self._refuse(408, "request_timeout", message)
        else:
            self.transport.close()

    def _refuse(self, status: int, code: str, message: str) -> None:
        """Answer without an application, and close once the client has had time to read that."""
        self._stop_waiting()
        self._is_refused = True
        if self._is_answering():
            if self.cycle.response_started or self.transport.is_closing():
                self.transport.close()
                return
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        path = self.url.partition(b"?")[0].decode("latin-1")
        body = write_refusal(envelope_of(path), ErrorInfo(code=code, message=message, status=status))
        head = (
            f"HTTP/1.1 {status} {_PHRASES[status]}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\ncache-control: no-store\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._linger()

    def _linger(self) -> None:
        if self._linger_timer is None:
            self._linger_timer = self.loop.call_later(LINGER_S, self.transport.close)

    def _stop_lingering(self) -> None:
        if self._linger_timer is not None:
            self._linger_timer.cancel()
            self._linger_timer = None


def bounded(head_timeout_s: float) -> type[asyncio.Protocol]:
    """Return the protocol for uvicorn, with this bound."""
    make = cast("Callable[..., object]", BoundedProtocol)
    return cast("type[asyncio.Protocol]", partial(make, head_timeout_s=head_timeout_s))
