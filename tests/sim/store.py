"""The SQLite store without threads: a job runs when it is submitted, in the loop's own thread and order."""

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import apsw

from treadle.canon.errors import TreadleError
from treadle.store.sqlite.connection import MEMORY, connect, constraint_error, store_error
from treadle.store.sqlite.migrate import migrate, read_migrations
from treadle.store.sqlite.store import SqliteStore
from treadle.store.sqlite.writer import Job, T

CURRENT: ContextVar[Any] = ContextVar("process", default=None)
"""Which process a task belongs to: tasks inherit it from the one that made them."""


class InlineWriter:
    """Fits the writer of the SQLite store."""

    is_open = True
    is_well = True
    queued = 0

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def submit(
        self, job: Job[Any], *, is_durable: bool = True, then: Callable[[Any], Any] | None = None
    ) -> asyncio.Future[Any]:
        """Run a job in a transaction of its own, at once; whoever waits for it hears of it a turn later."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        try:
            value = self._run(job)
        except TreadleError as error:
            future.set_exception(error)
            return future
        loop.call_soon(_tell, future, value if then is None else then(value))
        return future

    def _run(self, job: Job[T]) -> T:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            value = job(self._connection)
            process = CURRENT.get()
            if process is not None and process.gate.is_full():
                raise apsw.FullError("database or disk is full")
            self._connection.execute("COMMIT")
        except apsw.ConstraintError as error:
            raise constraint_error(error) from None
        except apsw.Error as error:
            raise store_error(error, MEMORY) from None
        except TreadleError:
            raise
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        return value

    async def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def _tell(future: asyncio.Future[Any], value: Any) -> None:
    if not future.done():
        future.set_result(value)


class _InOrder(dict[object, None]):
    """A set that is gone through in the order in which things came, the same way every time."""

    def add(self, thing: object) -> None:
        """Take a thing in."""
        self[thing] = None

    def discard(self, thing: object) -> None:
        """Let a thing go."""
        self.pop(thing, None)


class SimStore(SqliteStore):
    """Fits `Store`: in memory, and shared by all processes of a simulation."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__(MEMORY, clock=clock)
        self._now = clock
        self._watch._waiters = _InOrder()

    async def open(self) -> None:
        """Make an empty database."""
        connection = connect(MEMORY)
        migrate(connection, read_migrations(), self._now())
        self._writer = InlineWriter(connection)

    async def close(self) -> None:
        """Forget the database."""
        await self._watch.close()
        await self._open_writer().close()
