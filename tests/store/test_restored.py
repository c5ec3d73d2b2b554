"""An older copy is laid over the journal of a living process: a run that is not in it ends, and writes nowhere else."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from postgres import postgres_programs, postgres_server
from store.sample import COMPLETED, LEASE_S, OWNER, run_row, said, told
from treadle.core.errors import NotFound
from treadle.journal.journal_interface import Store
from treadle.journal.postgres import backup as postgres
from treadle.journal.postgres.store import PostgresStore
from treadle.journal.sqlite.store import SqliteStore
from treadle.journal.store_url import PostgresAddress
from warm import start

COPY = """
import sqlite3, sys
source, target = (sqlite3.connect(path, timeout=60) for path in sys.argv[1:])
source.backup(target)
target.close()
source.close()
"""
Copier = Callable[[str, Path, bool], None]


def _copy_sqlite(place: str, copy: Path, is_back: bool) -> None:
    """Let another program copy by SQLite's own backup, there or back."""
    paths = (str(copy), place) if is_back else (place, str(copy))
    done = start.run([sys.executable, "-c", COPY, *paths])
    assert (done.returncode, done.stderr) == (0, "")


def _copy_postgres(place: str, copy: Path, is_back: bool) -> None:
    """Drop the schema and make it again from a dump, as `pg_restore --clean` does."""
    env = {**os.environ, "PATH": f"{postgres_programs()}{os.pathsep}{os.environ['PATH']}"}
    (postgres.restore if is_back else postgres.back_up)(PostgresAddress(place), copy, env)


COPIERS: dict[str, Copier] = {"sqlite": _copy_sqlite, "postgres": _copy_postgres}


@pytest.fixture(params=sorted(COPIERS))
async def restorable(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[Store, Copier]]:
    """An open store, and what copies it and lays the copy back."""
    store: Store
    if request.param == "sqlite":
        store = SqliteStore(str(tmp_path / "a.db"))
    else:
        store = PostgresStore(PostgresAddress(postgres_server().url(postgres_server().new_schema())))
    await store.open()
    yield store, COPIERS[request.param]
    await store.close()


async def test_a_run_that_the_copy_does_not_have_writes_to_no_other(
    restorable: tuple[Store, Copier], tmp_path: Path
) -> None:
    """The next run has its number, its owner and its epoch: only the id, and the chain, tell them apart."""
    store, copier = restorable
    first = await store.start_run(run_row("first"), [said("one")], owner=OWNER, lease_s=LEASE_S)
    await first.finish([said("done", "assistant")], COMPLETED)
    await asyncio.to_thread(copier, store.path, tmp_path / "copy", False)
    lost = await store.start_run(run_row("lost"), [said("two")], owner=OWNER, lease_s=LEASE_S)
    await asyncio.to_thread(copier, store.path, tmp_path / "copy", True)
    found = await store.start_run(run_row("found"), [said("three")], owner=OWNER, lease_s=LEASE_S)
    with pytest.raises(NotFound):
        await lost.write_chunk(told(1, "invented"), keep_from=1)
    with pytest.raises(NotFound):
        await lost.append([said("invented", "assistant")])
    with pytest.raises(NotFound):
        await lost.finish([said("invented", "assistant")], COMPLETED)
    await lost.release()
    assert await found.append([said("four", "assistant")]) == 2
    await found.finish([], COMPLETED)
    texts = {row.id: [entry.content for entry in await store.entries(row.id)] for row in await store.list_runs()}
    assert texts == {"run_found": ["three", "four"], "run_first": ["one", "done"]}
    for run_id in texts:
        assert [line for line in await store.audit(run_id) if line.sha256 != line.expected] == []
