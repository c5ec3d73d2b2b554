"""The contract of live runs: chunks and waiting (J15), requests to cancel."""

import asyncio

import pytest

from store.sample import COMPLETED, LEASE_S, OTHER, OWNER, WAIT_S, SetClock, run_row, said, told
from treadle.core.errors import Conflict, NotFound, StoreError
from treadle.journal.journal_interface import Chunk, RunJournal, Store


async def start(store: Store, name: str = "1", owner: str = OWNER, **fields: object) -> RunJournal:
    """Begin a run without input."""
    return await store.start_run(run_row(name, **fields), [], owner=owner, lease_s=LEASE_S)


async def test_what_a_run_says_is_read_in_order(store: Store) -> None:
    """Chunk by chunk, byte for byte, and from any event on."""
    journal = await start(store)
    odd = Chunk(first=4, count=3, data=b'[1, "\\ud800",\t"\xff\x00"]')
    chunks = [told(1, "a", "b"), told(3, "c\x00 🜁"), odd]
    for chunk in chunks:
        await journal.write_chunk(chunk, keep_from=1)
    assert await store.chunks("run_1") == chunks
    assert await store.chunks("run_1", after=1) == chunks
    assert await store.chunks("run_1", after=2) == chunks[1:]
    assert await store.chunks("run_1", after=5) == chunks[2:]
    assert await store.chunks("run_1", after=6) == []
    assert await store.chunks("run_1", after=2**80) == []


async def test_chunks_of_several_runs_keep_apart(store: Store) -> None:
    """A run that said nothing, or that is not there, has none."""
    for name in ("1", "2", "silent"):
        journal = await start(store, name)
        if name != "silent":
            await journal.write_chunk(told(1, name), keep_from=1)
    assert await store.chunks("run_2") == [told(1, "2")]
    assert await store.chunks("run_silent") == []
    assert await store.chunks("run_0") == []
    assert await store.chunks("run_\udc80") == []


async def test_what_has_become_durable_is_dropped(store: Store) -> None:
    """Chunks that end before `keep_from` go, one that reaches it stays whole."""
    journal = await start(store)
    await journal.write_chunk(told(1, "a", "b"), keep_from=1)
    await journal.write_chunk(told(3, "c", "d"), keep_from=1)
    await journal.write_chunk(told(5, "e"), keep_from=4)
    assert await store.chunks("run_1") == [told(3, "c", "d"), told(5, "e")]
    await journal.write_chunk(told(6, "f"), keep_from=5)
    assert await store.chunks("run_1") == [told(5, "e"), told(6, "f")]
    await journal.write_chunk(told(9, "i"), keep_from=9)
    assert await store.chunks("run_1") == [told(9, "i")]


async def test_what_is_told_again_takes_the_place_of_the_first(store: Store) -> None:
    """An owner that starts again from a number replaces all that was said from there on."""
    journal = await start(store)
    for chunk in (told(1, "a"), told(2, "b"), told(3, "c")):
        await journal.write_chunk(chunk, keep_from=1)
    await journal.write_chunk(told(2, "B", "C", "D"), keep_from=1)
    assert await store.chunks("run_1") == [told(1, "a"), told(2, "B", "C", "D")]


async def test_telling_writes_no_entry_and_renews_the_lease(store: Store, clock: SetClock) -> None:
    """Chunks are beside the journal, and who speaks is alive."""
    journal = await start(store)
    clock.now += LEASE_S - 1
    await journal.write_chunk(told(1, "a"), keep_from=1)
    clock.now += LEASE_S - 1
    assert await store.claim_abandoned(OTHER, LEASE_S, 1) == []
    assert await store.entries("run_1") == []
    assert await journal.append([said("b")]) == 1
    assert await store.chunks("run_1") == [told(1, "a")]


