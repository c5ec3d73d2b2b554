"""Runs steps on a connection to PostgreSQL."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from treadle.journal.postgres.connection import Connection, Work
from treadle.journal.postgres.row_mapping import DIALECT
from treadle.journal.retention import Retention
from treadle.journal.sql_steps import Steps

T = TypeVar("T")

_retention = Retention(DIALECT)


class Reads(Protocol):
    """Runs work that changes nothing on a connection of the store."""

    async def __call__(self, work: Work[T]) -> T:
        """Return what the work returns."""
        ...


class WorkspaceWrites(Protocol):
    """Runs work to its end on a connection; `settle` finds out whether work whose answer was lost was done."""

    async def __call__(self, work: Work[T], settle: Work[T | None] | None = None) -> T:
        """Return what the work returns."""
        ...


async def run_steps(connection: Connection, steps: Steps[T]) -> T:
    """Run steps and return what they return."""
    try:
        statement = next(steps)
        while True:
            sql, *values = statement
            statement = steps.send(await connection.fetch(sql, *values))
    except StopIteration as ended:
        return ended.value


def as_work(steps: Callable[[], Steps[T]]) -> Work[T]:
    """Return work that runs the steps from the start, each time that it is tried."""
    return lambda connection: run_steps(connection, steps())


def in_transaction(steps: Callable[[], Steps[T]]) -> Work[T]:
    """Return work that runs the steps together or not at all."""

    async def work(connection: Connection) -> T:
        async with connection.transaction():
            return await run_steps(connection, steps())

    return work


async def purge_ended(connection: Connection, run_ids: Sequence[str]) -> None:
    """Forget the content of those of the runs that have ended, in a transaction that the caller has started."""
    await run_steps(connection, _retention.purge_ended(run_ids))
