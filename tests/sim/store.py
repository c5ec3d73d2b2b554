"""The SQLite store without threads: a job runs when it is submitted, in the loop's own thread and order."""

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import apsw

from treadle.core.errors import TreadleError
from treadle.journal.sqlite.connection import BUSY_TIMEOUT_MS, MEMORY, connect, constraint_error, select, store_error
from treadle.journal.sqlite.migrations import migrate, read_migrations
from treadle.journal.sqlite.store import SqliteStore
from treadle.journal.sqlite.writer_thread import Job, T

CURRENT: ContextVar[Any] = ContextVar("process", default=None)
"""Which process a task belongs to: tasks inherit it from the one that made them."""


class InlineWriter:
    """Fits the writer of the SQLite store."""

    is_open = True
    is_well = True
    queued = 0

    def __init__(self, connection: apsw.Connection) -> None:
        self.connection = connection
        self.locks = 0
        self._waiting: list[asyncio.Future[None]] = []

    def submit(
        self, job: Job[Any], *, is_durable: bool = True, then: Callable[[Any], Any] | None = None
    ) -> asyncio.Future[Any]:
        """Run a job in a transaction of its own, at once; whoever waits for it hears of it a turn later."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        if self.locks or self._waiting:
            waiter: asyncio.Future[None] = loop.create_future()
            self._waiting.append(waiter)
            task = loop.create_task(self._run_later(waiter, job, then, future))
            task.add_done_callback(lambda done: future.cancel() if done.cancelled() else None)
        else:
            self._run_now(job, then, future)
        return future

    async def _run_later(
        self,
        waiter: asyncio.Future[None],
        job: Job[Any],
        then: Callable[[Any], Any] | None,
        future: asyncio.Future[Any],
    ) -> None:
        """Wait for the lock of another program, as long as SQLite does."""
        try:
            async with asyncio.timeout(BUSY_TIMEOUT_MS / 1_000):
                await waiter
        except TimeoutError:
            future.set_exception(store_error(apsw.BusyError("database is locked"), MEMORY))
            return
        finally:
            self._waiting.remove(waiter)
            self.wake_next()
        self._run_now(job, then, future)

    def wake_next(self) -> None:
        """Let the next one write, in the order in which they came, unless another program holds the lock."""
        if not self.locks and self._waiting and not self._waiting[0].done():
            self._waiting[0].set_result(None)

    def _run_now(self, job: Job[Any], then: Callable[[Any], Any] | None, future: asyncio.Future[Any]) -> None:
        try:
            value = self.run(job)
        except TreadleError as error:
            if not future.done():
                future.set_exception(error)
            return
        asyncio.get_running_loop().call_soon(_tell, future, value if then is None else then(value))

    def run(self, job: Job[T]) -> T:
        """Run a job in a transaction of its own. Raises: TreadleError."""
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            value = job(self.connection)
            process = CURRENT.get()
            if process is not None and process.gate.is_full():
                raise apsw.FullError("database or disk is full")
            self.connection.execute("COMMIT")
        except apsw.ConstraintError as error:
            raise constraint_error(error) from None
        except apsw.Error as error:
            raise store_error(error, MEMORY) from None
        except TreadleError:
            raise
        finally:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
        return value

    async def close(self) -> None:
        """Close the connection."""
        self.connection.close()


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

    def lock(self) -> None:
        """Be another program that begins to write."""
        self._open_writer().locks += 1

    def unlock(self) -> None:
        """End what the other program writes."""
        writer = self._open_writer()
        writer.locks = 0
        writer.wake_next()

    def read_entries(self) -> list[tuple[int, int, str]]:
        """Be another program that reads all entries: their runs, their numbers, their hashes."""
        return select(self._open_writer().connection, "SELECT run, seq, sha256 FROM events")

    async def _read_stored_job(self, job: Job[T]) -> T:
        """Read: no lock of a writer holds that up."""
        return self._open_writer().run(job)

    async def close(self) -> None:
        """Forget the database."""
        await self._watch.close()
        await self._open_writer().close()
