"""The audit is exact: silent about any history that Treadle made, and never about a bit that somebody else changed."""

import asyncio
import gzip
import random
import sqlite3
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from postgres import postgres_server
from store.histories import House
from store.sample import LEASE_S, OWNER, planned, run_row, said
from store.tampering import COVERED, REFUSED, Hand, PostgresHand, SqliteHand, changed
from treadle.journal.audit_verification import audit_export, audit_run
from treadle.journal.journal_interface import SessionRow, Store
from treadle.journal.jsonl_export import read_runs, write_run
from treadle.journal.open_store import open_store

ENGINES = ("sqlite", "postgres")
STEPS = 20
EXAMPLES = {"sqlite": 6, "postgres": 3}
TAMPERED_EXAMPLES = {"sqlite": 2, "postgres": 1}
SLOW = [HealthCheck.too_slow]
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
"""A seed is as good as another: there is nothing to shrink."""


@asynccontextmanager
async def lived_in(engine: str, seed: int) -> AsyncIterator[tuple[Store, Hand]]:
    """A store with a random history and a run that goes on, and a hand in it."""
    with tempfile.TemporaryDirectory() as folder:
        place = str(Path(folder) / "journal.db") if engine == "sqlite" else postgres_server().url()
        store = open_store(place)
        await store.open()
        try:
            await House(store, seed).live(STEPS)
            await _go_on(store)
            hand = SqliteHand(place) if engine == "sqlite" else await PostgresHand.open(place)
            try:
                yield store, hand
            finally:
                await hand.close()
        finally:
            await store.close()
            if engine == "postgres":
                await postgres_server().empty(place)


async def _go_on(store: Store) -> None:
    await store.create_session(SessionRow(id="live", created_at=1.0, updated_at=1.0))
    row = run_row("live", session_id="live")
    journal = await store.start_run(row, [said("hi", is_input=True)], owner=OWNER, lease_s=LEASE_S)
    await journal.append([planned("f" * 64)])


async def problems(store: Store) -> dict[str, tuple[str, ...]]:
    """Return what the audit says of a whole store, by run; of runs that are not there by table."""
    found: dict[str, tuple[str, ...]] = {table: (str(count),) for table, count in (await store.strays()).items()}
    for row in await store.list_runs(limit=1_000):
        if said := audit_run(await store.evidence(row.id)).problems:
            found[row.id] = said
    return found


async def exported_problems(store: Store) -> dict[str, tuple[str, ...]]:
    """Return what the audit says of an export of the whole store, by run."""
    found: dict[str, tuple[str, ...]] = {}
    for row in await store.list_runs(limit=1_000):
        [exported] = read_runs(write_run(await store.evidence(row.id)))
        if said := audit_export(exported).problems:
            found[row.id] = said
    return found


@pytest.mark.parametrize("engine", ENGINES)
def test_what_treadle_did_itself_is_never_called_wrong(engine: str) -> None:
    """Whatever was asked, approved, carried on, cancelled, taken over, forked, purged, deleted or expired."""

    @settings(max_examples=EXAMPLES[engine], deadline=None, suppress_health_check=SLOW, phases=PHASES)
    @given(st.integers(0, 2**32))
    def check(seed: int) -> None:
        async def main() -> None:
            async with lived_in(engine, seed) as (store, _):
                assert await problems(store) == {}
                assert await exported_problems(store) == {}

        asyncio.run(main())

    check()


@pytest.mark.parametrize("engine", ENGINES)
def test_one_changed_bit_is_found_wherever_it_is(engine: str) -> None:
    """In every column that is covered, in some row; and a row that was taken away."""

    @settings(max_examples=TAMPERED_EXAMPLES[engine], deadline=None, suppress_health_check=SLOW, phases=PHASES)
    @given(st.integers(0, 2**32))
    def check(seed: int) -> None:
        asyncio.run(_tamper(engine, seed))

    check()


async def _tamper(engine: str, seed: int) -> None:
    chance = random.Random(seed)
    async with lived_in(engine, seed) as (store, hand):
        missed: list[Any] = []
        for table, columns in COVERED.items():
            for column in columns:
                missed += await _change_cell(store, hand, table, column, chance)
            missed += await _take_away(store, hand, table, chance)
        missed += await _swap(store, hand, chance)
        assert (missed, await problems(store)) == ([], {}), "and all was put back as it was"


