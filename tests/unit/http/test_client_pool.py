"""Connections: kept, given back, given up, and what comes over them however it is cut."""

import asyncio
import contextlib
import functools
import gzip
import inspect
import ipaddress
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from treadle.http import client_connection as connection
from treadle.http import client_pool as pool
from treadle.http.client_errors import BodyTooLarge, ConnectionBroken, NoConnection, NoTls, PoolTimeout
from treadle.http.client_pool import ClientPool, ClientReply, write_head
from treadle.http.dialing import target_of

WHOLE = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: 5\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"
UNTIL_CLOSED = b"HTTP/1.1 200 OK\r\n\r\nhello"


class Server:
    """Answers every request on a connection with the next bytes, and closes after the last where told to."""

    def __init__(self, *answers: bytes, closes: bool = False) -> None:
        self._answers = list(answers)
        self._closes = closes
        self.connections = 0
        self.requests: list[bytes] = []
        self.writers: list[asyncio.StreamWriter] = []
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        self.connections += 1
        self.writers.append(writer)
        try:
            while True:
                self.requests.append(await reader.readuntil(b"\r\n\r\n"))
                writer.write(self._answers.pop(0) if len(self._answers) > 1 else self._answers[0])
                await writer.drain()
                if self._closes:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def serving(server: Server, tls: ssl.SSLContext | None = None) -> AsyncIterator[tuple[Server, ClientPool]]:
    """Run a server, and a pool that is closed behind it."""
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=tls)
    scheme = "http" if tls is None else "https"
    server.url = f"{scheme}://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1"
    connections = ClientPool(4)
    try:
        yield server, connections
    finally:
        await connections.close()
        for writer in server.writers:
            writer.close()
        listening.close()


async def get(connections: ClientPool, url: str) -> ClientReply:
    """Ask for something."""
    return await connections.request("GET", url, {"x-a": "1"}, connect_s=5.0, idle_s=5.0)


async def read_all(reply: ClientReply) -> bytes:
    """Read an answer to its end and give it back."""
    pieces: list[bytes] = []
    try:
        while piece := await reply.readany():
            pieces.append(piece)
    finally:
        reply.close()
    return b"".join(pieces)


