"""Runs that are deferred by: their start waits for the first write to them, and nobody can tell."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import msgspec
import pytest

from treadle.core.errors import Conflict, ProtocolError, StoreError
from treadle.core.events import RunEnded
from treadle.core.journal_entries import Entry
from treadle.core.usage import Usage
from treadle.journal.journal_interface import INLINE_BYTES_MAX, Chunk, RunJournal, RunRow
from treadle.journal.sqlite import leased_writes as fence
from treadle.journal.sqlite import store as store_module
from treadle.journal.sqlite.run_writer import DeferredRun
from treadle.journal.sqlite.store import SqliteStore

ROW = RunRow(
    id="run_1",
    response_id="resp_1",
    conversation_id="conv_1",
    protocol="chat",
    model="demo",
    created_at=1.0,
    request=msgspec.Raw(b'{"temperature":0.5}'),
)
ASKED = [Entry(kind="user", at=1.0, content="hi", is_input=True), Entry(kind="plan", at=1.0, name="demo")]
SAID = [Entry(kind="assistant", at=2.0, content="ho", item_id="msg_1"), Entry(kind="status", at=2.0)]
ENDED = RunEnded(status="completed", stop="stop", usage=Usage(input_tokens=1), rounds=1, ended_at=2.0)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    """Open a store in a file, at a time that stands still."""
    opened = SqliteStore(str(tmp_path / "a.db"), clock=lambda: 1.0)
    await opened.open()
    yield opened
    await opened.close()


async def begin(store: SqliteStore, row: RunRow = ROW, *, is_private: bool = True) -> RunJournal:
    """Begin a run that nobody has heard of."""
    return await store.start_run(row, ASKED, owner="o", lease_s=9.0, is_private=is_private)


def written(store: SqliteStore, sql: str = "SELECT id FROM runs ORDER BY n") -> list[tuple[object, ...]]:
    """Return what another process would see."""
    connection = apsw.Connection(store.path, flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


async def test_a_run_that_ends_soon_is_one_write_and_leaves_what_two_would_have(store: SqliteStore) -> None:
    """Row, request, entries, hashes and debts are the same; there is no lease in between."""
    deferred = await begin(store, msgspec.structs.replace(ROW, key_id="key"))
    assert isinstance(deferred, DeferredRun)
    assert written(store) == []
    assert await deferred.finish(SAID, ENDED) == 4
    other = msgspec.structs.replace(ROW, key_id="key", id="run_2", response_id="resp_2")
    assert await (await begin(store, other, is_private=False)).finish(SAID, ENDED) == 4
    one, two = await store.find_run("run_1"), await store.find_run("run_2")
    assert one is not None
    assert two == msgspec.structs.replace(one, id="run_2", response_id="resp_2")
    assert (one.status, one.ended_at, one.usage, one.rounds) == ("completed", 2.0, Usage(input_tokens=1), 1)
    assert await store.entries("run_1") == await store.entries("run_2")
    assert all(line.sha256 == line.expected for line in await store.audit("run_1"))
    assert [line.seq for line in await store.audit("run_1")] == [1, 2, 3, 4]
    assert written(store, "SELECT * FROM leases") == []
    assert written(store, "SELECT run_id FROM debts") == [("run_1",), ("run_2",)]
    heads = written(store, "SELECT epoch, head FROM runs")
    assert heads == [(1, 4), (1, 4)]


async def test_large_data_of_the_start_and_of_the_end_is_kept_out_of_line(store: SqliteStore) -> None:
    """Each entry gets its own, wherever it stands."""
    long = [
        Entry(kind="note", at=1.0, data=msgspec.Raw(b'"%b"' % (letter * INLINE_BYTES_MAX))) for letter in (b"a", b"b")
    ]
    journal = await store.start_run(ROW, [ASKED[0], long[0]], owner="o", lease_s=9.0, is_private=True)
    assert await journal.finish([SAID[0], long[1]], ENDED) == 4
    found = await store.entries("run_1")
    assert [entry.data for entry in found] == [None, long[0].data, None, long[1].data]


async def test_a_start_that_has_waited_long_enough_is_written_alone(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then the run has a lease, other processes see it, and it is written on as any other."""
    monkeypatch.setattr(store_module, "START_DEFER_S", 0.0)
    began = asyncio.Event()
    real = DeferredRun.write_start

    def write_start(run: DeferredRun) -> asyncio.Future[int] | None:
        began.set()
        return real(run)

    monkeypatch.setattr(DeferredRun, "write_start", write_start)
    journal = await begin(store)
    assert isinstance(journal, DeferredRun)
    async with asyncio.timeout(10.0):
        await began.wait()
        starting = journal.write_start()
        assert starting is None or await starting == 2
    assert written(store, "SELECT owner, epoch, head FROM leases") == [("o", 1, 2)]
    assert await journal.append(SAID) == 4
    assert await journal.renew() == 4
    assert await journal.finish([], ENDED) == 4
    assert written(store, "SELECT status FROM runs") == [("completed",)]


