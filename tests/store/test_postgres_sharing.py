"""Several stores on one PostgreSQL, as replicas have them: the database's clock and leases decide, the bell wakes."""

import asyncio
import statistics
import time
from collections.abc import AsyncIterator

import pytest

from postgres import postgres_server
from store.sample import COMPLETED, LEASE_S, OTHER, OWNER, WAIT_S, numbered, run_row, said
from treadle.core.errors import Conflict, NotFound, StoreError
from treadle.journal.journal_interface import Chunk, RunJournal
from treadle.journal.postgres import notifications as bell
from treadle.journal.postgres.connection import connect
from treadle.journal.postgres.store import PostgresStore
from treadle.journal.store_url import PostgresAddress

DAY_S = 86_400.0
Pair = tuple[PostgresStore, PostgresStore]


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    """Two stores on one schema; the second believes that it is tomorrow."""
    address = PostgresAddress(postgres_server().url())
    left, right = PostgresStore(address), PostgresStore(address, clock=lambda: time.time() + DAY_S)
    await left.open()
    await right.open()
    yield left, right
    await left.close()
    await right.close()
    await postgres_server().empty(address.shown)


async def start(store: PostgresStore, name: str = "1", lease_s: float = LEASE_S) -> RunJournal:
    """Begin a run with one entry."""
    return await store.start_run(run_row(name), [said("go")], owner=OWNER, lease_s=lease_s)


async def test_leases_run_by_the_clock_of_the_database(pair: Pair) -> None:
    """A replica whose clock is a day ahead does not take what is held, and takes what is not."""
    left, right = pair
    await start(left)
    await start(left, "abandoned", lease_s=0.0)
    assert [row.id for row, _ in await right.claim_abandoned(OTHER, LEASE_S, 10)] == ["run_abandoned"]
    assert await right.claim_abandoned(OTHER, LEASE_S, 10) == []


async def test_a_frozen_owner_that_wakes_up_cannot_write(pair: Pair) -> None:
    """Another store has its run: append, finish, tell and renew are refused, and nothing of them is kept."""
    left, right = pair
    stale = await start(left, lease_s=0.0)
    [(row, taken)] = await right.claim_abandoned(OTHER, LEASE_S, 10)
    assert (row, taken.epoch) == (run_row(), 2)
    await taken.append([said("theirs")])
    chunk = Chunk(first=1, count=1, data=b"[1]")
    for late in (
        stale.append([said("zombie")]),
        stale.finish([said("zombie")], COMPLETED),
        stale.write_chunk(chunk, keep_from=1),
        stale.renew(),
    ):
        with pytest.raises(StoreError) as caught:
            await late
        assert caught.value.info.code == "lease_lost"
    await taken.finish([said("end")], COMPLETED)
    assert await left.entries("run_1") == numbered([said("go"), said("theirs"), said("end")])
    assert await left.chunks("run_1") == []
    assert [line.epoch for line in await left.audit("run_1")] == [1, 2, 2]
    assert all(line.sha256 == line.expected for line in await left.audit("run_1"))


async def test_an_abandoned_run_is_claimed_by_one_store_only(pair: Pair) -> None:
    """Stores that claim at the same time never get the same run."""
    left, right = pair
    for n in range(40):
        await start(left, str(n), lease_s=0.0)
    claims = [store.claim_abandoned(f"owner_{n}", LEASE_S, 5) for n in range(5) for store in (left, right)]
    taken = [row.id for claimed in await asyncio.gather(*claims) for row, _ in claimed]
    assert len(taken) == len(set(taken))
    rest = [row.id for row, _ in await left.claim_abandoned(OTHER, LEASE_S, 40)]
    assert sorted([*taken, *rest]) == sorted(f"run_{n}" for n in range(40))


async def test_of_many_starts_under_one_key_exactly_one_wins(pair: Pair) -> None:
    """Two replicas, a hundred requests, one idempotency key: one run."""
    starts = [
        pair[n % 2].start_run(run_row(str(n), idempotency_key="once"), [said("go")], owner=OWNER, lease_s=LEASE_S)
        for n in range(100)
    ]
    outcomes = await asyncio.gather(*starts, return_exceptions=True)
    codes = [outcome.info.code for outcome in outcomes if isinstance(outcome, Conflict)]
    assert codes == ["idempotency_key_taken"] * 99
    assert len(await pair[0].list_runs()) == 1


async def test_a_deletion_and_appends_from_elsewhere_do_not_lock_each_other(pair: Pair) -> None:
    """What is being written is deleted by another store: the writer hears of it, and nothing is left."""
    left, right = pair
    journals = [await start(left, str(n)) for n in range(10)]

    async def write(journal: RunJournal) -> None:
        for n in range(50):
            await journal.append([said(f"{n}" * 100)])

    writers = [asyncio.create_task(write(journal)) for journal in journals]
    for journal in journals:
        assert await right.delete_run(journal.run_id) is True
    outcomes = await asyncio.gather(*writers, return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} <= {NotFound, type(None)}
    assert await left.list_runs() == []


async def test_a_cancellation_asked_for_elsewhere_reaches_the_owner(pair: Pair) -> None:
    """It is found by the owner, whoever takes the run over inherits it, and an ended run cannot be cancelled."""
    left, right = pair
    journal = await start(left, lease_s=0.0)
    assert await right.request_cancel("run_1") is True
    assert await left.cancel_requests(OWNER) == ["run_1"]
    [(_, taken)] = await right.claim_abandoned(OTHER, LEASE_S, 1)
    assert (await left.cancel_requests(OWNER), await left.cancel_requests(OTHER)) == ([], ["run_1"])
    await taken.finish([], COMPLETED)
    assert await left.request_cancel(journal.run_id) is False


