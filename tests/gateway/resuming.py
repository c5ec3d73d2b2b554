"""Clients whose server is killed under them while their streams come, and who go on at the next one.

A paced upstream answers with numbered words; every client reads until its server dies, wherever that is, and then
resumes as its protocol does it. What it has in the end is compared with the answer.
"""

import asyncio
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from operator import itemgetter
from typing import Any, NamedTuple

import httpx2

from gateway.apis import APIS, text_of
from treadle.protocols.sse import SseFrame, SseReader
from warm.start import Popen

BOUND_S = 90.0
AGAIN_S = 0.1
PROGRAM = """
import sys
import uvloop
from treadle.config import ServerSection, Settings, StoreSection, Upstream
from treadle.runtime import Parts, Runtime
from treadle.server.server_process import serve

async def main():
    settings = Settings(
        store=StoreSection(url=sys.argv[1]),
        server=ServerSection(port=0, keep_alive_s=5.0, reconnect_s=60.0),
        upstream=(Upstream(name="paced", base_url=sys.argv[2], models=("*",)),),
        default_model="paced",
    )
    async with Runtime(settings, parts=Parts(env={})) as runtime:
        await serve(runtime, lambda address: print(address.url, flush=True), 0.0)

uvloop.run(main())
"""
_FAILED = ('{"error":', '"type":"error"', '"type":"response.failed"', '"status":"failed"')
KINDS = ("chat", "messages", "gemini", "responses", "background", "events")
"""The protocols with a key, a Responses answer in the background by its sequence numbers, and a run's own events."""


