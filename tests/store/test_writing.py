"""The contract of writing: J1–J8 and J12."""

import asyncio

import msgspec
import pytest

from store.sample import COMPLETED, LEASE_S, OTHER, OWNER, SetClock, called, numbered, resulted, run_row, said
from treadle.core.errors import Conflict, ErrorInfo, NotFound, ProtocolError, StoreError
from treadle.core.events import RunEnded
from treadle.core.usage import Usage
from treadle.journal.journal_interface import RunJournal, RunRow, Store

FULL_ROW = run_row(
    session_id=None,
    key_id="key_1",
    status="queued",
    store=False,
    background=True,
    expires_at=5_000.0,
    request=msgspec.Raw(b'{"instructions":"be \\u0000 kind",  "spaced": true}'),
)


async def start(store: Store, name: str = "1", owner: str = OWNER, **fields: object) -> RunJournal:
    """Begin a run without input."""
    return await store.start_run(run_row(name, **fields), [], owner=owner, lease_s=LEASE_S)


async def test_a_started_run_is_found_with_every_field(store: Store) -> None:
    """The row comes back as it was given, its request byte for byte."""
    journal = await store.start_run(FULL_ROW, [said("hi", is_input=True)], owner=OWNER, lease_s=LEASE_S)
    assert (journal.run_id, journal.epoch) == ("run_1", 1)
    assert await store.find_run("run_1") == FULL_ROW
    assert await store.entries("run_1") == numbered([said("hi", is_input=True)])


async def test_a_private_run_is_found_and_fenced_as_any_other(store: Store) -> None:
    """Only when it is written differs: its ids are taken, its lease holds, and what it writes is numbered on."""
    row = run_row("1", session_id=None)
    journal = await store.start_run(row, [said("hi", is_input=True)], owner=OWNER, lease_s=LEASE_S, is_private=True)
    assert await store.find_run("run_1") == row
    with pytest.raises(Conflict):
        await (await store.start_run(row, [], owner=OTHER, lease_s=LEASE_S, is_private=True)).append([said("ho")])
    assert await store.claim_abandoned(OTHER, LEASE_S, 10) == []
    assert await journal.finish([said("bye", "assistant")], COMPLETED) == 2


async def test_a_finished_run_says_how_it_ended(store: Store) -> None:
    """The end of a run fills its row, and the last entries come with it."""
    ended = RunEnded(
        status="failed",
        stop="length",
        usage=Usage(input_tokens=3, output_tokens=4),
        limit="max_iterations",
        error=ErrorInfo(code="boom", message="it broke", status=502, hint="mend it"),
        rounds=2,
        calls=5,
        ended_at=1_020.25,
    )
    journal = await store.start_run(FULL_ROW, [], owner=OWNER, lease_s=LEASE_S)
    assert await journal.finish([said("bye", "assistant")], ended) == 1
    assert await store.find_run("resp_1") == msgspec.structs.replace(
        FULL_ROW,
        status="failed",
        stop="length",
        usage=ended.usage,
        limit="max_iterations",
        error=ended.error,
        rounds=2,
        calls=5,
        ended_at=1_020.25,
    )


async def test_entries_are_numbered_densely_over_several_appends(store: Store) -> None:
    """Input, appends of several sizes and the end count on without a gap."""
    journal = await store.start_run(run_row(), [said("a"), said("b")], owner=OWNER, lease_s=LEASE_S)
    assert await journal.append([said("c"), said("d")]) == 4
    assert await journal.append([]) == 4
    assert await journal.append([said("e")]) == 5
    assert await journal.finish([said("f")], COMPLETED) == 6
    assert await store.entries("run_1") == numbered([said(text) for text in "abcdef"])


@pytest.mark.parametrize("taken", [run_row("2", id="run_1"), run_row("2", response_id="resp_1")])
async def test_an_id_is_not_taken_twice(store: Store, taken: RunRow) -> None:
    """A second run with a run's id or response id is a conflict and leaves nothing behind."""
    await store.start_run(run_row(), [said("first")], owner=OWNER, lease_s=LEASE_S)
    with pytest.raises(Conflict):
        await store.start_run(taken, [said("second")], owner=OTHER, lease_s=LEASE_S)
    assert await store.list_runs() == [run_row()]
    assert await store.entries("run_1") == numbered([said("first")])


