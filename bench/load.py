"""`python -m bench.load`: many open streams, and very many readers that hardly read. Ratios within one run.

An upstream and the clients are processes of their own beside `treadle serve`. First so many streams at once, each a run
with an upstream connection: what one holds in memory, and what it does to the latency of a client beside them. Then so
many readers of a run that take a byte a second: the same. Then a reader that takes nothing of a run that says a lot: it
is cut off at its bound and goes on where it was. At the end every file and run must be gone. Numbers are cut to what
the limit on open files allows, and that is said.
"""

import argparse
import asyncio
import contextlib
import http.client
import json
import os
import random
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from bench.rig.processes import cores, cpu_s, memory_bytes, process, python, raise_file_limit, read_port

PACE_S = 1.0
IDLE_PACE_S = 5.0
LOUD_EVENTS = 4_000
LOUD_WORD = "word " * 200
WAIT_S = 120.0
READERS_A_RUN = 100
WAVE = 25
"""How many streams are opened at a time: a provider that is slow to accept is not what is measured."""

SPARE_FILES = 1_000
"""Files that are not streams: the journal, the listener, and what else a process has open."""


class Size(NamedTuple):
    """How much is measured."""

    streams: int
    readers: int
    asks: int


FULL, QUICK = Size(1_000, 10_000, 100), Size(50, 200, 30)


# The upstream: what it says depends on the model's name.


def _chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    value = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "load", "choices": [choice]}
    event = b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(event), event)


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
WORD = _chunk({"content": "word "})
FIRST = HEAD + _chunk({"role": "assistant", "content": "first "})
LAST = _chunk({"content": "load-done"}) + _chunk({}, "stop") + b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"
LOUD = _chunk({"content": LOUD_WORD})


class Upstream(asyncio.Protocol):
    """Answers `load-short` at once, `load-loud` with a lot, and the others with a word now and then, without end."""

    dice: ClassVar[random.Random] = random.Random(1)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self._buffer = b""
        self._left = 0
        self._timer: asyncio.TimerHandle | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while b"\r\n\r\n" in self._buffer and (found := self._body()) is not None:
            self._answer(found)

    def _body(self) -> bytes | None:
        head, _, rest = self._buffer.partition(b"\r\n\r\n")
        length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        if len(rest) < length:
            return None
        self._buffer = rest[length:]
        return rest[:length]

    def _answer(self, body: bytes) -> None:
        if b"load-short" in body:
            self.transport.write(FIRST + LAST)
        elif b"load-loud" in body:
            self.transport.write(FIRST)
            self._left = LOUD_EVENTS
            self.resume_writing()
        else:
            self.transport.write(FIRST)
            pace_s = IDLE_PACE_S if b"load-idle" in body else PACE_S
            self._say(pace_s, pace_s * self.dice.random())

    def _say(self, pace_s: float, after_s: float) -> None:
        """Say a word after a while, and then at every beat; every stream has its own."""

        def say() -> None:
            self.transport.write(WORD)
            self._say(pace_s, pace_s)

        self._timer = asyncio.get_running_loop().call_later(after_s, say)

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        while self._left and not self._is_paused:
            self._left -= 1
            self.transport.write(LOUD if self._left else LAST)


