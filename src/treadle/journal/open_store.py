"""One way to open a store by its address; what an engine needs is imported only when it is asked for."""

import time
from collections.abc import Callable

from treadle.core.errors import StoreError
from treadle.journal.inspection import JournalInspection
from treadle.journal.journal_interface import Store
from treadle.journal.store_url import MEMORY, PostgresAddress, is_postgres


def open_store(
    place: str,
    *,
    clock: Callable[[], float] = time.time,
    monotonic: Callable[[], float] | None = None,
    password: str = "",
) -> Store:
    """Return the store at `postgresql://…`, at the path of a SQLite file, or `:memory:`; it is not open yet.

    By `monotonic` leases go on where the clock is set; PostgreSQL counts them by its own time.
    `password` is used where the address has none.
    Raises: StoreError, when the package for it is not installed; ConfigError, for an address that cannot be one.
    """
    if is_postgres(place):
        return _postgres(PostgresAddress(place, password=password), clock)
    if place == MEMORY:
        from treadle.journal.memory_store import MemoryStore

        return MemoryStore(clock=clock, monotonic=monotonic)
    from treadle.journal.sqlite.store import SqliteStore

    return SqliteStore(place, clock=clock, monotonic=monotonic)


async def look_at_store(address: PostgresAddress) -> JournalInspection:
    """Say which PostgreSQL answers and what is in it, without changing anything.

    Raises: StoreError.
    """
    try:
        from treadle.journal.postgres.migrations import look
    except ModuleNotFoundError as error:
        raise _not_installed(error, address) from None
    return await look(address)


def _postgres(address: PostgresAddress, clock: Callable[[], float]) -> Store:
    try:
        from treadle.journal.postgres.store import PostgresStore
    except ModuleNotFoundError as error:
        raise _not_installed(error, address) from None
    return PostgresStore(address, clock=clock)


def _not_installed(error: ModuleNotFoundError, address: PostgresAddress) -> Exception:
    if error.name != "asyncpg":
        return error
    return StoreError(
        f"the store {address.shown} needs the package asyncpg, which is not installed",
        code="store_not_installed",
        hint="pip install 'treadle[postgres]'",
    )
