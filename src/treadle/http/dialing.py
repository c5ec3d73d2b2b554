"""Where a request goes, and a socket to there: of several addresses the first that answers."""

import asyncio
import socket
from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import quote, urlsplit

import msgspec

from treadle.http.client_errors import NoAddress, NoConnection, reason_of

HEAD_START_S = 0.25
"""How long an address may take to answer before the next one is tried beside it (RFC 8305)."""

_PATH_SAFE = "/:@!$&'()*+,;=~%?"
_QUERY_SAFE = _PATH_SAFE + "[]{}|^`\\"
_PORTS = {"http": 80, "https": 443}
_Found = tuple[
    socket.AddressFamily, socket.SocketKind, int, str, tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]
]


class HostAndPort(msgspec.Struct, frozen=True):
    """Who is asked: requests to the same place share connections."""

    host: str
    port: int
    is_tls: bool


class DialTarget(msgspec.Struct, frozen=True):
    """Where one request goes: the place, and how its first lines name it."""

    place: HostAndPort
    path: str
    host: str


@lru_cache(maxsize=1_024)
def target_of(url: str) -> DialTarget:
    """Read an address that was checked before."""
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
    """Connect to a place.

    Raises: NoAddress, NoConnection.
    """
    try:
        found = await resolve(place)
    except socket.gaierror as error:
        raise NoAddress(error.strerror) from None
    return await _reach(found)


async def dial_one_of(addresses: Iterable[str], port: int) -> socket.socket:
    """Connect to one of these addresses and to no other; no name is looked up.

    Raises: NoAddress, NoConnection.
    """
    families = {False: socket.AF_INET, True: socket.AF_INET6}
    return await _reach([(families[":" in each], socket.SOCK_STREAM, 0, "", (each, port)) for each in addresses])


async def _reach(found: list[_Found]) -> socket.socket:
    if not found:
        raise NoAddress("no address")
    try:
        return await _first(_alternating(found))
    except OSError as error:
        raise NoConnection(reason_of(error)) from None


async def resolve(place: HostAndPort) -> list[_Found]:
    """Return the addresses of a place, as the system prefers them.

    Raises: OSError.
    """
    return await asyncio.get_running_loop().getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)


def _alternating(found: list[_Found]) -> list[_Found]:
    """Return the addresses with the families in turn, each in the order in which the system prefers them."""
    first = [each for each in found if each[0] == found[0][0]]
    others = [each for each in found if each[0] != found[0][0]]
    mixed = [each for pair in zip(first, others, strict=False) for each in pair]
    return [*mixed, *first[len(others) :], *others[len(first) :]]


async def _first(addresses: list[_Found]) -> socket.socket:
    """Return a socket to the first address that answers; the error is that of the last one."""
    if len(addresses) == 1:
        return await _connect(addresses[0])
    waiting = list(addresses)
    trying: set[asyncio.Task[socket.socket]] = set()
    error = OSError("no address")
    try:
        while waiting or trying:
            if waiting:
                trying.add(asyncio.create_task(_connect(waiting.pop(0))))
            timeout_s = HEAD_START_S if waiting else None
            done, trying = await asyncio.wait(trying, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            won = [task for task in done if task.exception() is None]
            if won:
                _give_up([*won[1:], *trying])
                trying = set()
                return won[0].result()
            error = next((each for task in done if isinstance(each := task.exception(), OSError)), error)
    finally:
        _give_up(trying)
    raise error


def _give_up(tasks: "list[asyncio.Task[socket.socket]] | set[asyncio.Task[socket.socket]]") -> None:
    """Leave attempts that are not needed any more; one that succeeds in this moment is closed."""
    for task in tasks:
        task.add_done_callback(_close)
        task.cancel()


def _close(task: "asyncio.Task[socket.socket]") -> None:
    if not task.cancelled() and task.exception() is None:
        task.result().close()


async def _connect(address: _Found) -> socket.socket:
    family, kind, protocol, _, where = address
    made = socket.socket(family, kind, protocol)
    try:
        made.setblocking(False)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(made, where)
    except BaseException:
        made.close()
        raise
    return made
