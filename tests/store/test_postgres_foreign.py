"""Other sessions in the same database lock, rewrite and hold back: clear errors within a bound, then it goes on."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from postgres import postgres_server
from store.sample import COMPLETED, LEASE_S, OWNER, WAIT_S, run_row, said
from treadle.core.errors import StoreError
from treadle.journal.postgres.connection import connect
from treadle.journal.postgres.store import PostgresStore
from treadle.journal.store_url import PostgresAddress

BOUND_S = 12.0
"""A new run is refused within 4 s, one that goes on waits for 10 s."""
TABLES = ("runs", "events", "leases")
REFUSED = {
    "runs": ("start", "list"),
    "events": ("start", "append"),
    "leases": ("start", "append"),
}
"""What cannot be done without each table."""


@pytest.fixture
async def store() -> AsyncIterator[PostgresStore]:
    """A store in a schema of its own."""
    opened = PostgresStore(PostgresAddress(postgres_server().url()))
    await opened.open()
    yield opened
    await opened.close()
    await postgres_server().empty(opened.path)


@asynccontextmanager
async def session(store: PostgresStore) -> AsyncIterator[Any]:
    """Another program's connection to the same schema."""
    connection = await connect(PostgresAddress(store.path))
    try:
        yield connection
    finally:
        await connection.close()


async def begin(store: PostgresStore, name: str) -> Any:
    """Begin a run with one entry."""
    return await store.start_run(run_row(name), [said(name)], owner=OWNER, lease_s=LEASE_S)


async def contents(store: PostgresStore) -> dict[str, list[str | None]]:
    """Return what every run says."""
    return {row.id: [entry.content for entry in await store.entries(row.id)] for row in await store.list_runs()}


@pytest.mark.slow
@pytest.mark.parametrize("table", TABLES)
async def test_a_foreign_lock_is_an_error_within_a_bound_and_then_it_goes_on(store: PostgresStore, table: str) -> None:
    """LOCK TABLE in a transaction that does not end: writes are refused by name, and nothing is there twice."""
    journal = await begin(store, "1")
    async with session(store) as other:
        lock = other.transaction()
        await lock.start()
        await other.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
        began = time.monotonic()
        works = {"start": begin(store, "2"), "append": journal.append([said("two")]), "list": store.list_runs()}
        found = dict(zip(works, await asyncio.gather(*works.values(), return_exceptions=True), strict=True))
        took_s = time.monotonic() - began
        await lock.rollback()
    refused = {name: each.info.code for name, each in found.items() if isinstance(each, StoreError)}
    assert refused == dict.fromkeys(REFUSED[table], "store_unavailable")
    assert took_s < BOUND_S
    if "append" in refused:
        assert await journal.append([said("two")]) == 2
    await journal.finish([said("three")], COMPLETED)
    kept = await contents(store)
    assert kept.pop("run_1") == ["1", "two", "three"]
    # Its refusal leaves it open: it may have begun in the moment in which it was given up.
    assert kept in ({}, {"run_2": ["2"]})


async def test_what_is_asked_for_during_a_short_lock_is_only_late(store: PostgresStore) -> None:
    """VACUUM FULL, which locks each table while it writes it anew: every write is done, once."""
    async with session(store) as other:
        stops = asyncio.Event()

        async def rewrite() -> None:
            while not stops.is_set():
                for table in TABLES:
                    await other.execute(f"VACUUM FULL {table}")

        rewriting = asyncio.create_task(rewrite())
        journals = await asyncio.gather(*(begin(store, str(number)) for number in range(20)))
        for text in ("two", "three"):
            await asyncio.gather(*(journal.append([said(text)]) for journal in journals))
        stops.set()
        await asyncio.wait_for(rewriting, WAIT_S)
    assert await contents(store) == {f"run_{number}": [str(number), "two", "three"] for number in range(20)}


@pytest.mark.parametrize("level", ["read_committed", "serializable"])
async def test_a_long_transaction_holds_nothing_up(store: PostgresStore, level: str) -> None:
    """One that read, and one that wrote a table of its own, and then sleep: writing goes on beside them."""
    journal = await begin(store, "1")
    async with session(store) as other:
        idle = other.transaction(isolation=level)
        await idle.start()
        await other.fetch("SELECT count(*) FROM runs, events, leases")
        await other.execute("CREATE TABLE own_notes (note text)")
        await journal.append([said("two")])
        await begin(store, "2")
        await journal.finish([said("three")], COMPLETED)
        await store.delete_run("run_1")
        await idle.rollback()
    assert await contents(store) == {"run_2": ["2"]}


@pytest.mark.slow
async def test_a_schema_that_is_away_is_an_error_until_it_is_back(store: PostgresStore) -> None:
    """Between the drop and the restore all work is refused; afterwards the same store goes on by itself."""
    name = PostgresAddress(store.path).quoted_schema
    journal = await begin(store, "1")
    async with session(store) as other:
        await other.execute(f"ALTER SCHEMA {name} RENAME TO away")
        began = time.monotonic()
        works = (store.ping(), begin(store, "2"), journal.append([said("two")]))
        found = await asyncio.gather(*works, return_exceptions=True)
        assert time.monotonic() - began < BOUND_S
        await other.execute(f"ALTER SCHEMA away RENAME TO {name}")
    codes = [each.info.code if isinstance(each, StoreError) else each for each in found]
    assert codes == ["store_schema_missing"] * 3
    await store.ping()
    assert await journal.append([said("two")]) == 2
    assert await contents(store) == {"run_1": ["1", "two"]}
