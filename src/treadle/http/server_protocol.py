"""The HTTP/1.1 server protocol: uvicorn's, with bounds on heads, bodies, pipelining, connections and slow clients.

uvicorn waits for a head without limits of time and size, and reads a body to its end even after the response was sent.
Here a slow or endless head is refused and the connection closed, and after an early response the rest of the body is
not waited for. A client that does not read its response is waited for, while the run is not read further; after a
time, or when too much is buffered for it, it is disconnected. Where its API allows, it reconnects and continues.
"""

import asyncio
import logging
import sys
from collections.abc import Callable
from functools import lru_cache, partial
from itertools import islice
from operator import itemgetter
from typing import Any, NamedTuple, cast
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from treadle.core.errors import ErrorInfo
from treadle.http.asgi import (
    DISCONNECT_IN_SCOPE,
    EDGE_IN_SCOPE,
    PENDING_BYTES_IN_SCOPE,
    WHOLE_IN_SCOPE,
    Header,
    PendingBytes,
)
from treadle.http.server_exchange import Cycle, Flow
from treadle.protocols.error_envelopes import envelope_of, write_refusal

log = logging.getLogger("treadle.server")

HEAD_BYTES_MAX = 131_072
"""Bound on request line and headers together. The server's guard has smaller bounds with more detailed errors."""

FRAMING_BYTES_MAX = 16_384
"""Bound on the bytes between two pieces of a chunked body, or after the last: chunk extensions and trailers."""

BEHIND_BYTES_MAX = 1_048_576
"""How much may be buffered for a client that reads nothing; with more it will not catch up."""

IDLE_CHECKED_MAX = 64
"""How many connections are checked for an idle one; this bounds the cost of each new connection."""

PIPELINED_MAX = 64
"""How many pipelined requests may wait on a connection."""

LOOK_S = 1.0
"""How often the buffer of a client that reads nothing is checked."""

LINGER_S = 2.0
"""How long a client that is still sending may take to read an early response."""

_NEVER = float("inf")
_name = itemgetter(0)
_WHITE_SPACE = b" \t"
Address = tuple[str, int | None] | None

_PHRASES = {
    400: "Bad Request",
    408: "Request Timeout",
    414: "URI Too Long",
    431: "Request Header Fields Too Large",
    501: "Not Implemented",
    503: "Service Unavailable",
    505: "HTTP Version Not Supported",
}
_CONNECTION_HEADERS = frozenset({b"expect", b"transfer-encoding", b"upgrade"})
"""Headers about the connection itself, which are acted on before the application sees the request."""

_PARSER_HEADERS = frozenset({b"connection", b"proxy-connection", b"upgrade"})
_VERSIONS = frozenset({"1.0", "1.1"})


SEND_S = 60.0
"""Default time that a client may read nothing of its response."""


class HttpBounds(NamedTuple):
    """Limits of a connection and their number; `cut_off` is called for each client disconnected for being slow."""

    head_s: float
    send_s: float
    cut_off: Callable[[], None]
    connections_max: int