async def test_the_first_write_takes_the_start_along(store: SqliteStore) -> None:
    """What is written to a run that was deferred by is behind its input."""
    journal = await begin(store)
    assert await journal.append(SAID[:1]) == 3
    assert written(store, "SELECT head FROM leases") == [(3,)]
    assert await journal.finish(SAID[1:], ENDED) == 4
    assert [entry.content for entry in await store.entries("run_1")] == ["hi", None, "ho", None]


async def test_writes_that_come_while_the_start_is_on_its_way_go_behind_it(store: SqliteStore) -> None:
    """In the order in which they came, also where nobody waits for them any longer."""
    journal = await begin(store)
    assert isinstance(journal, DeferredRun)
    journal.write_start()
    journal.append(SAID[:1]).cancel()
    assert await journal.finish(SAID[1:], ENDED) == 4
    assert [entry.content for entry in await store.entries("run_1")] == ["hi", None, "ho", None]


async def test_whoever_reads_in_the_same_process_sees_what_is_laid_by(store: SqliteStore) -> None:
    """A look at the store writes it first."""
    await begin(store)
    assert [row.id for row in await store.list_runs()] == ["run_1"]
    assert written(store) == [("run_1",)]


async def test_whatever_is_written_elsewhere_finds_the_run(store: SqliteStore) -> None:
    """A tool that only reads may keep a large result before anything is written to its run."""
    await begin(store)
    sha256 = await store.put_blob(b"much", run_id="run_1")
    assert await store.get_blob(sha256, 0, 9, run_id="run_1") == b"much"


async def test_what_is_told_or_given_up_is_written_first(store: SqliteStore) -> None:
    """Both need the lease."""
    journal = await begin(store)
    await journal.write_chunk(Chunk(first=1, count=1, data=b"[]"), keep_from=1)
    assert [chunk.first for chunk in await store.chunks("run_1")] == [1]
    other = await begin(store, msgspec.structs.replace(ROW, id="run_2", response_id="resp_2"))
    await other.release()
    assert [row.id for row, _ in await store.claim_abandoned("p", 9.0, 9)] == ["run_2"]


async def test_closing_writes_what_is_laid_by(tmp_path: Path) -> None:
    """A store leaves nothing behind in memory."""
    store = SqliteStore(str(tmp_path / "b.db"))
    await store.open()
    await begin(store)
    await store.close()
    assert written(store) == [("run_1",)]


@pytest.mark.parametrize("fields", [{"idempotency_key": "k"}, {"previous_id": "run_0"}])
async def test_a_start_that_may_break_a_rule_is_not_laid_by(store: SqliteStore, fields: dict[str, str]) -> None:
    """Whoever begins it hears of what is wrong before any model is asked."""
    await (await begin(store, msgspec.structs.replace(ROW, id="run_0", response_id="resp_0"))).finish([], ENDED)
    assert not isinstance(await begin(store, msgspec.structs.replace(ROW, **fields)), DeferredRun)
    assert written(store) == [("run_0",), ("run_1",)]
    with pytest.raises(ProtocolError):
        await begin(store, msgspec.structs.replace(ROW, model="\ud800"))


async def test_an_id_that_is_taken_is_told_with_the_first_write(store: SqliteStore) -> None:
    """And nothing of it is kept."""
    await (await begin(store)).finish(SAID, ENDED)
    again = await begin(store)
    for _ in range(2):
        with pytest.raises(Conflict):
            await again.finish([Entry(kind="note", at=1.0)], ENDED)
    assert len(await store.entries("run_1")) == 4