async def test_a_stale_epoch_cannot_tell(store: Store, clock: SetClock) -> None:
    """What the first owner said stays for the second, who goes on from there; the first is heard no more."""
    stale = await start(store)
    await stale.write_chunk(told(1, "a"), keep_from=1)
    clock.now += LEASE_S
    [(_, journal)] = await store.claim_abandoned(OTHER, LEASE_S, 1)
    with pytest.raises(StoreError) as caught:
        await stale.write_chunk(told(2, "zombie"), keep_from=2)
    assert caught.value.info.code == "lease_lost"
    assert await store.chunks("run_1") == [told(1, "a")]
    await journal.write_chunk(told(2, "b"), keep_from=1)
    assert await store.chunks("run_1") == [told(1, "a"), told(2, "b")]


async def test_chunks_go_when_the_run_ends(store: Store) -> None:
    """With its end, and nothing is told afterwards."""
    journal = await start(store)
    await journal.write_chunk(told(1, "secret"), keep_from=1)
    await journal.finish([], COMPLETED)
    assert await store.chunks("run_1") == []
    with pytest.raises(Conflict) as caught:
        await journal.write_chunk(told(2, "late"), keep_from=1)
    assert caught.value.info.code == "run_ended"
    assert await store.chunks("run_1") == []


async def test_an_end_that_is_refused_keeps_the_chunks(store: Store, clock: SetClock) -> None:
    """Only the owner's end takes them."""
    stale = await start(store)
    await stale.write_chunk(told(1, "a"), keep_from=1)
    clock.now += LEASE_S
    await store.claim_abandoned(OTHER, LEASE_S, 1)
    with pytest.raises(StoreError):
        await stale.finish([], COMPLETED)
    assert await store.chunks("run_1") == [told(1, "a")]


async def test_chunks_go_with_a_deleted_run(store: Store) -> None:
    """And its journal says that the run is gone."""
    journal = await start(store)
    await journal.write_chunk(told(1, "secret"), keep_from=1)
    assert await store.delete_run("run_1") is True
    assert await store.chunks("run_1") == []
    with pytest.raises(NotFound):
        await journal.write_chunk(told(2, "ghost"), keep_from=1)


async def test_a_large_chunk_is_told_whole(store: Store) -> None:
    """A mebibyte in one piece."""
    journal = await start(store)
    chunk = Chunk(first=1, count=1, data=b'["' + bytes(range(256)) * 4_096 + b'"]')
    await journal.write_chunk(chunk, keep_from=1)
    assert await store.chunks("run_1") == [chunk]


async def write_until_woken(journal: RunJournal, waiting: "asyncio.Task[None]", write: str) -> None:
    """Write again and again until whoever waits has heard of it."""
    n = 0
    async with asyncio.timeout(WAIT_S):
        while not waiting.done():
            n += 1
            await (
                journal.append([said(str(n))]) if write == "append" else journal.write_chunk(told(n, "x"), keep_from=n)
            )
    await waiting


@pytest.mark.parametrize("write", ["append", "tell"])
async def test_who_waits_is_woken_by_a_write(store: Store, write: str) -> None:
    """Long before the time is over."""
    journal = await start(store)
    await write_until_woken(journal, asyncio.create_task(store.wait_change("run_1", 3_600.0)), write)


@pytest.mark.parametrize("change", ["finish", "delete", "cancel"])
async def test_who_waits_is_woken_by_what_happens_to_the_run(store: Store, change: str) -> None:
    """Its end, its deletion and a request to cancel it."""
    journal = await start(store)
    waiting = asyncio.create_task(store.wait_change("run_1", 3_600.0))
    for _ in range(5):  # by now it waits, on most engines; else it finds the run changed
        await store.find_run("run_1")
    changes = {
        "finish": lambda: journal.finish([], COMPLETED),
        "delete": lambda: store.delete_run("run_1"),
        "cancel": lambda: store.request_cancel("run_1"),
    }
    async with asyncio.timeout(WAIT_S):
        await changes[change]()
        while change == "cancel" and not waiting.done():
            await changes[change]()
        await waiting


