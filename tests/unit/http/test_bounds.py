"""How many connections there may be, what a trailer may do, and that requests with an upgrade are served whole."""

import asyncio
from typing import Any

import pytest

from treadle.http.server_protocol import PIPELINED_MAX, bounded
from unit.http.test_server_protocol import serving

GET = b"GET /a HTTP/1.1\r\nhost: localhost\r\n\r\n"
CHUNKED = b"POST /body HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
PIECES_MAX = 20_000


class Recording:
    """Reads each request to its end, and keeps its headers and its body."""

    def __init__(self) -> None:
        self.headers: list[tuple[bytes, bytes]] = []
        self.bodies: list[bytes] = []
        self.all_read = asyncio.Event()
        self.released = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/early":
            await _answer(send, 401)
            return
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if message["type"] == "http.disconnect" or not message.get("more_body"):
                break
        self.headers, self.bodies = list(scope["headers"]), [*self.bodies, body]
        if len(self.bodies) == 2:
            self.all_read.set()
        if scope["path"] == "/held":
            await self.released.wait()
        await _answer(send, 200)


async def _answer(send: Any, status: int) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok", "more_body": False})


async def _ask(port: int, request: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    return reader, writer


async def _status(reader: asyncio.StreamReader) -> int:
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)
    return int(head.split(b" ", 2)[1])


async def _write_all(writer: asyncio.StreamWriter, piece: bytes) -> None:
    for _ in range(PIECES_MAX):
        writer.write(piece)
        await writer.drain()


async def test_a_new_connection_takes_the_place_of_an_idle_one() -> None:
    """Clients keep connections that they may never use again."""
    async with serving(app=Recording(), connections_max=2) as port:
        idle = [await _ask(port, GET) for _ in range(2)]
        assert [await _status(reader) for reader, _ in idle] == [200, 200]
        reader, writer = await _ask(port, GET)
        assert await _status(reader) == 200
        ended = [asyncio.ensure_future(reader.read()) for reader, _ in idle]
        done, waiting = await asyncio.wait(ended, timeout=20, return_when=asyncio.FIRST_COMPLETED)
        assert (len(done), len(waiting)) == (1, 1)
        for _, each in [*idle, (reader, writer)]:
            each.close()
        await asyncio.wait(ended, timeout=20)


async def test_a_connection_too_many_is_told_when_to_come_back() -> None:
    """Where all others have a request under way; afterwards there is room again."""
    app = Recording()
    async with serving(app=app, connections_max=2) as port:
        busy = [await _ask(port, GET.replace(b"/a", b"/held")) for _ in range(2)]
        await asyncio.wait_for(app.all_read.wait(), 20)
        reader, writer = await _ask(port, b"")
        refusal = await asyncio.wait_for(reader.read(), 20)
        assert refusal.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
        assert b"\r\nretry-after: 1\r\n" in refusal
        assert b"too_many_connections" in refusal
        app.released.set()
        assert [await _status(reader) for reader, _ in busy] == [200, 200]
        writer.close()
        for _, each in busy:
            each.close()


@pytest.mark.parametrize("piece", [b"x-a: %b\r\n" % (b"a" * 1_000), b"a" * 1_000], ids=["many", "one"])
async def test_trailers_without_end_are_refused(piece: bytes) -> None:
    """While the body is read."""
    async with serving(app=Recording()) as port:
        reader, writer = await _ask(port, CHUNKED + b"0\r\nx-a: ")
        answered = asyncio.ensure_future(_status(reader))
        while not answered.done():
            writer.write(piece)
            await writer.drain()
        assert await answered == 431
        writer.close()


@pytest.mark.parametrize("piece", [b"x-a: %b\r\n" % (b"a" * 1_000), b"a" * 1_000], ids=["many", "one"])
async def test_trailers_without_end_behind_an_answer_end_the_connection(piece: bytes) -> None:
    """The body that nobody reads any more has the same bound."""
    async with serving(app=Recording()) as port:
        reader, writer = await _ask(port, CHUNKED.replace(b"/body", b"/early") + b"0\r\nx-a: ")
        assert await _status(reader) == 401
        with pytest.raises(ConnectionError):
            await _write_all(writer, piece)
        writer.close()


async def test_a_trailer_is_no_header() -> None:
    """It neither adds one nor replaces what was checked."""
    app = Recording()
    request = CHUNKED.replace(b"\r\n\r\n", b"\r\nauthorization: Bearer a\r\n\r\n")
    trailers = b"authorization: Bearer b\r\ncontent-type: text/html\r\nx-api-key: c\r\n"
    async with serving(app=app) as port:
        reader, writer = await _ask(port, request + b"2\r\nhi\r\n0\r\n" + trailers + b"\r\n")
        assert await _status(reader) == 200
        writer.close()
    assert app.headers == [
        (b"host", b"localhost"),
        (b"transfer-encoding", b"chunked"),
        (b"authorization", b"Bearer a"),
    ]


@pytest.mark.parametrize("cut", [1, 30, 10_000])
async def test_a_request_that_asks_for_another_protocol_is_served_in_this_one(cut: int) -> None:
    """With its body, its headers and what comes behind it, however it arrives."""
    app = Recording()
    head = b"POST /body HTTP/1.1\r\nhost: localhost\r\nconnection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\n"
    request = head + b"http2-settings: AAM\r\ncontent-length: 5\r\n\r\nhello" + GET.replace(b"/a", b"/next")
    async with serving(app=app) as port:
        reader, writer = await _ask(port, b"")
        for start in range(0, len(request), cut):
            writer.write(request[start : start + cut])
            await writer.drain()
        for _ in range(2):
            assert await _status(reader) == 200
            assert await asyncio.wait_for(reader.readexactly(2), 20) == b"ok"
        writer.close()
    assert app.bodies == [b"hello", b""]


def test_without_a_number_connections_are_not_bounded() -> None:
    """The bound belongs to whoever starts the server, who knows how many files may be open."""
    assert bounded(1.0).keywords["bounds"].connections_max > 1_000_000  # type: ignore[attr-defined]


@pytest.mark.parametrize("behind", [b"0\r\nconnection: close\r\n\r\n", b"zz\r\n"], ids=["a trailer", "a bad chunk"])
async def test_no_answer_follows_the_one_that_came_before_the_body(behind: bytes) -> None:
    """A client would take it for the answer to its next request."""
    async with serving(app=Recording()) as port:
        reader, writer = await _ask(port, CHUNKED.replace(b"/body", b"/early"))
        assert await _status(reader) == 401
        assert await asyncio.wait_for(reader.readexactly(2), 20) == b"ok"
        writer.write(behind)
        assert await asyncio.wait_for(reader.read(), 20) == b""
        writer.close()


@pytest.mark.parametrize("upgrade", [b"", b"connection: upgrade\r\nupgrade: h2c\r\n"], ids=["plain", "upgrade"])
async def test_too_many_requests_in_one_piece_are_refused_once(
    upgrade: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """The parser stops at the first that is too many."""
    many = GET.replace(b"/a", b"/held").replace(b"\r\n\r\n", b"\r\n" + upgrade + b"\r\n") * (PIPELINED_MAX + 40)
    app = Recording()
    async with serving(app=app) as port:
        reader, writer = await _ask(port, many)
        answer = await asyncio.wait_for(reader.read(), 20)
        app.released.set()
        writer.close()
    assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert answer.count(b"HTTP/1.1 ") == 1
    assert b"too_many_pipelined" in answer
    assert caplog.records == []
