"""Opens a store by its address, or inspects it without changing it. A database's driver is imported on first use."""

import time
from collections.abc import Callable

import msgspec

from treadle.core.errors import StoreError
from treadle.journal.journal_interface import Store
from treadle.journal.store_url import MEMORY, PostgresAddress, is_postgres

REPLICAS_S = 15.0
"""How long ago a process was seen at most to be listed."""


class JournalInspection(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen. `version` is that of the schema, 0 where there is none yet; `newest` the one this code knows."""

    engine: str
    version: int
    newest: int
    runs: int = 0
    size_bytes: int = 0
    skew_s: float = 0.0
    connections_left: int | None = None
    replicas: tuple[tuple[str, str], ...] = ()
    """The processes that were seen a moment ago, each with what it is and has as JSON; see `replicas_interface`."""
    secrets: frozenset[str] = frozenset()
    """Fingerprints of the secrets that keys were made or proved under."""

    @property
    def state(self) -> str:
        """Return the state of the schema."""
        if not self.version:
            return "will be made"
        return f"at version {self.version}" if self.version == self.newest else "will be migrated"


def skew_s(server_s: float, asked_at: float) -> float:
    """Return how far another clock is ahead of ours, where it was read between `asked_at` and now.

    What lies within the time that the question took is no skew.
    """
    answered_at = time.time()
    if server_s > answered_at:
        return server_s - answered_at
    return min(0.0, server_s - asked_at)


def open_store(
    place: str,
    *,
    clock: Callable[[], float] = time.time,
    monotonic: Callable[[], float] | None = None,
    password: str = "",
) -> Store:
    """Return the store at `postgresql://…`, at the path of a SQLite file, or `:memory:`; it is not open yet.

    By `monotonic` leases keep their length when the clock is set; PostgreSQL counts them by its own time.
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


async def inspect_store(address: PostgresAddress) -> JournalInspection:
    """Return which PostgreSQL answers and what is in it, without changing anything.

    Raises: StoreError.
    """
    try:
        from treadle.journal.postgres.migrations import inspect_schema
    except ModuleNotFoundError as error:
        raise _not_installed(error, address) from None
    return await inspect_schema(address)


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
