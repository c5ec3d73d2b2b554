"""The writer thread: batches, savepoints, back-pressure, its end."""

import asyncio
import gc
import threading
import weakref
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from treadle.core.errors import Conflict, NotFound, StoreError, TreadleError
from treadle.journal.sqlite.connection import connect, select
from treadle.journal.sqlite.health_check import JournalHealth
from treadle.journal.sqlite.writer_thread import BATCH_JOBS_MAX, QUEUED_JOBS_MAX, WriterThread

WAIT_S = 30.0


@pytest.fixture
def connection(tmp_path: Path) -> apsw.Connection:
    """A database with one table, whose numbers are unique."""
    opened = connect(str(tmp_path / "writer.db"))
    opened.execute("CREATE TABLE numbers (n INTEGER UNIQUE, pad BLOB) STRICT")
    return opened


@pytest.fixture
async def writer(connection: apsw.Connection) -> AsyncIterator[WriterThread]:
    """A running writer."""
    running = WriterThread(connection, JournalHealth("writer.db"))
    yield running
    await asyncio.wait_for(running.close(), WAIT_S)
    connection.close()


class Gate:
    """A job that holds the writer until it is opened, so that others queue up behind it."""

    def __init__(self) -> None:
        self.is_reached = threading.Event()
        self._is_open = threading.Event()

    def __call__(self, connection: apsw.Connection) -> str:
        self.is_reached.set()
        assert self._is_open.wait(WAIT_S)
        return "through"

    def open(self) -> None:
        """Let the writer go on."""
        self._is_open.set()


def insert(n: int, pad: bytes = b"") -> Any:
    """A job that adds a number."""

    def job(connection: apsw.Connection) -> int:
        select(connection, "INSERT INTO numbers VALUES (?, ?)", n, pad)
        return n

    return job


def numbers(connection: apsw.Connection) -> list[int]:
    """A job that reads the numbers."""
    return [n for (n,) in select(connection, "SELECT n FROM numbers ORDER BY n")]


def begins(connection: apsw.Connection) -> list[str]:
    """Record from now on how transactions begin and end."""
    seen: list[str] = []

    def trace(_: apsw.Cursor, sql: str, __: Any) -> bool:
        if sql in ("BEGIN IMMEDIATE", "COMMIT", "ROLLBACK"):
            seen.append(sql)
        return True

    connection.exec_trace = trace
    return seen


async def test_a_job_gives_its_value_after_the_commit(tmp_path: Path, writer: WriterThread) -> None:
    """Another connection sees the row as soon as submit has returned."""
    assert await writer.submit(insert(1)) == 1
    other = apsw.Connection(str(tmp_path / "writer.db"))
    assert numbers(other) == [1]
    other.close()


async def test_queued_jobs_share_a_transaction_up_to_the_bound(
    connection: apsw.Connection, writer: WriterThread
) -> None:
    """What queues up behind a slow job is committed in batches, in order."""
    seen = begins(connection)
    gate = Gate()
    slow = writer.submit(gate)
    await asyncio.to_thread(gate.is_reached.wait, WAIT_S)
    many = [writer.submit(insert(n)) for n in range(BATCH_JOBS_MAX + 10)]
    await asyncio.sleep(0)
    gate.open()
    assert await slow == "through"
    assert await asyncio.gather(*many) == list(range(BATCH_JOBS_MAX + 10))
    assert seen == ["BEGIN IMMEDIATE", "COMMIT"] * 3


class Failing:
    """A job that breaks a rule."""

    def __call__(self, connection: apsw.Connection) -> None:
        raise Conflict("it has ended")


async def test_jobs_of_a_batch_in_which_one_fails_are_freed_at_once(writer: WriterThread) -> None:
    """They hold what a run still had to write, and the garbage collector seldom runs."""
    gate = Gate()
    slow = writer.submit(gate)
    await asyncio.to_thread(gate.is_reached.wait, WAIT_S)
    jobs = [Failing(), Failing()]
    freed = [weakref.ref(job) for job in jobs]
    gc.disable()
    try:
        waiting = [writer.submit(job) for job in jobs]
        jobs.clear()
        await asyncio.sleep(0)
        gate.open()
        await slow
        assert [type(error) for error in await asyncio.gather(*waiting, return_exceptions=True)] == [Conflict] * 2
        waiting.clear()
        async with asyncio.timeout(WAIT_S):
            while any(ref() is not None for ref in freed):  # noqa: ASYNC110 that something is freed is told to nobody
                await asyncio.sleep(0)
    finally:
        gc.enable()


