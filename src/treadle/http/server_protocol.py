"""HTTP/1.1 with bounds on what comes before a request is whole, and on how long its answer may wait to be taken.

uvicorn reads a head for as long and as far as somebody sends it, and a body that nobody wants any more to its end.
Here a slow or endless head is answered and the connection closed, and after an early answer the rest is not waited for.
A client that takes nothing of its answer is waited for, and nothing more is read from the run meanwhile; after a while,
or when too much waits for it, it is cut off. Where its API allows that, it comes back and goes on where it was.
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
from treadle.http.asgi import BEHIND_IN_SCOPE, EDGE_IN_SCOPE, GONE_IN_SCOPE, WHOLE_IN_SCOPE, Behind, Header
from treadle.http.server_exchange import Cycle, Flow
from treadle.protocols.error_envelopes import envelope_of, write_refusal

log = logging.getLogger("treadle.server")

HEAD_BYTES_MAX = 131_072
"""Of request line and headers together; the guard's own bounds are smaller, and it answers in more detail."""

FRAMING_BYTES_MAX = 16_384
"""What may come between two pieces of a chunked body, or behind the last one: chunk extensions and trailers."""

BEHIND_BYTES_MAX = 1_048_576
"""What may wait for a client that takes nothing; more of it means that it will not catch up."""

IDLE_LOOKED_AT_MAX = 64
"""How many connections are looked at to find an idle one: each new connection may cost no more than that."""

PIPELINED_MAX = 64
"""How many requests may wait on a connection for the answer to one before them."""

LOOK_S = 1.0
"""How often is looked how much waits for a client that takes nothing."""

LINGER_S = 2.0
"""How long a client that still sends may take to read an answer that came early."""

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
"""How long a client may take nothing of its answer, where nobody says otherwise."""


class HttpBounds(NamedTuple):
    """Limits of a connection, and how many there may be at once; `cut_off` is called for each client cut off."""

    head_s: float
    send_s: float
    cut_off: Callable[[], None]
    connections_max: int


