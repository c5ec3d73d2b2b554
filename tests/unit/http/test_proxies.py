"""Requests through the proxies of the environment: which one, how it is asked, and what it does not see."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from treadle.http import client_pool as pool
from treadle.http.client_errors import NoConnection
from treadle.http.dialing import HostAndPort
from treadle.http.proxies import ProxiedPool, is_exempt, proxy_of, read_proxy
from unit.http.test_client_pool import WHOLE, Server, certificate, get, on_both_loops, read_all, serving


class Proxy:
    """A proxy: it tunnels, or answers by itself what it is asked by a whole address."""

    def __init__(self, refusal: bytes = b"") -> None:
        self.url = ""
        self.heads: list[str] = []
        self.seen = b""
        self.served: set[asyncio.Task[None]] = set()
        self._refusal = refusal

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection in a task that can be waited for."""
        self.served.add(asyncio.ensure_future(self.serve(reader, writer)))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        with suppress(asyncio.IncompleteReadError, OSError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.heads.append(head)
            if self._refusal or not head.startswith("CONNECT "):
                writer.write(self._refusal or WHOLE)
            else:
                host, _, port = head.split()[1].rpartition(":")
                other_reader, other_writer = await asyncio.open_connection(host, int(port))
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                await asyncio.gather(self._pass_on(reader, other_writer), self._pass_on(other_reader, writer))
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                self.seen += data
                writer.write(data)
            writer.close()
            await writer.wait_closed()


@asynccontextmanager
async def proxying(proxy: Proxy) -> AsyncIterator[ProxiedPool]:
    """Run a proxy, and a pool that may use one."""
    listening = await asyncio.start_server(proxy.accept, "127.0.0.1", 0)
    proxy.url = f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    connections = ProxiedPool(4)
    try:
        yield connections
    finally:
        await connections.close()
        listening.close()
        await asyncio.gather(*proxy.served)


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the proxies of whoever runs the tests."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@on_both_loops
async def test_what_is_not_tls_is_asked_by_its_whole_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """The proxy learns who asks, where it wants to know, and answers."""
    proxy = Proxy()
    async with proxying(proxy) as connections:
        monkeypatch.setenv("HTTP_PROXY", f"http://ada:p%40ss@{proxy.url}")
        assert await read_all(await get(connections, "http://model.invalid:81/v1?q=1")) == b"hello"
    lines = proxy.heads[0].splitlines()
    assert lines[:2] == ["GET http://model.invalid:81/v1?q=1 HTTP/1.1", "Host: model.invalid:81"]
    assert "Proxy-Authorization: Basic YWRhOnBAc3M=" in lines


@on_both_loops
async def test_what_is_tls_goes_through_a_tunnel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The proxy sees the host and its own credential, and nothing of the request; the connection is kept."""
    shown, trusting = certificate(tmp_path)
    contexts: Callable[[], ssl.SSLContext] = lambda: trusting  # noqa: E731
    monkeypatch.setattr(pool, "tls_context", contexts)
    proxy = Proxy()
    async with serving(Server(WHOLE), shown) as (server, _), proxying(proxy) as connections:
        monkeypatch.setenv("https_proxy", f"ada:x@{proxy.url}")
        for _ in range(2):
            assert await read_all(await get(connections, server.url)) == b"hello"
        assert (server.connections, len(server.requests)) == (1, 2)
        assert b"Proxy-Authorization" not in server.requests[0]
    place = server.url.removeprefix("https://").removesuffix("/v1")
    assert [head.splitlines()[0] for head in proxy.heads] == [f"CONNECT {place} HTTP/1.1"]
    assert "Proxy-Authorization: Basic YWRhOng=" in proxy.heads[0]
    assert b"x-a" not in proxy.seen


@pytest.mark.parametrize(
    ("refusal", "words"),
    [
        (b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "the proxy answered 407"),
        (b"nonsense\r\n\r\n", "the proxy answered something that is not HTTP"),
        (b"HTTP/1.1 200", "the proxy broke off"),
    ],
)
@on_both_loops
async def test_a_tunnel_that_is_refused_is_no_connection(
    monkeypatch: pytest.MonkeyPatch, refusal: bytes, words: str
) -> None:
    """With what the proxy said."""
    proxy = Proxy(refusal)
    async with proxying(proxy) as connections:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        with pytest.raises(NoConnection, match=words):
            await get(connections, "https://model.invalid/v1")


@on_both_loops
async def test_an_exempt_host_is_asked_directly(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if there were no proxy."""
    proxy = Proxy()
    async with serving(Server(WHOLE)) as (server, _), proxying(proxy) as connections:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.setenv("no_proxy", "127.0.0.0/8")
        assert await read_all(await get(connections, server.url)) == b"hello"
        assert server.requests[0].startswith(b"GET /v1 HTTP/1.1")
    assert proxy.heads == []


@pytest.mark.parametrize(
    ("env", "is_tls", "host"),
    [
        ({}, True, None),
        ({"HTTPS_PROXY": "http://up:1"}, True, "up"),
        ({"HTTPS_PROXY": "http://up:1"}, False, None),
        ({"HTTPS_PROXY": "http://up:1", "https_proxy": "http://low:1"}, True, "low"),
        ({"ALL_PROXY": "http://all:1"}, False, "all"),
        ({"ALL_PROXY": "http://all:1", "HTTP_PROXY": "one:1"}, False, "one"),
        ({"ALL_PROXY": "http://all:1", "NO_PROXY": "*"}, False, None),
        ({"HTTP_PROXY": " "}, False, None),
    ],
)
def test_the_environment_says_which_proxy(
    monkeypatch: pytest.MonkeyPatch, env: dict[str, str], is_tls: bool, host: str | None
) -> None:
    """By what is asked, small letters first, and the one for all last."""
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    found = proxy_of(HostAndPort("model.example", 443, is_tls))
    assert (found.place.host if found else None) == host


@pytest.mark.parametrize(
    ("names", "host", "port", "is_named"),
    [
        ("", "a.example", 443, False),
        ("*", "a.example", 443, True),
        ("A.example", "a.EXAMPLE", 443, True),
        ("example", "a.example", 443, True),
        (".example", "a.example", 443, True),
        ("*.example", "a.example", 443, True),
        ("ample", "a.example", 443, False),
        ("b.example, a.example", "a.example", 443, True),
        ("a.example:443", "a.example", 443, True),
        ("a.example:80", "a.example", 443, False),
        ("10.0.0.0/8", "10.1.2.3", 443, True),
        ("10.0.0.0/8", "11.1.2.3", 443, False),
        ("10.0.0.0/8", "a.example", 443, False),
        ("::1", "::1", 443, True),
        ("[::1]:443", "::1", 443, True),
        ("[::1]:80", "::1", 443, False),
        ("fd00::/8", "fd00::1", 443, True),
        ("no/network", "10.1.2.3", 443, False),
    ],
)
def test_who_is_exempt(names: str, host: str, port: int, is_named: bool) -> None:
    """Hosts, domains, networks and ports, however they are spelt."""
    assert is_exempt(HostAndPort(host, port, is_tls=True), names) is is_named


@pytest.mark.parametrize("url", ["https://proxy:1", "socks5://proxy:1", "http://", "http://proxy:99999999"])
def test_a_proxy_that_cannot_be_used_is_said(url: str) -> None:
    """Nothing is asked past it."""
    with pytest.raises(NoConnection, match="the proxy of the environment"):
        read_proxy(url)
