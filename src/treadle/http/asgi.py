"""The types of ASGI that Treadle uses, and what its own HTTP server adds to a scope.

Both the server edge and the application above it import them from here. Nothing in this module does anything.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NotRequired, Protocol, Required, TypedDict

Header = tuple[bytes, bytes]


class Scope(TypedDict):
    """What of an ASGI scope Treadle reads."""

    type: str
    method: str
    path: str
    query_string: bytes
    headers: Iterable[Header]
    client: NotRequired[tuple[str, int] | None]
    root_path: NotRequired[str]


class AsgiMessage(TypedDict, total=False):
    """An ASGI message, either way."""

    type: Required[str]
    body: bytes
    more_body: bool
    status: int
    headers: list[Header]


class AsgiStart(TypedDict):
    """The message that begins an answer."""

    type: str
    status: int
    headers: list[Header]


Receive = Callable[[], Awaitable[AsgiMessage]]
Send = Callable[[AsgiMessage | AsgiStart], Awaitable[None]]

Application = Callable[[Any, Any, Any], Awaitable[None]]
"""Any ASGI application: frameworks disagree about the types of its arguments."""


class Edge(Protocol):
    """An answer of our own server: sends at once, and in one write, what takes ASGI several steps that might wait."""

    @property
    def is_flowing(self) -> bool:
        """Tell whether it is a stream that has begun, whose client takes what it is sent."""
        ...

    def is_asked_by(self, receive: Receive, send: Send) -> bool:
        """Tell whether nobody stands between who answers and this server, and would miss what goes past them."""
        ...

    def take_now(self) -> bytes | None:
        """Return the body of the request, if all of it is there."""
        ...

    def begin_now(self, status: int, headers: tuple[Header, ...], data: bytes, *, is_whole: bool) -> bool:
        """Send the head of an answer, and all of its body or the beginning of its stream.

        Where it cannot nothing has happened, and ASGI's way is open.
        """
        ...

    def write_now(self, data: bytes) -> None:
        """Send more of a stream that is flowing."""
        ...


Behind = Callable[[], int]
"""Says about how many bytes wait in memory for a client."""

BEHIND_IN_SCOPE = "treadle.behind"
"""Where the edge finds that out, while a client takes nothing."""

EDGE_IN_SCOPE = "treadle.edge"
"""Where our own server is found, for what it does at once."""

WHOLE_IN_SCOPE = "treadle.whole"
"""Whether the edge has the whole body, so that reading it cannot take long."""

GONE_IN_SCOPE = "treadle.gone"
"""Where the edge finds whom to tell that a client is gone; True, once it is."""
