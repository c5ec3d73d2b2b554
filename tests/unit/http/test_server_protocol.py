"""What is bounded before there is a whole request: the time and the size of a head, and what comes behind an answer."""

import asyncio
import contextlib
import socket
import sys
from collections.abc import AsyncGenerator
from typing import Any

import pytest
import uvicorn

from treadle.http import server_protocol as protocol
from treadle.http.server_protocol import HEAD_BYTES_MAX, PIPELINED_MAX, bounded

BOUND_S = 20.0
HEAD = b"POST /v1/messages HTTP/1.1\r\nhost: localhost\r\n"


async def answer(scope: Any, receive: Any, send: Any) -> None:
    """Answer at once, unless the path says that the body is wanted."""
    if scope["path"].endswith("/body"):
        while (message := await receive()).get("more_body"):
            assert message["type"] == "http.request"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok", "more_body": False})


class _Server(uvicorn.Server):
    """Says when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listens = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listens.set()


@contextlib.asynccontextmanager
async def serving(
    head_timeout_s: float = BOUND_S, app: Any = answer, idle_s: Any = 5, connections_max: int = sys.maxsize
) -> AsyncGenerator[int, None]:
    """Serve on a free port, and yield it."""
    config = uvicorn.Config(
        app,
        port=0,
        http=bounded(head_timeout_s, connections_max=connections_max),
        ws="none",
        lifespan="off",
        log_config=None,
        timeout_keep_alive=idle_s,
    )
    server = _Server(config)
    running = asyncio.create_task(server.serve())
    await server.listens.wait()
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        await running


async def exchange(port: int, *pieces: bytes) -> bytes:
    """Send, then read to the end of the connection."""
    async with asyncio.timeout(BOUND_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with contextlib.suppress(ConnectionError):
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
        with contextlib.suppress(ConnectionError):
            said = await reader.read()
            writer.close()
            return said
    return b""


async def test_a_head_that_stops_is_answered_in_the_form_of_its_api() -> None:
    """The time begins with the connection, whatever has come of the head."""
    async with serving(head_timeout_s=0.05) as port:
        said = await exchange(port, HEAD)
    assert said.startswith(b"HTTP/1.1 408 ")
    assert b'"type":"error"' in said
    assert b"connection: close" in said


async def test_a_connection_that_says_nothing_is_closed() -> None:
    """Nobody is there to be answered."""
    async with serving(head_timeout_s=0.05) as port:
        assert await exchange(port) == b""


@pytest.mark.parametrize(
    ("begin", "status", "words"),
    [
        (HEAD + b"x: ", b"431", b'"type":"invalid_request_error"'),
        (b"GET /v1/models?", b"414", b'"code":"path_too_long"'),
    ],
    ids=["header", "query"],
)
async def test_a_head_without_end_is_refused(begin: bytes, status: bytes, words: bytes) -> None:
    """As soon as it is over the bound, and the rest is not kept."""
    async with serving() as port:
        said = await exchange(port, begin, *[b"a" * 65_536] * 4)
    assert said.startswith(b"HTTP/1.1 " + status)
    assert words in said
    assert str(HEAD_BYTES_MAX).encode() in said


async def test_what_is_not_http_is_said_in_json() -> None:
    """A client that speaks an API reads the same kind of error as ever."""
    async with serving() as port:
        said = await exchange(port, b"GET / HTTP/1.1\r\nhost: localhost\r\nx: a\rb\r\n\r\n")
    assert said.startswith(b"HTTP/1.1 400 ")
    assert b'"code":"invalid_http"' in said


async def test_a_body_that_breaks_off_in_bad_chunks_is_refused_once() -> None:
    """The application is told that the client is gone, and does not answer a second time."""
    head = b"POST /body HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
    async with serving() as port:
        said = await exchange(port, head, b"zz\r\n")
    assert said.count(b"content-length:") == 1
    assert said.startswith(b"HTTP/1.1 400 ")


async def test_a_client_that_has_its_answer_and_still_sends_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answer reaches it, and then the connection ends."""
    monkeypatch.setattr(protocol, "LINGER_S", 0.05)
    async with serving() as port:
        said = await exchange(port, HEAD + b"content-length: 1000000\r\n\r\n", b"x" * 1_000)
    assert said.endswith(b"ok")