async def _change_cell(store: Store, hand: Hand, table: str, column: str, chance: random.Random) -> list[Any]:
    """Change a cell of the column that lets itself be changed, look, and put it back; return it if it was missed."""
    rows = await hand.rows(table)
    chance.shuffle(rows)
    for place, row in rows[:20]:
        value = changed(row[column], column, chance)
        if value == row[column]:
            continue
        try:
            there = await hand.update(table, place, {column: value})
        except REFUSED:
            continue
        found = await problems(store)
        await hand.update(table, there, {column: row[column]})
        return [] if found else [(table, column, str(row[column])[:60], str(value)[:60], row.get("id"))]
    return []


async def _take_away(store: Store, hand: Hand, table: str, chance: random.Random) -> list[Any]:
    rows = await hand.rows(table)
    if not rows:
        return []
    place, row = chance.choice(rows)
    if table == "runs":
        # One of which nothing is left but its row may be forgotten without a trace, as Treadle itself does it.
        place, row = next((place, row) for place, row in rows if row["id"] == "run_live")
    await hand.delete(table, place)
    found = await problems(store)
    await hand.insert(table, row)
    return [] if found else [(table, "a row", row)]


async def _swap(store: Store, hand: Hand, chance: random.Random) -> list[Any]:
    """Let two runs change places in one column, for each column in which some two differ."""
    missed: list[Any] = []
    for column in ("key_id", "model", "protocol", "created_at", "usage", "rounds", "question"):
        rows = await hand.rows("runs")
        one = chance.choice(rows)
        others = [each for each in rows if each[1][column] != one[1][column]]
        if not others:
            continue
        two = chance.choice(others)
        places = [
            await hand.update("runs", place, {column: value})
            for place, value in ((one[0], two[1][column]), (two[0], one[1][column]))
        ]
        found = await problems(store)
        for place, row in zip(places, (one[1], two[1]), strict=True):
            await hand.update("runs", place, {column: row[column]})
        missed += [] if found else [("swapped", column)]
    return missed


async def test_a_database_from_before_rows_were_sealed_verifies_clean(tmp_path: Path) -> None:
    """It was made by the Treadle before: approvals, forks, purges and all. What is changed in it later is known."""
    place = tmp_path / "old.db"
    dump = gzip.decompress((Path(__file__).parent / "schema_8.sql.gz").read_bytes()).decode()
    connection = sqlite3.connect(place)
    connection.executescript(dump)
    connection.close()
    store = open_store(str(place))
    await store.open()
    try:
        rows = await store.list_runs(limit=1_000)
        assert len(rows) == 30
        assert await problems(store) == {}
        findings = [audit_run(await store.evidence(row.id)) for row in rows]
        assert {finding.row for finding in findings} == {"unsealed"}
        assert {finding.chain for finding in findings} == {"sound", "forgotten"}
        for row in rows[::2]:
            await store.delete_run(row.id)
        await store.purge_run(rows[1].id)
        assert await problems(store) == {}
        await House(store, 1).live(STEPS)
        assert await problems(store) == {}
    finally:
        await store.close()


@pytest.mark.parametrize("column", ["key_id", "model"])
async def test_a_row_that_was_changed_stays_wrong_when_it_is_joined_again(column: str, tmp_path: Path) -> None:
    """Forgetting the run before it changes its row as well, and hides nothing by that."""
    store = open_store(str(tmp_path / "a.db"))
    await store.open()
    try:
        for name, previous in (("1", None), ("2", "run_1"), ("3", "run_2")):
            row = run_row(name, conversation_id="conv", previous_id=previous)
            await store.start_run(row, [said(name, is_input=True)], owner=OWNER, lease_s=LEASE_S)
        hand = SqliteHand(str(tmp_path / "a.db"))
        place = next(place for place, row in await hand.rows("runs") if row["id"] == "run_3")
        await hand.update("runs", place, {column: "another"})
        await store.delete_run("run_2")
        await store.delete_run("run_1")
        assert await problems(store) == {"run_3": ("the run's row, or entry 1 (user) is not as it was written",)}
        await hand.close()
    finally:
        await store.close()
