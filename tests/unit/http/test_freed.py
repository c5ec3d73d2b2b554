"""A connection that is gone is freed at once, with all that its last answer held: nothing waits for the collector."""

import asyncio
import contextlib
import gc
import weakref

import pytest

from treadle.http.client_connection import ClientConnection
from treadle.http.client_errors import ConnectionBroken
from unit.http.test_client_pool import CHUNKED, Server, get, on_both_loops, read_all, serving

BROKEN = b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\nhello"


class Taken:
    """What a reader makes of an answer: large, in life."""

    def take(self, data: bytes) -> None:
        """Wait for more."""


async def read_to_the_break(server: Server, made: "list[weakref.ref[object]]") -> None:
    """Read an answer that breaks off, as a model call does: the frame that fails holds what was made of it."""
    taken = Taken()
    made.append(weakref.ref(taken))
    async with serving(server) as (_, connections):
        reply = await get(connections, server.url)
        with contextlib.suppress(ConnectionBroken):
            await reply.read_into(taken.take)
            pytest.fail("the answer was whole")
        reply.close()


async def settle() -> None:
    """Let the loop close what is to be closed."""
    for _ in range(100):
        await asyncio.sleep(0)


@on_both_loops
async def test_what_was_made_of_an_answer_that_broke_is_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error that tells of the break is not kept with the frames it went through."""
    made, connections = list[weakref.ref[object]](), list[weakref.ref[ClientConnection]]()
    begin = ClientConnection.connection_made

    def known(self: ClientConnection, transport: asyncio.Transport) -> None:
        connections.append(weakref.ref(self))
        begin(self, transport)

    monkeypatch.setattr(ClientConnection, "connection_made", known)
    gc.disable()
    try:
        await read_to_the_break(Server(BROKEN, closes=True), made)
        async with serving(Server(CHUNKED, closes=True)) as (server, pool):
            assert await read_all(await get(pool, server.url)) == b"hello"
        await settle()
        assert [each() for each in (*made, *connections)] == [None, None, None]
    finally:
        gc.enable()