class _RefusedHead(Exception):
    """Raised while the parser reads a head that must not be served. The parser stops, and the client is answered."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


class BoundedProtocol(HttpToolsProtocol):
    """One connection. Its own fields are slots: a dict of over 30 names is no longer shared between connections.

    What is waited for is due at a time, and looked at by one timer: most requests are whole long before, and the next
    one comes long before a connection has been idle for too long, so that the timer need not be touched for them.
    """

    __slots__ = (
        "_answering",
        "_bounds",
        "_due_at",
        "_due_timer",
        "_framing_bytes",
        "_head_bytes",
        "_ignored_upgrade",
        "_is_head_begun",
        "_is_in_body",
        "_is_refused",
        "_is_upgrade",
        "_linger_timer",
        "_look_timer",
        "_paused_at",
        "_timer_at",
    )

    def __init__(self, *args: Any, bounds: "HttpBounds", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.pipeline: list[tuple[Cycle, Any]] = []  # type: ignore[assignment]  # a deque takes ten times as much
        self._bounds = bounds
        self._answering: Cycle | None = None
        self._look_timer: asyncio.TimerHandle | None = None
        self._paused_at = 0.0
        self.url = b""
        self._due_at = self._timer_at = _NEVER
        self._due_timer: asyncio.TimerHandle | None = None
        self._linger_timer: asyncio.TimerHandle | None = None
        self._head_bytes = 0
        self._framing_bytes = 0
        self._ignored_upgrade: Header | None = None
        self._is_head_begun = False
        self._is_in_body = False
        self._is_refused = False
        self._is_upgrade = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first head, unless there are too many connections already."""
        super().connection_made(transport)
        self.server = _shared(self.server)
        self.flow = Flow(transport)
        if len(self.connections) > self._bounds.connections_max and not self._close_an_idle_one():
            message = f"{self._bounds.connections_max} connections are open, which is as many as there may be."
            self._refuse(503, "too_many_connections", message, b"retry-after: 1\r\n")
            return
        self._await_head()

    def _close_an_idle_one(self) -> bool:
        """Make room for this connection by closing one that waits for its next request."""
        for other in islice(self.connections, IDLE_LOOKED_AT_MAX):
            if other is not self and isinstance(other, BoundedProtocol) and other.is_idle:
                other.transport.close()
                return True
        return False

    @property
    def is_idle(self) -> bool:
        """Tell whether all requests of this connection are answered and no other has begun."""
        return self._answering is not None and not (
            self._is_answering() or self._is_head_begun or self._is_in_body or self.transport.is_closing()
        )

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing any more."""
        self._stop_waiting()
        self._stop_lingering()
        self._stop_looking()
        super().connection_lost(exc)
        self._tell_gone()
        for cycle in (self._answering, self.cycle):
            if cycle is not None:  # pyright: ignore[reportUnnecessaryComparison]
                _part(cycle)
        for waiting, _ in self.pipeline:
            waiting.on_response = _nothing  # nobody will begin to answer it
            _part(waiting)
        self.pipeline.clear()

    def _tell_gone(self) -> None:
        """Tell whoever answers here that nobody waits for it any more; uvicorn tells only who came last."""
        cycle = self._answering
        if cycle is None or cycle.response_complete:
            return
        cycle.leave()
        scope = cast("dict[str, object]", cycle.scope)
        gone, scope[GONE_IN_SCOPE] = scope.get(GONE_IN_SCOPE), True
        if callable(gone):
            gone()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Begin to answer a request, and know which it is: others may have come behind it."""
        self._answering = cycle  # type: ignore[assignment]
        task = self.loop.create_task(cycle.run_asgi(app))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

    def pause_writing(self) -> None:
        """Wait for a client that takes less than it is sent, and look from time to time."""
        super().pause_writing()
        if self._answering is not None:
            self._answering.pause()
        self._paused_at = self.loop.time()
        self._look_timer = self.loop.call_later(min(LOOK_S, self._bounds.send_s), self._look)

    def resume_writing(self) -> None:
        """Go on, for the client does."""
        self._stop_looking()
        super().resume_writing()
        if self._answering is not None:
            self._answering.resume()

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
        if self._is_in_body:
            self._framing_bytes += len(data)
        else:
            self._head_bytes += len(data)
        self._parse(data)
        if self._is_in_body and self._framing_bytes > FRAMING_BYTES_MAX:
            self._refuse_framing()
        if not self._head_bytes or self._is_in_body or self._is_refused:
            return
        if not self._is_head_begun:
            self._await_head()
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
        # Not in the handler above: an error in there would have the upgrade for its context.
        self._read_on_without_upgrade(rest)

    def _read_on_without_upgrade(self, rest: bytes) -> None:
        """Read the request again as one that asks for no other protocol.

        Java's HttpClient and `curl --http2` send `Upgrade: h2c` with ordinary requests, which a server may ignore. The
        parser stops at such a head and takes the body for the other protocol's, so a new parser gets the head without
        that header; the application still sees it.
        """
        parser: Any = self.parser
        self._ignored_upgrade = next(header for header in self.headers if header[0] == b"upgrade")
        kept = [b"%b: %b\r\n" % header for header in self.headers if header[0] != b"upgrade"]
        line = b"%b %b HTTP/%b\r\n" % (parser.get_method(), self.url, parser.get_http_version().encode())
        self._is_upgrade = False
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does with its own
        self._parse(b"%b%b\r\n%b" % (line, b"".join(kept), rest))

    def _refuse_framing(self) -> None:
        """Refuse a body whose chunk extensions or trailers have no end, also one that nobody waits for any more."""
        message = f"The trailers or chunk extensions of the body are over {FRAMING_BYTES_MAX} bytes."
        self._refuse(431, "trailers_too_large", message)

    def on_message_begin(self) -> None:
        """Begin to read a head; what uvicorn makes here of what is known so far is made once all of it is."""
        self.url = b""
        self.headers = []

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header. A trailer is dropped: one that counted could replace a key or a type that was checked."""
        if not self._is_in_body:
            self.headers.append((name.lower(), value.rstrip(_WHITE_SPACE)))
        elif name.lower() in _PARSER_HEADERS:
            # The parser acts on these wherever they are, and would then disagree with us about the connection.
            raise _RefusedHead(400, "invalid_http", "Trailers may say nothing about the connection.")

    def on_headers_complete(self) -> None:
        """Begin to answer, or queue what came too early; what comes now is the body's, with bounds of its own."""
        parser: Any = self.parser
        method, version, is_waiting = parser.get_method(), parser.get_http_version(), False
        if version not in _VERSIONS or method == b"CONNECT":
            _refuse_line(version)
        if not _CONNECTION_HEADERS.isdisjoint(map(_name, self.headers)):
            self._is_upgrade = parser.should_upgrade()
            if self._is_upgrade:
                return  # see `_read_on_without_upgrade`
            _check_coding(self.headers, version)
            is_waiting = _expects_word(self.headers)
        if self._ignored_upgrade is not None:
            self.headers.append(self._ignored_upgrade)
            self._ignored_upgrade = None
        if b"://" in self.url and not self.url.startswith(b"/"):
            self.headers = _take_authority(self.url, self.headers)
        path, raw_path, query = (_read_url if b"?" in self.url else _known_url)(self.root_path, self.url)
        if self._is_head_begun:
            self._stop_waiting()
        self._head_bytes = self._framing_bytes = 0
        self._is_head_begun = False
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
            GONE_IN_SCOPE: None,
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
        """Take a piece of the body, unless nobody wants it any more."""
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
        """Note that the request is whole."""
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
            # A large body paused the reading: only who reads hears that the client is gone.
            self.flow.resume_reading()

    def on_response_complete(self) -> None:
        """Answer what came behind, else wait for more; leave a client that still sends what nobody reads."""
        self.server_state.total_requests += 1
        if self._answering is not None:
            self._answering.scope.pop(EDGE_IN_SCOPE, None)
        if self.transport.is_closing():
            return
        if self.flow.read_paused:
            self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop(0))
        elif not self._is_head_begun:
            self._await(self.timeout_keep_alive)
        if self._is_in_body and self.cycle.response_complete:
            self._linger()

    def send_400_response(self, msg: str) -> None:
        """Say that this is not HTTP, in the envelope of the API that was called, if that much was readable."""
        self._refuse(400, "invalid_http", "This is not a request that HTTP/1.1 allows.")

    def _is_answering(self) -> bool:
        return self._answering is not None and not self._answering.response_complete

    def _await_head(self) -> None:
        """Wait for the rest of a head."""
        self._is_head_begun = True
        self._await(self._bounds.head_s)

    def _await(self, within_s: float) -> None:
        self._due_at = self.loop.time() + within_s
        if self._timer_at > self._due_at:
            if self._due_timer is not None:
                self._due_timer.cancel()
            self._timer_at = self._due_at
            self._due_timer = self.loop.call_later(within_s, self._time_out)

    def _stop_waiting(self) -> None:
        self._due_at = self._timer_at = _NEVER
        if self._due_timer is not None:
            self._due_timer.cancel()
            self._due_timer = None

    def _time_out(self) -> None:
        """Give up on what is due by now; a stray byte behind a request does not end the answer to it."""
        self._due_timer, self._timer_at = None, _NEVER
        if self._due_at == _NEVER:
            return
        left_s = self._due_at - self.loop.time()
        if left_s > 0:
            self._await(left_s)
        elif self._is_answering():
            self._due_at, self._is_head_begun = _NEVER, False
        elif self._head_bytes:
            message = f"The head of the request did not arrive within {self._bounds.head_s:g} s."
            self._refuse(408, "request_timeout", message)
        else:
            self.transport.close()

    def _refuse(self, status: int, code: str, message: str, header: bytes = b"") -> None:
        """Answer without an application, and close once the client has had time to read that."""
        self._stop_waiting()
        self._is_refused = True
        if self._is_in_body and self.cycle.response_complete:
            # The request was answered before its body came: another answer would be taken for that to the next one.
            self.transport.close()
            return
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
    """Return the protocol for uvicorn, with these bounds; `cut_off` is called for each client that is cut off."""
    make = cast("Callable[..., object]", BoundedProtocol)
    bounds = HttpBounds(head_s, send_s, cut_off, connections_max)
    return cast("type[asyncio.Protocol]", partial(make, bounds=bounds))