async def test_a_disk_that_fails_refuses_the_next_start_at_once(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One request asks its model in vain; those after it are refused before, until something could be written."""
    journal = await begin(store)
    real = fence.RunStart.insert

    def fail(start: fence.RunStart, connection: apsw.Connection) -> fence.SqliteHold:
        raise apsw.FullError("disk full")

    monkeypatch.setattr(fence.RunStart, "insert", fail)
    with pytest.raises(StoreError):
        await journal.finish(SAID, ENDED)
    other = msgspec.structs.replace(ROW, id="run_2", response_id="resp_2")
    with pytest.raises(StoreError):
        await begin(store, other)
    monkeypatch.setattr(fence.RunStart, "insert", real)
    assert not isinstance(await begin(store, other), DeferredRun)
    third = msgspec.structs.replace(ROW, id="run_3", response_id="resp_3")
    assert isinstance(await begin(store, third), DeferredRun)


async def test_a_start_that_could_not_be_written_alone_is_tried_again_with_what_comes_next(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has heard of it, so nothing is lost."""
    journal = await begin(store)
    assert isinstance(journal, DeferredRun)
    real = fence.RunStart.insert
    fails = iter([True, False])

    def once(start: fence.RunStart, connection: apsw.Connection) -> fence.SqliteHold:
        if next(fails):
            raise apsw.BusyError("locked")
        return real(start, connection)

    monkeypatch.setattr(fence.RunStart, "insert", once)
    starting = journal.write_start()
    assert starting is not None
    assert await journal.finish(SAID, ENDED) == 4
    assert isinstance(starting.exception(), StoreError)
    assert len(await store.entries("run_1")) == 4


async def test_many_that_end_together_are_written_together(store: SqliteStore) -> None:
    """Runs that are one insert and runs that are two go through the same statements."""
    rows = [msgspec.structs.replace(ROW, id=f"run_{n}", response_id=f"resp_{n}", key_id="key") for n in range(6)]
    journals = [await begin(store, row, is_private=n % 2 == 0) for n, row in enumerate(rows)]
    assert await asyncio.gather(*(journal.finish(SAID, ENDED) for journal in journals)) == [4] * 6
    assert written(store, "SELECT count(*) FROM events") == [(24,)]
    assert written(store, "SELECT count(*) FROM debts") == [(6,)]
    assert written(store, "SELECT count(*) FROM leases") == [(0,)]
    for row in rows:
        assert all(line.sha256 == line.expected for line in await store.audit(row.id))


async def test_whoever_gives_the_first_write_up_does_not_stop_it(store: SqliteStore) -> None:
    """The next one goes behind it, and so does what gives the run up."""
    journal = await begin(store)
    journal.append(SAID[:1]).cancel()
    assert await journal.finish(SAID[1:], ENDED) == 4
    other = await begin(store, msgspec.structs.replace(ROW, id="run_2", response_id="resp_2"))
    other.append(SAID[:1]).cancel()
    await other.release()
    assert [row.id for row, _ in await store.claim_abandoned("p", 9.0, 9)] == ["run_2"]


async def test_a_first_write_that_was_given_up_and_failed_does_not_hold_up_the_next(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody heard of it, so the next one begins the run, in order with what came after it."""
    journal = await begin(store)
    real = fence.RunStart.insert
    fails = iter([True, False])

    def once(start: fence.RunStart, connection: apsw.Connection) -> fence.SqliteHold:
        if next(fails):
            raise apsw.BusyError("locked")
        return real(start, connection)

    monkeypatch.setattr(fence.RunStart, "insert", once)
    journal.append(SAID[:1]).cancel()
    second, third = journal.append(SAID[1:]), journal.finish([], ENDED)
    async with asyncio.timeout(10.0):
        assert (await second, await third) == (3, 3)
    assert [entry.content for entry in await store.entries("run_1")] == ["hi", None, None]


async def test_whoever_reads_waits_for_a_first_write_that_was_given_up(store: SqliteStore) -> None:
    """It is on its way all the same."""
    journal = await begin(store)
    other = apsw.Connection(store.path)
    other.execute("BEGIN IMMEDIATE")
    journal.append(SAID[:1]).cancel()
    reading = asyncio.ensure_future(store.entries("run_1"))
    await store.ping()
    assert not reading.done()
    other.execute("ROLLBACK")
    other.close()
    assert len(await reading) == 3


async def test_a_run_that_could_not_begin_is_not_begun_by_giving_it_up(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody shall find it and go on with it."""
    journal = await begin(store)
    with monkeypatch.context() as patched:
        patched.setattr(fence.RunStart, "insert", lambda *_: (_ for _ in ()).throw(apsw.BusyError("locked")))
        with pytest.raises(StoreError):
            await journal.append(SAID)
    with pytest.raises(StoreError, match="locked"):
        await journal.release()
    assert written(store) == []


async def test_writes_to_a_run_that_never_began_end_with_the_store(store: SqliteStore) -> None:
    """Each hears that it is closed; none waits for ever."""
    journal = await begin(store)
    assert isinstance(journal, DeferredRun)
    store._deferred.clear()
    await store.close()
    for _ in range(2):
        with pytest.raises(StoreError, match="closed"):
            await journal.append(SAID)
        with pytest.raises(StoreError, match="closed"):
            await journal.release()
    assert written(store) == []


async def test_nothing_overtakes_what_waits_for_the_start(store: SqliteStore) -> None:
    """Not even what comes between the start and the hearing of it."""
    journal = await begin(store)
    assert isinstance(journal, DeferredRun)
    starting = journal.write_start()
    assert starting is not None
    late: list[asyncio.Future[int]] = []
    # The first to hear of the start is before what waits for it.
    starting.add_done_callback(lambda _: late.append(journal.append(SAID[1:])))
    early = journal.append(SAID[:1])
    assert await early == 3
    assert await late[0] == 4
    assert [entry.content for entry in await store.entries("run_1")] == ["hi", None, "ho", None]


async def test_a_start_that_is_tried_again_late_has_a_lease_that_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs from then on, not from when the run began."""
    now = [1.0]
    store = SqliteStore(str(tmp_path / "c.db"), clock=lambda: now[0])
    await store.open()
    journal = await begin(store)
    assert isinstance(journal, DeferredRun)
    with monkeypatch.context() as patched:
        patched.setattr(fence.RunStart, "insert", lambda *_: (_ for _ in ()).throw(apsw.BusyError("locked")))
        starting = journal.write_start()
        assert starting is not None
        with pytest.raises(StoreError):
            await starting
    now[0] = 100.0
    assert await journal.append(SAID) == 4
    assert await store.claim_abandoned("p", 9.0, 9) == []
    await store.close()


async def test_a_transaction_that_writes_nothing_does_not_prove_that_a_disk_is_well(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The heart looks for abandoned runs all the time, and a full disk lets it."""
    journal = await begin(store)
    with monkeypatch.context() as patched:
        patched.setattr(fence.RunStart, "insert", lambda *_: (_ for _ in ()).throw(apsw.FullError("full")))
        with pytest.raises(StoreError):
            await journal.finish(SAID, ENDED)
        assert await store.claim_abandoned("p", 9.0, 9) == []
        with pytest.raises(StoreError):
            await begin(store)


async def test_what_no_run_holds_is_read_without_writing_what_is_laid_by(store: SqliteStore) -> None:
    """Whether the store is well, and what keys have used: who asks need not wait for whoever holds the database."""
    await begin(store)
    await store.ping()
    await store.keys.spent("key", "total")
    assert written(store) == []


async def test_a_start_on_its_way_is_waited_for_by_whoever_reads(store: SqliteStore) -> None:
    """Its time had come, and the database is busy: who reads in this process still finds it."""
    await begin(store)
    other = apsw.Connection(store.path)
    other.execute("BEGIN IMMEDIATE")
    store._write_deferred()
    reading = asyncio.ensure_future(store.find_run("run_1"))
    await store.ping()
    assert not reading.done()
    other.execute("ROLLBACK")
    other.close()
    found = await reading
    assert found is not None
    assert store._starting == set()
