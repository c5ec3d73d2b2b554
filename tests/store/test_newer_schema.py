"""A newer Treadle may add columns and tables while this one serves: what this one writes and reads stays as it was."""

import re
import tempfile
from pathlib import Path

import apsw
import pytest

from postgres import postgres_server
from rules.tree import modules, shown
from store.histories import House
from store.test_audit import problems
from treadle.core.events import ENDED
from treadle.journal.open_store import open_store
from treadle.journal.postgres.connection import connect
from treadle.journal.store_url import PostgresAddress

STEPS = 40
INSERT = re.compile(r"\b(?:INSERT|REPLACE)(?: OR \w+)? INTO +(\w+)\s+(?:AS +\w+ +)?(\S)")
TABLES = {
    "sqlite": "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'",
    "postgres": "SELECT tablename AS name FROM pg_tables WHERE schemaname = current_schema()",
}


async def _grow(engine: str, place: str) -> int:
    """Add a column to every table, and return how many there are."""
    added = "ADD COLUMN later TEXT NOT NULL DEFAULT 'x'"
    if engine == "sqlite":
        file = apsw.Connection(place)
        tables = [name for (name,) in file.execute(TABLES[engine]).fetchall()]
        for table in tables:
            file.execute(f"ALTER TABLE {table} {added}")
        file.close()
        return len(tables)
    connection = await connect(PostgresAddress(place))
    tables = [row["name"] for row in await connection.fetch(TABLES[engine])]
    for table in tables:
        await connection.execute(f"ALTER TABLE {table} {added}")
    await connection.close()
    return len(tables)


@pytest.mark.parametrize("engine", TABLES)
async def test_every_table_may_have_more_columns_than_are_known(engine: str) -> None:
    """A random history over tables that have all grown: nothing is refused for it, and the audit is clean."""
    with tempfile.TemporaryDirectory() as folder:
        place = str(Path(folder) / "journal.db") if engine == "sqlite" else postgres_server().url(f"grown_{engine}")
        store = open_store(place)
        await store.open()
        try:
            assert await _grow(engine, place) > 10
            house = House(store, 7)
            await house.live(STEPS)
            assert [each for each in house.refused if each[1].startswith("store_")] == []
            rows = await store.list_runs(limit=1_000)
            assert len([row for row in rows if row.status in ENDED]) > STEPS // 4
            assert await problems(store) == {}
        finally:
            await store.close()


def test_every_insert_names_its_columns() -> None:
    """A statement without them counts on the columns that there are, and fails on a table that has one more."""
    found = [(shown(file), table, begins) for file in modules() for table, begins in INSERT.findall(file.read_text())]
    assert len(found) > 40
    assert [each for each in found if each[2] != "("] == []