@lru_cache(maxsize=64)
def _shared(address: Address) -> Address:
    """Return an address of ours as one object for all connections to it."""
    return address


def _nothing() -> None:
    """Do nothing."""


def _read_url(root: str, url: bytes) -> tuple[str, bytes, bytes]:
    """Return the path that is asked for, below where the application is mounted, as it was sent, and the query."""
    address = httptools.parse_url(url)
    raw = address.path or b"/"  # an absolute target may be a host alone
    path = raw.decode("ascii")
    return root + (unquote(path) if "%" in path else path), root.encode("ascii") + raw, address.query or b""


_known_url = lru_cache(maxsize=64)(_read_url)
"""Of the paths that are asked for all the time; not of queries, which may hold a key."""


def _refuse_line(version: str) -> None:
    """Refuse a request of another version, or one to a proxy.

    Raises: _RefusedHead.
    """
    if version not in _VERSIONS:
        raise _RefusedHead(505, "http_version_not_supported", "Only HTTP/1.1 and HTTP/1.0 are spoken here.")
    raise _RefusedHead(400, "invalid_http", "This server is not a proxy: it does not take CONNECT.")


def _check_coding(headers: list[Header], version: str) -> None:
    """Refuse a body in a coding other than plain chunks: two programs that read it differently see two requests.

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


def _take_authority(url: bytes, headers: list[Header]) -> list[Header]:
    """Return the headers with the host of an absolute target: it counts, whatever Host says (RFC 9112, section 3.2.2).

    The guard then checks it like any Host. A request without a Host, or with several, keeps that fault.
    """
    if sum(name == b"host" for name, _ in headers) != 1:
        return headers
    authority = url.partition(b"://")[2].partition(b"/")[0].partition(b"?")[0]
    return [(name, authority if name == b"host" else value) for name, value in headers]


def _expects_word(headers: list[Header]) -> bool:
    """Tell whether a client sends its body only once it is told to."""
    return any(name == b"expect" and value.lower() == b"100-continue" for name, value in headers)


def _part(cycle: RequestResponseCycle) -> None:
    """Take an answer that is over out of its scope: in a ring they would stay until the collector comes by."""
    scope: dict[str, object] = cycle.scope  # type: ignore[assignment]
    scope.pop(EDGE_IN_SCOPE, None)