def on_both_loops(work: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test on both loops: the server has uvloop, programs that use the library may not."""

    @functools.wraps(work)
    def test(loop: str, **fixtures: object) -> None:
        make = asyncio.new_event_loop if loop == "asyncio" else pytest.importorskip("uvloop").new_event_loop
        with asyncio.Runner(loop_factory=make) as runner:
            runner.run(work(**fixtures))

    own = inspect.signature(work)
    added = inspect.Parameter("loop", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    test.__signature__ = own.replace(parameters=[added, *own.parameters.values()])  # type: ignore[attr-defined]
    return pytest.mark.parametrize("loop", ["asyncio", "uvloop"])(test)


@pytest.mark.parametrize("answer", [WHOLE, CHUNKED], ids=["length", "chunks"])
@on_both_loops
async def test_a_connection_is_used_again(answer: bytes) -> None:
    """Also by a second pair of requests, whatever way the body says its length."""
    async with serving(Server(answer)) as (server, connections):
        for _ in range(3):
            assert await read_all(await get(connections, server.url)) == b"hello"
    assert (server.connections, len(server.requests)) == (1, 3)


@on_both_loops
async def test_a_head_says_what_it_must() -> None:
    """The status, the headers by small letters, and the type without its parameters."""
    async with serving(Server(WHOLE)) as (server, connections):
        reply = await get(connections, f"{server.url}/a b?c=d")
        assert (reply.status, reply.content_type, reply.headers["content-length"]) == (200, "text/plain", "5")
        await read_all(reply)
    host = server.url.removeprefix("http://").removesuffix("/v1").encode()
    assert server.requests[0] == b"GET /v1/a%20b?c=d HTTP/1.1\r\nHost: " + host + b"\r\nx-a: 1\r\n\r\n"


@on_both_loops
async def test_a_body_may_end_with_its_connection() -> None:
    """HTTP/1.0 and lazy servers say no length."""
    async with serving(Server(UNTIL_CLOSED, closes=True)) as (server, connections):
        assert await read_all(await get(connections, server.url)) == b"hello"
        assert await read_all(await get(connections, server.url)) == b"hello"
    assert server.connections == 2


@pytest.mark.parametrize("cut", [WHOLE[:-2], CHUNKED[:-9], b"", b"HTTP/1.1 2"], ids=["length", "chunks", "all", "head"])
@on_both_loops
async def test_a_cut_is_told_from_an_end(cut: bytes) -> None:
    """A body that is shorter than it said is no answer."""
    async with serving(Server(cut, closes=True)) as (server, connections):
        with pytest.raises(ConnectionBroken):
            await read_all(await get(connections, server.url))


@on_both_loops
async def test_an_answer_left_early_closes_its_connection() -> None:
    """What nobody read would be taken for the next answer."""
    async with serving(Server(WHOLE[:-2], WHOLE)) as (server, connections):
        (await get(connections, server.url)).close()
        assert await read_all(await get(connections, server.url)) == b"hello"
    assert server.connections == 2


@on_both_loops
@pytest.mark.parametrize("answer", [WHOLE, CHUNKED])
async def test_an_answer_that_came_whole_and_was_not_read_is_not_taken_for_the_next(answer: bytes) -> None:
    """Its connection is used again, and what came over it for somebody else is gone."""
    async with serving(Server(answer.replace(b"he", b"XX"), WHOLE)) as (server, connections):
        (await get(connections, server.url)).close()
        assert await read_all(await get(connections, server.url)) == b"hello"
    assert server.connections == 1


@on_both_loops
async def test_an_answer_that_has_said_all_gives_its_connection_back_when_it_ends() -> None:
    """Nobody waits for that, and until then nobody else gets the connection."""
    async with serving(Server(CHUNKED[:-5], WHOLE)) as (server, connections), asyncio.timeout(5):
        reply = await get(connections, server.url)
        assert await reply.readany() == b"hello"
        await reply.end()
        assert (connections.idle, await reply.readany()) == (0, b"")
        server.writers[0].write(b"1\r\n!\r\n0\r\n\r\n")
        while not connections.idle:  # noqa: ASYNC110 that a connection is free is told to nobody
            await asyncio.sleep(0)
        assert await read_all(await get(connections, server.url)) == b"hello"
    assert server.connections == 1


@on_both_loops
@pytest.mark.parametrize("is_closed", [False, True])
async def test_an_answer_that_does_not_end_is_given_up(monkeypatch: pytest.MonkeyPatch, is_closed: bool) -> None:
    """After a short while, or when the other side closes: whoever waits for a turn gets a connection of their own."""
    monkeypatch.setattr(connection, "LINGER_S", 60.0 if is_closed else 0.01)
    async with serving(Server(CHUNKED[:-5], WHOLE)) as (server, _):
        narrow = ClientPool(1)
        reply = await get(narrow, server.url)
        await reply.end()
        if is_closed:
            server.writers[0].close()
        assert await read_all(await get(narrow, server.url)) == b"hello"
        await narrow.close()
    assert server.connections == 2


@on_both_loops
async def test_what_is_left_of_an_answer_is_passed_over_however_much_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where reading had stopped, because nobody read."""
    monkeypatch.setattr(connection, "LINGER_S", 60.0)
    size = 8_000_000
    head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size
    async with serving(Server(head + b"x" * size, WHOLE)) as (server, _), asyncio.timeout(30):
        narrow = ClientPool(1)
        reply = await get(narrow, server.url)
        assert await reply.readany()
        await reply.end()
        assert await read_all(await get(narrow, server.url)) == b"hello"
        await narrow.close()
    assert server.connections == 1


@on_both_loops
async def test_word_that_the_answer_is_to_come_is_passed_over() -> None:
    """100 and 103 are not the answer."""
    early = b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n"
    async with serving(Server(early + WHOLE)) as (server, connections):
        reply = await get(connections, server.url)
        assert (reply.status, "link" in reply.headers) == (200, False)
        assert await read_all(reply) == b"hello"


@on_both_loops
async def test_of_a_header_that_is_repeated_the_first_counts() -> None:
    """However it is spelled the next time, and though more of it comes behind the body; the next answer has its own."""
    head = b"HTTP/1.1 200 OK\r\nX-A: one\r\nx-a: two\r\nX-A: three\r\n"
    trailed = head + b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nx-b: late\r\n\r\n"
    async with serving(Server(trailed, WHOLE)) as (server, connections):
        first = await get(connections, server.url)
        assert (first.headers["x-a"], await read_all(first)) == ("one", b"hello")
        second = await get(connections, server.url)
        assert not {"x-a", "x-b"} & second.headers.keys()
        assert await read_all(second) == b"hello"
    assert server.connections == 1


@on_both_loops
async def test_what_one_answer_was_is_forgotten_by_the_next_on_its_connection() -> None:
    """Packed or not, in chunks or not, with a word before it or not."""
    packed = gzip.compress(b"hello")
    zipped = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n%b" % (len(packed), packed)
    early = b"HTTP/1.1 103 Early Hints\r\n\r\n"
    answers = (zipped, CHUNKED, WHOLE, early + zipped, WHOLE)
    async with serving(Server(*answers)) as (server, connections):
        for _ in answers:
            assert await read_all(await get(connections, server.url)) == b"hello"
    assert (server.connections, len(server.requests)) == (1, len(answers))


ENDLESS = 40_000_000
"""More than any bound: a server that never stops is broken off long before."""


async def _endless(head: bytes, piece: bytes) -> tuple[str, int]:
    """Return what becomes of an answer that goes on with a piece again and again, and the bytes that were taken."""
    sent = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head)
        with contextlib.suppress(ConnectionError):
            while sent < ENDLESS:
                writer.write(piece)
                sent += len(piece)
                await writer.drain()
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    connections = ClientPool(1)
    try:
        reply = await get(connections, f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1")
        with pytest.raises(ConnectionBroken) as broken:
            await read_all(reply)
    finally:
        await connections.close()
        listening.close()
    return str(broken.value), sent


_TRAILING = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhe\r\n"
_PACKED = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\nconnection: close\r\n\r\n"


@pytest.mark.parametrize(
    ("head", "piece", "reason"),
    [
        (_TRAILING + b"0\r\n", b"x-a: %b\r\n" % (b"a" * 1_000), "the trailers of the answer have no end"),
        (_TRAILING + b"0\r\nx-a: ", b"a" * 10_000, "the trailers of the answer have no end"),
        (_TRAILING + b"1;", b"a" * 10_000, "the trailers of the answer have no end"),
        (_PACKED + gzip.compress(b"hi"), b"\0" * 10_000, "more follows the packed body than belongs to it"),
        (_PACKED + gzip.compress(b"hi"), gzip.compress(b"") * 500, "more follows the packed body than belongs to it"),
    ],
    ids=["trailers", "one trailer", "chunk extension", "behind a packed body", "empty packed bodies"],
)
async def test_what_belongs_to_no_body_has_an_end(head: bytes, piece: bytes, reason: str) -> None:
    """It is not kept, and after a quarter of a megabyte (and what the sockets hold) the connection is broken off."""
    said, sent = await _endless(head, piece)
    assert said == reason
    assert sent < ENDLESS / 2


async def test_trailers_are_not_read_as_headers() -> None:
    """Nor do they reach the next answer on the connection."""
    trailing = CHUNKED[:-2] + b"content-type: text/evil\r\nx-late: 1\r\n\r\n"
    async with serving(Server(trailing, WHOLE)) as (server, connections):
        first = await get(connections, server.url)
        assert await read_all(first) == b"hello"
        assert dict(first.headers) == {"transfer-encoding": "chunked"}
        second = await get(connections, server.url)
        assert dict(second.headers) == {"content-type": "text/plain; charset=utf-8", "content-length": "5"}
        second.close()


async def test_a_packed_body_that_is_cut_is_broken() -> None:
    """Although the length that HTTP says is there."""
    packed = gzip.compress(b"hello")[:-9]
    cut = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n%b" % (len(packed), packed)
    async with serving(Server(cut)) as (server, connections):
        with pytest.raises(ConnectionBroken, match="the packed body is cut off"):
            await read_all(await get(connections, server.url))


async def test_an_empty_body_may_be_called_packed() -> None:
    """Some servers say so of an answer without a body."""
    empty = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 0\r\n\r\n"
    async with serving(Server(empty)) as (server, connections):
        assert await read_all(await get(connections, server.url)) == b""


@on_both_loops
async def test_what_comes_unasked_ends_a_connection() -> None:
    """An answer that nobody asked for never belongs to the next request."""
    async with serving(Server(WHOLE + WHOLE, WHOLE)) as (server, connections):
        first = await get(connections, server.url)
        assert await first.readany() == b"hello"
        first.close()
        assert connections.idle == 0
        assert await read_all(await get(connections, server.url)) == b"hello"
    assert server.connections == 2


@on_both_loops
async def test_a_server_that_wants_to_close_is_heeded() -> None:
    """After `connection: close` a new connection is made."""
    leaving = WHOLE.replace(b"200 OK\r\n", b"200 OK\r\nconnection: close\r\n")
    async with serving(Server(leaving)) as (server, connections):
        for _ in range(2):
            assert await read_all(await get(connections, server.url)) == b"hello"
    assert server.connections == 2


@on_both_loops
async def test_a_connection_that_was_closed_meanwhile_is_not_used() -> None:
    """A provider that closed what it kept costs nobody a request."""
    async with serving(Server(WHOLE)) as (server, connections):
        await read_all(await get(connections, server.url))
        server.writers[0].close()
        await server.writers[0].wait_closed()
        async with asyncio.timeout(5):
            while connections.idle:  # noqa: ASYNC110 that a connection is gone is told to nobody
                await asyncio.sleep(0)
        assert await read_all(await get(connections, server.url)) == b"hello"
    assert server.connections == 2


@on_both_loops
async def test_connections_that_nobody_needs_are_ended_each_in_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also the one that was given back later, and one that is given back after all were gone."""
    monkeypatch.setattr(pool, "IDLE_S", 0.05)
    async with serving(Server(WHOLE)) as (server, connections), asyncio.timeout(5):
        first, second = await get(connections, server.url), await get(connections, server.url)
        for asked in (first, second, None):
            began = time.monotonic()
            await read_all(asked or await get(connections, server.url))
            assert connections.idle
            while connections.idle:  # noqa: ASYNC110 that a connection is gone is told to nobody
                await asyncio.sleep(0)
            assert time.monotonic() - began >= 0.04
    assert server.connections == 3


@on_both_loops
async def test_a_body_is_broken_off_where_it_is_larger_than_it_may_be() -> None:
    """Whoever reads it hears so, however it is cut; the next answer has its own bound."""
    async with serving(Server(WHOLE)) as (server, _):
        narrow = ClientPool(1, body_bytes_max=4)
        with pytest.raises(BodyTooLarge):
            await read_all(await get(narrow, server.url))
        await narrow.close()
        wide = ClientPool(1, body_bytes_max=5)
        for _ in range(2):
            assert await read_all(await get(wide, server.url)) == b"hello"
        await wide.close()
    assert server.connections == 2


@on_both_loops
async def test_a_large_body_waits_for_its_reader() -> None:
    """It is not read ahead without end, and comes whole."""
    size = 8_000_000
    head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size
    async with serving(Server(head + b"x" * size)) as (server, connections):
        assert len(await read_all(await get(connections, server.url))) == size


@on_both_loops
async def test_a_full_pool_lets_the_next_one_wait() -> None:
    """And go on as soon as a connection is given back; past its time it fails."""
    async with serving(Server(WHOLE)) as (server, _):
        narrow = ClientPool(1)
        held = await get(narrow, server.url)
        with pytest.raises(PoolTimeout):
            await narrow.request("GET", server.url, {}, connect_s=0.01, idle_s=5.0)
        waiting = asyncio.create_task(get(narrow, server.url))
        await asyncio.sleep(0)
        await read_all(held)
        assert await read_all(await waiting) == b"hello"
        await narrow.close()
    assert server.connections == 1


@on_both_loops
async def test_the_next_address_is_tried_where_one_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host with an address that nobody answers at is reached by its other one."""
    async with serving(Server(WHOLE)) as (server, connections):
        place = target_of(server.url).place
        free = socket.create_server(("127.0.0.1", 0))
        closed = free.getsockname()[1]
        free.close()
        kinds = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
        found = [(*kinds, ("127.0.0.1", closed)), (*kinds, ("127.0.0.1", place.port))]

        async def getaddrinfo(*_: object, **__: object) -> list[object]:
            return list(found)

        monkeypatch.setattr("treadle.http.dialing.resolve", getaddrinfo)
        assert await read_all(await get(connections, server.url)) == b"hello"
        found.pop()
        await connections.close()
        with pytest.raises(NoConnection):
            await get(connections, server.url)
        # A Unix socket has no TCP options, so this address fails in another way than the last one.
        found.insert(0, (socket.AF_UNIX, socket.SOCK_STREAM, 0, "", ("nowhere", 0)))
        with pytest.raises(NoConnection, match=r"^Connection refused$"):
            await get(connections, server.url)


def certificate(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return what a server at 127.0.0.1 shows, and what trusts it."""
    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "here")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, now - timedelta(1), now + timedelta(1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .sign(key, hashes.SHA256())
    )
    pem = made.public_bytes(serialization.Encoding.PEM)
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "own.pem").write_bytes(pem + secret)
    shown = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    shown.load_cert_chain(folder / "own.pem")
    return shown, ssl.create_default_context(cadata=pem.decode())


@on_both_loops
async def test_tls_is_spoken_with_whom_it_is_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A certificate that nobody vouches for ends it before anything is sent."""
    shown, trusting = certificate(tmp_path)
    async with serving(Server(WHOLE), shown) as (server, connections):
        with pytest.raises(NoTls, match="certificate"):
            await get(connections, server.url)
        assert server.requests == []
        contexts: Callable[[], ssl.SSLContext] = lambda: trusting  # noqa: E731
        monkeypatch.setattr(pool, "tls_context", contexts)
        for _ in range(2):
            assert await read_all(await get(connections, server.url)) == b"hello"
        assert len(server.requests) == 2


@pytest.mark.parametrize("value", ["a\r\nx-b: 1", "a\nb", "a\rb", "a\0b"])
def test_a_header_is_one_line(value: str) -> None:
    """Nothing that a header holds can become another header."""
    with pytest.raises(ValueError, match="line break"):
        write_head("GET", target_of("http://127.0.0.1/v1"), (("x-a", value),))


@pytest.mark.parametrize(
    ("url", "host", "path"),
    [
        ("https://api.example/v1/a", "api.example", "/v1/a"),
        ("https://api.example:8443", "api.example:8443", "/"),
        ("http://[::1]:80/v1", "[::1]", "/v1"),
        ("http://b\u00fccher.example/v1/\u00e9", "xn--bcher-kva.example", "/v1/%C3%A9"),
    ],
)
def test_an_address_is_read(url: str, host: str, path: str) -> None:
    """The usual port is not said, brackets stay, and what is not ASCII is spelled in ASCII."""
    target = target_of(url)
    assert (target.host, target.path) == (host, path)
