"""PostgreSQL fails: answers are lost, it dies, it hangs. Nothing acknowledged is lost, and nothing is there twice."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from postgres import postgres_server
from proxy import Loss, Proxy, proxy_before
from store.sample import COMPLETED, LEASE_S, OTHER, OWNER, WAIT_S, noted, numbered, run_row, said
from treadle.core.errors import Conflict, ProtocolError, StoreError, TreadleError
from treadle.journal.journal_interface import Chunk, RunJournal, SessionRow
from treadle.journal.postgres import run_writer, store, write_queue
from treadle.journal.postgres.connection import connect
from treadle.journal.postgres.store import PostgresStore
from treadle.journal.store_url import PostgresAddress

LOSSES: tuple[Loss, ...] = ("request", "reply")
SCHEMA = "away"
RUNS = 102
BUSY_S = 1.0
"""How much later a busy machine may be."""


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[PostgresStore]:
    """Use a store for a while."""
    found = PostgresStore(PostgresAddress(url))
    await found.open()
    try:
        yield found
    finally:
        await found.close()


@pytest.fixture
async def proxy() -> AsyncIterator[Proxy]:
    """A proxy before the server."""
    async with proxy_before(postgres_server().socket_folder) as running:
        yield running


@pytest.fixture
async def behind(proxy: Proxy) -> AsyncIterator[PostgresStore]:
    """A store that reaches the server through the proxy only."""
    async with opened(postgres_server().url(folder=proxy.folder)) as found:
        yield found


async def start(found: PostgresStore, name: str = "1", lease_s: float = LEASE_S) -> RunJournal:
    """Begin a run with one entry."""
    return await found.start_run(run_row(name), [said("go")], owner=OWNER, lease_s=lease_s)


async def is_sound(found: PostgresStore, run_id: str) -> bool:
    """Tell whether every entry of a run carries the hash that it should."""
    return all(line.sha256 == line.expected for line in await found.audit(run_id))


@pytest.mark.parametrize("loss", LOSSES)
async def test_an_append_whose_connection_is_lost_is_there_once(
    proxy: Proxy, behind: PostgresStore, loss: Loss
) -> None:
    """Whether the request or only the answer was lost, the caller gets its numbers and the run has one copy."""
    journal = await start(behind)
    proxy.lose(loss, b"needle")
    assert await journal.append([said("needle"), said("two")]) == 3
    assert await journal.append([said("three")]) == 4
    assert proxy.losses == 1
    assert [entry.content for entry in await behind.entries("run_1")] == ["go", "needle", "two", "three"]
    assert await is_sound(behind, "run_1")


@pytest.mark.parametrize("loss", LOSSES)
async def test_an_end_whose_connection_is_lost_is_the_end(proxy: Proxy, behind: PostgresStore, loss: Loss) -> None:
    """The run ends once, its last entries with it, and the caller is told so."""
    journal = await start(behind)
    proxy.lose(loss, b"needle")
    assert await journal.finish([said("needle")], COMPLETED) == 2
    found = await behind.find_run("run_1")
    assert found is not None
    assert found.status == "completed"
    assert [entry.content for entry in await behind.entries("run_1")] == ["go", "needle"]
    with pytest.raises(Conflict):
        await journal.finish([], COMPLETED)


@pytest.mark.parametrize("at", [b"needle", b"COMMIT"])
@pytest.mark.parametrize("loss", LOSSES)
async def test_an_end_that_forgets_is_the_end_whatever_is_lost(
    proxy: Proxy, behind: PostgresStore, loss: Loss, at: bytes
) -> None:
    """Amid the transaction or with its end: the run ends once, and nothing of its content is left."""
    journal = await start(behind)
    proxy.lose(loss, at)
    assert await journal.finish([said("needle")], COMPLETED, forget=["run_1"]) == 2
    assert proxy.losses == 1
    found = await behind.find_run("run_1")
    assert found is not None
    assert found.status == "completed"
    assert await behind.entries("run_1", for_next=True) == []
    with pytest.raises(Conflict):
        await journal.finish([], COMPLETED)


@pytest.mark.parametrize("loss", LOSSES)
async def test_a_start_whose_connection_is_lost_is_one_run(proxy: Proxy, behind: PostgresStore, loss: Loss) -> None:
    """The caller gets the right to write, and there is one run with one input."""
    proxy.lose(loss, b"needle")
    row = run_row(idempotency_key="needle", request_sha256="aa")
    journal = await behind.start_run(row, [said("go")], owner=OWNER, lease_s=LEASE_S)
    assert await journal.append([said("on")]) == 2
    assert [each.id for each in await behind.list_runs()] == ["run_1"]
    assert proxy.losses == 1


async def test_an_id_that_was_taken_before_stays_a_conflict(proxy: Proxy, behind: PostgresStore) -> None:
    """A lost request does not turn somebody else's run into ours."""
    await start(behind)
    proxy.lose("request", b"needle")
    with pytest.raises(Conflict):
        await behind.start_run(run_row(), [said("needle")], owner=OTHER, lease_s=LEASE_S)
    assert proxy.losses == 1


