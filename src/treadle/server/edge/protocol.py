"""HTTP/1.1 with bounds on what comes before a request is whole, and on how long its answer may wait to be taken.

uvicorn reads a head for as long and as far as somebody sends it, and a body that nobody wants any more to its end.
Here a slow or endless head is answered and the connection closed, and after an early answer the rest is not waited for.
A client that takes nothing of its answer is waited for, and nothing more is read from the run meanwhile; after a while,
or when too much waits for it, it is cut off. Where its API allows that, it comes back and goes on where it was.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, cast

from uvicorn.protocols.http.httptools_impl import (
    HEADER_VALUE_RE,
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from treadle.canon.errors import ErrorInfo
from treadle.server.http import (
    BEHIND_IN_SCOPE,
    EDGE_IN_SCOPE,
    GONE_IN_SCOPE,
    WHOLE_IN_SCOPE,
    Behind,
    Header,
    Send,
    envelope_of,
    write_refusal,
)

log = logging.getLogger("treadle.server")

HEAD_BYTES_MAX = 131_072
"""Of request line and headers together; the guard's own bounds are smaller, and it answers in more detail."""

BEHIND_BYTES_MAX = 1_048_576
"""What may wait for a client that takes nothing; more of it means that it will not catch up."""

LOOK_S = 1.0
"""How often is looked how much waits for a client that takes nothing."""

LINGER_S = 2.0
"""How long a client that still sends may take to read an answer that came early."""

_BODILESS = frozenset({204, 304})

_PHRASES = {400: "Bad Request", 408: "Request Timeout", 414: "URI Too Long", 431: "Request Header Fields Too Large"}


SEND_S = 60.0
"""How long a client may take nothing of its answer, where nobody says otherwise."""


class Bounds(NamedTuple):
    """How long the head of a request may take to come, and its answer to be taken; who hears of clients cut off."""

    head_s: float
    send_s: float
    cut_off: Callable[[], None]