async def serve_upstream() -> None:
    """Serve until ended."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=4_096)
    server = await asyncio.get_running_loop().create_server(Upstream, sock=listener)
    print(listener.getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


# The clients: one command a line on stdin, one answer a line on stdout.


class Clients:
    """Open streams, readers that hardly read, and a client that asks and waits."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: list[socket.socket] = []
        self._readers: list[socket.socket] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def streams(self, count: int) -> dict[str, Any]:
        """Open streams, each a run of its own, and read them; return when all have said something."""
        while len(self._streams) < count:
            wave = min(WAVE, count - len(self._streams))
            for each in [await self._connect(self._streams, post("load-paced")) for _ in range(wave)]:
                await self._until(each, b"first")
        self._tasks.append(asyncio.create_task(self._read_all()))
        return {"open": count}

    async def _read_all(self) -> None:
        loop = asyncio.get_running_loop()

        async def read(each: socket.socket) -> None:
            while await loop.sock_recv(each, 65_536):
                pass

        await asyncio.gather(*(read(each) for each in self._streams), return_exceptions=True)

    async def readers(self, count: int, paths: list[str]) -> dict[str, Any]:
        """Open readers, of these runs in turn, and let each take a byte a second."""
        for number in range(count):
            request = f"GET {paths[number % len(paths)]} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode()
            await self._connect(self._readers, request, receive_bytes=4_096)
        for each in self._readers:
            await asyncio.wait_for(asyncio.get_running_loop().sock_recv(each, 1), WAIT_S)
        self._tasks.append(asyncio.create_task(self._sip()))
        return {"open": count}

    async def _sip(self) -> None:
        while True:
            began = time.monotonic()
            for number, each in enumerate(self._readers):
                with contextlib.suppress(OSError):
                    each.recv(1)
                if number % 200 == 0:
                    await asyncio.sleep(0)
            await asyncio.sleep(max(0.0, 1.0 - (time.monotonic() - began)))

    async def ask(self, count: int) -> dict[str, Any]:
        """Ask for short answers, one after the other, and return how long each took."""
        taken = []
        for _ in range(count):
            began = time.perf_counter()
            one: list[socket.socket] = []
            await self._until(await self._connect(one, post("load-short")), b"[DONE]")
            taken.append(time.perf_counter() - began)
            one[0].close()
            await asyncio.sleep(0.005)
        return {"taken": taken}

    async def close(self) -> dict[str, Any]:
        """Leave."""
        for task in self._tasks:
            task.cancel()
        for each in (*self._streams, *self._readers):
            each.close()
        self._streams, self._readers, self._tasks = [], [], []
        return {}

    async def _connect(self, kept: list[socket.socket], request: bytes, receive_bytes: int = 0) -> socket.socket:
        connection = socket.socket()
        if receive_bytes:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", self._port))
        await asyncio.get_running_loop().sock_sendall(connection, request)
        kept.append(connection)
        return connection

    async def _until(self, connection: socket.socket, words: bytes) -> None:
        heard = b""
        async with asyncio.timeout(WAIT_S):
            while words not in heard:
                piece = await asyncio.get_running_loop().sock_recv(connection, 65_536)
                if not piece:
                    raise SystemExit(f"bench: cut off after {heard[-300:]!r}")
                heard += piece


def post(model: str, path: str = "/v1/chat/completions", **more: object) -> bytes:
    """Return a streamed request."""
    body = json.dumps({"model": model, "stream": True, "messages": [{"role": "user", "content": "go"}], **more})
    head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n{body}".encode()


async def serve_clients(port: int) -> None:
    """Do what the lines on stdin say."""
    clients, loop = Clients(port), asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        job = json.loads(line)
        answer = await getattr(clients, job.pop("do"))(**job)
        print(json.dumps(answer), flush=True)


# The measurement.


