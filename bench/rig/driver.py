"""The load generator, in its own process: reads one job a line (JSON), makes its requests, writes one line back.

Every answer is checked; a wrong one ends the job with an error rather than with a fast number. All jobs are bounded in
time. Modes: `closed` (so many connections, each asks again when it has its answer), `paced` (a request each so many
milliseconds, whether or not the last was answered: latency as people see it), `hold` (streams kept open until told).
"""

import asyncio
import json
import re
import sys
import time

import uvloop

ANSWER_S = 60.0
_LENGTH = re.compile(rb"content-length:\s*(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"transfer-encoding:\s*chunked", re.IGNORECASE)
_CLOSE = re.compile(rb"connection:\s*close", re.IGNORECASE)
_AT = re.compile(rb"at=(\d+);")


class Wrong(Exception):
    """An answer that is not what was asked for."""


class Reader:
    """Finds the end of an HTTP answer with as little work as possible, however it is cut."""

    def __init__(self) -> None:
        self.body = bytearray()
        self.status = 0
        self.is_kept = True
        self.is_open_ended = False
        self.is_chunked = False
        self._head = bytearray()
        self._length: int | None = None

    def feed(self, data: bytes) -> bool:
        """Take what arrived and say whether the answer is whole."""
        if not self.status:
            self._head += data
            cut = self._head.find(b"\r\n\r\n")
            if cut < 0:
                return False
            head, data = bytes(self._head[:cut]), bytes(self._head[cut + 4 :])
            self.status = int(head[9:12])
            self.is_kept = _CLOSE.search(head) is None
            found = _LENGTH.search(head)
            self._length = int(found[1]) if found else None
            self.is_open_ended = found is None
            self.is_chunked = _CHUNKED.search(head) is not None
        self.body += data
        if self._length is not None:
            return len(self.body) >= self._length
        return self.body.endswith(b"0\r\n\r\n")


def joined(body: bytes) -> bytes:
    """Return what was sent in chunks as one; a proxy may cut them in the middle of a word."""
    pieces: list[bytes] = []
    at = 0
    while (cut := body.find(b"\r\n", at)) > at:
        size = int(body[at:cut], 16)
        pieces.append(body[cut + 2 : cut + 2 + size])
        at = cut + 4 + size
    return b"".join(pieces)


class Connection(asyncio.Protocol):
    """One connection, one request at a time."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._answer: asyncio.Future[Reader] | None = None
        self.is_lost = False
        self.first_at = 0.0
        self.late_ns: list[int] | None = None

    def ask(self, request: bytes) -> "asyncio.Future[Reader]":
        self._reader = Reader()
        self.first_at = 0.0
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._answer

    def close(self) -> None:
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        is_whole = self._reader.feed(data)
        if not self.first_at and b"data:" in data:
            self.first_at = time.perf_counter()
        if self.late_ns is not None:
            now = time.perf_counter_ns()
            self.late_ns += [now - int(at) for at in _AT.findall(data)]
        if is_whole and self._answer is not None and not self._answer.done():
            self.is_lost = not self._reader.is_kept
            self._answer.set_result(self._reader)

    def connection_lost(self, error: Exception | None) -> None:
        self.is_lost = True
        if self._answer is not None and not self._answer.done():
            if error is None and self._reader.is_open_ended:
                self._answer.set_result(self._reader)
            else:
                self._answer.set_exception(error or ConnectionError("the connection was closed"))


class Job:
    """What is asked, how often, and what came of it."""

    def __init__(self, fields: dict) -> None:
        self.port: int = fields["port"]
        self.mode: str = fields["mode"]
        self.seconds: float = fields.get("seconds", 1.0)
        self.count: int = fields.get("count", sys.maxsize)
        self.connections: int = fields.get("connections", 1)
        self.rate: float = fields.get("rate", 50.0)
        self.events_min: int = fields.get("events_min", 0)
        self.is_stamped: bool = fields.get("stamped", False)
        body = fields["body"].encode()
        head = {"host": f"127.0.0.1:{self.port}", "content-type": "application/json", **fields.get("headers", {})}
        lines = [f"POST {fields['path']} HTTP/1.1", *(f"{name}: {value}" for name, value in head.items())]
        self.request = "\r\n".join([*lines, f"content-length: {len(body)}", "", ""]).encode() + body
        self.took_s: list[float] = []
        self.first_s: list[float] = []
        self.late_ns: list[int] = []
        self._begun = 0

    def take(self) -> bool:
        """Say whether one more request is to be made."""
        self._begun += 1
        return self._begun <= self.count

    async def connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(Connection, "127.0.0.1", self.port)
        if self.is_stamped:
            connection.late_ns = self.late_ns
        return connection

    async def ask(self, connection: Connection, began: float) -> None:
        """Make one request and check its answer."""
        answer = await connection.ask(self.request)
        ended = time.perf_counter()
        if not self._is_right(answer):
            raise Wrong(f"status {answer.status}: {bytes(answer.body[-400:]).decode(errors='replace')}")
        self.took_s.append(ended - began)
        self.first_s.append((connection.first_at or ended) - began)

    def _is_right(self, answer: Reader) -> bool:
        """Look at the bytes as they came, and only if that does not do without the frames of their chunks."""
        if answer.status != 200:
            return False
        return self._is_whole(answer.body) or (answer.is_chunked and self._is_whole(joined(bytes(answer.body))))

    def _is_whole(self, body: bytes | bytearray) -> bool:
        return b"bench-done" in body and body.count(b"data: ") >= self.events_min


async def closed(job: Job) -> None:
    """Keep so many connections busy."""
    opened = [await job.connect() for _ in range(job.connections)]
    until = time.perf_counter() + job.seconds

    async def keep_busy(connection: Connection) -> None:
        while time.perf_counter() < until and job.take():
            if connection.is_lost:
                connection.close()
                connection = await job.connect()
            await job.ask(connection, time.perf_counter())
        connection.close()

    try:
        await asyncio.gather(*(keep_busy(connection) for connection in opened))
    finally:
        for connection in opened:
            connection.close()


async def paced(job: Job) -> None:
    """Ask at a steady rate; a request's time counts from when it was due."""
    free: list[Connection] = []
    tasks: list[asyncio.Task[None]] = []

    async def one(due: float) -> None:
        connection = free.pop() if free else await job.connect()
        await job.ask(connection, due)
        if connection.is_lost:
            connection.close()
        else:
            free.append(connection)

    began = time.perf_counter()
    for number in range(min(round(job.seconds * job.rate), job.count)):
        due = began + number / job.rate
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        tasks.append(asyncio.create_task(one(max(due, time.perf_counter() - 0.001))))
    try:
        await asyncio.gather(*tasks)
    finally:
        for connection in free:
            connection.close()


async def hold(job: Job) -> None:
    """Open streams, wait until each has begun to speak, and keep them until the next line arrives."""
    opened: list[Connection] = []
    try:
        for _ in range(job.connections):
            connection = await job.connect()
            connection.ask(job.request).add_done_callback(lambda done: done.cancelled() or done.exception())
            opened.append(connection)
        deadline = time.perf_counter() + job.seconds
        while any(not each.first_at for each in opened) and time.perf_counter() < deadline:
            if any(each.is_lost for each in opened):
                raise Wrong("a stream ended that was to stay open")
            await asyncio.sleep(0.02)
        print(json.dumps({"open": sum(bool(each.first_at) for each in opened)}), flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    finally:
        for each in opened:
            each.close()


MODES = {"closed": closed, "paced": paced, "hold": hold}


def shares(values: list[float]) -> dict[str, float]:
    """Return median and 99th percentile."""
    if not values:
        return {"p50": 0.0, "p99": 0.0}
    ordered = sorted(values)
    return {"p50": ordered[len(ordered) // 2], "p99": ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]}


async def work(job: Job) -> dict:
    """Do a job and say what it took."""
    used, began = time.process_time(), time.perf_counter()
    try:
        await asyncio.wait_for(MODES[job.mode](job), job.seconds + ANSWER_S)
    except (OSError, TimeoutError, Wrong, ValueError) as error:
        return {"error": f"{type(error).__name__}: {error}"}
    wall_s = time.perf_counter() - began
    return {
        "wall_s": wall_s,
        "count": len(job.took_s),
        "load_share": (time.process_time() - used) / wall_s,
        "took_s": shares(job.took_s),
        "first_s": shares(job.first_s),
        "late_s": shares([each / 1e9 for each in job.late_ns]),
    }


async def main() -> None:
    """Work off jobs until there is no further line."""
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        print(json.dumps(await work(Job(json.loads(line)))), flush=True)


if __name__ == "__main__":
    uvloop.run(main())
