"""The contract of what processes on one store share: sessions, claims of one run, dead owners, spent tickets."""

import asyncio

import pytest

from store.sample import COMPLETED, LEASE_S, OTHER, OWNER, SetClock, run_row, said
from treadle.core.errors import Conflict
from treadle.journal.journal_interface import SESSION_BUSY, RunJournal, SessionRow, Store

SESSION = SessionRow(id="sess_1", name="work", created_at=1.0, updated_at=2.0)


async def start(store: Store, name: str = "1", **fields: object) -> RunJournal:
    """Begin a run with one entry."""
    return await store.start_run(run_row(name, **fields), [said("go")], owner=OWNER, lease_s=LEASE_S)


async def claimed(store: Store, **only: object) -> list[str]:
    """Claim what can be claimed and return the runs' ids."""
    return [row.id for row, _ in await store.claim_abandoned(OTHER, LEASE_S, 10, **only)]


async def test_a_session_has_one_run_at_a_time(store: Store) -> None:
    """J16: a second one is refused and leaves nothing behind; after the end of the first there is room again."""
    await store.create_session(SESSION)
    first = await start(store, session_id="sess_1")
    with pytest.raises(Conflict) as caught:
        await start(store, "2", session_id="sess_1")
    assert (caught.value.info.code, caught.value.param) == (SESSION_BUSY, "session")
    assert await store.find_run("run_2") is None
    await first.finish([], COMPLETED)
    await start(store, "2", session_id="sess_1")


async def test_of_many_runs_that_begin_at_once_in_a_session_one_does(store: Store) -> None:
    """J16: twenty starters, one run; the nineteen others hear why."""
    await store.create_session(SESSION)
    starts = [start(store, str(n), session_id="sess_1") for n in range(20)]
    outcomes = await asyncio.gather(*starts, return_exceptions=True)
    refused = [outcome for outcome in outcomes if isinstance(outcome, Conflict)]
    assert [error.info.code for error in refused] == [SESSION_BUSY] * 19
    assert len(await store.list_runs(session_id="sess_1")) == 1


async def test_a_run_that_is_taken_over_still_holds_its_session(store: Store, clock: SetClock) -> None:
    """J16: the death of an owner frees nothing; the end of the run does."""
    await store.create_session(SESSION)
    await start(store, session_id="sess_1")
    clock.now += LEASE_S
    with pytest.raises(Conflict):
        await start(store, "2", session_id="sess_1")
    [(_, journal)] = await store.claim_abandoned(OTHER, LEASE_S, 1)
    await journal.finish([], COMPLETED)
    await start(store, "2", session_id="sess_1")


async def test_one_run_can_be_claimed_among_many(store: Store, clock: SetClock) -> None:
    """By its id, and only when its lease has ended."""
    for name in ("1", "2"):
        await start(store, name)
    assert await claimed(store, run_id="run_2") == []
    clock.now += LEASE_S
    assert await claimed(store, run_id="run_0") == []
    assert await claimed(store, run_id="run_2") == ["run_2"]
    assert await claimed(store) == ["run_1"]


async def test_runs_in_the_background_are_claimed_apart_from_the_others(store: Store, clock: SetClock) -> None:
    """Where somebody else places them, a process leaves them alone."""
    await start(store, "front")
    await start(store, "back", background=True)
    clock.now += LEASE_S
    assert await claimed(store, background=False) == ["run_front"]
    assert await claimed(store, background=True) == ["run_back"]


async def test_a_dead_owner_holds_nothing(store: Store) -> None:
    """Whoever knows of its death ends its leases at once, and those of nobody else; its writes are fenced off."""
    journal = await start(store)
    other = await store.start_run(run_row("2"), [], owner=OTHER, lease_s=LEASE_S)
    assert await store.end_leases(OWNER) == 1
    assert await store.end_leases(OWNER) == 0
    assert await claimed(store) == ["run_1"]
    with pytest.raises(Exception, match="another owner"):
        await journal.append([said("late")])
    await other.append([said("mine")])


async def test_what_is_handed_over_is_no_failed_attempt(store: Store, clock: SetClock) -> None:
    """The epoch grows with every owner; the attempt only where one died."""
    journal = await start(store)
    seen = [(journal.epoch, journal.attempt)]
    for is_released in (True, False, True):
        if is_released:
            await journal.release()
        else:
            clock.now += LEASE_S
        [(_, journal)] = await store.claim_abandoned(OTHER, LEASE_S, 1)
        seen.append((journal.epoch, journal.attempt))
    assert seen == [(1, 1), (2, 1), (3, 2), (4, 2)]


async def test_of_many_who_spend_a_ticket_one_is_first(store: Store) -> None:
    """T1: a link logs in one browser, however many processes are asked at once."""
    spent = await asyncio.gather(*(store.tickets.spend("t1", 2_000.0, 1_000.0) for _ in range(20)))
    assert sorted(spent) == [False] * 19 + [True]


async def test_a_spent_ticket_is_known_until_its_time_is_over(store: Store) -> None:
    """T2 and T3: it is read as spent, and forgotten when nobody would take it anyway."""
    assert await store.tickets.spent(1_000.0) == frozenset()
    assert await store.tickets.spend("t1", 2_000.0, 1_000.0)
    assert await store.tickets.spend("t2", 3_000.0, 1_000.0)
    assert await store.tickets.spent(1_000.0) == {"t1", "t2"}
    assert await store.tickets.spent(2_000.0) == {"t2"}
    assert await store.tickets.spend("t3", 4_000.0, 2_500.0)
    assert await store.tickets.spend("t1", 5_000.0, 2_500.0), "it was forgotten"
