"""The listener for stand-ins: answers in order, bounds, and clients that go away."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from treadle.http.loopback_server import Handler, Listener, LoopbackAnswer, LoopbackRequest

BODY_BYTES_MAX = 100_000


@asynccontextmanager
async def listening(handle: Handler) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Serve a handler and connect to it."""
    listener = Listener(handle, body_bytes_max=BODY_BYTES_MAX)
    port = await listener.open("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()
        await listener.close()


async def echo(asked: LoopbackRequest, answer: LoopbackAnswer) -> None:
    """Say what was asked."""
    await answer.send(200, f"{asked.method} {asked.path} {len(asked.body)}".encode(), "text/plain")


async def head_of(reader: asyncio.StreamReader) -> list[str]:
    """Read the head of an answer."""
    async with asyncio.timeout(20):
        return (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()[:-1]


async def test_requests_on_one_connection_are_answered_in_order() -> None:
    """Also when they all come at once, cut anywhere, and one by a whole address."""
    post = b"POST http://h/b%20c HTTP/1.1\r\ncontent-length: 3\r\n\r\nabc"
    sent = b"GET /a?x=1 HTTP/1.1\r\n\r\n" + post + b"GET /d HTTP/1.1\r\n\r\n"
    async with listening(echo) as (reader, writer):
        for place in range(0, len(sent), 7):
            writer.write(sent[place : place + 7])
            await writer.drain()
        for words in (b"GET /a 0", b"POST /b%20c 3", b"GET /d 0"):
            assert (await head_of(reader))[0] == "HTTP/1.1 200 OK"
            assert await reader.readexactly(len(words)) == words


async def test_a_body_without_a_length_goes_out_in_chunks() -> None:
    """Each piece as it is written; an empty one does not end it."""

    async def stream(_: LoopbackRequest, answer: LoopbackAnswer) -> None:
        answer.start(299, {"x-a": "b"})
        for piece in (b"one", b"", b"two"):
            await answer.write(piece)
        await answer.finish()

    async with listening(stream) as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\nconnection: close\r\n\r\n")
        assert await head_of(reader) == [
            "HTTP/1.1 299 Status",
            "x-a: b",
            "transfer-encoding: chunked",
            "connection: close",
        ]
        assert await reader.read() == b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"


async def test_a_client_that_goes_away_stops_who_answers() -> None:
    """Whether it waits or writes."""
    began, ended = asyncio.Event(), asyncio.Event()

    async def wait(_: LoopbackRequest, __: LoopbackAnswer) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with listening(wait) as (_, writer), asyncio.timeout(20):
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await began.wait()
        writer.transport.abort()
        await ended.wait()


async def test_an_answer_that_is_not_finished_ends_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    """A client sees a cut; what went wrong is logged."""

    async def fail(asked: LoopbackRequest, answer: LoopbackAnswer) -> None:
        answer.start(200, {})
        await answer.write(b"x")
        if asked.path == "/bug":
            raise ValueError("a bug")

    for path, logged in (("/", False), ("/bug", True)):
        async with listening(fail) as (reader, writer):
            writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
            assert (await reader.read()).endswith(b"\r\n\r\n1\r\nx\r\n")
        assert ("could not be answered" in caplog.text) is logged


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"CONNECT h:1 HTTP/1.1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\ncontent-length: 100001\r\n\r\n" + b"x" * 100_001, 413),
        (b"GET / HTTP/1.1\r\nx: " + b"y" * 2_000_000, 431),
    ],
)
async def test_what_is_no_request_or_too_large_is_refused(sent: bytes, status: int) -> None:
    """With its status, and the connection is over."""
    async with listening(echo) as (reader, writer):
        writer.write(sent)
        assert (await head_of(reader))[0].split()[1] == str(status)


async def test_a_client_that_asks_whether_it_may_is_bidden_on() -> None:
    """Some wait for that before they send a large body."""
    async with listening(echo) as (reader, writer):
        writer.write(b"POST / HTTP/1.1\r\ncontent-length: 1\r\nExpect: 100-continue\r\n\r\n")
        assert await head_of(reader) == ["HTTP/1.1 100 Continue"]
        writer.write(b"x")
        assert (await head_of(reader))[0] == "HTTP/1.1 200 OK"


async def test_a_slow_reader_is_waited_for() -> None:
    """What it does not take is not piled up; it gets all of it in the end."""
    written = 0

    async def pour(_: LoopbackRequest, answer: LoopbackAnswer) -> None:
        nonlocal written
        answer.start(200, {})
        for _ in range(400):
            await answer.write(b"z" * 65_536)
            written += 1
        await answer.finish()

    async with listening(pour) as (reader, writer), asyncio.timeout(60):
        writer.write(b"GET / HTTP/1.1\r\nconnection: close\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        assert written < 400
        body = await reader.read()
        assert (written, body.count(b"z")) == (400, 400 * 65_536)


async def test_the_end_waits_a_moment_for_answers_and_then_stops_them() -> None:
    """Nothing is left behind."""
    stopped: list[bool] = []
    began = asyncio.Event()

    async def wait(_: LoopbackRequest, __: LoopbackAnswer) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            stopped.append(True)
            raise

    listener = Listener(wait, body_bytes_max=10)
    port = await listener.open("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\r\n\r\n")
    async with asyncio.timeout(20):
        await began.wait()
        await listener.close()
        assert (stopped, await reader.read(), listener.connections) == ([True], b"", set())
    writer.close()