async def test_a_path_is_read_once_and_a_query_each_time() -> None:
    """Paths are the same all the time; a query may hold a key, which nobody keeps."""
    seen: list[tuple[str, bytes, bytes]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append((scope["path"], scope["raw_path"], scope["query_string"]))
        await answer({**scope, "path": ""}, receive, send)

    asked = [b"/a%20b", b"/a%20b?key=one", b"/a%20b?key=two", b"/a%20b"]
    requests = b"".join(b"GET %b HTTP/1.1\r\nhost: localhost\r\n\r\n" % url for url in asked[:-1])
    protocol._parse_url_cached.cache_clear()  # pyright: ignore[reportPrivateUsage]
    async with serving(app=app) as port:
        await exchange(port, requests + b"GET /a%20b HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
    assert seen == [("/a b", b"/a%20b", query) for query in (b"", b"key=one", b"key=two", b"")]
    known = protocol._parse_url_cached.cache_info()  # pyright: ignore[reportPrivateUsage]
    assert (known.currsize, known.hits, known.misses) == (1, 1, 1)


async def test_requests_one_after_another_share_a_connection() -> None:
    """Also with a body, and with the time of each head counted anew."""
    post = b"POST /body HTTP/1.1\r\nhost: localhost\r\ncontent-length: 3\r\n\r\nabc"
    last = b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    async with serving() as port:
        said = await exchange(port, post, post, last)
    assert said.count(b"HTTP/1.1 200 ") == 3


GET = b"GET /%b HTTP/1.1\r\nhost: localhost\r\n\r\n"


async def test_a_connection_that_is_idle_for_too_long_is_closed() -> None:
    """After the last of its answers, however soon the ones before were followed by another request."""
    async with serving(idle_s=0.05) as port:
        said = await exchange(port, GET % b"a", GET % b"b")
    assert said.count(b"HTTP/1.1 200 ") == 2


async def test_a_head_that_stops_behind_an_answer_is_answered_in_its_own_time() -> None:
    """Long before the connection would have been idle for too long."""
    async with serving(head_timeout_s=0.05, idle_s=BOUND_S * 10) as port, asyncio.timeout(BOUND_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GET % b"a")
        await reader.readuntil(b"ok")
        writer.write(HEAD)
        said = await reader.read()
        writer.close()
    assert said.startswith(b"HTTP/1.1 408 ")


async def test_an_answer_that_takes_long_is_waited_for_whatever_comes_behind_its_request() -> None:
    """Neither the time for a head nor that of an idle connection ends it; nor does the beginning of another head."""
    goes_on = asyncio.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/slow":
            asyncio.get_running_loop().call_later(0.2, goes_on.set)
            await goes_on.wait()
        await answer(scope, receive, send)

    async with serving(head_timeout_s=0.05, idle_s=0.05, app=slow) as port, asyncio.timeout(BOUND_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GET % b"a")
        await reader.readuntil(b"ok")
        writer.write(GET % b"slow" + HEAD)
        await reader.readuntil(b"ok")
        writer.write(b"content-length: 0\r\n\r\n")
        assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200 ")
        assert await reader.read() == b""
        writer.close()


async def test_requests_behind_one_another_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody fills the memory with requests that wait for an answer which does not come; the connection is closed."""
    monkeypatch.setattr(protocol, "LINGER_S", 0.05)
    asked: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        asked.append(scope["path"])
        await receive()
        await receive()

    get = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"
    async with serving(app=app) as port:
        said = await exchange(port, get * (PIPELINED_MAX + 2))
    assert said.startswith(b"HTTP/1.1 400")
    assert b"too_many_pipelined" in said
    assert asked == ["/"]


async def test_as_many_as_may_wait_are_all_answered() -> None:
    """In their order, and the connection stays until the last says otherwise."""
    get = b"GET / HTTP/1.1\r\nhost: localhost\r\n%b\r\n"
    async with serving() as port:
        said = await exchange(port, get % b"" * PIPELINED_MAX + get % b"connection: close\r\n")
    assert said.count(b"HTTP/1.1 200") == PIPELINED_MAX + 1


async def test_a_body_behind_an_answer_may_take_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is that of the next request, which somebody will read."""
    monkeypatch.setattr(protocol, "LINGER_S", 0.0)
    begun = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        body = b""
        if scope["method"] == "POST":
            begun.set()
            more = True
            while more:
                message = await receive()
                body, more = body + message["body"], message["more_body"]
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
        await send({"type": "http.response.body", "body": body, "more_body": False})

    async with serving(app=app) as port, asyncio.timeout(BOUND_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        post = b"POST / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 6\r\n\r\nabc"
        writer.write(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n" + post)
        await begun.wait()
        for _ in range(5):
            await asyncio.sleep(0)
        writer.write(b"def")
        said = await reader.read()
        writer.close()
    assert said.count(b"HTTP/1.1 200") == 2
    assert said.endswith(b"abcdef")


@pytest.mark.parametrize("length", [(), ((b"content-length", b"6"),)], ids=["stream", "whole"])
async def test_a_client_of_http_1_0_is_sent_no_chunks(length: tuple[tuple[bytes, bytes], ...]) -> None:
    """It does not know them: its answer ends with the connection, even where it asks for that to be kept."""

    async def stream(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [*length]})
        for body in (b"one", b"two", b""):
            await send({"type": "http.response.body", "body": body, "more_body": bool(body)})

    async with serving(app=stream) as port:
        said = await exchange(port, b"GET /v1/models HTTP/1.0\r\nhost: localhost\r\nconnection: keep-alive\r\n\r\n")
    head, _, body = said.partition(b"\r\n\r\n")
    assert body == b"onetwo"
    assert b"chunked" not in head
    assert b"connection: close" in head
