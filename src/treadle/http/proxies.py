"""A connection pool that honours the proxy variables: HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY.

HTTPS requests go through a CONNECT tunnel, so the proxy sees only the host. Plain HTTP requests are sent to the proxy
with their absolute URL. The connection to the proxy itself is not encrypted.
"""

import asyncio
import ipaddress
import os
import socket
import sys
from base64 import b64encode
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import unquote, urlsplit

import msgspec

from treadle.http.client_errors import NoConnection, reason_of
from treadle.http.client_pool import ClientPool
from treadle.http.dialing import DialTarget, HostAndPort, dial, target_of

HEAD_BYTES_MAX = 65_536
PORT = 8080
"""The port of a proxy whose URL names none."""


class Proxy(msgspec.Struct, frozen=True):
    """A proxy, and its Proxy-Authorization header; empty without credentials."""

    place: HostAndPort
    authorization: str


class ProxiedPool(ClientPool):
    """A pool that sends requests through the proxies that the environment names for their host."""

    def __init__(self, connections_max: int, *, body_bytes_max: int = sys.maxsize) -> None:
        super().__init__(connections_max, dial=_dial, body_bytes_max=body_bytes_max)

    def _route(self, url: str, headers: Mapping[str, str]) -> tuple[DialTarget, Mapping[str, str]]:
        """Use the absolute URL for plain HTTP through a proxy; an HTTPS request is unchanged inside its tunnel."""
        target = target_of(url)
        proxy = None if target.place.is_tls else proxy_of(target.place)
        if proxy is None:
            return target, headers
        if proxy.authorization:
            headers = {**headers, "Proxy-Authorization": proxy.authorization}
        return DialTarget(target.place, f"http://{target.host}{target.path}", target.host), headers


def proxy_of(place: HostAndPort) -> Proxy | None:
    """Return the proxy that the environment names for a host.

    Raises: NoConnection, if that proxy cannot be used.
    """
    url = _variable("https_proxy" if place.is_tls else "http_proxy") or _variable("all_proxy")
    if not url or is_exempt(place, _variable("no_proxy")):
        return None
    return read_proxy(url)


def _variable(name: str) -> str:
    return (os.environ.get(name) or os.environ.get(name.upper()) or "").strip()


def is_exempt(place: HostAndPort, names: str) -> bool:
    """Return whether NO_PROXY covers a host: by name, parent domain or network, optionally with a port, or by `*`."""
    return any(_matches(each.strip().lower(), place) for each in names.split(","))


def _matches(word: str, place: HostAndPort) -> bool:
    host, colon, port = word.rpartition(":")
    if colon and port.isdecimal() and (":" not in host or host.endswith("]")):
        if int(port) != place.port:
            return False
        word = host
    word = word.strip("[]").removeprefix("*.").lstrip(".")
    if word in ("*", place.host.lower()):
        return True
    if "/" in word:
        return _is_inside(place.host, word)
    return bool(word) and place.host.lower().endswith(f".{word}")


def _is_inside(host: str, network: str) -> bool:
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False


@lru_cache(maxsize=64)
def read_proxy(url: str) -> Proxy:
    """Parse the URL of a proxy; without a scheme it is http.

    Raises: NoConnection.
    """
    parts = urlsplit(url if "://" in url else f"http://{url}")
    try:
        port = parts.port or PORT
    except ValueError:
        raise NoConnection("the proxy of the environment has no port that can be used") from None
    if parts.scheme != "http" or not parts.hostname:
        raise NoConnection("the proxy of the environment is not http://HOST:PORT")
    credentials = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    authorization = f"Basic {b64encode(credentials.encode()).decode()}" if parts.username else ""
    return Proxy(HostAndPort(parts.hostname, port, is_tls=False), authorization)


async def _dial(place: HostAndPort) -> socket.socket:
    proxy = proxy_of(place)
    if proxy is None:
        return await dial(place)
    made = await dial(proxy.place)
    if not place.is_tls:
        return made
    try:
        await _tunnel(made, proxy, place)
    except BaseException:
        made.close()
        raise
    return made


async def _tunnel(made: socket.socket, proxy: Proxy, place: HostAndPort) -> None:
    """Open a tunnel through the proxy; after this the socket's bytes are the host's.

    Raises: NoConnection.
    """
    loop = asyncio.get_running_loop()
    host = f"[{place.host}]" if ":" in place.host else place.host
    lines = [f"CONNECT {host}:{place.port} HTTP/1.1", f"Host: {host}:{place.port}"]
    if proxy.authorization:
        lines.append(f"Proxy-Authorization: {proxy.authorization}")
    head = b""
    try:
        await loop.sock_sendall(made, "\r\n".join([*lines, "", ""]).encode())
        while not head.endswith(b"\r\n\r\n"):
            # No byte of the host can be read by mistake: a TLS server sends nothing before the client does.
            piece = await loop.sock_recv(made, 4_096)
            if not piece or len(head) > HEAD_BYTES_MAX:
                raise NoConnection("the proxy broke off")
            head += piece
    except NoConnection:
        raise
    except OSError as error:
        raise NoConnection(f"the proxy broke off: {reason_of(error)}") from None
    status = head.split(b" ", 2)[1][:3] if head.count(b" ") else b""
    if not status.startswith(b"2"):
        words = status.decode("latin-1") or "something that is not HTTP"
        raise NoConnection(f"the proxy answered {words}")