async def test_waiting_ends_when_the_time_is_over(store: Store) -> None:
    """Also without any change."""
    await start(store)
    for timeout_s in (0.0, -1.0, 0.01):
        await asyncio.wait_for(store.wait_change("run_1", timeout_s), WAIT_S)


@pytest.mark.parametrize("name", ["run_ended", "run_0", "run_\udc80"])
async def test_nobody_waits_for_a_run_that_cannot_change(store: Store, name: str) -> None:
    """One that has ended or is not there is read again at once."""
    journal = await start(store, "ended")
    await journal.finish([], COMPLETED)
    await asyncio.wait_for(store.wait_change(name, 3_600.0), WAIT_S)


async def test_who_is_cancelled_while_waiting_is_let_go(store: Store) -> None:
    """And the next one is served."""
    journal = await start(store)
    given_up = asyncio.create_task(store.wait_change("run_1", 3_600.0))
    await asyncio.sleep(0)
    given_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await given_up
    await write_until_woken(journal, asyncio.create_task(store.wait_change("run_1", 3_600.0)), "append")


async def test_many_wait_for_one_run(store: Store) -> None:
    """All of them hear of a change."""
    journal = await start(store)
    waiting = asyncio.gather(*(store.wait_change("run_1", 3_600.0) for _ in range(50)))

    async def all_of_them() -> None:
        await waiting

    await write_until_woken(journal, asyncio.create_task(all_of_them()), "append")


async def test_a_cancel_is_asked_of_the_owner(store: Store) -> None:
    """Each owner sees its own runs, until they have ended; asking twice is asking once."""
    first = await start(store, "1")
    await start(store, "2", OTHER)
    await start(store, "3")
    assert await store.cancel_requests(OWNER) == []
    for name in ("run_1", "run_2", "run_1"):
        assert await store.request_cancel(name) is True
    assert await store.cancel_requests(OWNER) == ["run_1"]
    assert await store.cancel_requests(OTHER) == ["run_2"]
    assert await store.cancel_requests("nobody") == []
    await first.append([said("not yet")])
    assert await store.cancel_requests(OWNER) == ["run_1"]
    await first.finish([], COMPLETED)
    assert await store.cancel_requests(OWNER) == []


@pytest.mark.parametrize("name", ["run_ended", "run_deleted", "run_0", "resp_live", "run_\udc80", ""])
async def test_a_run_that_is_not_live_cannot_be_cancelled(store: Store, name: str) -> None:
    """It has ended, was deleted, or never was; a response id is not a run id here."""
    await start(store, "live")
    await start(store, "deleted")
    await store.delete_run("run_deleted")
    ended = await start(store, "ended")
    await ended.finish([], COMPLETED)
    assert await store.request_cancel(name) is False
    assert await store.cancel_requests(OWNER) == []


async def test_a_request_to_cancel_outlives_the_owner(store: Store, clock: SetClock) -> None:
    """Whoever takes the run over is asked, also when the request came while nobody held it."""
    first = await start(store, "1")
    second = await start(store, "2")
    await store.request_cancel("run_1")
    await first.release()
    await second.release()
    assert await store.request_cancel("run_2") is True
    assert await store.cancel_requests(OWNER) == []
    assert len(await store.claim_abandoned(OTHER, LEASE_S, 10)) == 2
    assert await store.cancel_requests(OTHER) == ["run_1", "run_2"]


async def test_of_a_cancel_and_an_end_racing_one_is_first(store: Store) -> None:
    """Either the request was taken before the end, or it hears that it came too late."""
    journals = [await start(store, str(n)) for n in range(20)]
    ends = [journal.finish([], COMPLETED) for journal in journals]
    requests = [store.request_cancel(journal.run_id) for journal in journals]
    mixed = [step for pair in zip(requests, ends, strict=True) for step in pair]
    outcomes = await asyncio.gather(*mixed)
    assert {type(outcome) for outcome in outcomes[::2]} == {bool}
    assert await store.cancel_requests(OWNER) == []
    assert {row.status for row in await store.list_runs()} == {"completed"}