async def test_a_run_must_continue_a_run_that_is_there(store: Store) -> None:
    """An unknown previous run is refused by name."""
    with pytest.raises(NotFound, match="run_0"):
        await start(store, previous_id="run_0")
    assert await store.list_runs() == []


async def test_a_run_must_continue_its_own_conversation(store: Store) -> None:
    """A previous run of another conversation is a conflict."""
    await start(store)
    with pytest.raises(Conflict, match="another conversation"):
        await start(store, "2", previous_id="run_1")


async def test_a_run_of_an_unknown_session_is_refused(store: Store) -> None:
    """A session must exist before its runs."""
    with pytest.raises(NotFound):
        await start(store, session_id="sess_0")


async def test_a_row_that_is_not_unicode_is_refused_by_its_field(store: Store) -> None:
    """A lone surrogate in a field that is looked up gives an error naming the column, not a traceback."""
    with pytest.raises(ProtocolError, match=r"runs\.model"):
        await start(store, model="demo\ud800")


async def test_nothing_is_written_after_the_end(store: Store) -> None:
    """Append, renew and finish on an ended run are conflicts."""
    journal = await start(store)
    await journal.finish([said("end")], COMPLETED)
    for late in (
        journal.append([said("late")]),
        journal.renew(),
        journal.finish([said("late")], RunEnded(status="cancelled", ended_at=1_099.0)),
    ):
        with pytest.raises(Conflict) as caught:
            await late
        assert caught.value.info.code == "run_ended"
    assert await store.entries("run_1") == numbered([said("end")])
    found = await store.find_run("run_1")
    assert found is not None
    assert (found.status, found.ended_at) == ("completed", 1_010.0)


async def test_of_many_ends_racing_exactly_one_wins(store: Store) -> None:
    """Twenty finishes at once give one end, whose entry is the only one there."""
    journal = await start(store)
    ends = [journal.finish([said(f"end {n}")], RunEnded(status="failed", ended_at=float(n))) for n in range(20)]
    outcomes = await asyncio.gather(*ends, return_exceptions=True)
    won = [n for n, outcome in enumerate(outcomes) if isinstance(outcome, int)]
    assert len(won) == 1
    assert all(isinstance(outcome, Conflict) for n, outcome in enumerate(outcomes) if n != won[0])
    assert await store.entries("run_1") == numbered([said(f"end {won[0]}")])
    found = await store.find_run("run_1")
    assert found is not None
    assert found.ended_at == float(won[0])