class BoundedProtocol(HttpToolsProtocol):
    """One connection. Its own fields are slots: a dict of over 30 names is no longer shared between connections."""

    __slots__ = (
        "_answering",
        "_bounds",
        "_head_bytes",
        "_head_timer",
        "_is_in_body",
        "_is_refused",
        "_linger_timer",
        "_look_timer",
        "_paused_at",
    )

    def __init__(self, *args: Any, bounds: "Bounds", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._bounds = bounds
        self._answering: RequestResponseCycle | None = None
        self._look_timer: asyncio.TimerHandle | None = None
        self._paused_at = 0.0
        self.url = b""
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
        self._stop_looking()
        super().connection_lost(exc)
        self._tell_gone()
        for cycle in (self._answering, self.cycle, *(waiting for waiting, _ in self.pipeline)):
            if cycle is not None:  # pyright: ignore[reportUnnecessaryComparison]
                # A ring of this connection and its last requests would stay until the collector comes by.
                cast("dict[str, object]", cycle.scope).pop(EDGE_IN_SCOPE, None)

    def _tell_gone(self) -> None:
        """Tell whoever answers here that nobody waits for it any more; uvicorn tells only who came last."""
        cycle = self._answering
        if cycle is None or cycle.response_complete:
            return
        cycle.disconnected = True
        cycle.message_event.set()
        scope = cast("dict[str, object]", cycle.scope)
        gone, scope[GONE_IN_SCOPE] = scope.get(GONE_IN_SCOPE), True
        if callable(gone):
            gone()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Know which request is being answered: others may have come behind it."""
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    def pause_writing(self) -> None:
        """Wait for a client that takes less than it is sent, and look from time to time."""
        super().pause_writing()
        self._paused_at = self.loop.time()
        self._look_timer = self.loop.call_later(min(LOOK_S, self._bounds.send_s), self._look)

    def resume_writing(self) -> None:
        """Go on, for the client does."""
        self._stop_looking()
        super().resume_writing()

    def _look(self) -> None:
        """Cut a client off that has taken too little for too long."""
        waited_s = self.loop.time() - self._paused_at
        count = None if self._answering is None else self._answering.scope.get(BEHIND_IN_SCOPE)
        behind = 0 if count is None else cast("Behind", count)()
        if waited_s < self._bounds.send_s and behind <= BEHIND_BYTES_MAX:
            self._look_timer = self.loop.call_later(min(LOOK_S, self._bounds.send_s - waited_s), self._look)
            return
        self._look_timer = None
        log.warning("client cut off", extra={"waited_s": round(waited_s, 3), "behind_bytes": behind})
        self._bounds.cut_off()
        self.transport.abort()

    def _stop_looking(self) -> None:
        if self._look_timer is not None:
            self._look_timer.cancel()
            self._look_timer = None

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
        scope: dict[str, object] = self.scope  # type: ignore[assignment]
        scope[GONE_IN_SCOPE] = None
        scope[EDGE_IN_SCOPE] = self
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Note that the request is whole."""
        self._is_in_body = False
        self._stop_lingering()
        scope: dict[str, object] = self.scope  # type: ignore[assignment]
        scope[WHOLE_IN_SCOPE] = True
        super().on_message_complete()
        if not self.pipeline:
            # A large body paused the reading: only who reads hears that the client is gone.
            self.flow.resume_reading()

    def on_response_complete(self) -> None:
        """Leave a client that has its answer and still sends what nobody reads."""
        super().on_response_complete()
        if self._is_in_body and not self.transport.is_closing():
            self._linger()

    def is_asked_by(self, send: Send) -> bool:
        """Tell whether it is uvicorn's own `send` of the request that is being answered, and not wrapped in another."""
        return getattr(send, "__self__", None) is self._answering

    def is_flowing(self, scope: dict[str, Any]) -> bool:
        """Tell whether the client takes what it is sent; nobody waits for what a client that is gone would be sent."""
        return self._answers(scope) and not self.flow.write_paused

    def begin_now(
        self, scope: dict[str, Any], status: int, headers: list[Header], data: bytes, *, is_whole: bool
    ) -> bool:
        """Send the head of an answer with all of its body, or with the beginning of its stream, in one write."""
        cycle = self._answering
        is_plain = scope["http_version"] == "1.1" and scope["method"] != "HEAD" and status not in _BODILESS
        if cycle is None or not is_plain or not self.is_flowing(scope) or cycle.response_started:
            return False
        lines = [STATUS_LINE[status]]
        for name, value in (*cycle.default_headers, *headers):
            if name == b"connection":
                return False
            lines.append(b"%b: %b\r\n" % (name, value))
        if not cycle.keep_alive:
            lines.append(b"connection: close\r\n")
        if not is_whole:
            lines.append(b"transfer-encoding: chunked\r\n")
        head = b"".join(lines)
        if head.count(b"\r\n") != len(lines) or HEADER_VALUE_RE.search(head.replace(b"\r\n", b"")):
            return False  # uvicorn says what is wrong with it
        cycle.response_started = True
        cycle.waiting_for_100_continue = False
        if is_whole:
            self.transport.write(b"%b\r\n%b" % (head, data))
            self._complete(cycle)
        else:
            cycle.chunked_encoding = True
            self.transport.write(b"%b\r\n%b" % (head, _chunk(data)))
        return True

    def write_now(self, scope: dict[str, Any], data: bytes) -> bool:
        """Send more of a stream."""
        cycle = self._answering
        if cycle is None or not self.is_flowing(scope) or not cycle.chunked_encoding:
            return False
        self.transport.write(_chunk(data))
        return True

    def _complete(self, cycle: RequestResponseCycle) -> None:
        """Be done with an answer as uvicorn is."""
        cycle.response_complete = True
        cycle.message_event.set()
        if not cycle.keep_alive:
            self.transport.close()
        cycle.on_response()

    def _answers(self, scope: dict[str, Any]) -> bool:
        """Tell whether a request is the one whose answer is under way."""
        cycle = self._answering
        return cycle is not None and cycle.scope is scope and not (cycle.disconnected or cycle.response_complete)

    def send_400_response(self, msg: str) -> None:
        """Say that this is not HTTP, in the envelope of the API that was called, if that much was readable."""
        self._refuse(400, "invalid_http", "This is not a request that HTTP/1.1 allows.")

    def _is_answering(self) -> bool:
        return self._answering is not None and not self._answering.response_complete

    def _wait_for_head(self) -> None:
        self._head_timer = self.loop.call_later(self._bounds.head_s, self._time_out)

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
            message = f"The head of the request did not arrive within {self._bounds.head_s:g} s."
            self._refuse(408, "request_timeout", message)
        else:
            self.transport.close()

    def _refuse(self, status: int, code: str, message: str) -> None:
        """Answer without an application, and close once the client has had time to read that."""
        self._stop_waiting()
        self._is_refused = True
        cycle = self._answering
        if cycle is not None and not cycle.response_complete:
            if cycle.response_started or self.transport.is_closing():
                self.transport.close()
                return
            self._tell_gone()
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


def bounded(
    head_s: float, send_s: float = SEND_S, cut_off: Callable[[], None] = lambda: None
) -> type[asyncio.Protocol]:
    """Return the protocol for uvicorn, with these bounds; `cut_off` hears of each client that was."""
    make = cast("Callable[..., object]", BoundedProtocol)
    bounds = Bounds(head_s=head_s, send_s=send_s, cut_off=cut_off)
    return cast("type[asyncio.Protocol]", partial(make, bounds=bounds))


def _chunk(data: bytes) -> bytes:
    """Return a piece of a stream as HTTP/1.1 frames it; one of nothing would be the end."""
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""
