"""What our own server does at once: an answer in one write, a stream without waiting; and what it leaves to ASGI."""

import asyncio
import gc
import weakref
from typing import Any

import pytest
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from treadle.core.errors import LimitExceeded
from treadle.http.asgi import EDGE_IN_SCOPE
from treadle.http.server_protocol import BoundedProtocol
from treadle.server.http_exchange import Exchange
from unit.http.test_server_protocol import exchange, serving

CLOSING = b"connection: close\r\n"
SENT: list[str] = []
"""What went ASGI's way."""


@pytest.fixture(autouse=True)
def _watched(monkeypatch: pytest.MonkeyPatch) -> None:
    real = RequestResponseCycle.send

    async def send(self: RequestResponseCycle, message: Any) -> None:
        SENT.append(message["type"])
        await real(self, message)

    monkeypatch.setattr(RequestResponseCycle, "send", send)


def request(path: bytes, *headers: bytes, method: bytes = b"GET", version: bytes = b"1.1") -> bytes:
    """Return a request without a body."""
    return b"%b %b HTTP/%b\r\nhost: localhost\r\n%b\r\n" % (method, path, version, b"".join(headers))


class Answering:
    """Answers a path with its own text, as a whole or as a stream of two pieces, and keeps what was done at once."""

    def __init__(self, *headers: tuple[bytes, bytes]) -> None:
        self.headers = headers
        self.at_once: list[bool] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        SENT.clear()
        answering = Exchange(scope, receive, send, "req_1")
        if scope["path"].startswith("/stream"):
            await answering.begin(self.headers, data=scope["path"].encode())
            if answering.edge is not None and answering.edge.is_flowing:
                answering.edge.write_now(b"-more")
            else:
                await answering.write(b"-more")
        else:
            await answering.answer(200, scope["path"].encode(), headers=self.headers)
        self.at_once.append(not SENT)
        if scope["path"].startswith("/stream"):
            await answering.end()


async def test_an_answer_is_one_write_and_the_connection_stays() -> None:
    """With what every answer says, and what uvicorn adds; the next request is answered behind it."""
    app = Answering((b"x-own", b"1"))
    async with serving(app=app) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request(b"/a"))
        first = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n/a"), 20)
        writer.write(request(b"/b", CLOSING))
        second = await asyncio.wait_for(reader.read(), 20)
        writer.close()
    assert first.startswith(b"HTTP/1.1 200 OK\r\n")
    for line in (b"content-length: 2\r\n", b"x-own: 1\r\n", b"x-request-id: req_1\r\n", b"server: uvicorn\r\n"):
        assert line in first
    assert CLOSING not in first
    assert CLOSING in second
    assert second.endswith(b"\r\n\r\n/b")
    assert app.at_once == [True, True]


async def test_a_stream_begins_with_its_first_piece_and_goes_on_at_once() -> None:
    """In the framing of HTTP/1.1, to an end that is said."""
    app = Answering()
    async with serving(app=app) as port:
        said = await exchange(port, request(b"/stream", CLOSING))
    assert b"transfer-encoding: chunked\r\n" in said
    assert said.endswith(b"\r\n\r\n7\r\n/stream\r\n5\r\n-more\r\n0\r\n\r\n")
    assert app.at_once == [True]


async def test_who_stands_between_sees_everything() -> None:
    """An application that is wrapped in another is answered through it."""
    seen: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        async def between(message: Any) -> None:
            seen.append(message["type"])
            await send(message)

        await Answering()(scope, receive, between)

    async with serving(app=app) as port:
        said = await exchange(port, request(b"/stream", CLOSING))
    assert said.endswith(b"\r\n\r\n7\r\n/stream\r\n5\r\n-more\r\n0\r\n\r\n")
    assert seen == ["http.response.start", *["http.response.body"] * 3]


@pytest.mark.parametrize("is_wrapped", [True, False])
async def test_a_body_that_is_there_is_taken_at_once_unless_somebody_stands_between(is_wrapped: bool) -> None:
    """Who wraps only what is received sees all of it; its bound holds either way."""
    seen: list[bytes] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        async def between() -> Any:
            message = await receive()
            seen.append(message["body"])
            return message

        answering = Exchange(scope, between if is_wrapped else receive, send, "req_1")
        try:
            body = await answering.body(5, 5.0)
        except LimitExceeded:
            body = b"too large"
        await answering.answer(200, body)

    async with serving(app=app) as port:
        for body, said in ((b"hello", b"hello"), (b"hello!", b"too large")):
            asked = request(b"/", CLOSING, b"content-length: %d\r\n" % len(body), method=b"POST") + body
            assert (await exchange(port, asked)).endswith(b"\r\n\r\n" + said)
    assert seen == ([b"hello"] if is_wrapped else [])


