"""The stores that the contract is run on: a new one joins by a line in FACTORIES."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from postgres import postgres_server
from store.sample import SetClock
from treadle.journal.journal_interface import Store
from treadle.journal.memory_store import MemoryStore
from treadle.journal.postgres.store import PostgresStore
from treadle.journal.sqlite.store import SqliteStore
from treadle.journal.store_url import PostgresAddress

StoreFactory = Callable[[Path, SetClock], Store]

FACTORIES: dict[str, StoreFactory] = {
    "memory": lambda _, clock: MemoryStore(clock=clock),
    "sqlite-file": lambda folder, clock: SqliteStore(str(folder / "journal.db"), clock=clock),
    "sqlite-memory": lambda _, clock: SqliteStore(":memory:", clock=clock),
    "postgres": lambda _, clock: PostgresStore(
        PostgresAddress(postgres_server().url()), clock=clock, lease_clock=clock
    ),
}


@pytest.fixture
def clock() -> SetClock:
    """A clock that the test moves."""
    return SetClock()


@pytest.fixture(params=sorted(FACTORIES))
async def store(request: pytest.FixtureRequest, tmp_path: Path, clock: SetClock) -> AsyncIterator[Store]:
    """An open store of each kind."""
    opened = FACTORIES[request.param](tmp_path, clock)
    await opened.open()
    yield opened
    await opened.close()
    if isinstance(opened, PostgresStore):
        await postgres_server().empty(opened.path)
