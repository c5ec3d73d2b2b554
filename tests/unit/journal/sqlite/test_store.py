"""The SQLite store as an object: opening, closing, failing files."""

import asyncio
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import apsw
import msgspec
import pytest

from treadle.core.errors import StoreError
from treadle.core.events import RunEnded
from treadle.core.journal_entries import Entry
from treadle.journal.journal_interface import RunJournal, RunRow, Store
from treadle.journal.keys_interface import Charge, Spent
from treadle.journal.run_queries import RunQueries
from treadle.journal.sql_steps import Steps
from treadle.journal.sqlite.run_writer import SqliteRunJournal
from treadle.journal.sqlite.store import READERS, SqliteStore

ROW = RunRow(id="run_1", response_id="resp_1", conversation_id="conv_1", protocol="chat", model="demo", created_at=1.0)
NORMAL, FULL = 1, 2
BOUND_S = 20.0
SECRET = "tell nobody about the treadle"


def test_it_fits_the_interface() -> None:
    """The classes have the shape of the protocols; the type checker says the same."""
    store: Store = SqliteStore(":memory:")
    journal: type[RunJournal] = SqliteRunJournal
    assert [name for name in dir(Store) if not name.startswith("_") and not hasattr(store, name)] == []
    assert [name for name in dir(RunJournal) if not name.startswith("_") and not hasattr(journal, name)] == []


async def test_a_store_that_is_not_open_says_so(tmp_path: Path) -> None:
    """Before open and after close, reading, writing and the health check fail; closing twice is fine."""
    store = SqliteStore(str(tmp_path / "a.db"))
    await store.close()
    store = SqliteStore(str(tmp_path / "a.db"))
    for _ in range(2):
        for work in (store.ping(), store.list_runs(), store.start_run(ROW, [], owner="o", lease_s=1.0)):
            with pytest.raises(StoreError, match=r"a\.db is not open") as caught:
                await work
            assert caught.value.info.code == "store_closed"
        if _ == 0:
            await store.open()
            await store.ping()
            await store.close()
    await store.close()


async def test_the_probe_has_a_connection_of_its_own(tmp_path: Path) -> None:
    """Slow reads that hold all the others do not make a healthy store look as if it were away; a broken read does."""
    store = SqliteStore(str(tmp_path / "a.db"))
    await store.open()
    released, reading = threading.Event(), threading.Semaphore(0)

    def slow(_: apsw.Connection) -> None:
        reading.release()
        assert released.wait(BOUND_S)

    reads = [asyncio.create_task(store._read_stored_job(slow)) for _ in range(READERS)]
    try:
        await asyncio.to_thread(lambda: [reading.acquire(timeout=BOUND_S) for _ in reads])
        waiting = asyncio.create_task(store.ping())
        async with asyncio.timeout(BOUND_S):
            for _ in range(3):
                await store.probe()
        assert not waiting.done()
        assert [read.done() for read in reads] == [False] * READERS
    finally:
        released.set()
        await asyncio.gather(*reads)
    await waiting
    probing = store._probing.get()
    probing.close()
    store._probing.put(probing)
    with pytest.raises(StoreError):
        await store.probe()
    await store.ping()
    await store.close()


async def test_a_journal_outlives_its_store_only_as_an_error(tmp_path: Path) -> None:
    """Writing after the store was closed is refused and does not hang."""
    store = SqliteStore(str(tmp_path / "a.db"))
    await store.open()
    journal = await store.start_run(ROW, [], owner="o", lease_s=1.0)
    await store.close()
    with pytest.raises(StoreError, match="closed"):
        await journal.append([Entry(kind="note", at=1.0)])


