"""PostgreSQL behind a real pgbouncer: in session mode everything works, in any other it is refused in words."""

import asyncio
from pathlib import Path

import pytest

from pgbouncer import MISSING, PROGRAM, Mode, pooler
from postgres import postgres_server
from store.sample import LEASE_S, OTHER, OWNER, run_row, said
from treadle.cli.doctor.store_checks import check_store
from treadle.config import Settings, StoreSection
from treadle.core.errors import StoreError
from treadle.journal.postgres.migrations import inspect_schema
from treadle.journal.postgres.store import PostgresStore
from treadle.journal.store_url import PostgresAddress

pytestmark = pytest.mark.skipif(PROGRAM is None, reason=MISSING)
BOUND_S = 20.0
REFUSED = "its pooler gives every transaction another connection, and Treadle needs one that stays its own"


def behind(folder: Path, pool_size: int = 8) -> str:
    """Return the address of a fresh schema behind a pooler."""
    return f"{postgres_server().url(folder=folder)}&pool_size={pool_size}"


async def test_a_pooler_in_session_mode_changes_nothing() -> None:
    """As Debian ships it: two processes write, read, wake each other, claim and migrate through it."""
    with pooler("session") as folder:
        place = behind(folder)
        stores = [PostgresStore(PostgresAddress(place)) for _ in range(2)]
        for each in stores:
            await each.open()
        left, right = stores
        try:
            journal = await left.start_run(run_row("1"), [said("hello", is_input=True)], owner=OWNER, lease_s=LEASE_S)
            async with asyncio.timeout(BOUND_S):
                waiting = asyncio.ensure_future(right.wait_change("run_1", BOUND_S))
                await journal.append([said("one", "assistant")])
                await waiting
            assert [each.content for each in await right.entries("run_1")][-1] == "one"
            await right.probe()
            await journal.release()
            [(row, taken)] = await right.claim_abandoned(OTHER, LEASE_S, 1)
            assert (row.id, taken.epoch) == ("run_1", 2)
            # What is set for a session holds on every connection: the schema above all.
            schemas = await asyncio.gather(*(left.find_run("run_1") for _ in range(30)))
            assert {found.id for found in schemas if found is not None} == {"run_1"}
        finally:
            for each in stores:
                await each.close()


async def test_the_listener_behind_a_pooler_knows_itself() -> None:
    """A process that is alone notifies nobody: its own notification is not taken for another's."""
    with pooler("session") as folder:
        store = PostgresStore(PostgresAddress(behind(folder)))
        await store.open()
        try:
            state = store._state
            assert state is not None
            async with asyncio.timeout(BOUND_S):
                await state.bell.is_listening.wait()
                pid = await state.pool.run(
                    lambda each: each.fetchval(
                        "SELECT pid FROM pg_stat_activity WHERE pid = $1 AND query LIKE '%treadle%'", state.bell._pid
                    ),
                    asyncio.get_running_loop().time() + BOUND_S,
                )
            assert pid == state.bell._pid
        finally:
            await store.close()


@pytest.mark.parametrize("mode", ["transaction", "statement"])
@pytest.mark.parametrize("more", [(), ("server_round_robin = 1", "min_pool_size = 4")])
async def test_any_other_mode_is_refused_at_the_start(mode: Mode, more: tuple[str, ...]) -> None:
    """Nothing is written then, not even a schema; whichever connection the pooler gives away first."""
    with pooler(mode, *more) as folder:
        place = behind(folder)
        with pytest.raises(StoreError) as caught:
            await PostgresStore(PostgresAddress(place)).open()
        error = caught.value
        assert (error.info.code, REFUSED in error.message) == ("store_pooled", True)
        assert "pool_mode = session" in str(error.hint)
    seen = await inspect_schema(PostgresAddress(place.replace(str(folder), str(postgres_server().socket_folder))))
    assert seen.version == 0


def test_doctor_says_which_pooler_will_not_do() -> None:
    """As broken, with what to do; behind one in session mode all is well."""
    found = []
    for mode in ("session", "transaction"):
        with pooler(mode) as folder:
            check = check_store(Settings(store=StoreSection(url=behind(folder))), {})
            found.append((check.state, REFUSED in check.detail, "pool_mode = session" in check.advice))
    assert found == [("ok", False, False), ("broken", True, True)]