async def test_a_cancel_racing_appends_leaves_a_dense_prefix(store: Store) -> None:
    """What is queued behind the end of a run is refused, what was before it is there."""
    journal = await start(store)
    before = [journal.append([said(f"before {n}")]) for n in range(5)]
    end = journal.finish([], COMPLETED)
    after = [journal.append([said(f"after {n}")]) for n in range(5)]
    outcomes = await asyncio.gather(*before, end, *after, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [int] * 6 + [Conflict] * 5
    assert await store.entries("run_1") == numbered([said(f"before {n}") for n in range(5)])


async def test_only_a_run_whose_lease_ended_is_claimed(store: Store, clock: SetClock) -> None:
    """A claim takes abandoned runs, oldest lease first, and neither live nor ended ones."""
    await start(store, "old")
    clock.now += 1
    await start(store, "older_lease_is_first")
    ended = await start(store, "ended")
    await ended.finish([], COMPLETED)
    clock.now += LEASE_S - 1.5
    live = await start(store, "live")
    assert await store.claim_abandoned(OTHER, LEASE_S, 10) == []
    clock.now += 0.5
    claimed = await store.claim_abandoned(OTHER, LEASE_S, 10)
    assert [(row, journal.run_id, journal.epoch) for row, journal in claimed] == [(run_row("old"), "run_old", 2)]
    clock.now += 1
    assert [row.id for row, _ in await store.claim_abandoned(OTHER, LEASE_S, 10)] == ["run_older_lease_is_first"]
    await live.append([said("still mine")])


async def test_a_claim_takes_no_more_than_asked(store: Store, clock: SetClock) -> None:
    """The limit holds, and the rest can be claimed next."""
    for name in "abc":
        await start(store, name)
    clock.now += LEASE_S
    assert [row.id for row, _ in await store.claim_abandoned(OTHER, LEASE_S, 2)] == ["run_a", "run_b"]
    assert [row.id for row, _ in await store.claim_abandoned(OTHER, LEASE_S, 2)] == ["run_c"]


@pytest.mark.parametrize("write", ["append", "renew", "finish"])
async def test_a_stale_epoch_cannot_write(store: Store, clock: SetClock, write: str) -> None:
    """After a take-over the first owner's writes fail as lost, also when it is the same owner by name."""
    stale = await start(store)
    await stale.append([said("mine")])
    clock.now += LEASE_S
    [(_, journal)] = await store.claim_abandoned(OWNER, LEASE_S, 1)
    writes = {
        "append": lambda: stale.append([said("zombie")]),
        "renew": stale.renew,
        "finish": lambda: stale.finish([said("zombie")], COMPLETED),
    }
    with pytest.raises(StoreError) as caught:
        await writes[write]()
    assert caught.value.info.code == "lease_lost"
    await journal.append([said("theirs")])
    assert await store.entries("run_1") == numbered([said("mine"), said("theirs")])


async def test_a_stale_epoch_hears_of_the_loss_also_after_the_end(store: Store, clock: SetClock) -> None:
    """When the new owner has ended the run, the old one still learns that it lost it."""
    stale = await start(store)
    clock.now += LEASE_S
    [(_, journal)] = await store.claim_abandoned(OTHER, LEASE_S, 1)
    await journal.finish([], COMPLETED)
    with pytest.raises(StoreError) as caught:
        await stale.append([said("zombie")])
    assert caught.value.info.code == "lease_lost"


@pytest.mark.parametrize("write", ["append", "renew"])
async def test_every_write_renews_the_lease(store: Store, clock: SetClock, write: str) -> None:
    """A run that writes or renews is not abandoned."""
    journal = await start(store)
    clock.now += LEASE_S - 1
    await (journal.append([said("busy")]) if write == "append" else journal.renew())
    clock.now += LEASE_S - 1
    assert await store.claim_abandoned(OTHER, LEASE_S, 1) == []
    clock.now += 1
    assert len(await store.claim_abandoned(OTHER, LEASE_S, 1)) == 1


async def test_an_owner_whose_lease_ended_goes_on_if_nobody_took_the_run(store: Store, clock: SetClock) -> None:
    """The fence is the epoch and not the time: a late write renews the lease."""
    journal = await start(store)
    clock.now += 10 * LEASE_S
    await journal.append([said("late but mine")])
    assert await store.claim_abandoned(OTHER, LEASE_S, 1) == []


async def test_a_released_run_is_claimed_at_once(store: Store) -> None:
    """Release ends the lease and the right to write; releasing again does no harm to the new owner."""
    journal = await start(store)
    await journal.release()
    with pytest.raises(StoreError, match="taken"):
        await journal.append([said("too late")])
    [(_, taken)] = await store.claim_abandoned(OTHER, LEASE_S, 1)
    await journal.release()
    assert await taken.append([said("mine now")]) == 1


async def test_epochs_only_grow(store: Store, clock: SetClock) -> None:
    """Each take-over has the next epoch, and numbering goes on."""
    await start(store)
    for epoch in range(2, 6):
        clock.now += LEASE_S
        [(_, journal)] = await store.claim_abandoned(OWNER, LEASE_S, 1)
        assert journal.epoch == epoch
        assert await journal.append([said("again")]) == epoch - 1


@pytest.mark.parametrize("entry", [called("call_1"), resulted("call_1")], ids=["call", "result"])
async def test_a_call_has_one_call_and_one_result(store: Store, entry: object) -> None:
    """A second one is a conflict, and nothing else of that write is there."""
    journal = await start(store)
    await journal.append([called("call_1"), resulted("call_1")])
    with pytest.raises(Conflict):
        await journal.append([said("with it"), entry])  # type: ignore[list-item]
    assert await journal.append([said("goes on")]) == 3
    assert await store.entries("run_1") == numbered([called("call_1"), resulted("call_1"), said("goes on")])


async def test_a_second_result_does_not_end_the_run(store: Store) -> None:
    """When the last entries break a rule, the run has not ended either."""
    journal = await start(store)
    await journal.append([called("call_1"), resulted("call_1")])
    with pytest.raises(Conflict):
        await journal.finish([resulted("call_1")], COMPLETED)
    assert await store.find_run("run_1") == run_row()
    await journal.finish([], COMPLETED)


async def test_input_may_repeat_calls_and_results(store: Store) -> None:
    """A client may send the same call twice, and the run may still write its own."""
    doubled = [called("c", is_input=True), called("c", is_input=True), resulted("c", is_input=True)] * 2
    journal = await store.start_run(run_row(), doubled, owner=OWNER, lease_s=LEASE_S)
    await journal.append([called("c"), resulted("c")])
    assert await store.entries("run_1") == numbered([*doubled, called("c"), resulted("c")])


async def test_the_same_call_id_lives_in_several_runs(store: Store) -> None:
    """Upstreams count their calls from one again: ids are unique per run only."""
    for name in "ab":
        journal = await start(store, name)
        await journal.append([called("call_0"), resulted("call_0")])
    assert len(await store.entries("run_b")) == 2


async def test_a_deleted_run_cannot_be_written(store: Store) -> None:
    """The journal of a deleted run says so, also when another run came after it."""
    journal = await start(store)
    assert await store.delete_run("run_1") is True
    await start(store, "2")
    with pytest.raises(NotFound):
        await journal.append([said("ghost")])
    assert await store.entries("run_2") == []


async def test_many_writers_at_once_stay_dense_and_apart(store: Store) -> None:
    """Two hundred appends over twenty runs, two of the runs failing all along."""
    journals = [await start(store, str(n)) for n in range(20)]
    for broken in journals[:2]:
        await broken.append([called("call_1")])

    async def write(n: int, k: int) -> None:
        entry = called("call_1") if n < 2 else said(f"{n}:{k}")
        await journals[n].append([said(f"{n}:{k} first"), entry])

    outcomes = await asyncio.gather(*(write(n, k) for k in range(10) for n in range(20)), return_exceptions=True)
    assert [isinstance(outcome, Conflict) for outcome in outcomes] == [n < 2 for _ in range(10) for n in range(20)]
    for n in range(20):
        pairs = [said(text) for k in range(10) for text in (f"{n}:{k} first", f"{n}:{k}")]
        assert await store.entries(f"run_{n}") == numbered([called("call_1")] if n < 2 else pairs)


async def test_a_write_begins_when_it_is_asked_for(store: Store) -> None:
    """Nobody waits for the first two, one of which is given up: they are there, in order, before what is waited for."""
    journal = await start(store)
    journal.append([said("first")])
    journal.append([said("given up")]).cancel()
    assert await journal.finish([said("last")], COMPLETED) == 3
    assert [entry.content for entry in await store.entries("run_1")] == ["first", "given up", "last"]


async def test_a_cancelled_caller_leaves_whole_writes(store: Store) -> None:
    """Cancelling appends in flight never leaves half of one, and the run stays writable and dense."""
    journal = await start(store)
    tasks = [journal.append([said(f"{n} a"), said(f"{n} b")]) for n in range(50)]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    last = await journal.append([said("last")])
    entries = await store.entries("run_1")
    assert [entry.seq for entry in entries] == list(range(1, last + 1))
    texts = [str(entry.content) for entry in entries[:-1]]
    assert [text.split()[0] for text in texts[::2]] == [text.split()[0] for text in texts[1::2]]
    assert {f"{n} a" for n in range(1, 50, 2)} <= set(texts)