class Rig:
    """The server under load, and what can be asked of it."""

    def __init__(self, port: int, pid: int, clients: "subprocess.Popen[str]", log: Path) -> None:
        self.port = port
        self._log = log
        self.pid = pid
        self._clients = clients

    def do(self, what: str, **how: object) -> dict[str, Any]:
        """Let the clients do something."""
        assert self._clients.stdin is not None
        assert self._clients.stdout is not None
        self._clients.stdin.write(json.dumps({"do": what, **how}) + "\n")
        self._clients.stdin.flush()
        line = self._clients.stdout.readline()
        if not line:
            raise SystemExit(f"bench: the clients died:\n{self._log.read_text()[-2_000:]}")
        return json.loads(line)

    def get(self, path: str, method: str = "GET", body: object = None) -> tuple[bytes, Any]:
        """Make one request and return the body and the headers."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)
        data = None if body is None else json.dumps(body)
        connection.request(method, path, data, {"content-type": "application/json"})
        answer = connection.getresponse()
        said = answer.read()
        connection.close()
        return said, answer.headers

    def number(self, name: str) -> float:
        """Return a series of the server's."""
        lines = self.get("/metrics")[0].decode().splitlines()
        return float(next(line for line in lines if line.startswith(f"{name} ")).split()[-1])

    def files(self) -> int:
        """Return how many files the server has open."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def latencies(self, count: int) -> list[float]:
        """Return how long short answers take."""
        return self.do("ask", count=count)["taken"]

    def background(self, model: str) -> str:
        """Start a run that goes on by itself, and return its id."""
        body = {"model": model, "input": "go", "background": True}
        return self.get("/v1/responses", "POST", body)[1]["x-treadle-run"]

    def cancel(self, run_id: str) -> None:
        """End a run."""
        self.get(f"/treadle/v1/runs/{run_id}/cancel", "POST", {})


def wait_for(true: Callable[[], bool], what: str, bound_s: float = WAIT_S) -> float:
    """Wait until something is so, and return how long that took."""
    began = time.monotonic()
    while not true():
        if time.monotonic() - began > bound_s:
            raise SystemExit(f"bench: {what} is not so after {bound_s:g} s")
        time.sleep(0.1)
    return time.monotonic() - began


def within_limit(size: Size) -> Size:
    """Return what the limit on open files allows: a stream needs two at the server, a reader one."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - SPARE_FILES
    allowed = Size(min(size.streams, files // 2), min(size.readers, files), size.asks)
    if allowed != size:
        print(f"open files are limited: {allowed.streams} streams and {allowed.readers} readers instead")
    return allowed


@contextlib.contextmanager
def rig(folder: Path) -> Iterator[Rig]:
    """Start upstream, server and clients."""
    here, there = cores()
    with ExitStack() as stack:

        def run(name: str, words: list[str], where: set[int]) -> "tuple[subprocess.Popen[str], Path]":
            log = folder / f"{name}.log"
            return stack.enter_context(process(words, where, folder=folder, log=log)), log

        upstream = read_port(*run("upstream", python("bench.load", "--role", "upstream"), here))
        config = folder / "treadle.toml"
        config.write_text(
            f'[server]\nport = 0\nlog_level = "warning"\n[store]\nurl = "sqlite:///{folder}/load.db"\n'
            f'[[upstream]]\nname = "load"\nbase_url = "http://127.0.0.1:{upstream}/v1"\nmodels = ["load-*"]\n'
        )
        server, log = run("serve", python("treadle.cli.main", "serve", "--config", str(config)), there)
        port = read_port(server, log)
        clients, log = run("clients", python("bench.load", "--role", "clients", "--port", str(port)), here)
        yield Rig(port, server.pid, clients, log)


def compare(idle: list[float], beside: list[float]) -> dict[str, float]:
    """Return the latency of a client beside others, over that of one alone."""
    high = -(len(idle) // 100) - 1
    p50 = statistics.median(beside) / statistics.median(idle)
    p99 = sorted(beside)[high] / sorted(idle)[high]
    return {"p50_ratio": round(p50, 2), "p99_ratio": round(p99, 2)}


def measure_streams(rig: Rig, size: Size) -> dict[str, Any]:
    """Return what an open stream holds, and what many do to a client beside them."""
    idle = rig.latencies(size.asks)
    memory, files = memory_bytes(rig.pid), rig.files()
    used = cpu_s(rig.pid)
    rig.do("streams", count=size.streams)
    used = cpu_s(rig.pid) - used
    grown = memory_bytes(rig.pid) - memory
    beside = rig.latencies(size.asks)
    rig.do("close")
    gone_s = wait_for(lambda: rig.files() <= files + 5, "every stream is closed")
    wait_for(lambda: rig.number("treadle_live_runs") == 0, "every run has ended")
    return {
        "streams": size.streams,
        "kb_each": round(grown / size.streams / 1024, 1),
        "cpu_ms_to_open_each": round(used / size.streams * 1000, 2),
        "gone_s": round(gone_s, 1),
        **compare(idle, beside),
    }


def measure_readers(rig: Rig, size: Size) -> dict[str, Any]:
    """Return what a reader that hardly reads holds, and what very many do to a client beside them."""
    idle = rig.latencies(size.asks)
    memory, files = memory_bytes(rig.pid), rig.files()
    run_ids = [rig.background("load-idle") for _ in range(max(1, size.readers // READERS_A_RUN))]
    rig.do("readers", count=size.readers, paths=[f"/treadle/v1/runs/{run_id}/events" for run_id in run_ids])
    wait_for(lambda: rig.files() >= files + size.readers, "every reader is there")
    grown = memory_bytes(rig.pid) - memory
    beside = rig.latencies(size.asks)
    rig.do("close")
    for run_id in run_ids:
        rig.cancel(run_id)
    gone_s = wait_for(lambda: rig.files() <= files + 5, "every reader is gone")
    return {
        "readers": size.readers,
        "runs": len(run_ids),
        "kb_each": round(grown / size.readers / 1024, 1),
        "gone_s": round(gone_s, 1),
        **compare(idle, beside),
    }


def measure_cut(rig: Rig) -> dict[str, Any]:
    """Return when a reader that takes nothing is cut off, what it cost meanwhile, and whether it can go on."""
    memory = memory_bytes(rig.pid)
    before = rig.number("treadle_dropped_readers_total")
    run_id = rig.background("load-loud")
    reader = socket.socket()
    reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    reader.connect(("127.0.0.1", rig.port))
    reader.sendall(f"GET /treadle/v1/runs/{run_id}/events HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode())
    took_s = wait_for(lambda: rig.number("treadle_dropped_readers_total") > before, "the reader is cut off")
    grown = memory_bytes(rig.pid) - memory
    reader.close()
    after = 10
    said = rig.get(f"/treadle/v1/runs/{run_id}/events?after={after}")[0]
    numbers = [int(line[4:]) for line in said.splitlines() if line.startswith(b"id: ")]
    if numbers != list(range(after + 1, after + 1 + len(numbers))) or b"run.ended" not in said:
        raise SystemExit("bench: the reader that came back did not get the rest")
    return {"cut_off_after_s": round(took_s, 1), "server_grew_mb": round(grown / 2**20, 1), "resumed": len(numbers)}


def shown(name: str, values: dict[str, Any]) -> dict[str, Any]:
    """Print a part, and return it."""
    print(f"{name:8} " + "  ".join(f"{key} {value}" for key, value in values.items()), flush=True)
    return values


def main() -> None:
    """Measure, and print a line for each part and all of it as JSON."""
    parser = argparse.ArgumentParser(prog="python -m bench.load", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few streams and readers, to see that it works")
    parser.add_argument("--role", choices=("upstream", "clients"), help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, default=0, help=argparse.SUPPRESS)
    args = parser.parse_args()
    raise_file_limit()
    if args.role == "upstream":
        asyncio.run(serve_upstream())
    elif args.role == "clients":
        asyncio.run(serve_clients(args.port))
    else:
        size = within_limit(QUICK if args.quick else FULL)
        with tempfile.TemporaryDirectory(prefix="treadle-load-") as folder, rig(Path(folder)) as found:
            found.latencies(20)
            figures = {
                "streams": shown("streams", measure_streams(found, size)),
                "readers": shown("readers", measure_readers(found, size)),
                "cut": shown("cut", measure_cut(found)),
            }
            left = {"runs": found.number("treadle_live_runs"), "streams": found.number("treadle_open_streams")}
            figures["left"] = shown("left", left)
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
