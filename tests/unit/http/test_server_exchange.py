"""What a request and its answer are made of: who waits for more of it, and what is waited for before a body is sent."""

import asyncio
from typing import Any

import pytest

from treadle.http.server_exchange import WakeSignal
from unit.http.test_server_protocol import exchange, serving

BOUND_S = 20.0


async def _waiting(bell: WakeSignal, count: int) -> list["asyncio.Task[bool]"]:
    tasks = [asyncio.create_task(bell.wait()) for _ in range(count)]
    await asyncio.sleep(0)
    return tasks


async def test_a_bell_is_heard_by_all_who_wait_and_by_who_comes_until_it_is_cleared() -> None:
    """Whoever comes later waits again."""
    bell = WakeSignal()
    tasks = await _waiting(bell, 3)
    assert not any(task.done() for task in tasks)
    bell.set()
    bell.clear()
    async with asyncio.timeout(BOUND_S):
        assert await asyncio.gather(*tasks) == [True] * 3
    (late,) = await _waiting(bell, 1)
    assert not late.done()
    bell.set()
    async with asyncio.timeout(BOUND_S):
        assert (await late, await bell.wait()) == (True, True)


async def test_who_waits_no_more_keeps_nobody_from_hearing() -> None:
    """Whether it left long ago or just before."""
    bell = WakeSignal()
    gone, going, stays = await _waiting(bell, 3)
    gone.cancel()
    await asyncio.sleep(0)
    going.cancel()
    bell.set()
    async with asyncio.timeout(BOUND_S):
        assert await stays
        await asyncio.wait((gone, going))
    assert gone.cancelled()
    assert going.cancelled()


@pytest.mark.parametrize("sizes", [(3,), (1, 2), (200_000, 1)], ids=["in one piece", "in two", "large"])
async def test_a_body_is_read_to_its_end_whichever_way_it_comes(sizes: tuple[int, ...]) -> None:
    """At once, when all of it is there; then nothing more comes but that the client is gone."""
    heard: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        size, more = 0, True
        while more:
            message = await receive()
            size, more = size + len(message["body"]), message["more_body"]
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"%d bytes" % size, "more_body": False})
        heard.append((await receive())["type"])

    head = b"POST / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % sum(sizes)
    async with serving(app=app) as port:
        said = await exchange(port, head + b"x" * sizes[0], *(b"x" * size for size in sizes[1:]))
    assert b"%d bytes" % sum(sizes) in said
    assert heard == ["http.disconnect"]


async def test_a_body_that_came_in_pieces_before_anybody_wanted_it_is_one() -> None:
    """However many they were, and none of them twice."""
    there, heard = asyncio.Event(), list[Any]()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await there.wait()
        heard.append(await receive())
        await send({"type": "http.response.start", "status": 200, "headers": [(b"connection", b"close")]})
        await send({"type": "http.response.body", "body": b"all", "more_body": False})

    async with serving(app=app) as port, asyncio.timeout(BOUND_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST / HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n")
        writer.write(b"1\r\na\r\n2\r\nbc\r\n3\r\ndef\r\n0\r\n\r\n")
        await writer.drain()
        for _ in range(50):
            await asyncio.sleep(0)
        there.set()
        assert b"all" in await reader.read()
        writer.close()
    assert heard == [{"type": "http.request", "body": b"abcdef", "more_body": False}]
    assert type(heard[0]["body"]) is bytes


@pytest.mark.parametrize("word", [b"100-continue", b"100-Continue"])
async def test_a_client_that_asks_whether_to_send_its_body_is_told(word: bytes) -> None:
    """And only when somebody wants it."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        body = (await receive())["body"] if scope["path"] == "/wanted" else b"not wanted"
        await send({"type": "http.response.start", "status": 200, "headers": [(b"connection", b"close")]})
        await send({"type": "http.response.body", "body": body, "more_body": False})

    head = b"POST /%%b HTTP/1.1\r\nhost: localhost\r\nExpect: %b\r\ncontent-length: 3\r\n\r\n" % word
    async with serving(app=app) as port, asyncio.timeout(BOUND_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head % b"wanted")
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"abc")
        assert b"abc" in await reader.read()
        writer.close()
        said = await exchange(port, head % b"other")
    assert b"100 Continue" not in said
    assert b"not wanted" in said


@pytest.mark.parametrize("pieces", [(b"abcdef",), (b"abc", b"def")], ids=["in one piece", "in two"])
async def test_after_its_body_nothing_more_is_received_until_the_client_is_gone(pieces: tuple[bytes, ...]) -> None:
    """Whoever listens for that while it answers must not be told of a second body."""
    first, heard = asyncio.Event(), list[Any]()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        more = True
        while more:
            more = (await receive())["more_body"]
            first.set()
        listening = asyncio.create_task(receive())
        for _ in range(5):
            await asyncio.sleep(0)
        heard.append(listening.done())
        await send({"type": "http.response.start", "status": 200, "headers": [(b"connection", b"close")]})
        await send({"type": "http.response.body", "body": b"all", "more_body": False})
        heard.append((await listening)["type"])

    async with serving(app=app) as port, asyncio.timeout(BOUND_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 6\r\n\r\n" + pieces[0])
        for piece in pieces[1:]:
            await first.wait()
            writer.write(piece)
        assert b"all" in await reader.read()
        writer.close()
    assert heard == [False, "http.disconnect"]
