"""The writer: one thread that owns the write connection and commits many jobs in one transaction.

A job is a function of the connection that only runs statements; all that can fail otherwise happens before it is
queued. The jobs of a batch are done together; if one breaks a rule they are all undone and done again, each in a
savepoint, so that it does not disturb its neighbours: a job may run twice. A failure of the disk fails its whole batch
and the thread goes on. The event loop hears of a batch by one callback.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, TypeVar, cast

import apsw

from treadle.canon.errors import StoreError, TreadleError
from treadle.store.sqlite.connection import constraint_error, store_error
from treadle.store.together.sqlite import Unsure, write_together

BATCH_JOBS_MAX = 256
QUEUED_JOBS_MAX = 1_000

T = TypeVar("T")
Job = Callable[[apsw.Connection], T]


_Ticket = tuple[Job[Any], asyncio.Future[Any], bool]
"""A job, who waits for it, and whether it must be durable."""

_Outcome = tuple[asyncio.Future[Any], Any, TreadleError | None]
"""Who waits, what the job gave, and what went wrong."""


class Writer:
    """Runs jobs in the order they come, durably. Belongs to the event loop that made it.

    One that `is_inline` runs each job at once, without the thread: for a database in memory, which waits for nothing.
    """

    def __init__(self, connection: apsw.Connection, path: str, *, is_inline: bool = False) -> None:
        self._connection = connection
        self._path = path
        self._is_inline = is_inline
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[_Ticket | None] = SimpleQueue()
        self._queued = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_open = True
        self._stopped = asyncio.Event()
        if is_inline:
            self._stopped.set()
            return
        # A daemon: a process that forgets to close must still be able to end, and what was committed is safe.
        threading.Thread(target=self._main, name="treadle-store-writer", daemon=True).start()

    @property
    def is_open(self) -> bool:
        """Tell whether jobs are taken."""
        return self._is_open

    @property
    def queued(self) -> int:
        """Return how many jobs were taken and are not committed yet."""
        return self._queued

    async def submit(self, job: Job[T], *, is_durable: bool = True) -> T:
        """Run a job and return its value once it is committed; wait first while too many are queued.

        What is not durable outlives this process, and the machine only once something durable was written after it.
        A caller that is cancelled after its job was queued does not stop the job.
        Raises: StoreError, and what the job raises.
        """
        if self._is_inline:
            try:
                return self.run_now(job)
            finally:
                # Whoever asks in a loop until something has changed must let others change it.
                await asyncio.sleep(0)
        if self._queued >= QUEUED_JOBS_MAX:
            await self._wait_for_room()
        if not self._is_open:
            raise self._closed()
        self._queued += 1
        future: asyncio.Future[T] = self._loop.create_future()
        self._queue.put((job, future, is_durable))
        return await future

    def run_now(self, job: Job[T]) -> T:
        """Run a job at once and return its value; only where the writer is inline.

        Raises: StoreError, and what the job raises.
        """
        assert self._is_inline, "the connection belongs to the thread"
        if not self._is_open:
            raise self._closed()
        [(_, value, error)] = self._commit([(job, self._loop.create_future(), True)])
        if error is not None:
            raise error
        return cast("T", value)

    async def _wait_for_room(self) -> None:
        while self._is_open and self._queued >= QUEUED_JOBS_MAX:
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._waiting.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                self._let_in(1)  # it may have been this one's turn
                raise

    def _let_in(self, count: int) -> None:
        """Wake as many as there is room for now, those first who have waited longest."""
        while count > 0 and self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                count -= 1

    async def close(self) -> None:
        """Take no more jobs, run those that are queued, and end the thread."""
        if self._is_open:
            self._is_open = False
            if not self._is_inline:
                self._queue.put(None)
        await self._stopped.wait()

    def _main(self) -> None:
        batch: list[_Ticket] = []
        try:
            while batch := self._next_batch():
                self._call_loop(self._resolve, self._commit(batch))
        finally:
            self._call_loop(self._stop, batch)

    def _next_batch(self) -> list[_Ticket]:
        batch: list[_Ticket] = []
        ticket = self._queue.get()
        while ticket is not None:
            batch.append(ticket)
            if len(batch) == BATCH_JOBS_MAX or self._queue.empty():
                return batch
            ticket = self._queue.get()
        if batch:
            self._queue.put(None)
        return batch

    def _commit(self, batch: list[_Ticket]) -> list[_Outcome]:
        is_durable = any(ticket[2] for ticket in batch)
        connection = self._connection
        try:
            if not is_durable:
                connection.pragma("synchronous", "normal")
            connection.execute("BEGIN IMMEDIATE")
            outcomes = self._run_alone(batch[0]) if len(batch) == 1 else self._run_together(batch)
            if connection.in_transaction:
                connection.execute("COMMIT")
        except apsw.Error as error:
            # Some failures have rolled the transaction back by themselves, others leave it open.
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            return [(future, None, store_error(error, self._path)) for _, future, _ in batch]
        finally:
            if not is_durable:
                connection.pragma("synchronous", "full")
        return outcomes

    def _run_alone(self, ticket: _Ticket) -> list[_Outcome]:
        """Run a job that has the transaction to itself: what it did wrong is rolled back with it."""
        outcome = self._try(ticket)
        if outcome[2] is not None and self._connection.in_transaction:
            self._connection.execute("ROLLBACK")
        return [outcome]

    def _run_together(self, batch: list[_Ticket]) -> list[_Outcome]:
        """Run all jobs by as few statements as it takes; if one breaks a rule, each in a savepoint of its own."""
        try:
            values = write_together(self._connection, [job for job, _, _ in batch])
        except (Unsure, apsw.ConstraintError, TreadleError):
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            self._connection.execute("BEGIN IMMEDIATE")
            return [self._run(ticket) for ticket in batch]
        return [(future, value, None) for (_, future, _), value in zip(batch, values, strict=True)]

    def _run(self, ticket: _Ticket) -> _Outcome:
        self._connection.execute("SAVEPOINT job")
        outcome = self._try(ticket)
        if outcome[2] is not None:
            self._connection.execute("ROLLBACK TO job")
        self._connection.execute("RELEASE job")
        return outcome

    def _try(self, ticket: _Ticket) -> _Outcome:
        job, future, _ = ticket
        try:
            return future, job(self._connection), None
        except apsw.ConstraintError as error:
            return future, None, constraint_error(error)
        except TreadleError as error:
            return future, None, error

    def _call_loop(self, callback: Callable[[Any], None], argument: Any) -> None:
        # The loop is closed: nobody is left who waits, and the jobs are committed all the same.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback, argument)

    def _resolve(self, outcomes: list[_Outcome]) -> None:
        self._queued -= len(outcomes)
        for future, value, error in outcomes:
            if future.done():
                continue
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(error)
        if self._waiting:
            self._let_in(QUEUED_JOBS_MAX - self._queued)

    def _stop(self, unfinished: list[_Ticket]) -> None:
        self._is_open = False
        while not self._queue.empty():
            ticket = self._queue.get()
            if ticket is not None:
                unfinished.append(ticket)
        self._resolve([(future, None, self._closed()) for _, future, _ in unfinished])
        self._let_in(len(self._waiting))
        self._stopped.set()

    def _closed(self) -> StoreError:
        return StoreError(f"the store {self._path} is closed", code="store_closed")