async def test_a_piece_of_nothing_does_not_end_a_stream() -> None:
    """HTTP would read it as the end."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        answering = Exchange(scope, receive, send, "req_1")
        await answering.begin()
        assert answering.edge is not None
        answering.edge.write_now(b"")
        answering.edge.write_now(b"a")
        await answering.end()

    async with serving(app=app) as port:
        said = await exchange(port, request(b"/", CLOSING))
    assert said.endswith(b"\r\n\r\n1\r\na\r\n0\r\n\r\n")


@pytest.mark.parametrize(
    ("asked", "headers"),
    [
        (request(b"/a", CLOSING, method=b"HEAD"), ()),
        (request(b"/a", version=b"1.0"), ()),
        (request(b"/a"), ((b"connection", b"close"),)),
    ],
    ids=["HEAD", "HTTP/1.0", "closing by the answer"],
)
async def test_what_is_not_plain_is_left_to_asgi(asked: bytes, headers: tuple[tuple[bytes, bytes], ...]) -> None:
    """With the same answer as ever."""
    app = Answering(*headers)
    async with serving(app=app) as port:
        said = await exchange(port, asked)
    assert said.startswith(b"HTTP/1.1 200 OK\r\n")
    assert (said.endswith(b"/a"), b"content-length: 2" in said) == (not asked.startswith(b"HEAD"), True)
    assert app.at_once == [False]


@pytest.mark.parametrize("value", [b"a\r\nx-evil: 1", b"a\nb", b"a\rb", b"a\x00b"])
async def test_a_header_that_would_break_the_head_is_never_sent(value: bytes) -> None:
    """Neither at once nor by ASGI: the answer is an error."""
    app = Answering((b"x-own", value))
    async with serving(app=app) as port:
        said = await exchange(port, request(b"/a", CLOSING))
    assert b"x-evil" not in said
    assert b" 200 OK" not in said


async def test_requests_that_came_at_once_are_answered_in_their_order() -> None:
    """Nothing of the two is mixed."""
    app = Answering()
    async with serving(app=app) as port:
        said = await exchange(port, request(b"/stream1") + request(b"/stream2", CLOSING))
    assert said.index(b"/stream1\r\n5\r\n-more\r\n0\r\n\r\n") < said.index(b"/stream2\r\n5\r\n-more\r\n0\r\n\r\n")
    assert app.at_once == [True, True]


@pytest.mark.parametrize("behind", [b"", request(b"/b")], ids=["alone", "with another behind it"])
async def test_whoever_answers_hears_of_a_client_that_is_gone(behind: bytes) -> None:
    """Also when it had asked for something else meanwhile, which nobody has begun to answer."""
    gone, begun = asyncio.Event(), asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        answering = Exchange(scope, receive, send, "req_1")
        assert answering.watch_client(gone.set)
        begun.set()
        await answering.disconnected()

    async with serving(app=app) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request(b"/a") + behind)
        await asyncio.wait_for(begun.wait(), 20)
        writer.transport.abort()
        await asyncio.wait_for(gone.wait(), 20)


async def test_a_connection_that_is_closed_is_freed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in no ring with its last request, for which the collector would have to come by."""
    connections, made = list[weakref.ref[BoundedProtocol]](), BoundedProtocol.connection_made

    def known(self: BoundedProtocol, transport: asyncio.Transport) -> None:
        connections.append(weakref.ref(self))
        made(self, transport)

    monkeypatch.setattr(BoundedProtocol, "connection_made", known)
    async with serving(app=Answering()) as port:
        await exchange(port, request(b"/a", CLOSING))
        gc.disable()
        try:
            for _ in range(10):
                await exchange(port, request(b"/a", CLOSING))
                await exchange(port, request(b"/stream1") + request(b"/b", CLOSING))
            for _ in range(100):
                await asyncio.sleep(0)
            assert sum(each() is not None for each in connections) <= 2
        finally:
            gc.enable()


async def test_a_client_that_is_gone_is_sent_nothing() -> None:
    """Whoever answers it finds that nothing flows."""
    gone, seen = asyncio.Event(), list[bool]()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        answering = Exchange(scope, receive, send, "req_1")
        await answering.body(10, 5.0)
        edge = scope[EDGE_IN_SCOPE]
        await answering.begin(data=b"a")
        seen.append(edge.is_flowing)
        await answering.disconnected()
        seen.append(edge.is_flowing)
        gone.set()

    async with serving(app=app) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request(b"/"))
        await reader.readuntil(b"a\r\n")
        writer.close()
        await asyncio.wait_for(gone.wait(), 20)
    assert seen == [True, False]
