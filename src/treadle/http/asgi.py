"""The ASGI types that Treadle uses, and the keys and the interface that its own HTTP server adds to a scope.

The HTTP server and the application both import them from here. This module holds types and constants only.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NotRequired, Protocol, Required, TypedDict

Header = tuple[bytes, bytes]


class Scope(TypedDict):
    """The fields of an ASGI scope that Treadle reads."""

    type: str
    method: str
    path: str
    query_string: bytes
    headers: Iterable[Header]
    client: NotRequired[tuple[str, int] | None]
    root_path: NotRequired[str]


class AsgiMessage(TypedDict, total=False):
    """An ASGI message in either direction."""

    type: Required[str]
    body: bytes
    more_body: bool
    status: int
    headers: list[Header]


class AsgiStart(TypedDict):
    """The message that starts a response."""

    type: str
    status: int
    headers: list[Header]


Receive = Callable[[], Awaitable[AsgiMessage]]
Send = Callable[[AsgiMessage | AsgiStart], Awaitable[None]]

Application = Callable[[Any, Any, Any], Awaitable[None]]
"""Any ASGI application. The arguments are untyped because frameworks disagree about their types."""


class Edge(Protocol):
    """A request and its response on our own server, without ASGI's awaits.

    It sends in one write what takes ASGI several awaited messages. Every method has an ASGI equivalent to fall back on.
    """

    @property
    def is_flowing(self) -> bool:
        """Return whether this is a started stream whose client reads fast enough to be written to."""
        ...

    def is_direct(self, receive: Receive, send: Send) -> bool:
        """Return whether these callables are the server's own: a middleware that wraps them must see every message."""
        ...

    def try_take_body_now(self) -> bytes | None:
        """Return the body of the request if it has arrived completely, else None."""
        ...

    def try_start_now(self, status: int, headers: tuple[Header, ...], data: bytes, *, is_whole: bool) -> bool:
        """Send the head of the response with its whole body, or with the start of its stream.

        False if that is impossible; then nothing was sent and the caller uses ASGI.
        """
        ...

    def write_now(self, data: bytes) -> None:
        """Send the next piece of a flowing stream."""
        ...


PendingBytes = Callable[[], int]
"""Returns about how many bytes are buffered for a client."""

PENDING_BYTES_IN_SCOPE = "treadle.behind"
"""Scope key of a `PendingBytes`, which the server calls while a client reads nothing."""

EDGE_IN_SCOPE = "treadle.edge"
"""Scope key of the `Edge` of this request."""

WHOLE_IN_SCOPE = "treadle.whole"
"""Scope key: true once the server has the whole body, so that reading it does not wait."""

DISCONNECT_IN_SCOPE = "treadle.gone"
"""Scope key of a callback for when the client disconnects; True once it has."""
