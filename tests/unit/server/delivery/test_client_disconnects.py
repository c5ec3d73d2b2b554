"""Whether a client is still there: told by our own server, waited for under any other."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from treadle.http.asgi import DISCONNECT_IN_SCOPE
from treadle.server.delivery.client_disconnects import ClientPresence
from treadle.server.http_exchange import Exchange

BOUND_S = 20.0
NEVER_S = 3_600.0


class Client:
    """A client of a server that tells when it is gone (`tells`), or of one that only says so when asked."""

    def __init__(self, *, tells: bool) -> None:
        self.scope: dict[str, Any] = {"method": "POST", "path": "/", "headers": [], "query_string": b""}
        if tells:
            self.scope[DISCONNECT_IN_SCOPE] = None
        self._tells = tells
        self._inbox: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.left = asyncio.Event()

    def look_after(self) -> Callable[[], None]:
        """Hear when the client leaves, as a reply does; return what ends that."""
        exchange = Exchange(self.scope, self._inbox.get, _send, "r")  # type: ignore[arg-type]
        is_there = [True]

        def leave() -> None:
            if is_there:
                self.left.set()

        async def until_gone() -> None:
            await exchange.disconnected()
            leave()

        presence = None if exchange.watch_client(leave) else ClientPresence(None, NEVER_S, until_gone())

        def end() -> None:
            is_there.clear()
            exchange.watch_client(None)
            if presence is not None:
                presence.end()

        return end

    def leave(self) -> None:
        """Go away."""
        if not self._tells:
            self._inbox.put_nowait({"type": "http.disconnect"})
            return
        gone, self.scope[DISCONNECT_IN_SCOPE] = self.scope[DISCONNECT_IN_SCOPE], True
        if gone is not None:
            gone()


async def _send(_: Any) -> None:
    raise AssertionError("nothing is sent")


async def _until(event: asyncio.Event) -> None:
    async with asyncio.timeout(BOUND_S):
        await event.wait()


@pytest.mark.parametrize("tells", [True, False])
async def test_that_a_client_went_away_is_heard(tells: bool) -> None:
    """Whichever server there is."""
    client = Client(tells=tells)
    end = client.look_after()
    await asyncio.sleep(0)
    assert not client.left.is_set()
    client.leave()
    await _until(client.left)
    end()


@pytest.mark.parametrize("tells", [True, False])
async def test_that_it_went_before_anybody_looked_is_heard_too(tells: bool) -> None:
    """A client may leave while its request is still being read."""
    client = Client(tells=tells)
    client.leave()
    end = client.look_after()
    await _until(client.left)
    end()


@pytest.mark.parametrize("tells", [True, False])
async def test_after_the_end_nothing_is_heard(tells: bool) -> None:
    """The next request on the connection has a presence of its own."""
    client = Client(tells=tells)
    client.look_after()()
    client.leave()
    for _ in range(5):
        await asyncio.sleep(0)
    assert not client.left.is_set()


async def test_no_task_is_needed_where_the_server_tells() -> None:
    """There are thousands of such clients."""
    before = len(asyncio.all_tasks())
    end = Client(tells=True).look_after()
    assert len(asyncio.all_tasks()) == before
    end()


async def test_silence_is_broken_again_and_again_but_not_while_one_is_being_broken() -> None:
    """A client that takes nothing is not sent more and more."""
    began, goes_on, again, broken = asyncio.Event(), asyncio.Event(), asyncio.Event(), list[int]()

    async def break_silence() -> None:
        broken.append(1)
        if len(broken) == 2:
            began.set()
            await goes_on.wait()
        if len(broken) == 4:
            again.set()

    presence = ClientPresence(break_silence, 0.001)
    await _until(began)
    looks = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(0.02, looks.set_result, None)
    await looks
    assert len(broken) == 2
    goes_on.set()
    await _until(again)
    presence.end()


async def test_who_writes_is_not_silent() -> None:
    """The next look comes a whole silence after the last write."""
    broken = asyncio.Event()

    async def break_silence() -> None:
        broken.set()

    presence = ClientPresence(break_silence, 0.05)
    loop = asyncio.get_running_loop()
    until = loop.time() + 0.2
    while loop.time() < until:
        presence.written_at = loop.time()
        await asyncio.sleep(0)
    assert not broken.is_set()
    await _until(broken)
    presence.end()
