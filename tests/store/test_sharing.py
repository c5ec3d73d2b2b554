"""Several processes on one SQLite file: leases decide, nothing acknowledged is lost, whoever dies."""

import asyncio
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import pytest

from store.sample import (
    COMPLETED,
    LEASE_S,
    OTHER,
    OWNER,
    WAIT_S,
    SetClock,
    program,
    run_row,
    said,
    surroundings,
    told,
)
from treadle.core.errors import Conflict, StoreError
from treadle.journal.journal_interface import IDEMPOTENCY_KEY_TAKEN
from treadle.journal.sqlite.store import SqliteStore

Spawn = Callable[[str, str], Awaitable[Process]]


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Where the shared file is."""
    return str(tmp_path / "shared.db")


@pytest.fixture
async def spawn(path: str) -> AsyncIterator[Spawn]:
    """Start processes that do not outlive the test."""
    async with AsyncExitStack() as stack:

        async def start(mode: str, name: str) -> Process:
            process = await asyncio.create_subprocess_exec(
                *program(mode, path, name), stdout=PIPE, env=surroundings(), start_new_session=True
            )
            stack.push_async_callback(end, process)
            return process

        async def end(process: Process) -> None:
            if process.returncode is None:
                process.kill()
            await process.communicate()

        yield start


async def line(process: Process) -> str:
    """Read the next line that a process says."""
    assert process.stdout is not None
    return (await asyncio.wait_for(process.stdout.readline(), WAIT_S)).decode().strip()


async def opened(path: str, clock: SetClock | None = None) -> SqliteStore:
    """Open a store on the shared file."""
    store = SqliteStore(path, clock=clock or time.time)
    await store.open()
    return store


async def test_processes_write_side_by_side(path: str, spawn: Spawn) -> None:
    """Three processes create the same new file and write to it at once; every run is whole and dense."""
    processes = [await spawn("write", name) for name in "abc"]
    outputs = [await asyncio.wait_for(process.communicate(), WAIT_S) for process in processes]
    assert [output for output, _ in outputs] == [b"open\ndone\n"] * 3
    store = await opened(path)
    for name in "abc":
        for n in range(10):
            entries = await store.entries(f"run_{name}{n}")
            assert [entry.seq for entry in entries] == list(range(1, 21))
            assert all(line.sha256 == line.expected for line in await store.audit(f"run_{name}{n}"))
    assert {row.status for row in await store.list_runs()} == {"completed"}
    await store.close()


async def test_a_killed_writer_loses_nothing_it_acknowledged(path: str, spawn: Spawn) -> None:
    """After SIGKILL the runs are dense, hold all that was acknowledged, and go on at once under a new epoch."""
    process = await spawn("hang", "k")
    assert await line(process) == "open"
    acknowledged: dict[str, int] = {}
    for _ in range(60):
        run_id, seq = (await line(process)).split()
        acknowledged[run_id] = int(seq)
    process.kill()
    rest, _ = await asyncio.wait_for(process.communicate(), WAIT_S)
    for text in rest.decode().splitlines(keepends=True):
        if text.endswith("\n"):
            run_id, seq = text.split()
            acknowledged[run_id] = int(seq)
    store = await opened(path, SetClock(time.time()))
    claimed = await store.claim_abandoned(OTHER, LEASE_S, 10)
    assert sorted(row.id for row, _ in claimed) == ["run_k0", "run_k1", "run_k2"]
    for row, journal in claimed:
        entries = await store.entries(row.id)
        assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
        assert len(entries) >= acknowledged[row.id]
        assert journal.epoch == 2
        assert await journal.append([said("recovered")]) == len(entries) + 1
        assert all(line.sha256 == line.expected for line in await store.audit(row.id))
    await store.close()


async def test_a_living_process_keeps_its_runs(path: str, spawn: Spawn) -> None:
    """A second process sees the runs, may read them, and cannot claim them."""
    process = await spawn("hang", "k")
    assert await line(process) == "open"
    run_id, seq = (await line(process)).split()
    store = await opened(path)
    assert await store.claim_abandoned(OTHER, LEASE_S, 10) == []
    assert len(await store.entries(run_id)) >= int(seq)
    await store.start_run(run_row("mine"), [], owner=OTHER, lease_s=LEASE_S)
    await store.close()


async def test_two_stores_of_one_file_are_fenced(path: str) -> None:
    """A frozen owner that wakes up after another process claimed its run cannot write to it."""
    clock = SetClock()
    left, right = await opened(path, clock), await opened(path, clock)
    journal = await left.start_run(run_row(), [said("a")], owner=OWNER, lease_s=LEASE_S)
    clock.now += LEASE_S
    [(_, taken)] = await right.claim_abandoned(OTHER, LEASE_S, 10)
    await taken.append([said("b")])
    with pytest.raises(StoreError) as caught:
        await journal.append([said("zombie")])
    assert caught.value.info.code == "lease_lost"
    await taken.finish([said("c")], COMPLETED)
    assert [entry.content for entry in await left.entries("run_1")] == ["a", "b", "c"]
    await left.close()
    await right.close()


async def test_an_abandoned_run_is_claimed_by_one_process_only(path: str) -> None:
    """Two stores that claim at the same time never get the same run."""
    clock = SetClock()
    left, right = await opened(path, clock), await opened(path, clock)
    for n in range(40):
        await left.start_run(run_row(str(n)), [], owner=OWNER, lease_s=LEASE_S)
    clock.now += LEASE_S
    claims = [store.claim_abandoned(f"owner_{n}", LEASE_S, 5) for n in range(4) for store in (left, right)]
    taken = [row.id for claimed in await asyncio.gather(*claims) for row, _ in claimed]
    assert sorted(taken) == sorted(f"run_{n}" for n in range(40))
    await left.close()
    await right.close()


async def test_a_full_disk_is_refused_and_overcome(spawn: Spawn) -> None:
    """Writes that do not fit fail before they are acknowledged; with room the same run goes on, dense."""
    process = await spawn("starve", "s")
    output, _ = await asyncio.wait_for(process.communicate(), WAIT_S)
    assert output.decode().splitlines() == [
        "open",
        "refused store_io",
        "refused store_io",
        "went on 1",
        "integrity 0",
    ]


async def test_a_live_run_is_followed_from_another_process(path: str, spawn: Spawn) -> None:
    """Every event once, in order and without a gap, while the run lasts; a request to cancel ends it from here."""
    process = await spawn("speak", "k")
    assert await line(process) == "open"
    store = await opened(path)
    seen: list[int] = []
    async with asyncio.timeout(WAIT_S):
        while (row := await store.find_run("run_k")) is None or row.status == "running":
            for chunk in await store.chunks("run_k", after=len(seen)):
                numbers = msgspec.json.decode(chunk.data, type=list[int])
                assert (chunk.first, chunk.count) == (numbers[0], len(numbers))
                seen += [number for number in numbers if number > len(seen)]
            if len(seen) > 60:
                assert await store.request_cancel("run_k") in (True, False)
            await store.wait_change("run_k", 0.25)
    assert seen == list(range(1, len(seen) + 1))
    assert row.status == "cancelled"
    assert await store.chunks("run_k") == []
    assert await line(process) == "cancelled"
    await store.close()


async def test_what_another_store_writes_wakes_soon(path: str) -> None:
    """A store hears of the writes of another one on the same file, and of its own, without waiting for the time."""
    left, right = await opened(path), await opened(path)
    journal = await left.start_run(run_row(), [], owner=OWNER, lease_s=LEASE_S)
    for store in (right, left, right):
        waiting = asyncio.create_task(store.wait_change("run_1", 3_600.0))
        async with asyncio.timeout(WAIT_S):
            while not waiting.done():
                await journal.write_chunk(told(1, "x"), keep_from=1)
    await left.close()
    await right.close()


async def test_a_closing_store_lets_go_of_those_who_wait(path: str) -> None:
    """They return, and those who come later hear that it is closed."""
    store = await opened(path)
    await store.start_run(run_row(), [], owner=OWNER, lease_s=LEASE_S)
    waiting = [asyncio.create_task(store.wait_change("run_1", 3_600.0)) for _ in range(10)]
    for _ in range(5):
        await store.find_run("run_1")
    await asyncio.wait_for(store.close(), WAIT_S)
    outcomes = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), WAIT_S)
    assert {type(outcome) for outcome in outcomes} <= {type(None), StoreError}
    with pytest.raises(StoreError, match="not open"):
        await store.wait_change("run_1", 3_600.0)


async def test_two_stores_share_one_idempotency_key(path: str) -> None:
    """A hundred starts over two stores of one file: one run."""
    left, right = await opened(path), await opened(path)
    starts = [
        store.start_run(run_row(f"{n}{side}", idempotency_key="once"), [], owner=OWNER, lease_s=LEASE_S)
        for n in range(50)
        for side, store in (("l", left), ("r", right))
    ]
    outcomes = await asyncio.gather(*starts, return_exceptions=True)
    codes = [outcome.info.code for outcome in outcomes if isinstance(outcome, Conflict)]
    assert codes == [IDEMPOTENCY_KEY_TAKEN] * 99
    found = await left.find_idempotent("once", key_id="")
    assert found is not None
    assert [row.id for row in await right.list_runs()] == [found.id]
    await left.close()
    await right.close()
