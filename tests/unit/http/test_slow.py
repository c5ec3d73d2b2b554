"""A client that takes nothing of its answer: waited for within bounds, then cut off; its application hears of it."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest
import uvicorn

from treadle.http import server_protocol as protocol
from treadle.http.asgi import PENDING_BYTES_IN_SCOPE
from treadle.http.server_protocol import BEHIND_BYTES_MAX, bounded

BOUND_S = 30.0
PIECE = b"x" * 65_536
REQUEST = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"


class Endless:
    """An application that says much, and what it noticed."""

    def __init__(self, behind: Callable[[], int] | None = None, pieces: int = 1_000) -> None:
        self.left = asyncio.Event()
        self.sent = 0
        self.taken = 0
        self.cut = 0
        self._behind = behind
        self._pieces = pieces

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if self._behind is not None:
            scope[PENDING_BYTES_IN_SCOPE] = self._behind
        await send({"type": "http.response.start", "status": 200, "headers": []})
        writing = asyncio.create_task(self._write(send))
        await receive()
        while (await receive())["type"] != "http.disconnect":
            pass
        self.taken = self.sent
        self.left.set()
        await writing

    async def _write(self, send: Any) -> None:
        for _ in range(self._pieces):
            await send({"type": "http.response.body", "body": PIECE, "more_body": True})
            self.sent += 1
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def count(self) -> None:
        self.cut += 1


@contextlib.asynccontextmanager
async def connected(app: Endless, send_s: float) -> AsyncGenerator[socket.socket, None]:
    """Serve on a free port, and yield a client that has asked and reads nothing by itself."""
    http = bounded(BOUND_S, send_s, app.count)
    server = uvicorn.Server(uvicorn.Config(app, port=0, http=http, ws="none", lifespan="off", log_config=None))
    listener = socket.create_server(("127.0.0.1", 0))
    running = asyncio.create_task(server.serve(sockets=[listener]))
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    client.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(client, listener.getsockname())
    await loop.sock_sendall(client, REQUEST)
    try:
        yield client
    finally:
        client.close()
        server.should_exit = True
        await running
        listener.close()


async def test_a_client_that_takes_nothing_for_too_long_is_cut_off() -> None:
    """Its application hears that it is gone, and no more was read from it meanwhile than fits the buffers."""
    app = Endless()
    async with connected(app, send_s=0.2):
        async with asyncio.timeout(BOUND_S):
            await app.left.wait()
        assert app.cut == 1
    assert app.taken < 200


async def test_a_client_for_which_too_much_waits_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it may be waited for otherwise."""
    monkeypatch.setattr(protocol, "LOOK_S", 0.05)
    app = Endless(behind=lambda: BEHIND_BYTES_MAX + 1)
    async with connected(app, send_s=BOUND_S * 10):
        async with asyncio.timeout(BOUND_S):
            await app.left.wait()
        assert app.cut == 1


async def test_a_client_that_takes_its_time_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as little waits for it and it takes something: every byte arrives, and nobody is cut off."""
    looked = asyncio.Event()

    def behind() -> int:
        looked.set()
        return 1

    monkeypatch.setattr(protocol, "LOOK_S", 0.01)
    app = Endless(behind, pieces=100)
    loop, taken = asyncio.get_running_loop(), 0
    async with connected(app, send_s=BOUND_S * 10) as client, asyncio.timeout(BOUND_S):
        await looked.wait()
        while taken < 100 * len(PIECE):
            taken += len(await loop.sock_recv(client, 1_000_000))
        assert app.cut == 0