class _RefusedHead(Exception):
    """Raised in a parser callback for a head that must be refused: it stops the parser, and an error is sent."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


class BoundedProtocol(HttpToolsProtocol):
    """One connection.

    Its own fields are slots: CPython stops sharing the keys of instance dicts above 30 names. Deadlines are stored in
    `_due_at` and checked by one timer, which most requests never touch: they are complete, and followed by the next
    one, long before a deadline.
    """

    __slots__ = (
        "_answering",
        "_bounds",
        "_due_at",
        "_due_timer",
        "_framing_bytes",
        "_head_bytes",
        "_ignored_upgrade",
        "_is_head_started",
        "_is_in_body",
        "_is_refused",
        "_is_upgrade",
        "_linger_timer",
        "_paused_at",
        "_slow_timer",
        "_timer_at",
    )

    def __init__(self, *args: Any, bounds: "HttpBounds", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.pipeline: list[tuple[Cycle, Any]] = []  # type: ignore[assignment]  # a deque takes ten times the memory
        self._bounds = bounds
        self._answering: Cycle | None = None
        self._slow_timer: asyncio.TimerHandle | None = None
        self._paused_at = 0.0
        self.url = b""
        self._due_at = self._timer_at = _NEVER
        self._due_timer: asyncio.TimerHandle | None = None
        self._linger_timer: asyncio.TimerHandle | None = None
        self._head_bytes = 0
        self._framing_bytes = 0
        self._ignored_upgrade: Header | None = None
        self._is_head_started = False
        self._is_in_body = False
        self._is_refused = False
        self._is_upgrade = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first head; refuse the connection if there are too many."""
        super().connection_made(transport)
        self.server = _interned(self.server)
        self.flow = Flow(transport)
        if len(self.connections) > self._bounds.connections_max and not self._close_idle_connection():
            message = f"{self._bounds.connections_max} connections are open, which is as many as there may be."
            self._refuse(503, "too_many_connections", message, b"retry-after: 1\r\n")
            return
        self._expect_head()

    def _close_idle_connection(self) -> bool:
        """Make room by closing a connection that waits for its next request; return whether there was one."""
        for other in islice(self.connections, IDLE_CHECKED_MAX):
            if other is not self and isinstance(other, BoundedProtocol) and other.is_idle:
                other.transport.close()
                return True
        return False

    @property
    def is_idle(self) -> bool:
        """Return whether all requests of this connection are answered and no other has started."""
        return self._answering is not None and not (
            self._is_answering() or self._is_head_started or self._is_in_body or self.transport.is_closing()
        )

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all timers, and notify the application of the disconnected client."""
        self._clear_deadline()
        self._stop_lingering()
        self._stop_slow_timer()
        super().connection_lost(exc)
        self._notify_disconnect()
        for cycle in (self._answering, self.cycle):
            if cycle is not None:  # pyright: ignore[reportUnnecessaryComparison]
                _unlink_exchange(cycle)
        for waiting, _ in self.pipeline:
            waiting.on_response = _do_nothing  # it will never be started
            _unlink_exchange(waiting)
        self.pipeline.clear()

    def _notify_disconnect(self) -> None:
        """Notify the request that is being answered; uvicorn only notifies the last one received."""
        cycle = self._answering
        if cycle is None or cycle.response_complete:
            return
        cycle.disconnect()
        scope = cast("dict[str, object]", cycle.scope)
        on_disconnect, scope[DISCONNECT_IN_SCOPE] = scope.get(DISCONNECT_IN_SCOPE), True
        if callable(on_disconnect):
            on_disconnect()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Start the application for a request, and remember which one: others may be queued behind it."""
        self._answering = cycle  # type: ignore[assignment]
        task = self.loop.create_task(cycle.run_asgi(app))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

    def pause_writing(self) -> None:
        """Wait for a slow client, and check it from time to time."""
        super().pause_writing()
        if self._answering is not None:
            self._answering.pause()
        self._paused_at = self.loop.time()
        self._slow_timer = self.loop.call_later(min(LOOK_S, self._bounds.send_s), self._check_slow_client)

    def resume_writing(self) -> None:
        """Continue: the client has caught up."""
        self._stop_slow_timer()
        super().resume_writing()
        if self._answering is not None:
            self._answering.resume()

    def _check_slow_client(self) -> None:
        """Disconnect a client that has read too little for too long."""
        waited_s = self.loop.time() - self._paused_at
        count = None if self._answering is None else self._answering.scope.get(PENDING_BYTES_IN_SCOPE)
        behind = 0 if count is None else cast("PendingBytes", count)()
        if waited_s < self._bounds.send_s and behind <= BEHIND_BYTES_MAX:
            self._slow_timer = self.loop.call_later(
                min(LOOK_S, self._bounds.send_s - waited_s), self._check_slow_client
            )
            return
        self._slow_timer = None
        log.warning("client cut off", extra={"waited_s": round(waited_s, 3), "behind_bytes": behind})
        self._bounds.cut_off()
        self.transport.abort()

    def _stop_slow_timer(self) -> None:
        if self._slow_timer is not None:
            self._slow_timer.cancel()
            self._slow_timer = None

    def data_received(self, data: bytes) -> None:
        """Parse what arrived, and refuse a head or framing over its bound."""
        if self._is_refused:
            return
        if self._is_in_body:
            self._framing_bytes += len(data)
        else:
            self._head_bytes += len(data)
        self._parse(data)
        if self._is_in_body and self._framing_bytes > FRAMING_BYTES_MAX:
            self._refuse_framing()
        if not self._head_bytes or self._is_in_body or self._is_refused:
            return
        if not self._is_head_started:
            self._expect_head()
        if self._head_bytes > HEAD_BYTES_MAX:
            status, code = (431, "headers_too_large") if self.headers else (414, "path_too_long")
            self._refuse(status, code, f"The head of the request is over {HEAD_BYTES_MAX} bytes.")

    def _parse(self, data: bytes) -> None:
        parser: Any = self.parser
        try:
            parser.feed_data(data)
            return
        except httptools.HttpParserUpgrade as stopped:
            rest = data[stopped.args[0] :]
        except httptools.HttpParserError as error:
            cause = error.__context__
            if isinstance(cause, _RefusedHead):
                self._refuse(cause.status, cause.code, cause.message)
            else:
                self.send_400_response("")
            return
        # Outside the handler: an error raised in it would have the upgrade as its context, and hide a `_RefusedHead`.
        self._read_on_without_upgrade(rest)

    def _read_on_without_upgrade(self, rest: bytes) -> None:
        """Parse the request again without its upgrade header.

        Java's HttpClient and `curl --http2` send `Upgrade: h2c` with ordinary requests, which a server may ignore. The
        parser stops at such a head and takes the body for the other protocol's, so a new parser gets the head without
        that header; the application still sees it.
        """
        parser: Any = self.parser
        self._ignored_upgrade = next(header for header in self.headers if header[0] == b"upgrade")
        lines = [b"%b: %b\r\n" % header for header in self.headers if header[0] != b"upgrade"]
        line = b"%b %b HTTP/%b\r\n" % (parser.get_method(), self.url, parser.get_http_version().encode())
        self._is_upgrade = False
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does with its own
        self._parse(b"%b%b\r\n%b" % (line, b"".join(lines), rest))

    def _refuse_framing(self) -> None:
        """Refuse a body whose chunk extensions or trailers are over the bound, even after its response was sent."""
        message = f"The trailers or chunk extensions of the body are over {FRAMING_BYTES_MAX} bytes."
        self._refuse(431, "trailers_too_large", message)

    def on_message_begin(self) -> None:
        """Reset for a new head. uvicorn creates the scope here; this class creates it when the head is complete."""
        self.url = b""
        self.headers = []

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header. Trailers are dropped: one could replace a header that was already checked, such as a key."""
        if not self._is_in_body:
            self.headers.append((name.lower(), value.rstrip(_WHITE_SPACE)))
        elif name.lower() in _PARSER_HEADERS:
            # The parser applies these even as trailers, and would then disagree with us about the connection.
            raise _RefusedHead(400, "invalid_http", "Trailers may say nothing about the connection.")

    def on_headers_complete(self) -> None:
        """Start the application, or queue a pipelined request. What follows is body, which has its own bounds."""
        parser: Any = self.parser
        method, version, is_waiting = parser.get_method(), parser.get_http_version(), False
        if version not in _VERSIONS or method == b"CONNECT":
            _refuse_method_or_version(version)
        if not _CONNECTION_HEADERS.isdisjoint(map(_name, self.headers)):
            self._is_upgrade = parser.should_upgrade()
            if self._is_upgrade:
                return  # see `_read_on_without_upgrade`
            _check_transfer_encoding(self.headers, version)
            is_waiting = _expects_continue(self.headers)
        if self._ignored_upgrade is not None:
            self.headers.append(self._ignored_upgrade)
            self._ignored_upgrade = None
        if b"://" in self.url and not self.url.startswith(b"/"):
            self.headers = _use_target_host(self.url, self.headers)
        path, raw_path, query = (_parse_url if b"?" in self.url else _parse_url_cached)(self.root_path, self.url)
        if self._is_head_started:
            self._clear_deadline()
        self._head_bytes = self._framing_bytes = 0
        self._is_head_started = False
        self._due_at = _NEVER
        self._is_in_body = True
        scope: dict[str, object] = {
            "type": "http",
            "asgi": {"version": self.asgi_version, "spec_version": "2.3"},
            "http_version": version,
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme,
            "method": method.decode("ascii"),
            "root_path": self.root_path,
            "path": path,
            "raw_path": raw_path,
            "query_string": query,
            "headers": self.headers,
            "state": self.app_state.copy(),
            DISCONNECT_IN_SCOPE: None,
        }
        before, cycle = self.cycle, Cycle(self, scope, is_kept=version != "1.0" and parser.should_keep_alive())
        self.cycle = scope[EDGE_IN_SCOPE] = cycle
        if is_waiting:
            cycle.waiting_for_100_continue = True
        if before is None or before.response_complete:  # pyright: ignore[reportUnnecessaryComparison]
            self._start_asgi_task(cycle, self.app)
        elif len(self.pipeline) < PIPELINED_MAX:
            self.flow.pause_reading()
            self.pipeline.append((cycle, self.app))  # pyright: ignore[reportUnknownArgumentType]
        else:
            raise _RefusedHead(
                400, "too_many_pipelined", f"More than {PIPELINED_MAX} requests wait behind one another."
            )

    def on_body(self, body: bytes) -> None:
        """Add a piece of the body; after the response it is dropped."""
        self._framing_bytes = 0
        cycle = cast("Cycle", self.cycle)
        if cycle.response_complete:
            return
        if cycle.body:
            cycle.add(body)
        else:
            cycle.body = body
        if len(cycle.body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        if cycle.is_awaited:
            cycle.message_event.set()

    def on_message_complete(self) -> None:
        """Mark the request as complete."""
        if self._is_upgrade:
            return
        self._is_in_body = False
        if self._linger_timer is not None and not self._is_refused:
            self._stop_lingering()
        cycle = cast("Cycle", self.cycle)
        cycle.scope[WHOLE_IN_SCOPE] = True
        if not cycle.response_complete:
            cycle.more_body = False
            if cycle.is_awaited:
                cycle.message_event.set()
        if self.flow.read_paused and not self.pipeline:
            # A large body paused reading, but a disconnect is only noticed while reading.
            self.flow.resume_reading()

    def on_response_complete(self) -> None:
        """Start the next queued request, or wait for one; close after a while if the client still sends a body."""
        self.server_state.total_requests += 1
        if self._answering is not None:
            self._answering.scope.pop(EDGE_IN_SCOPE, None)
        if self.transport.is_closing():
            return
        if self.flow.read_paused:
            self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop(0))
        elif not self._is_head_started:
            self._set_deadline(self.timeout_keep_alive)
        if self._is_in_body and self.cycle.response_complete:
            self._linger()

    def send_400_response(self, msg: str) -> None:
        """Refuse bytes that are not HTTP, in the error format of the API if the path was readable."""
        self._refuse(400, "invalid_http", "This is not a request that HTTP/1.1 allows.")

    def _is_answering(self) -> bool:
        return self._answering is not None and not self._answering.response_complete

    def _expect_head(self) -> None:
        """Start the time limit for a head."""
        self._is_head_started = True
        self._set_deadline(self._bounds.head_s)

    def _set_deadline(self, within_s: float) -> None:
        self._due_at = self.loop.time() + within_s
        if self._timer_at > self._due_at:
            if self._due_timer is not None:
                self._due_timer.cancel()
            self._timer_at = self._due_at
            self._due_timer = self.loop.call_later(within_s, self._time_out)

    def _clear_deadline(self) -> None:
        self._due_at = self._timer_at = _NEVER
        if self._due_timer is not None:
            self._due_timer.cancel()
            self._due_timer = None

    def _time_out(self) -> None:
        """Handle a passed deadline. A stray byte after a request does not end the response to it."""
        self._due_timer, self._timer_at = None, _NEVER
        if self._due_at == _NEVER:
            return
        left_s = self._due_at - self.loop.time()
        if left_s > 0:
            self._set_deadline(left_s)
        elif self._is_answering():
            self._due_at, self._is_head_started = _NEVER, False
        elif self._head_bytes:
            message = f"The head of the request did not arrive within {self._bounds.head_s:g} s."
            self._refuse(408, "request_timeout", message)
        else:
            self.transport.close()

    def _refuse(self, status: int, code: str, message: str, header: bytes = b"") -> None:
        """Send an error without the application, and close once the client has had time to read it."""
        self._clear_deadline()
        self._is_refused = True
        if self._is_in_body and self.cycle.response_complete:
            # The response was sent before the body arrived: a second one would be taken for that to the next request.
            self.transport.close()
            return
        cycle = self._answering
        if cycle is not None and not cycle.response_complete:
            if cycle.response_started or self.transport.is_closing():
                self.transport.close()
                return
            self._notify_disconnect()
        path = self.url.partition(b"?")[0].decode("latin-1")
        body = write_refusal(envelope_of(path), ErrorInfo(code=code, message=message, status=status))
        head = (
            f"HTTP/1.1 {status} {_PHRASES[status]}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\ncache-control: no-store\r\nconnection: close\r\n"
        )
        self.transport.write(b"%b%b\r\n%b" % (head.encode(), header, body))
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
    head_s: float,
    send_s: float = SEND_S,
    cut_off: Callable[[], None] = lambda: None,
    connections_max: int = sys.maxsize,
) -> type[asyncio.Protocol]:
    """Return the protocol for uvicorn with these bounds; `cut_off` is called for each slow client disconnected."""
    make = cast("Callable[..., object]", BoundedProtocol)
    bounds = HttpBounds(head_s, send_s, cut_off, connections_max)
    return cast("type[asyncio.Protocol]", partial(make, bounds=bounds))


@lru_cache(maxsize=64)
def _interned(address: Address) -> Address:
    """Return one shared object for equal local addresses, to save memory for each connection."""
    return address


def _do_nothing() -> None:
    """Do nothing."""


def _parse_url(root: str, url: bytes) -> tuple[str, bytes, bytes]:
    """Return the decoded path and the raw path, both below the root path, and the query."""
    address = httptools.parse_url(url)
    raw = address.path or b"/"  # an absolute target may have no path
    path = raw.decode("ascii")
    return root + (unquote(path) if "%" in path else path), root.encode("ascii") + raw, address.query or b""


_parse_url_cached = lru_cache(maxsize=64)(_parse_url)
"""For URLs without a query only: a query may contain an API key, which must not stay in memory."""


def _refuse_method_or_version(version: str) -> None:
    """Refuse another HTTP version, or CONNECT.

    Raises: _RefusedHead.
    """
    if version not in _VERSIONS:
        raise _RefusedHead(505, "http_version_not_supported", "Only HTTP/1.1 and HTTP/1.0 are spoken here.")
    raise _RefusedHead(400, "invalid_http", "This server is not a proxy: it does not take CONNECT.")


def _check_transfer_encoding(headers: list[Header], version: str) -> None:
    """Refuse a transfer coding other than `chunked`: a proxy that reads it differently could be used for smuggling.

    Raises: _RefusedHead.
    """
    codings = [value.lower() for name, value in headers if name == b"transfer-encoding"]
    if not codings:
        return
    if version == "1.0":
        raise _RefusedHead(400, "invalid_http", "HTTP/1.0 has no Transfer-Encoding.")  # RFC 9112, section 6.1
    if codings != [b"chunked"]:
        message = "The only Transfer-Encoding that is understood is `chunked`, once."
        raise _RefusedHead(501, "unsupported_transfer_encoding", message)


def _use_target_host(url: bytes, headers: list[Header]) -> list[Header]:
    """Return the headers with the Host of an absolute target, which overrides it (RFC 9112, section 3.2.2).

    The guard then checks it like any Host. A request with no Host or several is unchanged, and refused there.
    """
    if sum(name == b"host" for name, _ in headers) != 1:
        return headers
    authority = url.partition(b"://")[2].partition(b"/")[0].partition(b"?")[0]
    return [(name, authority if name == b"host" else value) for name, value in headers]


def _expects_continue(headers: list[Header]) -> bool:
    """Return whether a client waits for `100 Continue` before it sends its body."""
    return any(name == b"expect" and value.lower() == b"100-continue" for name, value in headers)


def _unlink_exchange(cycle: RequestResponseCycle) -> None:
    """Remove a finished exchange from its scope."""
    # They reference each other; without this the cycle waits for the garbage collector.
    scope: dict[str, object] = cycle.scope  # type: ignore[assignment]
    scope.pop(EDGE_IN_SCOPE, None)