async def test_whoever_waits_elsewhere_is_woken_soon(pair: Pair) -> None:
    """Half of the wake-ups take less than 100 ms, although nobody would look again before 250 ms."""
    left, right = pair
    journal = await start(left)
    await listening(left, right)
    latencies: list[float] = []
    for n in range(11):
        waiting = asyncio.create_task(right.wait_change("run_1", WAIT_S))
        await asyncio.sleep(0)
        await journal.write_chunk(Chunk(first=n + 1, count=1, data=b"[]"), keep_from=n)
        began = time.monotonic()
        await asyncio.wait_for(waiting, WAIT_S)
        latencies.append(time.monotonic() - began)
    assert statistics.median(latencies) < 0.1


async def test_many_writes_ring_once(pair: Pair) -> None:
    """Two hundred appends make at most one notification for every 10 ms that they take, and none inside a commit."""
    left, right = pair
    journals = [await start(left, str(n)) for n in range(20)]
    await listening(left, right)
    heard: list[str] = []
    ear = await connect(PostgresAddress(left.path))
    await ear.add_listener(bell.CHANNEL, lambda *words: heard.append(str(words[-1])))
    try:
        began = time.monotonic()
        await asyncio.gather(*(journal.append([said(str(k))]) for k in range(10) for journal in journals))
        await asyncio.wait_for(right.wait_change("run_0", WAIT_S), WAIT_S)
        took = time.monotonic() - began
        # Each of the two stores rings for itself, and a late ring may still be on its way.
        assert 1 <= len(heard) <= 2 * (took / bell.RING_S + 2)
    finally:
        await ear.close()


async def test_nobody_is_notified_where_nobody_else_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hearing itself is no reason; hearing another is, for a while."""
    only = PostgresStore(PostgresAddress(postgres_server().url()))
    await only.open()
    try:
        await listening(only)
        journal, own = await start(only), only._open_state().bell
        own._others_until = 0.0
        own._hear(None, own._pid, bell.CHANNEL, "")
        await journal.append([said("unheard")])
        assert own._pending == set()
        own._hear(None, own._pid + 1, bell.CHANNEL, "")
        own.ring("run_1")
        assert own._pending == {"run_1"}
        monkeypatch.setattr(bell, "OTHERS_S", -1.0)
        own._hear(None, own._pid + 1, bell.CHANNEL, "")
        own.ring("run_2")
        assert own._pending == {"run_1"}
    finally:
        await only.close()


async def test_whoever_begins_to_listen_is_heard(pair: Pair) -> None:
    """So that those who were alone before notify it from then on."""
    left, _ = pair
    await listening(left)
    heard: asyncio.Queue[str] = asyncio.Queue()
    ear = await connect(PostgresAddress(left.path))
    await ear.add_listener(bell.CHANNEL, lambda *words: heard.put_nowait(str(words[-1])))
    newcomer = PostgresStore(PostgresAddress(left.path))
    await newcomer.open()
    try:
        assert await asyncio.wait_for(heard.get(), WAIT_S) == ""
    finally:
        await newcomer.close()
        await ear.close()


async def test_a_run_deleted_by_hand_takes_along_what_is_being_written(pair: Pair) -> None:
    """Whoever deletes it waits for the writer that holds its lease, and leaves nothing of its content."""
    left, _ = pair
    await start(left)
    await start(left, "2")
    writer, remover = [await connect(PostgresAddress(left.path)) for _ in range(2)]
    schema = await writer.fetchval("SELECT quote_ident(current_schema())")
    writing = writer.transaction()
    await writing.start()
    await writer.execute("UPDATE leases SET head = 2 WHERE run = (SELECT n FROM runs WHERE id = 'run_1')")
    await writer.execute(
        "INSERT INTO events (run, seq, epoch, kind, is_input, at, sha256) "
        "SELECT n, 2, 1, 'note', false, 1.0, '' FROM runs WHERE id = 'run_1'"
    )
    await remover.execute("SET search_path = pg_catalog")
    removing = asyncio.create_task(remover.execute(f"DELETE FROM {schema}.runs WHERE id = 'run_1'"))
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'DELETE FROM %'"
    async with asyncio.timeout(WAIT_S):
        while not await writer.fetchval(waiting):
            await writer.fetchval("SELECT pg_stat_clear_snapshot()")
    await writing.commit()
    await removing
    assert await writer.fetchval("SELECT count(*) FROM events") == 1
    assert await left.entries("run_2") == numbered([said("go")])
    await writer.close()
    await remover.close()


async def test_the_bell_is_hung_up_again_when_its_line_is_cut(pair: Pair) -> None:
    """Waiting goes on without it, and after a while it wakes again."""
    left, right = pair
    await listening(left, right)
    admin = await connect(PostgresAddress(left.path))
    pids = await admin.fetch("SELECT pid FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND pid <> pg_backend_pid()")
    assert len(pids) == 2
    for row in pids:
        await admin.execute("SELECT pg_terminate_backend($1)", row[0])
    await admin.close()
    journal = await start(left)
    began = time.monotonic()
    await right.wait_change("run_1", WAIT_S)
    assert time.monotonic() - began < 2.0
    await journal.append([said("on")])
    await listening(left, right)


async def listening(*stores: PostgresStore) -> None:
    """Wait until the stores hear each other."""
    for store in stores:
        state = store._open_state()
        await asyncio.wait_for(state.bell.is_listening.wait(), WAIT_S)
