"""Parses a URL into a connection target, and opens a socket to it: of several addresses the first that accepts."""

import asyncio
import re
import socket
from collections.abc import Iterable, Sequence
from functools import lru_cache
from urllib.parse import quote, urlsplit

import aiohappyeyeballs
import msgspec

from treadle.http.client_errors import NoAddress, NoConnection, reason_of

HEAD_START_S = 0.25
"""How long an address may take to answer before the next one is tried beside it (RFC 8305)."""

_PATH_SAFE = "/:@!$&'()*+,;=~%?"
_QUERY_SAFE = _PATH_SAFE + "[]{}|^`\\"
_PORTS = {"http": 80, "https": 443}
_AddressInfo = tuple[
    int | socket.AddressFamily,
    int | socket.SocketKind,
    int,
    str,
    tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes],
]
_ERRNO = re.compile(r"\[Errno (\d+)\]")


class HostAndPort(msgspec.Struct, frozen=True):
    """The server of a request. Requests to equal ones share connections."""

    host: str
    port: int
    is_tls: bool


class DialTarget(msgspec.Struct, frozen=True):
    """Where one request goes: the server, and the path and Host that its head names."""

    place: HostAndPort
    path: str
    host: str


@lru_cache(maxsize=1_024)
def target_of(url: str) -> DialTarget:
    """Parse a URL that was validated before."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    host = host if host.isascii() else host.encode("idna").decode()
    port = parts.port or _PORTS[parts.scheme]
    shown = f"[{host}]" if ":" in host else host
    shown = shown if port == _PORTS[parts.scheme] else f"{shown}:{port}"
    path = quote(parts.path or "/", safe=_PATH_SAFE) + (
        f"?{quote(parts.query, safe=_QUERY_SAFE)}" if parts.query else ""
    )
    return DialTarget(HostAndPort(host, port, parts.scheme == "https"), path, shown)


async def dial(place: HostAndPort) -> socket.socket:
    """Connect to a host.

    Raises: NoAddress, NoConnection.
    """
    try:
        found = await resolve(place)
    except socket.gaierror as error:
        raise NoAddress(error.strerror) from None
    return await _connect(found)


async def dial_one_of(addresses: Iterable[str], port: int) -> socket.socket:
    """Connect to one of exactly these addresses, without resolving a name.

    Raises: NoAddress, NoConnection.
    """
    families = {False: socket.AF_INET, True: socket.AF_INET6}
    return await _connect([(families[":" in each], socket.SOCK_STREAM, 0, "", (each, port)) for each in addresses])


async def _connect(found: Sequence[_AddressInfo]) -> socket.socket:
    if not found:
        raise NoAddress("no address")
    try:
        return await aiohappyeyeballs.start_connection(
            found, happy_eyeballs_delay=HEAD_START_S, socket_factory=_make_socket
        )
    except OSError as error:
        raise NoConnection(_failure_reason(error)) from None


def _make_socket(address: _AddressInfo) -> socket.socket:
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


def _failure_reason(error: OSError) -> str:
    """Return why the last address failed."""
    # If addresses fail with different errors, aiohappyeyeballs raises one without errno that only lists them as text.
    numbers = _ERRNO.findall(str(error)) if error.errno is None else []
    return reason_of(OSError(int(numbers[-1]), "") if numbers else error)


async def resolve(place: HostAndPort) -> Sequence[_AddressInfo]:
    """Return the addresses of a host, in the system's order of preference.

    Raises: OSError.
    """
    return await asyncio.get_running_loop().getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)
