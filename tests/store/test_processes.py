"""The processes that share a store, as each kind of store keeps them; see `journal/replicas_interface`."""

from store.sample import LEASE_S, OTHER, OWNER, SetClock, run_row
from treadle.journal.journal_interface import Store
from treadle.journal.postgres.store import PostgresStore

FORGET_S = 3600.0


async def test_a_process_is_seen_with_what_it_last_said(store: Store) -> None:
    """P1: by all, longest there first, and since when it is there does not change."""
    since = [await store.replicas.beat(OWNER, '{"version":"1"}', forget_s=FORGET_S)]
    await store.replicas.beat(OTHER, "{}", forget_s=FORGET_S)
    since.append(await store.replicas.beat(OWNER, '{"version":"é"}', forget_s=FORGET_S))
    assert since[0] == since[1]
    found = await store.replicas.living(15.0)
    assert sorted((each.owner, each.facts) for each in found) == [(OWNER, '{"version":"é"}'), (OTHER, "{}")]
    assert {each.silent_s < 15.0 for each in found} == {True}


async def test_a_process_that_left_or_died_is_gone(store: Store, clock: SetClock) -> None:
    """P2: at once where it says so or is known to be dead, else when it was not seen for long enough."""
    for owner in (OWNER, OTHER, "third"):
        await store.replicas.beat(owner, "{}", forget_s=FORGET_S)
    await store.replicas.leave(OWNER)
    await store.end_leases("third")
    assert [each.owner for each in await store.replicas.living(15.0)] == [OTHER]
    if isinstance(store, PostgresStore):
        return  # it goes by the clock of the database, which no test moves
    clock.now += 16.0
    assert await store.replicas.living(15.0) == []


async def test_a_secret_is_noted_once(store: Store) -> None:
    """P3: however often, and by whomever."""
    for fingerprint in ("a", "b", "a"):
        await store.replicas.note_secret(fingerprint)
    assert await store.replicas.secrets() == {"a", "b"}


async def test_runs_can_be_left_to_others(store: Store) -> None:
    """A claim passes over those that it is told to, and they are found as abandoned until somebody takes them."""
    for name in ("1", "2"):
        journal = await store.start_run(run_row(name), [], owner=OWNER, lease_s=LEASE_S)
        await journal.release()
    taken = await store.claim_abandoned(OTHER, LEASE_S, 9, besides=["run_1", "run_9"])
    assert [row.id for row, _ in taken] == ["run_2"]
    assert await store.abandoned(["run_1", "run_2", "run_9"]) == ["run_1"]
    taken = await store.claim_abandoned(OTHER, LEASE_S, 9)
    assert [row.id for row, _ in taken] == ["run_1"]
    assert await store.abandoned(["run_1", "run_2"]) == []


async def test_a_store_that_is_well_passes_its_probe(store: Store) -> None:
    """As often as it is asked, and nothing is left behind."""
    for _ in range(3):
        await store.probe()
    assert await store.replicas.living(1e9) == []
    assert not store.stats.errors
