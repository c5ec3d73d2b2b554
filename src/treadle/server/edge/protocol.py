"""HTTP/1.1 with bounds on what comes before a request is whole, and on how long its answer may wait to be taken.

uvicorn reads a head for as long and as far as somebody sends it, and a body that nobody wants any more to its end.
Here a slow or endless head is answered and the connection closed, and after an early answer the rest is not waited for.
A client that takes nothing of its answer is waited for, and nothing more is read from the run meanwhile; after a while,
or when too much waits for it, it is cut off. Where its API allows that, it comes back and goes on where it was.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import lru_cache, partial
from operator import itemgetter
from typing import Any, NamedTuple, cast
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from treadle.canon.errors import ErrorInfo
from treadle.server.edge.cycle import Cycle, Flow
from treadle.server.http import (
    BEHIND_IN_SCOPE,
    EDGE_IN_SCOPE,
    GONE_IN_SCOPE,
    WHOLE_IN_SCOPE,
    Behind,
    Header,
    envelope_of,
    write_refusal,
)

log = logging.getLogger("treadle.server")

HEAD_BYTES_MAX = 131_072
"""Of request line and headers together; the guard's own bounds are smaller, and it answers in more detail."""

BEHIND_BYTES_MAX = 1_048_576
"""What may wait for a client that takes nothing; more of it means that it will not catch up."""

PIPELINED_MAX = 64
"""How many requests may wait on a connection for the answer to one before them."""

LOOK_S = 1.0
"""How often is looked how much waits for a client that takes nothing."""

LINGER_S = 2.0
"""How long a client that still sends may take to read an answer that came early."""

_NEVER = float("inf")
_name = itemgetter(0)
Address = tuple[str, int | None] | None

_PHRASES = {400: "Bad Request", 408: "Request Timeout", 414: "URI Too Long", 431: "Request Header Fields Too Large"}


SEND_S = 60.0
"""How long a client may take nothing of its answer, where nobody says otherwise."""


class Bounds(NamedTuple):
    """How long the head of a request may take to come, and its answer to be taken; who hears of clients cut off."""

    head_s: float
    send_s: float
    cut_off: Callable[[], None]


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
        "_head_bytes",
        "_is_head_begun",
        "_is_in_body",
        "_is_refused",
        "_linger_timer",
        "_look_timer",
        "_paused_at",
        "_timer_at",
    )

    def __init__(self, *args: Any, bounds: "Bounds", **kwargs: Any) -> None:
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
        self._is_head_begun = False
        self._is_in_body = False
        self._is_refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first head."""
        super().connection_made(transport)
        self.server = _shared(self.server)
        self.flow = Flow(transport)
        self._await_head()

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
        if not self._is_in_body:
            self._head_bytes += len(data)
        parser: Any = self.parser
        try:
            parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # what another protocol would say is not read; the request itself is answered
        except httptools.HttpParserError:
            self.send_400_response("")
        if not self._head_bytes or self._is_in_body or self._is_refused:
            return
        if not self._is_head_begun:
            self._await_head()
        if self._head_bytes > HEAD_BYTES_MAX:
            status, code = (431, "headers_too_large") if self.headers else (414, "path_too_long")
            self._refuse(status, code, f"The head of the request is over {HEAD_BYTES_MAX} bytes.")

    def on_message_begin(self) -> None:
        """Begin to read a head; what uvicorn makes here of what is known so far is made once all of it is."""
        self.url = b""
        self.headers = []

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header."""
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Begin to answer, or queue what came too early; what comes now is the body's, with bounds of its own."""
        if self._is_head_begun:
            self._stop_waiting()
        self._head_bytes = 0
        self._is_head_begun = False
        self._due_at = _NEVER
        self._is_in_body = True
        parser: Any = self.parser
        version = parser.get_http_version()
        path, raw_path, query = (_read_url if b"?" in self.url else _known_url)(self.root_path, self.url)
        scope: dict[str, object] = {
            "type": "http",
            "asgi": {"version": self.asgi_version, "spec_version": "2.3"},
            "http_version": version,
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme,
            "method": parser.get_method().decode("ascii"),
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
        if b"expect" in map(_name, self.headers):
            cycle.waiting_for_100_continue = _expects_word(self.headers)
        if before is None or before.response_complete:  # pyright: ignore[reportUnnecessaryComparison]
            self._start_asgi_task(cycle, self.app)
        elif len(self.pipeline) < PIPELINED_MAX:
            self.flow.pause_reading()
            self.pipeline.append((cycle, self.app))  # pyright: ignore[reportUnknownArgumentType]
        else:
            self._refuse(400, "too_many_pipelined", f"More than {PIPELINED_MAX} requests wait behind one another.")

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body, unless nobody wants it any more."""
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


@lru_cache(maxsize=64)
def _shared(address: Address) -> Address:
    """Return an address of ours as one object for all connections to it."""
    return address


def _nothing() -> None:
    """Do nothing."""


def _read_url(root: str, url: bytes) -> tuple[str, bytes, bytes]:
    """Return the path that is asked for, below where the application is mounted, as it was sent, and the query."""
    address = httptools.parse_url(url)
    path = address.path.decode("ascii")
    return root + (unquote(path) if "%" in path else path), root.encode("ascii") + address.path, address.query or b""


_known_url = lru_cache(maxsize=64)(_read_url)
"""Of the paths that are asked for all the time; not of queries, which may hold a key."""


def _expects_word(headers: list[Header]) -> bool:
    """Tell whether a client sends its body only once it is told to."""
    return any(name == b"expect" and value.lower() == b"100-continue" for name, value in headers)


def _part(cycle: RequestResponseCycle) -> None:
    """Take an answer that is over out of its scope: in a ring they would stay until the collector comes by."""
    scope: dict[str, object] = cycle.scope  # type: ignore[assignment]
    scope.pop(EDGE_IN_SCOPE, None)