async def test_the_loop_hears_of_a_batch_by_one_callback(writer: WriterThread, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred jobs in one batch wake the loop once."""
    gate = Gate()
    slow = writer.submit(gate)
    await asyncio.to_thread(gate.is_reached.wait, WAIT_S)
    many = [writer.submit(insert(n)) for n in range(100)]
    await asyncio.sleep(0)
    loop = asyncio.get_running_loop()
    wakes: list[str] = []
    real = loop.call_soon_threadsafe

    def counted(callback: Any, *arguments: Any, **options: Any) -> asyncio.Handle:
        wakes.append(threading.current_thread().name)
        return real(callback, *arguments, **options)

    monkeypatch.setattr(loop, "call_soon_threadsafe", counted)
    gate.open()
    await asyncio.gather(slow, *many)
    assert wakes == ["treadle-store-writer"] * 2


async def test_a_job_that_breaks_a_rule_harms_no_neighbour(connection: apsw.Connection, writer: WriterThread) -> None:
    """In one batch: the broken ones leave nothing, not even what they wrote before they broke."""

    def half(connection: apsw.Connection) -> None:
        insert(50)(connection)
        raise NotFound("changed my mind")

    def twice(connection: apsw.Connection) -> None:
        insert(60)(connection)
        insert(60)(connection)

    gate = Gate()
    jobs = [gate, insert(1), half, insert(2), twice, insert(3)]
    tasks = [writer.submit(job) for job in jobs]
    await asyncio.sleep(0)
    gate.open()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [str, int, NotFound, int, Conflict, int]
    assert await writer.submit(numbers) == [1, 2, 3]


async def test_a_full_database_fails_the_batch_and_the_writer_goes_on(
    connection: apsw.Connection, writer: WriterThread
) -> None:
    """All of the batch is refused and none of it is there; with room, writing goes on."""
    pages = connection.pragma("page_count")
    connection.pragma("max_page_count", int(str(pages)) + 10)
    gate = Gate()
    jobs = [gate, insert(1), insert(2, bytes(1_000_000)), insert(3)]
    tasks = [writer.submit(job) for job in jobs]
    await asyncio.sleep(0)
    gate.open()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    failed = [outcome for outcome in outcomes if isinstance(outcome, StoreError)]
    assert [error.info.code for error in failed] == ["store_full"] * len(failed)
    assert len(failed) >= 3
    assert len({id(error) for error in failed}) == len(failed)
    assert await writer.submit(numbers) == []
    connection.pragma("max_page_count", 1_000_000)
    await writer.submit(insert(4, bytes(1_000_000)))
    assert await writer.submit(numbers) == [4]


async def test_a_failing_statement_fails_its_batch_only(writer: WriterThread) -> None:
    """An error that leaves the transaction open does not leak into the next batch."""

    def nonsense(connection: apsw.Connection) -> None:
        insert(1)(connection)
        select(connection, "SELECT 1 FROM nowhere")

    with pytest.raises(StoreError, match=r"writer\.db: SQLite failed \(no such table: nowhere\)"):
        await writer.submit(nonsense)
    assert await writer.submit(insert(2)) == 2
    assert await writer.submit(numbers) == [2]


async def test_a_locked_database_is_named(tmp_path: Path, connection: apsw.Connection, writer: WriterThread) -> None:
    """When another process holds the lock too long, the error says so and the next write succeeds."""
    connection.set_busy_timeout(1)
    other = apsw.Connection(str(tmp_path / "writer.db"))
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="another process") as caught:
        await writer.submit(insert(1))
    assert caught.value.info.code == "store_busy"
    other.execute("ROLLBACK")
    other.close()
    assert await writer.submit(insert(1)) == 1


async def test_submitting_waits_while_too_many_are_queued(writer: WriterThread) -> None:
    """Beyond the bound callers wait for space, and all of them are served."""
    gate = Gate()
    reached = 0

    def counting(connection: apsw.Connection) -> None:
        nonlocal reached
        reached += 1

    tasks = [writer.submit(gate)]
    tasks += [writer.submit(counting) for _ in range(QUEUED_JOBS_MAX + 99)]
    await asyncio.sleep(0)
    assert writer.queued == QUEUED_JOBS_MAX
    gate.open()
    await asyncio.wait_for(asyncio.gather(*tasks), WAIT_S)  # pyright: ignore[reportCallIssue]
    assert reached == QUEUED_JOBS_MAX + 99
    assert writer.queued == 0


async def test_who_wants_to_hear_otherwise_does(writer: WriterThread) -> None:
    """Whether somebody still waits or not, and also where the writer is closed; after what went well, nothing."""
    heard: list[str] = []

    def otherwise(error: TreadleError) -> None:
        heard.append(type(error).__name__)

    assert await writer.submit(insert(1), then=str, otherwise=otherwise) == "1"
    with pytest.raises(Conflict):
        await writer.submit(insert(1), then=str, otherwise=otherwise)
    writer.submit(insert(1), then=str, otherwise=otherwise).cancel()
    await writer.submit(numbers)
    assert heard == ["Conflict", "Conflict"]
    await writer.close()
    with pytest.raises(StoreError):
        await writer.submit(insert(2), then=str, otherwise=otherwise)
    assert heard == ["Conflict", "Conflict", "StoreError"]


async def test_a_job_of_which_somebody_hears_is_done_however_long_it_waited(writer: WriterThread) -> None:
    """Others are not, where they were given up before there was space."""
    gate = Gate()
    writer.submit(gate)
    many = [writer.submit(numbers) for _ in range(QUEUED_JOBS_MAX)]
    writer.submit(insert(1)).cancel()
    writer.submit(insert(2), then=str, otherwise=lambda _: None).cancel()
    gate.open()
    await asyncio.wait_for(asyncio.gather(*many), WAIT_S)
    assert await writer.submit(numbers) == [2]


async def test_jobs_run_in_the_order_in_which_they_came(writer: WriterThread) -> None:
    """Also those that waited for space, and those that came while these were let in."""
    ran: list[int] = []

    def numbered(n: int) -> Any:
        return lambda connection: ran.append(n)

    gate = Gate()
    futures = [writer.submit(gate)]
    count = QUEUED_JOBS_MAX + 300
    futures += [writer.submit(numbered(n)) for n in range(count)]
    futures[1].add_done_callback(lambda _: futures.append(writer.submit(numbered(count))))
    gate.open()
    while len(futures) < count + 2 or not all(future.done() for future in futures):
        await asyncio.wait_for(asyncio.gather(*futures), WAIT_S)
    assert ran == list(range(count + 1))


async def test_a_caller_that_leaves_before_there_is_space_leaves_no_trace(writer: WriterThread) -> None:
    """Its job never runs, those behind it do; and so does one that was taken already."""
    gate = Gate()
    count = 3 * QUEUED_JOBS_MAX
    futures = [writer.submit(job) for job in (gate, *(insert(n) for n in range(count)))]
    assert writer.queued == QUEUED_JOBS_MAX
    futures[1].cancel()
    left = range(QUEUED_JOBS_MAX - 1, count - 1)
    for n in left:
        futures[n + 1].cancel()
    gate.open()
    await asyncio.wait_for(asyncio.gather(*futures, return_exceptions=True), WAIT_S)
    assert await writer.submit(numbers) == [*range(QUEUED_JOBS_MAX - 1), count - 1]


async def test_a_cancelled_caller_gives_its_place_back(writer: WriterThread) -> None:
    """Cancelling does not stop a queued job, and takes no space for ever."""
    gate = Gate()
    tasks = [writer.submit(job) for job in (gate, insert(1), insert(2))]
    await asyncio.sleep(0)
    tasks[1].cancel()
    gate.open()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert await writer.submit(numbers) == [1, 2]
    assert writer.queued == 0


async def test_closing_runs_what_is_queued_and_takes_no_more(connection: apsw.Connection) -> None:
    """Close drains; afterwards, and a second time, it only says that it is closed."""
    writer = WriterThread(connection, JournalHealth("writer.db"))
    gate = Gate()
    count = QUEUED_JOBS_MAX + 300
    tasks = [writer.submit(job) for job in (gate, *(insert(n) for n in range(count)))]
    await asyncio.sleep(0)
    closing = asyncio.create_task(writer.close())
    await asyncio.sleep(0)
    with pytest.raises(StoreError, match=r"writer\.db is closed"):
        await writer.submit(insert(9_999))
    gate.open()
    await asyncio.wait_for(closing, WAIT_S)
    assert await asyncio.gather(*tasks) == ["through", *range(count)]
    await asyncio.wait_for(writer.close(), WAIT_S)
    assert writer.is_open is False
    assert numbers(connection) == list(range(count))
    connection.close()


async def test_a_bug_in_a_job_stops_the_writer_and_leaves_nobody_waiting(
    tmp_path: Path, connection: apsw.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bug is loud, everybody who waits is told, later callers too, and nothing of the batch is committed."""

    def bug(_: apsw.Connection) -> None:
        raise ZeroDivisionError

    ended = threading.Event()
    loud: list[type[BaseException]] = []

    def hook(arguments: threading.ExceptHookArgs) -> None:
        loud.append(arguments.exc_type)
        ended.set()

    monkeypatch.setattr(threading, "excepthook", hook)
    writer = WriterThread(connection, JournalHealth("writer.db"))
    gate = Gate()
    tasks = [writer.submit(job) for job in (gate, insert(1), bug, insert(2))]
    await asyncio.to_thread(gate.is_reached.wait, WAIT_S)
    gate.open()
    outcomes = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), WAIT_S)
    assert [type(outcome) for outcome in outcomes][1:] == [StoreError] * 3
    with pytest.raises(StoreError):
        await writer.submit(insert(3))
    await asyncio.wait_for(writer.close(), WAIT_S)
    assert await asyncio.to_thread(ended.wait, WAIT_S)
    assert loud == [ZeroDivisionError]
    connection.close()
    assert numbers(apsw.Connection(str(tmp_path / "writer.db"))) == []


