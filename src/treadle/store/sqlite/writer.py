"""The writer: one thread that owns the write connection and commits many jobs in one transaction.

A job is a function of the connection that only runs statements; all that can fail otherwise happens before it is
queued. Each job of a batch runs in a savepoint, so one that breaks a rule does not disturb its neighbours; a failure
of the disk fails its whole batch and the thread goes on. The event loop hears of a batch by one callback.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar, cast

import apsw

from treadle.canon.errors import StoreError, TreadleError
from treadle.store.sqlite.connection import constraint_error, store_error

BATCH_JOBS_MAX = 256
QUEUED_JOBS_MAX = 1_000

T = TypeVar("T")
Job = Callable[[apsw.Connection], T]


class _Ticket(NamedTuple):
    job: Job[Any]
    future: asyncio.Future[Any]
    is_durable: bool


class _Outcome(NamedTuple):
    future: asyncio.Future[Any]
    value: Any = None
    error: TreadleError | None = None


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
        self._room = asyncio.Semaphore(QUEUED_JOBS_MAX)
        self._queued = 0
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
                return self._run_now(job)
            finally:
                # Whoever asks in a loop until something has changed must let others change it.
                await asyncio.sleep(0)
        await self._room.acquire()
        if not self._is_open:
            self._room.release()
            raise self._closed()
        self._queued += 1
        future: asyncio.Future[T] = self._loop.create_future()
        self._queue.put(_Ticket(job, future, is_durable))
        return await future

    def _run_now(self, job: Job[T]) -> T:
        if not self._is_open:
            raise self._closed()
        outcome = self._commit([_Ticket(job, self._loop.create_future(), True)])[0]
        if outcome.error is not None:
            raise outcome.error
        return cast("T", outcome.value)

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
        is_durable = any(ticket.is_durable for ticket in batch)
        try:
            if not is_durable:
                self._connection.pragma("synchronous", "normal")
            self._connection.execute("BEGIN IMMEDIATE")
            outcomes = self._run_alone(batch[0]) if len(batch) == 1 else [self._run(ticket) for ticket in batch]
            if self._connection.in_transaction:
                self._connection.execute("COMMIT")
        except apsw.Error as error:
            # Some failures have rolled the transaction back by themselves, others leave it open.
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            return [_Outcome(ticket.future, error=store_error(error, self._path)) for ticket in batch]
        finally:
            if not is_durable:
                self._connection.pragma("synchronous", "full")
        return outcomes

    def _run_alone(self, ticket: _Ticket) -> list[_Outcome]:
        """Run a job that has the transaction to itself: what it did wrong is rolled back with it."""
        outcome = self._try(ticket)
        if outcome.error is not None and self._connection.in_transaction:
            self._connection.execute("ROLLBACK")
        return [outcome]

    def _run(self, ticket: _Ticket) -> _Outcome:
        self._connection.execute("SAVEPOINT job")
        outcome = self._try(ticket)
        if outcome.error is not None:
            self._connection.execute("ROLLBACK TO job")
        self._connection.execute("RELEASE job")
        return outcome

    def _try(self, ticket: _Ticket) -> _Outcome:
        try:
            return _Outcome(ticket.future, value=ticket.job(self._connection))
        except apsw.ConstraintError as error:
            return _Outcome(ticket.future, error=constraint_error(error))
        except TreadleError as error:
            return _Outcome(ticket.future, error=error)

    def _call_loop(self, callback: Callable[[Any], None], argument: Any) -> None:
        # The loop is closed: nobody is left who waits, and the jobs are committed all the same.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback, argument)

    def _resolve(self, outcomes: list[_Outcome]) -> None:
        self._queued -= len(outcomes)
        for future, value, error in outcomes:
            self._room.release()
            if future.done():
                continue
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(error)

    def _stop(self, unfinished: list[_Ticket]) -> None:
        self._is_open = False
        while not self._queue.empty():
            ticket = self._queue.get()
            if ticket is not None:
                unfinished.append(ticket)
        self._resolve([_Outcome(ticket.future, error=self._closed()) for ticket in unfinished])
        self._stopped.set()

    def _closed(self) -> StoreError:
        return StoreError(f"the store {self._path} is closed", code="store_closed")