class Paced:
    """A Chat upstream that sends a word at a time. The first answer to a question is `words`, later ones too, or
    others where it `differs` from the word of that number on."""

    def __init__(self, count: int, pace_s: float, *, differs: int | None = None) -> None:
        self._count = count
        self._pace_s = pace_s
        self._differs = differs
        self._asked = Counter[str]()
        self._ended_at: dict[str, float] = {}
        self._server: asyncio.Server | None = None
        self.url = ""

    async def __aenter__(self) -> "Paced":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=1_000)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()

    def times(self, question: str) -> int:
        """Return how often a question was asked."""
        return sum(count for asked, count in self._asked.items() if question in asked)

    def ended_at(self, question: str) -> float:
        """Return when the first answer to a question was over, by the monotonic clock; 0 if it never was."""
        return min((at for asked, at in self._ended_at.items() if question in asked), default=0.0)

    def words(self, *, again: bool = False) -> list[str]:
        """Return the pieces of the answer, or of the repeated one."""
        least = self._count if self._differs is None or not again else self._differs
        return [f"{'w' if number < least else 'x'}{number:04d} " for number in range(self._count)]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            if not head.startswith(b"POST"):
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 11\r\nconnection: close\r\n\r\n" + b'{"data":[]}')
                return
            length = next(line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
            body = json.loads(await reader.readexactly(int(length.split(b":")[1])))
            asked = json.dumps(body["messages"])
            self._asked[asked] += 1
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
            for word in self.words(again=self._asked[asked] > 1):
                writer.write(_chunk({"content": word}))
                await writer.drain()
                await asyncio.sleep(self._pace_s)
            writer.write(_chunk({}, "stop") + b"data: [DONE]\n\n")
            await writer.drain()
            self._ended_at.setdefault(asked, time.monotonic())
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


def _chunk(delta: dict[str, str], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    data = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "paced", "choices": [choice]}
    return b"data: " + json.dumps(data).encode() + b"\n\n"


class Life:
    """One process of Treadle."""

    def __init__(self, store: str, upstream: str) -> None:
        self.process = Popen(
            [sys.executable, "-c", PROGRAM, store, upstream],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONWARNINGS": "error"},
        )
        self.origin = ""

    async def open(self) -> "Life":
        """Wait until it serves."""
        assert self.process.stdout is not None
        self.origin = (await asyncio.to_thread(self.process.stdout.readline)).strip()
        return self

    @property
    def is_alive(self) -> bool:
        """Tell whether it still runs."""
        return self.process.poll() is None

    def kill(self) -> None:
        """End it as a power cut does; without effect the second time."""
        self.process.kill()
        self.process.wait(BOUND_S)
        if self.process.stdout is not None:
            self.process.stdout.close()


class Outcome(NamedTuple):
    """What a client had when its server died, perhaps the end too, and in the end; `end` says how its stream ended.

    `waited_s` is how long after the fault, or after the model's last word if that came later, its first stream ended.
    """

    kind: str
    before: str
    had_end: bool
    whole: str
    end: str
    has_repeated_ids: bool
    waited_s: float


class Client:
    """One client, which reads its stream from server to server."""

    def __init__(self, kind: str, name: str) -> None:
        self.kind = kind
        self._api = kind if kind in APIS else "responses"
        self.name = name
        self._frames: list[SseFrame] = []
        self._run_id = ""
        self.refusals: list[str] = []
        self._more = asyncio.Event()
        self._is_over = False
        self.ended_at = 0.0
        """When the stream that was read last ended, by the monotonic clock."""

    async def until(self, count: int) -> None:
        """Wait until so many frames have come, or the stream has ended."""
        while len(self._frames) < count and not self._is_over:
            self._more.clear()
            await self._more.wait()

    async def read(self, origin: str, after_s: float = 0.0) -> None:
        """Read from a server, after so long, until the stream ends or breaks."""
        await asyncio.sleep(after_s)
        reader = SseReader()
        try:
            # Certificates, which nothing here needs, take 80 ms to load, in which no other client reads.
            http = httpx2.AsyncClient(timeout=BOUND_S, verify=False)
            async with http, self._ask(http, origin) as answer:
                if answer.status_code != 200:
                    self.refusals.append(f"{answer.status_code} {(await answer.aread()).decode()}")
                    return
                async for data in answer.aiter_raw():
                    for frame in reader.feed(data):
                        self._take(frame)
        except httpx2.HTTPError:
            return
        finally:
            self._is_over = True
            self.ended_at = time.monotonic()
            self._more.set()

    def _ask(self, http: httpx2.AsyncClient, origin: str) -> Any:
        """Ask for the stream, or for the rest of it."""
        if self._frames and self.kind == "background":
            after = max(json.loads(frame.data)["sequence_number"] for frame in self._frames)
            return http.stream("GET", f"{origin}/v1/responses/{self._run_id}?stream=true&starting_after={after}")
        if self._frames and self.kind == "events":
            return http.stream("GET", f"{origin}/treadle/v1/runs/{self._run_id}/events?after={self._frames[-1].id}")
        if self.kind == "events":
            body = {"input": self.name, "stream": True}
            headers = {"idempotency-key": self.name}
            return http.stream("POST", f"{origin}/treadle/v1/runs", json=body, headers=headers)
        api = APIS[self._api]
        body = json.loads(json.dumps(api.content(stream=True)).replace("What is the weather in Paris?", self.name))
        headers = {} if self.kind == "background" else {"idempotency-key": self.name}
        if self.kind == "background":
            body["background"] = True
        elif self._frames and self._frames[-1].id:
            headers["last-event-id"] = self._frames[-1].id
        return http.stream("POST", origin + api.stream_path, json=body, headers=headers)

    def _take(self, frame: SseFrame) -> None:
        if "kept_alive" in frame.event:
            return
        data = {} if frame.data == "[DONE]" else json.loads(frame.data)
        if self.kind == "events" and not self._run_id:
            self._run_id = data["run_id"]
        if self.kind == "background" and not self._run_id:
            self._run_id = data["response"]["id"]
        self._frames.append(frame)
        self._more.set()

    @property
    def text(self) -> str:
        """Return the text that the client has, as one that reads its protocol would put it together."""
        if self.kind == "events":
            return _text_of_events(self._frames)
        return "".join(text_of(self._api, b"data: " + frame.data.encode() + b"\n\n") for frame in self._frames)

    @property
    def items(self) -> list[tuple[str, str]]:
        """Return the output of a response that has ended: the status and the text of each item."""
        last = json.loads(self._frames[-1].data)
        return [(item["status"], item["content"][0]["text"]) for item in last["response"]["output"]]

    @property
    def end(self) -> str:
        """Return how the stream ended: `done`, `diverged`, or `cut` where that was not the end of its run."""
        last = [frame.data for frame in self._frames[-2:]]
        rest = "".join(last if last[-1:] == ["[DONE]"] else last[-1:])
        if "the answer went on differently" in rest:
            return "diverged"
        if any(mark in rest for mark in _FAILED):
            return "cut"
        marks = ("[DONE]", "message_stop", '"finishReason"', "response.completed", '"run.ended"')
        return "done" if any(mark in rest for mark in marks) else "cut"

    def has_repeated_ids(self) -> bool:
        """Tell whether an id or a number stood at two events."""
        if self.kind == "background":
            events = [json.loads(frame.data) for frame in self._frames]
            groups = [[*group] for _, group in itertools.groupby(events, key=itemgetter("sequence_number"))]
            ids = [group[0]["sequence_number"] for group in groups for _ in range(_count(group))]
        else:
            # Frames that have no id, such as those that keep the connection alive, are read with the one before.
            ids = [place for place, _ in itertools.groupby(frame.id for frame in self._frames)]
        return len(ids) != len(set(ids))


def _count(group: list[dict[str, Any]]) -> int:
    """Return how many events have a number of their own, of those that came under one number.

    What keeps the connection alive has the last one, and so has all of an end that is not the run's.
    """
    kinds = [event["type"] for event in group if event["type"] != "response.in_progress"]
    return 1 if kinds[-1:] == ["response.failed"] else max(1, len(kinds))


def _text_of_events(frames: list[SseFrame]) -> str:
    """Put a run's text together as its documentation says: what does not stand is dropped, and what was broken off."""
    events: list[tuple[int, dict[str, Any]]] = []
    for frame in frames:
        event = json.loads(frame.data)
        if event["type"] == "run.recovered":
            events = [each for each in events if each[0] <= event["after"]]
        if event["type"] == "round.broken":
            start = max(at for at, (_, each) in enumerate(events) if each["type"] == "round.started")
            del events[start:]
        events.append((int(frame.id or 0), event))
    return "".join(event["text"] for _, event in events if event["type"] == "text.delta")


@asynccontextmanager
async def lives(stores: Sequence[str], upstream: str) -> AsyncIterator[list[Life]]:
    """Start a process for each of these addresses of the store; end those that are left."""
    started: list[Life] = []
    try:
        for store in stores:
            started.append(await Life(store, upstream).open())
        yield started
    finally:
        for each in started:
            each.kill()


class Fault:
    """What happens to the process whose clients read: it is killed, as by a power cut."""

    ends_streams = True
    """Whether the streams end by it; else the clients give them up."""

    async def strike(self, first: Life) -> None:
        """Let it happen."""
        first.kill()

    async def heal(self, first: Life) -> None:
        """Let it be over, when all streams have ended."""

    async def afterwards(self, first: Life) -> None:
        """Do what is left when all clients have gone on."""


class Frozen(Fault):
    """It is stopped for longer than its leases, and wakes when all clients have gone on elsewhere."""

    ends_streams = False

    async def strike(self, first: Life) -> None:
        """Stop it."""
        first.process.send_signal(signal.SIGSTOP)

    async def afterwards(self, first: Life) -> None:
        """Let it find that its runs are others'."""
        first.process.send_signal(signal.SIGCONT)


class StoreAway(Fault):
    """Its store is away for longer than it waits for it, so that its runs are lost; the process lives."""

    def __init__(self, begin: Callable[[], Awaitable[None]], end: Callable[[], Awaitable[None]]) -> None:
        self._begin = begin
        self._end = end

    async def strike(self, first: Life) -> None:
        """Take the store away."""
        await self._begin()

    async def heal(self, first: Life) -> None:
        """Give it back."""
        await self._end()


async def break_and_resume(
    stores: Sequence[str],
    paced: Paced,
    kinds: tuple[str, ...],
    chance: random.Random,
    fault: Fault,
    *,
    spread_s: float = 0.0,
) -> list[tuple[Client, Outcome]]:
    """Let clients of these kinds read from the first process, let the fault strike, and let them go on at the last one:
    another process, or the first again, or its successor where it was killed. They begin within `spread_s`."""
    async with lives(stores, paced.url) as servers:
        clients = [Client(kind, f"q{chance.getrandbits(64):x}") for kind in kinds]
        reading = [
            asyncio.create_task(client.read(servers[0].origin, chance.uniform(0.0, spread_s))) for client in clients
        ]
        least = chance.randrange(5, len(paced.words()) - 2)
        async with asyncio.timeout(BOUND_S):
            await asyncio.gather(*(client.until(least) for client in clients))
        await fault.strike(servers[0])
        struck_at = time.monotonic()
        if not fault.ends_streams:
            for task in reading:
                task.cancel()
        _, still = await asyncio.wait(reading, timeout=BOUND_S)
        assert not still, "streams that do not end"
        await fault.heal(servers[0])
        before = [
            (client.text, client.end == "done", client.ended_at - max(struck_at, paced.ended_at(client.name)))
            for client in clients
        ]
        if len(servers) == 1 and not servers[0].is_alive:
            servers.append(await Life(stores[0], paced.url).open())
        await asyncio.gather(*(_resume(client, servers[-1].origin) for client in clients))
        await fault.afterwards(servers[0])
    return [
        (client, Outcome(client.kind, text, had_end, client.text, client.end, client.has_repeated_ids(), waited_s))
        for client, (text, had_end, waited_s) in zip(clients, before, strict=True)
    ]


async def kill_and_resume(
    store: str, paced: Paced, kinds: tuple[str, ...], chance: random.Random
) -> list[tuple[Client, Outcome]]:
    """Kill the only process, and go on at its successor."""
    return await break_and_resume([store], paced, kinds, chance, Fault())


async def _resume(client: Client, origin: str) -> None:
    """Go on until the stream ends, however often that takes."""
    try:
        async with asyncio.timeout(BOUND_S):
            while client.end == "cut":
                await client.read(origin)
                await asyncio.sleep(AGAIN_S)
    except TimeoutError:
        last, refused = [frame.data for frame in client._frames[-3:]], client.refusals
        raise AssertionError(f"no end for {client.kind}: {last}, {len(refused)} refusals: {refused[-1:]}") from None