async def test_only_a_private_start_is_not_synced_by_itself(tmp_path: Path) -> None:
    """What comes after it is, and takes it along: the log of SQLite is one file."""
    store = SqliteStore(str(tmp_path / "a.db"))
    await store.open()
    assert store._writer is not None
    connection = store._writer._connection
    row = msgspec.structs.replace(ROW, idempotency_key="k")
    journal = await store.start_run(row, [], owner="o", lease_s=1.0, is_private=True)
    assert connection.pragma("synchronous") == NORMAL
    await journal.append([Entry(kind="note", at=1.0)])
    assert connection.pragma("synchronous") == FULL
    other = RunRow(id="run_2", response_id="resp_2", conversation_id="c", protocol="chat", model="m", created_at=1.0)
    await store.start_run(other, [], owner="o", lease_s=1.0)
    assert connection.pragma("synchronous") == FULL
    await store.close()


async def test_a_charge_is_not_synced_and_the_debt_that_it_pays_is(tmp_path: Path) -> None:
    """Where the charge is lost with the machine, the debt is still there."""
    store = SqliteStore(str(tmp_path / "a.db"))
    await store.open()
    assert store._writer is not None
    connection = store._writer._connection
    row = msgspec.structs.replace(ROW, key_id="key_1")
    journal = await store.start_run(row, [], owner="o", lease_s=1.0, is_private=True)
    await journal.finish([], RunEnded(status="completed", ended_at=2.0))
    assert connection.pragma("synchronous") == FULL
    assert [debt.run_id for debt in await store.keys.debts(10.0)] == ["run_1"]
    assert await store.keys.settle([Charge("run_1", ("all",), Spent(runs=1))]) == {"run_1"}
    assert connection.pragma("synchronous") == NORMAL
    assert await store.keys.debts(10.0) == []
    await store.close()


async def test_what_was_written_is_there_after_reopening(tmp_path: Path) -> None:
    """A closed store leaves one file with everything in it."""
    store = SqliteStore(str(tmp_path / "a.db"))
    await store.open()
    await store.start_run(ROW, [Entry(kind="user", at=1.0, content="hi")], owner="o", lease_s=1.0)
    await store.close()
    assert os.listdir(tmp_path) == ["a.db"]
    again = SqliteStore(str(tmp_path / "a.db"))
    await again.open()
    assert await again.find_run("run_1") == ROW
    assert await again.entries("run_1") == [Entry(kind="user", at=1.0, seq=1, content="hi")]
    await again.close()


async def test_close_finishes_what_was_asked_for(tmp_path: Path) -> None:
    """Writes in flight when the store is closed are committed, and reads in flight are answered."""
    store = SqliteStore(str(tmp_path / "a.db"))
    await store.open()
    journal = await store.start_run(ROW, [], owner="o", lease_s=1.0)
    writes = [journal.append([Entry(kind="note", at=float(n))]) for n in range(500)]
    reads = [asyncio.create_task(store.find_run("run_1")) for _ in range(50)]
    await asyncio.sleep(0)
    await store.close()
    assert await asyncio.gather(*writes) == list(range(1, 501))
    assert await asyncio.gather(*reads) == [ROW] * 50


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Threads that are changed as often as can be, so that each may be overtaken anywhere."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.usefixtures("hasty_threads")
async def test_close_overtakes_no_read_that_waits_for_its_turn(tmp_path: Path) -> None:
    """There are more reads than connections: who waits for one gets it before all of them are closed."""
    for n in range(10):
        store = SqliteStore(str(tmp_path / f"{n}.db"))
        await store.open()
        await store.start_run(ROW, [], owner="o", lease_s=1.0)
        reads = [asyncio.create_task(store.find_run("run_1")) for _ in range(50)]
        await asyncio.sleep(0)
        await store.close()
        async with asyncio.timeout(30.0):
            assert await asyncio.gather(*reads) == [ROW] * 50