@pytest.mark.parametrize("loss", LOSSES)
async def test_a_session_whose_answer_is_lost_is_there(proxy: Proxy, behind: PostgresStore, loss: Loss) -> None:
    """Making it and moving it are looked for before they are done again."""
    row = SessionRow(id="sess_needle", created_at=1.0, updated_at=1.0)
    proxy.lose(loss, b"sess_needle")
    await behind.create_session(row)
    await start(behind)
    proxy.lose(loss, b"run_1")
    await behind.set_session_head("sess_needle", "run_1", expected=None)
    found = await behind.find_session("sess_needle")
    assert found is not None
    assert (found.head_run_id, proxy.losses) == ("run_1", 2)


async def test_a_write_given_up_as_lost_is_taken_up(
    proxy: Proxy, behind: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller heard of a failure although the write was done: trying the same again finds it, once."""
    journal = await start(behind)
    monkeypatch.setattr(write_queue, "WRITE_WAIT_S", 0.3)
    proxy.lose("reply", b"needle")
    answered = journal.append([said("needle")])
    await asyncio.wait_for(proxy.has_lost.wait(), WAIT_S)
    proxy.stand_still()
    with pytest.raises(StoreError) as caught:
        await answered
    assert caught.value.info.code == "store_unavailable"
    proxy.go_on()
    monkeypatch.setattr(write_queue, "WRITE_WAIT_S", 10.0)
    assert await journal.append([said("needle")]) == 2
    assert await journal.append([said("next")]) == 3
    assert await is_sound(behind, "run_1")


async def test_a_hanging_database_is_given_up(
    proxy: Proxy, behind: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that takes requests and never answers: every new request ends, as a 503 that may be tried again."""
    assert max(store.REQUEST_WAIT_S, store.PING_WAIT_S) < 5.0
    await start(behind)
    for name in ("REQUEST_WAIT_S", "PING_WAIT_S"):
        monkeypatch.setattr(store, name, 0.2)
    proxy.stand_still()
    began = time.monotonic()
    works = (behind.ping(), behind.claim_abandoned(OTHER, LEASE_S, 1), start(behind, "2"))
    outcomes = await asyncio.gather(*works, return_exceptions=True)
    assert time.monotonic() - began < 3.0
    for outcome in outcomes:
        assert isinstance(outcome, TreadleError)
        assert (outcome.info.code, outcome.info.status, outcome.info.retryable) == ("store_unavailable", 503, True)
    proxy.go_on()
    monkeypatch.setattr(store, "REQUEST_WAIT_S", 4.0)
    assert await behind.entries("run_1") == numbered([said("go")])


async def test_appends_wait_their_turn_for_a_while_only(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a write that hangs, the next one fails at its own deadline; after it both runs go on."""
    async with opened(postgres_server().url(folder=proxy.folder) + "&pool_size=1") as found:
        first, second = await start(found), await start(found, "2")
        proxy.stand_still()
        hanging = first.append([noted(b'"' + b"x" * 70_000 + b'"')])
        for _ in range(5):
            await asyncio.sleep(0)  # it takes the only slot, and its own deadline
        monkeypatch.setattr(write_queue, "WRITE_WAIT_S", 0.1)
        with pytest.raises(StoreError, match="wait for their turn") as caught:
            await second.append([said("refused")])
        assert caught.value.info.code == "store_unavailable"
        proxy.go_on()
        assert await hanging == 2
        assert await second.append([said("on")]) == 2


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> float:
    """Let every wait of a write be a tenth of what it is; return how long one may take."""
    monkeypatch.setattr(write_queue, "WRITE_WAIT_S", 1.0)
    monkeypatch.setattr(run_writer, "TELL_WAIT_S", 0.4)
    monkeypatch.setattr(run_writer, "GROUP_LEAST_S", 0.6)
    for name in ("APPENDS_WAIT_S", "TELLS_WAIT_S"):
        monkeypatch.setattr(store, name, 0.3)
    return 1.0


async def test_all_writes_of_many_runs_fail_at_their_deadline(proxy: Proxy, hasty: float) -> None:
    """A network that passes nothing on: what 102 runs wait for ends for all at the same time, and not one by one."""
    large = noted(b'"' + b"x" * 70_000 + b'"')
    async with opened(postgres_server().url(folder=proxy.folder)) as found:
        journals = [await start(found, str(n)) for n in range(RUNS)]
        proxy.stand_still()
        began = time.monotonic()
        writes = [
            write
            for n, each in enumerate(journals)
            for write in (
                asyncio.ensure_future(each.write_chunk(Chunk(first=1, count=1, data=b"[1]"), keep_from=1)),
                each.renew(),
                each.append([large if n % 3 == 0 else said("on")]),
                each.renew(),
            )
        ]
        outcomes = await asyncio.gather(*writes, return_exceptions=True)  # pyright: ignore[reportCallIssue]
        took_s = time.monotonic() - began
        proxy.go_on()
    assert {each.info.code for each in outcomes if isinstance(each, StoreError)} == {"store_unavailable"}
    assert all(isinstance(each, StoreError) for each in outcomes)
    assert took_s < hasty + BUSY_S


async def test_a_write_that_was_given_up_leaves_its_run_whole(proxy: Proxy, hasty: float) -> None:
    """Whatever became of the writes during an outage: each run goes on behind what is there, in an unbroken chain."""
    async with opened(postgres_server().url(folder=proxy.folder)) as found:
        journals = [await start(found, str(n)) for n in range(RUNS)]
        writing = [each.append([said("before")]) for each in journals]
        for _ in range(3):
            await asyncio.sleep(0)  # some are under way
        proxy.stand_still()
        await asyncio.gather(*writing, return_exceptions=True)
        proxy.go_on()
        await asyncio.gather(*(each.append([said("after")]) for each in journals))
        for each in journals:
            contents = [entry.content for entry in await found.entries(each.run_id)]
            assert contents in (["go", "before", "after"], ["go", "after"])
            assert await is_sound(found, each.run_id)


async def test_a_value_that_cannot_be_kept_is_the_callers_mistake(behind: PostgresStore) -> None:
    """It is refused at once, by name of what is wrong, and the store goes on."""
    journal = await start(behind)
    with pytest.raises(ProtocolError, match="cannot be kept"):
        await journal.write_chunk(Chunk(first=2**80, count=1, data=b"[1]"), keep_from=1)
    await journal.write_chunk(Chunk(first=1, count=1, data=b"[1]"), keep_from=1)
    assert [chunk.first for chunk in await behind.chunks("run_1")] == [1]


async def test_killing_the_database_loses_nothing_that_was_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGKILL amid appends: the writers go on by themselves; each entry is there once, in an unbroken chain."""
    monkeypatch.setattr(
        write_queue, "WRITE_WAIT_S", 3 * WAIT_S
    )  # on a busy machine the database needs a while to come back
    server = postgres_server()
    async with opened(server.url()) as found:
        journals = [await start(found, str(n)) for n in range(8)]
        is_over = asyncio.Event()
        acknowledged: dict[str, list[str]] = {journal.run_id: ["go"] for journal in journals}
        progress = asyncio.Semaphore(0)

        async def write(journal: RunJournal) -> None:
            count = 0
            while not is_over.is_set():
                words = [f"{count} a", f"{count} b"]
                await journal.append([said(word) for word in words])
                acknowledged[journal.run_id] += words
                count += 1
                progress.release()

        async def reached(count: int) -> None:
            for _ in range(count):
                await progress.acquire()

        async with asyncio.timeout(4 * WAIT_S), asyncio.TaskGroup() as writers:
            for journal in journals:
                writers.create_task(write(journal))
            await reached(100)
            server.kill()
            await server.come_back()
            await reached(100)
            is_over.set()
        for run_id, words in acknowledged.items():
            assert [entry.content for entry in await found.entries(run_id)] == words
            assert await is_sound(found, run_id)


async def test_a_database_that_is_away_is_told_and_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening, reading and starting say that it is away; when it is back, the same store goes on.

    Chunks may not survive its death; the next one brings the others back, in order and without a gap.
    """
    server = postgres_server()
    chunks = [Chunk(first=1 + 2 * n, count=2, data=b"[%d]" % n) for n in range(4)]
    async with opened(server.url(SCHEMA)) as found:
        journal = await start(found, lease_s=60.0)
        for chunk in chunks[:3]:
            await journal.write_chunk(chunk, keep_from=3)
        assert await found.chunks("run_1") == chunks[1:3]
        server.kill()
        try:
            await refuses_at_once(found, monkeypatch)
        finally:
            await server.come_back()
        await start(found, "3")
        assert await found.entries("run_1") == numbered([said("go")])
        connection = await connect(PostgresAddress(server.url(SCHEMA)))
        await connection.execute("DELETE FROM chunks")  # what the database may have lost
        await connection.close()
        await journal.write_chunk(chunks[3], keep_from=3)
        assert await found.chunks("run_1") == chunks[1:]


async def test_a_chunk_that_is_durable_survives_the_death_of_the_database() -> None:
    """Its readers were shown it, and know only its number; also beside others that need not, in one commit."""
    server, chunk = postgres_server(), Chunk(first=1, count=2, data=b"[0]")
    async with opened(server.url()) as found:
        journals = [await start(found, str(n), lease_s=60.0) for n in range(4)]
        await asyncio.gather(
            *(each.write_chunk(chunk, keep_from=1, is_durable=n == 3) for n, each in enumerate(journals))
        )
        server.kill()
        await server.come_back()
        assert await found.chunks(journals[3].run_id) == [chunk]


async def refuses_at_once(found: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at what a store says while its database is away."""
    with pytest.raises(StoreError, match="cannot be reached") as caught:
        await PostgresStore(PostgresAddress(postgres_server().url("s0"))).open()
    assert caught.value.info.code == "store_unavailable"
    with monkeypatch.context() as patched:
        for name in ("REQUEST_WAIT_S", "PING_WAIT_S"):
            patched.setattr(store, name, 0.5)
        began = time.monotonic()
        works = (found.ping(), start(found, "2"), found.delete_run("run_1"))
        outcomes = await asyncio.gather(*works, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [StoreError] * 3
    assert time.monotonic() - began < 3.0


async def test_a_standby_is_no_place_to_write() -> None:
    """A database that became read-only is named so."""
    address = PostgresAddress(postgres_server().url())
    async with opened(postgres_server().url(address.schema)) as found:
        await start(found)
    connection = await connect(address)
    try:
        await connection.execute("ALTER DATABASE postgres SET default_transaction_read_only = on")
        reading = PostgresStore(address)
        await reading.open()
        with pytest.raises(StoreError) as caught:
            await start(reading, "2")
        assert caught.value.info.code == "store_read_only"
        assert [row.id for row in await reading.list_runs()] == ["run_1"]
        await reading.close()
    finally:
        await connection.execute("SET default_transaction_read_only = off")
        await connection.execute("ALTER DATABASE postgres RESET default_transaction_read_only")
        await connection.close()
