"""Many writes at the same time: whether they go together or alone, each is as if there were no other."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from postgres import postgres_server
from proxy import Loss, Proxy, proxy_before
from store.sample import COMPLETED, LEASE_S, OTHER, OWNER, SetClock, called, noted, numbered, resulted, run_row, said
from treadle.core.errors import Conflict, StoreError, TreadleError
from treadle.journal.journal_interface import LEASE_LOST, Chunk, RunJournal, Store
from treadle.journal.postgres.store import PostgresStore
from treadle.journal.store_url import PostgresAddress

RUNS = 24


async def begin(store: Store, **fields: str) -> list[RunJournal]:
    """Begin many runs at once."""
    starts = (
        store.start_run(run_row(str(n), **fields), [said("go", is_input=True)], owner=OWNER, lease_s=LEASE_S)
        for n in range(RUNS)
    )
    return list(await asyncio.gather(*starts))


async def is_sound(store: Store, run_id: str) -> bool:
    """Tell whether every entry of a run carries the hash that it should."""
    return all(line.sha256 == line.expected for line in await store.audit(run_id))


async def test_many_runs_are_begun_written_and_ended_at_once(store: Store) -> None:
    """Every run has its own entries, numbered and chained, its end, and its charge."""
    journals = await begin(store, key_id="key_1")
    wrote = await asyncio.gather(*(each.append([said(each.run_id), called("1")]) for each in journals))
    assert wrote == [3] * len(journals)
    large = noted(b'"' + b"x" * 70_000 + b'"')
    ended = [COMPLETED if n % 2 else None for n in range(RUNS)]
    await asyncio.gather(
        *(
            each.append([large]) if end is None else each.finish([resulted("1")], end)
            for each, end in zip(journals, ended, strict=True)
        )
    )
    for n, each in enumerate(journals):
        last = large if ended[n] is None else resulted("1")
        expected = [said("go", is_input=True), said(each.run_id), called("1"), last]
        assert await store.entries(each.run_id) == numbered(expected)
        assert await is_sound(store, each.run_id)
        row = await store.find_run(each.run_id)
        assert row is not None
        assert (row.status, row.ended_at) == (("completed", 1_010.0) if ended[n] else ("running", None))
    owed = await store.keys.debts(2_000.0)
    assert {debt.run_id for debt in owed} == {f"run_{n}" for n in range(RUNS) if n % 2}


async def test_each_of_many_runs_begun_at_once_has_its_own_question(store: Store) -> None:
    """Whether it is asked early or late in its input, or not at all."""
    talk = [[said("before", "assistant", is_input=True)] * (n % 3) for n in range(RUNS)]
    asked = [[said(f"question {n}", is_input=True)] if n % 4 else [] for n in range(RUNS)]
    starts = (
        store.start_run(run_row(str(n)), [*talk[n], *asked[n], *talk[-1 - n]], owner=OWNER, lease_s=LEASE_S)
        for n in range(RUNS)
    )
    await asyncio.gather(*starts)
    found = await store.questions([f"run_{n}" for n in range(RUNS)])
    assert found == {f"run_{n}": f"question {n}" for n in range(RUNS) if n % 4}


async def test_what_breaks_a_rule_harms_no_neighbour(store: Store, clock: SetClock) -> None:
    """A second result, a run of another owner, one that has ended, one that is gone: each alone hears of it."""
    journals = await begin(store)
    await asyncio.gather(*(each.append([resulted("1")]) for each in journals))
    clock.now += LEASE_S
    [(_, taken)] = await store.claim_abandoned(OTHER, LEASE_S, 1, run_id="run_1")
    await journals[2].finish([], COMPLETED)
    await store.delete_run("run_3")
    texts = [[resulted("1")] if n == 0 else [said("on")] for n in range(RUNS)]
    outcomes = await asyncio.gather(
        *(each.append(entries) for each, entries in zip(journals, texts, strict=True)), return_exceptions=True
    )
    refused = [outcome for outcome in outcomes if isinstance(outcome, TreadleError)]
    assert [type(outcome).__name__ for outcome in outcomes[:4]] == ["Conflict", "StoreError", "Conflict", "NotFound"]
    assert isinstance(outcomes[1], StoreError)
    assert outcomes[1].info.code == LEASE_LOST
    assert len(refused) == 4
    assert outcomes[4:] == [3] * (RUNS - 4)
    assert await taken.append([said("mine")]) == 3
    assert await journals[0].append([said("on")]) == 3
    for n in (0, 1, 2, 4, RUNS - 1):
        assert await is_sound(store, f"run_{n}")


async def test_of_many_that_want_the_same_one_begins(store: Store) -> None:
    """An idempotency key is taken once, and runs that were begun beside it are not harmed."""
    starts = [
        store.start_run(
            run_row(str(n), idempotency_key="same" if n % 2 else None), [said("go")], owner=OWNER, lease_s=LEASE_S
        )
        for n in range(RUNS)
    ]
    outcomes = await asyncio.gather(*starts, return_exceptions=True)
    assert sum(isinstance(outcome, Conflict) for outcome in outcomes) == RUNS // 2 - 1
    assert {row.id for row in await store.list_runs()} >= {f"run_{n}" for n in range(0, RUNS, 2)}


async def test_runs_that_continue_others_are_begun_at_once(store: Store) -> None:
    """Each behind its own; one whose run is not there, or of another conversation, harms no neighbour."""
    earlier = await begin(store, conversation_id="conv_1")
    last, other = RUNS - 1, RUNS - 2
    rows = [
        run_row(f"b{n}", previous_id="run_none" if n == last else each.run_id, conversation_id=f"conv_{1 + n // other}")
        for n, each in enumerate(earlier)
    ]
    starts = (store.start_run(row, [said("on")], owner=OWNER, lease_s=LEASE_S) for row in rows)
    outcomes = await asyncio.gather(*starts, return_exceptions=True)
    assert [type(outcome).__name__ for outcome in outcomes[other:]] == ["Conflict", "NotFound"]
    for n in range(other):
        assert (await store.find_run(f"run_b{n}")) == rows[n]
        said_before = [entry.content for entry in await store.history(f"run_b{n}")]
        assert said_before == ["go", "on"]


async def test_what_many_runs_tell_at_once_is_kept_of_each(store: Store, clock: SetClock) -> None:
    """Each in the place of what it said before; one of another owner, or that has ended, is refused alone."""
    journals = await begin(store)

    def chunk(first: int, n: int) -> Chunk:
        return Chunk(first=first, count=2, data=f"[{n},{first}]".encode())

    for first in (1, 3, 5):
        await asyncio.gather(*(each.write_chunk(chunk(first, n), keep_from=3) for n, each in enumerate(journals)))
    clock.now += LEASE_S
    await store.claim_abandoned(OTHER, LEASE_S, 1, run_id="run_1")
    await journals[2].finish([], COMPLETED)
    outcomes = await asyncio.gather(
        *(each.write_chunk(chunk(5, -n), keep_from=3) for n, each in enumerate(journals)), return_exceptions=True
    )
    assert [type(outcome).__name__ for outcome in outcomes[:4]] == ["NoneType", "StoreError", "Conflict", "NoneType"]
    assert outcomes[4:] == [None] * (RUNS - 4)
    for n in range(RUNS):
        kept = [chunk(3, n), chunk(5, n if n == 1 else -n)]
        assert await store.chunks(f"run_{n}") == ([] if n == 2 else kept)


async def test_writes_of_one_run_keep_their_order(store: Store) -> None:
    """Asked for without waiting, beside those of others."""
    first, second, *_ = await begin(store)
    writes = [(first, second)[n % 2].append([said(str(n))]) for n in range(60)]
    await asyncio.gather(*writes)
    for each, texts in ((first, range(0, 60, 2)), (second, range(1, 60, 2))):
        assert [entry.content for entry in (await store.entries(each.run_id))[1:]] == [str(n) for n in texts]
        assert await is_sound(store, each.run_id)


async def test_writes_of_one_run_keep_their_order_while_those_of_others_come_and_go(store: Store) -> None:
    """Some are asked for while the one before is under way, some just when it is done, some large, some alone."""
    first, *others = await begin(store)
    texts = [str(n) * (40_000 if n % 7 == 3 else 1) for n in range(120)]
    writes: list[asyncio.Future[int]] = []
    for n, text in enumerate(texts):
        writes.append(first.append([said(text), noted(text.encode())]))
        beside = [each.append([said("on")]) for each in others[: n % 4]]
        if n % 3 == 0:
            await asyncio.sleep(0)
        if n % 5 == 0:
            await asyncio.wait([writes[-1], *beside], return_when=asyncio.FIRST_COMPLETED)
    assert await asyncio.gather(*writes) == [2 * n + 3 for n in range(120)]
    entries = (await store.entries(first.run_id))[1:]
    assert [entry.content for entry in entries if entry.kind == "user"] == texts
    assert await is_sound(store, first.run_id)


async def test_after_a_refused_write_the_next_ones_are_dense(store: Store) -> None:
    """What was asked for behind it stands where it would have stood."""
    journal = (await begin(store))[0]
    await journal.append([called("1")])
    outcomes = await asyncio.gather(
        journal.append([called("1")]),
        journal.append([said("on")]),
        journal.append([called("2")]),
        return_exceptions=True,
    )
    assert isinstance(outcomes[0], Conflict)
    assert outcomes[1:] == [3, 4]
    assert await is_sound(store, journal.run_id)


@pytest.fixture
async def proxy() -> AsyncIterator[Proxy]:
    """A proxy before the server."""
    async with proxy_before(postgres_server().socket_folder) as running:
        yield running


@pytest.mark.parametrize("loss", ["request", "reply"])
async def test_a_group_whose_connection_is_lost_is_there_once(proxy: Proxy, loss: Loss) -> None:
    """Whether the request or only the answer was lost: entries, ends and begun runs are there, each once."""
    store = PostgresStore(PostgresAddress(postgres_server().url(folder=proxy.folder)))
    await store.open()
    try:
        journals = await begin(store)
        proxy.lose(loss, b"needle")
        await asyncio.gather(*(each.append([said("needle" if n == 5 else "hay")]) for n, each in enumerate(journals)))
        proxy.lose(loss, b"thorn")
        await asyncio.gather(
            *(each.finish([said("thorn" if n == 7 else "hay")], COMPLETED) for n, each in enumerate(journals))
        )
        proxy.lose(loss, b"splinter")
        rows = [run_row(f"b{n}", model="splinter" if n == 9 else "demo") for n in range(RUNS)]
        again = await asyncio.gather(
            *(store.start_run(row, [said("go")], owner=OWNER, lease_s=LEASE_S) for row in rows)
        )
        assert proxy.losses == 3
        for n, each in enumerate(journals):
            texts = ["go", "needle" if n == 5 else "hay", "thorn" if n == 7 else "hay"]
            assert [entry.content for entry in await store.entries(each.run_id)] == texts
            assert await is_sound(store, each.run_id)
        assert await asyncio.gather(*(each.append([said("on")]) for each in again)) == [2] * RUNS
    finally:
        await store.close()


async def test_a_former_owner_beside_the_new_one_writes_nothing(store: Store, clock: SetClock) -> None:
    """In the same group too: it hears that it lost the run, and the new owner goes on."""
    journals = await begin(store)
    clock.now += LEASE_S * 2
    taken = await store.claim_abandoned(OTHER, LEASE_S, 1, run_id=journals[0].run_id)
    [(_, new)] = taken
    others = [journal for _, journal in await store.claim_abandoned(OWNER, LEASE_S, RUNS)]
    for _ in range(2):  # the first time it may go alone, for nobody else was there lately
        writes = [new.renew(), journals[0].append([said("stale")]), *(each.append([said("x")]) for each in others)]
        _, stale, *rest = await asyncio.gather(*writes, return_exceptions=True)
        assert isinstance(stale, StoreError)
        assert stale.info.code == LEASE_LOST
        assert not any(isinstance(each, BaseException) for each in rest)
    assert await new.append([said("right")]) == 2
    assert await store.entries(new.run_id) == numbered([said("go", is_input=True), said("right")])
    assert await is_sound(store, new.run_id)
