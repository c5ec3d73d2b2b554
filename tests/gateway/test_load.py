"""Many open streams and many readers that take nothing: a client beside them is answered, and all of it goes again.

The large version, with processes of their own, is `python -m bench.load`.
"""

import asyncio
import json
import os
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvicorn

from treadle import Runtime, Settings
from treadle.config import StoreSection
from treadle.core.events import Finished, ItemAdded, ItemDone, ModelEvent, TextDelta
from treadle.core.items import MessageItem, TextPart
from treadle.core.plan import Plan
from treadle.http import server_protocol as protocol
from treadle.http.server_protocol import bounded
from treadle.runtime import Parts
from treadle.server.app import App

BOUND_S = 60.0
STREAMS, READERS = 50, 200
LOUD = "word " * 1_000
LOUD_TIMES = 300


class Held:
    """A model that says a word and then waits, says a lot, or answers at once, by what it is asked."""

    def __init__(self) -> None:
        self.go = asyncio.Event()

    async def stream(self, plan: Plan, run_id: str) -> AsyncGenerator[list[ModelEvent], None]:
        asked = repr(plan.items[-1])
        item = MessageItem(id=f"msg_{run_id}", role="assistant")
        yield [ItemAdded(index=0, item=item), TextDelta(index=0, text="first ")]
        if "hold" in asked:
            await self.go.wait()
        if "loud" in asked:
            for _ in range(LOUD_TIMES):
                yield [TextDelta(index=0, text=LOUD)]
                await asyncio.sleep(0)
        done = MessageItem(id=f"msg_{run_id}", role="assistant", content=(TextPart(text="first "),))
        yield [ItemDone(index=0, item=done), Finished(stop="done")]


class Served:
    """A Treadle in this process, and clients that are bare sockets."""

    def __init__(self, runtime: Runtime, model: Held, port: int) -> None:
        self.runtime = runtime
        self.model = model
        self.port = port

    async def connect(self, request: bytes) -> socket.socket:
        """Send a request on a connection that takes little by itself."""
        loop, client = asyncio.get_running_loop(), socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        client.setblocking(False)
        await loop.sock_connect(client, ("127.0.0.1", self.port))
        await loop.sock_sendall(client, request)
        return client

    async def until(self, client: socket.socket, words: bytes) -> bytes:
        """Read until something was said."""
        heard = b""
        async with asyncio.timeout(BOUND_S):
            while words not in heard:
                piece = await asyncio.get_running_loop().sock_recv(client, 65_536)
                assert piece, heard[-500:]
                heard += piece
        return heard

    async def ask(self, prompt: str, path: str = "/v1/chat/completions", **more: object) -> bytes:
        """Make a request and return its whole answer."""
        client = await self.connect(request(prompt, path, **more))
        heard = await self.until(client, b"\r\n\r\n")
        head, _, rest = heard.partition(b"\r\n\r\n")
        [length] = [int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        while len(rest) < length:
            rest += await asyncio.get_running_loop().sock_recv(client, 65_536)
        client.close()
        return heard

    async def background(self, prompt: str) -> str:
        """Start a run that goes on by itself, and return its id."""
        heard = await self.ask(prompt, "/v1/responses", input=prompt, background=True)
        head = heard.partition(b"\r\n\r\n")[0].decode().lower()
        return next(line.partition(": ")[2] for line in head.split("\r\n") if line.startswith("x-treadle-run"))

    def number(self, name: str) -> float:
        """Return a series."""
        return self.runtime.metrics.registry.value(name) or 0.0


def request(prompt: str, path: str = "/v1/chat/completions", **more: object) -> bytes:
    """Return a request."""
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": prompt}], **more})
    head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n{body}".encode()


def follow(run_id: str, after: int = 0) -> bytes:
    """Return a request for the events of a run."""
    return f"GET /treadle/v1/runs/{run_id}/events?after={after} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode()


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    """Serve on a free port of loopback."""
    async with serving(tmp_path) as found:
        yield found


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[Served]:
    """Serve with the bounds of the real server."""
    settings = Settings(store=StoreSection(url=f"sqlite:///{folder / 'treadle.db'}"), default_model="m")
    model = Held()
    async with Runtime(settings, model=model, parts=Parts(env={})) as runtime:
        http = bounded(BOUND_S, BOUND_S, runtime.metrics.reader_dropped)
        app = App(runtime)
        server = uvicorn.Server(
            uvicorn.Config(app, http=http, ws="none", lifespan="off", log_config=None, timeout_graceful_shutdown=2)
        )
        listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16_384)
        running = asyncio.create_task(server.serve(sockets=[listener]))
        yield Served(runtime, model, listener.getsockname()[1])
        server.should_exit = True
        await running
        listener.close()


def files() -> int:
    """Return how many files this process has open."""
    return len(os.listdir("/proc/self/fd"))


async def settled(there: Callable[[], bool]) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(BOUND_S):
        while True:
            if there():
                return
            await asyncio.sleep(0.02)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="open files can be counted on Linux only")
async def test_streams_and_slow_readers_leave_nothing_behind(served: Served) -> None:
    """A client beside fifty streams and two hundred readers is answered; then files and tasks are as before."""
    await served.ask("hello")
    before_files, before_tasks = files(), len(asyncio.all_tasks())
    run_id = await served.background("hold")
    streams = [await served.connect(request("hold", stream=True)) for _ in range(STREAMS)]
    for each in streams:
        await served.until(each, b"first")
    readers = [await served.connect(follow(run_id)) for _ in range(READERS)]
    await settled(lambda: served.number("treadle_live_runs") == STREAMS + 1)
    assert b"first" in await served.ask("hello")
    assert served.number("treadle_open_streams") == STREAMS
    for each in streams[:10]:
        each.close()
    await settled(lambda: served.number("treadle_open_streams") == STREAMS - 10)
    served.model.go.set()
    for each in streams[10:]:
        await served.until(each, b"[DONE]")
    for each in readers[:3]:
        assert b"run.ended" in await served.until(each, b"run.ended")
    for each in (*streams[10:], *readers):
        each.close()
    await settled(lambda: files() <= before_files and len(asyncio.all_tasks()) <= before_tasks)
    assert served.number("treadle_live_runs") == 0
    assert served.number("treadle_dropped_readers_total") == 0


async def test_a_reader_that_takes_nothing_is_cut_off_and_goes_on_where_it_was(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is not held up, another reader gets all of it, and who comes back gets the rest without a gap."""
    monkeypatch.setattr(protocol, "LOOK_S", 0.5)
    run_id = await served.background("hold and be loud")
    stuck, other = [await served.connect(follow(run_id)) for _ in range(2)]
    await served.until(other, b"first")
    served.model.go.set()
    whole = await served.until(other, b"event: run.ended")
    await settled(lambda: served.number("treadle_dropped_readers_total") == 1)
    stuck.close()
    again = await served.connect(follow(run_id, after=5))
    rest = await served.until(again, b"event: run.ended")
    again.close()
    other.close()
    numbers = [int(line[4:]) for line in rest.splitlines() if line.startswith(b"id: ")]
    assert numbers == list(range(6, 6 + len(numbers)))
    assert whole.count(b"event: text.delta") == LOUD_TIMES