async def test_close_waits_for_a_slow_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read that began before the close keeps its connection until it is done."""
    reached, gate = threading.Event(), threading.Event()
    real = RunQueries.find_run

    def slow(queries: RunQueries, run_or_response_id: str, key_id: str | None) -> Steps[RunRow | None]:
        reached.set()
        assert gate.wait(30.0)
        return real(queries, run_or_response_id, key_id)

    monkeypatch.setattr(RunQueries, "find_run", slow)
    store = SqliteStore(str(tmp_path / "a.db"))
    await store.open()
    await store.start_run(ROW, [], owner="o", lease_s=1.0)
    reading = asyncio.create_task(store.find_run("run_1"))
    assert await asyncio.to_thread(reached.wait, 30.0)
    closing = asyncio.create_task(store.close())
    assert await asyncio.wait({closing}, timeout=0.2) == (set(), {closing})
    gate.set()
    assert await reading == ROW
    await asyncio.wait_for(closing, 30.0)


async def test_the_loop_is_not_blocked_by_a_locked_file(tmp_path: Path) -> None:
    """While another process holds the write lock, reads go on, and the write is made when the lock is let go."""
    store = SqliteStore(str(tmp_path / "a.db"))
    await store.open()
    journal = await store.start_run(ROW, [], owner="o", lease_s=1.0)
    other = apsw.Connection(str(tmp_path / "a.db"))
    other.execute("BEGIN IMMEDIATE")
    write = journal.append([Entry(kind="note", at=1.0)])
    for _ in range(20):
        assert await store.entries("run_1") == []
    assert not write.done()
    other.execute("COMMIT")
    other.close()
    assert await asyncio.wait_for(write, 30.0) == 1
    await store.close()


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"just some notes, long enough to be looked at as a database" * 20, "store_not_a_database"),
        (b"SQLite format 3\x00" + b"\xff" * 4_000, "store_not_a_database"),
    ],
)
async def test_a_file_that_is_not_a_database_is_refused(tmp_path: Path, content: bytes, code: str) -> None:
    """The error names the file and what to do, and the file is left as it was."""
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    store = SqliteStore(str(path))
    with pytest.raises(StoreError, match=r"notes\.txt") as caught:
        await store.open()
    assert caught.value.info.code == code
    assert caught.value.hint
    assert path.read_bytes() == content
    await store.close()


async def test_a_damaged_database_is_an_error_and_not_a_crash(tmp_path: Path) -> None:
    """Pages overwritten in the middle: reading and writing say that the file is damaged."""
    path = tmp_path / "a.db"
    store = SqliteStore(str(path))
    await store.open()
    journal = await store.start_run(ROW, [Entry(kind="note", at=1.0, content="x" * 100_000)], owner="o", lease_s=1.0)
    assert isinstance(journal, SqliteRunJournal)
    await store.close()
    whole = path.read_bytes()
    path.write_bytes(whole[:8_192] + b"\x00\xff" * ((len(whole) - 8_192) // 2))
    store = SqliteStore(str(path))

    async def use() -> None:
        await store.open()
        await store.entries("run_1")

    with pytest.raises(StoreError, match=r"a\.db") as caught:
        await use()
    assert caught.value.info.code == "store_corrupt"
    await store.close()


async def test_purged_words_are_not_left_in_the_file(tmp_path: Path) -> None:
    """After a purge and the closing of the store, the bytes themselves are gone."""
    path = tmp_path / "a.db"
    store = SqliteStore(str(path))
    await store.open()
    for n in range(20):
        row = RunRow(
            id=f"run_{n}", response_id=f"resp_{n}", conversation_id="c", protocol="chat", model="demo", created_at=1.0
        )
        journal = await store.start_run(row, [Entry(kind="user", at=1.0, content=SECRET * n)], owner="o", lease_s=1.0)
        await journal.finish([], RunEnded(status="completed", ended_at=2.0))
        await store.purge_run(f"run_{n}")
    await store.close()
    assert os.listdir(tmp_path) == ["a.db"]
    assert SECRET.encode() not in path.read_bytes()


async def test_a_memory_store_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are kept only as long as the store is open."""
    monkeypatch.chdir(tmp_path)
    store = SqliteStore(":memory:")
    await store.open()
    await store.ping()
    await store.start_run(ROW, [], owner="o", lease_s=1.0)
    await store.close()
    assert os.listdir(tmp_path) == []
