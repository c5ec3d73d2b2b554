"""Watching runs: who is woken by what, and what is asked while nobody waits."""

import asyncio
from collections.abc import Sequence

import pytest

from treadle.core.errors import StoreError
from treadle.journal.sqlite import change_watch as watch
from treadle.journal.sqlite.change_watch import ChangeWatch

WAIT_S = 30.0
HOUR_S = 3_600.0


class Data:
    """A database that others write to, and how often it was asked."""

    def __init__(self) -> None:
        self.version = 1
        self.changes = {"run_1": 5, "run_2": 7}
        self.versions_asked = 0
        self.changes_asked = 0
        self.asked = asyncio.Event()
        self.is_broken = False

    async def ask_version(self) -> int:
        await asyncio.sleep(0)
        self.versions_asked += 1
        self.asked.set()
        if self.is_broken:
            raise StoreError("it broke")
        return self.version

    async def ask_changes(self, run_ids: Sequence[str]) -> dict[str, int]:
        await asyncio.sleep(0)
        self.changes_asked += 1
        return {run_id: self.changes[run_id] for run_id in run_ids if run_id in self.changes}

    def write(self, run_id: str) -> None:
        self.changes[run_id] += 1
        self.version += 1

    async def polled(self, times: int = 1) -> None:
        """Return after so many more polls have begun."""
        for _ in range(times):
            self.asked.clear()
            await asyncio.wait_for(self.asked.wait(), WAIT_S)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Poll without a pause."""
    monkeypatch.setattr(watch, "POLL_S", 0.0)


@pytest.fixture
def data() -> Data:
    """Two live runs."""
    return Data()


async def waiting(watched: ChangeWatch, run_id: str = "run_1") -> "asyncio.Task[None]":
    """Begin to wait for a run."""
    task = asyncio.create_task(watched.wait(run_id, HOUR_S))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not task.done()
    return task


async def test_what_others_write_is_found_by_polling(data: Data) -> None:
    """Whoever waits for that run is woken, and nobody else."""
    watched = ChangeWatch(data.ask_version, data.ask_changes)
    one, two = await waiting(watched), await waiting(watched, "run_2")
    data.write("run_1")
    await asyncio.wait_for(one, WAIT_S)
    await data.polled(3)
    assert not two.done()
    data.write("run_2")
    await asyncio.wait_for(two, WAIT_S)


async def test_a_run_that_ends_wakes_whoever_waits(data: Data) -> None:
    """It has no count any more."""
    watched = ChangeWatch(data.ask_version, data.ask_changes)
    one = await waiting(watched)
    del data.changes["run_1"]
    data.version += 1
    await asyncio.wait_for(one, WAIT_S)


async def test_changes_are_read_only_when_the_version_moved(data: Data) -> None:
    """Once for the newcomer, once for each version; the version itself is asked all the time."""
    watched = ChangeWatch(data.ask_version, data.ask_changes)
    one = await waiting(watched)
    await data.polled(3)
    asked = data.changes_asked
    await data.polled(10)
    assert data.changes_asked == asked
    data.write("run_2")
    await data.polled(3)
    assert (data.changes_asked, one.done()) == (asked + 1, False)
    await watched.close()


async def test_nothing_is_asked_while_nobody_waits(data: Data) -> None:
    """Polling stops with the last one who waits, and begins again with the next."""
    watched = ChangeWatch(data.ask_version, data.ask_changes)
    for _ in range(2):
        one = await waiting(watched)
        await data.polled()
        watched.wake("run_1")
        await asyncio.wait_for(one, WAIT_S)
        poller = [task for task in asyncio.all_tasks() if task.get_name() == "treadle-store-watch"]
        await asyncio.wait_for(asyncio.gather(*poller), WAIT_S)
        asked = data.versions_asked
        for _ in range(20):
            await asyncio.sleep(0)
        assert data.versions_asked == asked


async def test_a_change_while_a_newcomer_reads_its_count_is_not_missed(data: Data) -> None:
    """The newcomer's count may be older than the version that the poll has seen last."""
    watched = ChangeWatch(data.ask_version, data.ask_changes)
    await waiting(watched, "run_2")
    await data.polled(3)
    gate, read = asyncio.Event(), asyncio.Event()
    plain = data.ask_changes

    async def slow(run_ids: Sequence[str]) -> dict[str, int]:
        found = await plain(run_ids)
        if list(run_ids) == ["run_1"]:
            read.set()
            await gate.wait()
        return found

    watched._changes = slow  # pyright: ignore[reportPrivateUsage]
    one = asyncio.create_task(watched.wait("run_1", HOUR_S))
    await asyncio.wait_for(read.wait(), WAIT_S)
    data.write("run_1")
    await data.polled(3)
    gate.set()
    await asyncio.wait_for(one, WAIT_S)
    await watched.close()


async def test_a_store_that_fails_wakes_everybody(data: Data) -> None:
    """They read and hear what is wrong; the next one who waits is polled for again."""
    watched = ChangeWatch(data.ask_version, data.ask_changes)
    one, two = await waiting(watched), await waiting(watched, "run_2")
    data.is_broken = True
    await asyncio.wait_for(asyncio.gather(one, two), WAIT_S)
    data.is_broken = False
    one = await waiting(watched)
    data.write("run_1")
    await asyncio.wait_for(one, WAIT_S)


async def test_without_others_nothing_is_polled(data: Data) -> None:
    """A private database is changed by its own process only, which tells."""
    watched = ChangeWatch(None, data.ask_changes)
    one = await waiting(watched)
    watched.wake("run_2")
    await asyncio.sleep(0)
    assert not one.done()
    watched.wake("run_1")
    await asyncio.wait_for(one, WAIT_S)
    assert data.versions_asked == 0


async def test_closing_wakes_everybody_and_leaves_no_task(data: Data) -> None:
    """With others to poll for, and twice in a row."""
    watched = ChangeWatch(data.ask_version, data.ask_changes)
    one = await waiting(watched)
    await data.polled()
    await watched.close()
    await asyncio.wait_for(one, WAIT_S)
    await watched.close()
    assert [task for task in asyncio.all_tasks() if task.get_name() == "treadle-store-watch"] == []


async def test_a_failure_to_read_the_count_is_told(data: Data) -> None:
    """Whoever cannot begin to wait hears why, and is forgotten."""

    async def fail(_: Sequence[str]) -> dict[str, int]:
        raise StoreError("not open")

    watched = ChangeWatch(data.ask_version, fail)
    with pytest.raises(StoreError, match="not open"):
        await watched.wait("run_1", HOUR_S)
    await watched.close()
    assert data.versions_asked == 0
