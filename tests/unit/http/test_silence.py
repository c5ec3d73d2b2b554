"""How long a connection may be silent: counted from the last thing that came, and only while somebody waits."""

import asyncio

import pytest

from treadle.http.client_pool import ClientPool
from unit.http.test_client_pool import WHOLE, Server, get, on_both_loops, read_all, serving

BEGUN = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
PIECE, END = b"2\r\nhi\r\n", b"0\r\n\r\n"


async def begin(connections: ClientPool, url: str, idle_s: float):
    """Ask for something that may be silent for so long."""
    return await connections.request("GET", url, {}, connect_s=5.0, idle_s=idle_s)


@on_both_loops
async def test_an_answer_may_take_long_as_long_as_something_comes() -> None:
    """Its whole time is several times what it may be silent for."""
    async with serving(Server(BEGUN)) as (server, connections):
        reply = await begin(connections, server.url, 0.6)
        came = b""
        for _ in range(6):
            await asyncio.sleep(0.2)
            server.writers[0].write(PIECE)
            came += await reply.readany()
        server.writers[0].write(END)
        assert came + await read_all(reply) == b"hi" * 6


@on_both_loops
async def test_silence_ends_the_wait_also_after_something_came() -> None:
    """It is a timeout, and the connection is not used again."""
    async with serving(Server(BEGUN)) as (server, connections):
        reply = await begin(connections, server.url, 0.1)
        server.writers[0].write(PIECE)
        assert await reply.readany() == b"hi"
        with pytest.raises(TimeoutError):
            await reply.readany()
        reply.close()
        assert connections.idle == 0


@on_both_loops
async def test_a_shorter_patience_on_the_same_connection_holds() -> None:
    """The next request may be less patient than the last one."""
    async with serving(Server(WHOLE, b"")) as (server, connections):
        assert await read_all(await get(connections, server.url)) == b"hello"
        async with asyncio.timeout(4.0) as limit:
            with pytest.raises(TimeoutError):
                await begin(connections, server.url, 0.05)
    assert (server.connections, limit.expired()) == (1, False)


@on_both_loops
async def test_who_reads_late_finds_what_came() -> None:
    """Nobody waited meanwhile, so nobody was silent for too long."""
    async with serving(Server(BEGUN)) as (server, connections):
        reply = await begin(connections, server.url, 0.05)
        server.writers[0].write(PIECE)
        assert await reply.readany() == b"hi"
        server.writers[0].write(PIECE + END)
        await asyncio.sleep(0.2)
        assert await read_all(reply) == b"hi"