def test_a_loop_that_went_away_does_not_stop_the_commit(connection: apsw.Connection) -> None:
    """Jobs whose loop is closed are still committed, and the thread does not fail."""
    gate = Gate()

    async def leave() -> None:
        writer = WriterThread(connection, JournalHealth("writer.db"))
        tasks = [writer.submit(job) for job in (gate, insert(1))]
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()

    committed = threading.Event()
    connection.set_wal_hook(lambda *_: committed.set() or 0)
    asyncio.run(leave())
    [thread] = [thread for thread in threading.enumerate() if thread.name == "treadle-store-writer"]
    assert not committed.is_set()
    gate.open()
    assert committed.wait(WAIT_S)
    assert thread.is_alive()


def safety(connection: apsw.Connection) -> int:
    """A job that returns how safely its commit is written: 1 to the system, 2 to the disk."""
    return connection.pragma("synchronous")


async def test_only_a_batch_without_anything_durable_is_not_synced(writer: WriterThread) -> None:
    """One durable job makes its whole batch durable, and the next batch is synced again."""
    assert await writer.submit(safety, is_durable=False) == 1
    assert await writer.submit(safety) == 2
    gate = Gate()
    held = writer.submit(gate, is_durable=False)
    assert await asyncio.to_thread(gate.is_reached.wait, WAIT_S)
    batch = asyncio.gather(writer.submit(safety, is_durable=False), writer.submit(safety))
    await asyncio.sleep(0)
    gate.open()
    assert (await held, await batch) == ("through", [2, 2])


async def test_a_failure_of_what_is_not_durable_leaves_the_next_batch_synced(writer: WriterThread) -> None:
    """Whatever went wrong."""
    await writer.submit(insert(1), is_durable=False)
    with pytest.raises(Conflict):
        await writer.submit(insert(1), is_durable=False)

    def spoil(connection: apsw.Connection) -> None:
        select(connection, "SELECT * FROM nowhere")

    with pytest.raises(StoreError):
        await writer.submit(spoil, is_durable=False)
    assert await writer.submit(safety) == 2
    assert await writer.submit(lambda connection: select(connection, "SELECT n FROM numbers")) == [(1,)]
