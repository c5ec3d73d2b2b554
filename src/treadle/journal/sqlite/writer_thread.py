"""The writer: one thread that owns the write connection and commits many jobs in one transaction.

A job is a function of the connection that only runs statements; all that can fail otherwise happens before it is
queued. The jobs of a batch are done together; if one breaks a rule they are all undone and done again, each in a
savepoint, so that it does not disturb its neighbours: a job may run twice. A failure of the disk fails its whole batch
and the thread continues. The event loop gets the results of a batch by one callback.

The files of the database are checked after each commit and, while there is none, twice a second. What was committed
to files that others do not see any more is reported as failed, and nothing is written after it.
"""

import asyncio
import threading
from collections import Counter, deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, TypeVar, cast, overload

import apsw

from treadle.core.errors import StoreError, TreadleError
from treadle.journal.sqlite.connection import constraint_error
from treadle.journal.sqlite.group_commit import Unsure, write_together
from treadle.journal.sqlite.health_check import CHECK_S, JournalHealth

BATCH_JOBS_MAX = 256
QUEUED_JOBS_MAX = 1_000

T = TypeVar("T")
V = TypeVar("V")
Job = Callable[[apsw.Connection], T]


Otherwise = Callable[[TreadleError], None]

_Ticket = tuple[Job[Any], asyncio.Future[Any], bool, Callable[[Any], Any] | None, Otherwise | None]
"""A job, its future, whether it must be durable, what makes the future's value of the job's, and the error callback."""

_Outcome = tuple[_Ticket, Any, TreadleError | None]
"""A ticket, what its job gave, and what went wrong."""


class WriterThread:
    """Runs jobs in the order they come, durably. Belongs to the event loop that made it.

    One that `is_inline` runs each job at once, without the thread: for a database in memory, which waits for nothing.
    """

    def __init__(self, connection: apsw.Connection, health: JournalHealth, *, is_inline: bool = False) -> None:
        self._connection = connection
        self._health = health
        self._is_inline = is_inline
        self.errors: Counter[str] = Counter()
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[list[_Ticket]] = SimpleQueue()
        self._left: list[_Ticket] = []
        self._queued = 0
        self._fresh: list[_Ticket] = []
        self._waiting: deque[_Ticket] = deque()
        self._is_open = True
        self._is_well = True
        self._syncs = True
        self._stopped = asyncio.Event()
        if is_inline:
            self._stopped.set()
            return
        # A daemon: a process that forgets to close must still be able to end, and what was committed is safe.
        threading.Thread(target=self._main, name="treadle-store-writer", daemon=True).start()

    @property
    def is_open(self) -> bool:
        """Return whether jobs are taken."""
        return self._is_open

    @property
    def is_well(self) -> bool:
        """Return whether the last transaction that had something to write went well."""
        return self._is_well

    @property
    def queued(self) -> int:
        """Return how many jobs were taken and are not committed yet."""
        return self._queued

    @overload
    def submit(self, job: Job[T], *, is_durable: bool = True) -> asyncio.Future[T]: ...
    @overload
    def submit(
        self, job: Job[T], *, is_durable: bool = True, then: Callable[[T], V], otherwise: Otherwise | None = None
    ) -> asyncio.Future[V]: ...
    def submit(
        self,
        job: Job[Any],
        *,
        is_durable: bool = True,
        then: Callable[[Any], Any] | None = None,
        otherwise: Otherwise | None = None,
    ) -> asyncio.Future[Any]:
        """Queue a job; the future gets its value once it is committed, or a StoreError, or what the job raises.

        What is not durable outlives this process, and the machine only once something durable was written after it.
        `then` is called in the loop with the value, and gives the one that the future gets; `otherwise` with what went
        wrong. Cancelling the future does not stop a job, unless the queue is full and it has no `otherwise`.
        """
        future: asyncio.Future[Any] = self._loop.create_future()
        ticket = (job, future, is_durable, then, otherwise)
        if (error := self._health.damage) is not None or not self._is_open:
            self._resolve_one(ticket, None, error or self._closed())
        elif self._is_inline:
            # Done one loop turn later: a caller that polls for a change must let other tasks make it.
            self._loop.call_soon(self._resolve, self._commit([ticket]))
            self._queued += 1
        elif self._queued < QUEUED_JOBS_MAX:
            self._take(ticket)
        else:
            self._waiting.append(ticket)
        return future

    def run_now(self, job: Job[T]) -> T:
        """Run a job at once and return its value; only where the writer is inline.

        Raises: StoreError, and what the job raises.
        """
        assert self._is_inline, "the connection belongs to the thread"
        if not self._is_open:
            raise self._closed()
        [(_, value, error)] = self._commit([(job, self._loop.create_future(), True, None, None)])
        if error is not None:
            raise error
        return cast("T", value)

    def _take(self, ticket: _Ticket) -> None:
        self._queued += 1
        if not self._fresh:
            # Not at once: the thread would fight for the interpreter, and for a single job.
            self._loop.call_soon(self._hand_over)
        self._fresh.append(ticket)

    def _hand_over(self) -> None:
        """Queue what was taken in this turn of the loop."""
        if self._fresh:
            self._queue.put(self._fresh)
            self._fresh = []

    def _let_in(self, count: int) -> None:
        """Take so many of those who still wait, those first who have waited longest."""
        while self._waiting and count > 0:
            ticket = self._waiting.popleft()
            if not ticket[1].done() or ticket[4] is not None:
                self._take(ticket)
                count -= 1

    async def close(self) -> None:
        """Take no more jobs, run those that came before, and end the thread."""
        if self._is_open:
            self._is_open = False
            if not self._is_inline:
                self._let_in(len(self._waiting))
                self._hand_over()
                self._queue.put([])
        await self._stopped.wait()

    def _main(self) -> None:
        batch: list[_Ticket] = []
        try:
            while batch := self._next_batch():
                self._call_loop(self._resolve, self._commit(batch))
                # Until the next one comes, which may take long, this would hold all that was written.
                batch = []
        finally:
            self._call_loop(self._stop, batch)

    def _next_batch(self) -> list[_Ticket]:
        """Return what waits, as much as goes together; nothing, when no more will come."""
        batch, self._left = self._left or self._wait(), []
        while not self._queue.empty() and 0 < len(batch) < BATCH_JOBS_MAX:
            more = self._queue.get()
            if not more:
                self._queue.put(more)
                break
            batch += more
        if len(batch) > BATCH_JOBS_MAX:
            batch, self._left = batch[:BATCH_JOBS_MAX], batch[BATCH_JOBS_MAX:]
        return batch

    def _wait(self) -> list[_Ticket]:
        """Return the next jobs, and check the files while there are none."""
        while True:
            try:
                return self._queue.get(timeout=CHECK_S)
            except Empty:
                self._health.check_files()

    def _commit(self, batch: list[_Ticket]) -> list[_Outcome]:
        """Do the jobs, and report none of them as done if the files are not the right ones any more."""
        outcomes = [] if self._health.damage is not None else self._transact(batch)
        return (
            outcomes
            if self._health.check_files() is None
            else [(ticket, None, self._health.damage) for ticket in batch]
        )

    def _transact(self, batch: list[_Ticket]) -> list[_Outcome]:
        is_lone = len(batch) == 1
        is_durable = batch[0][2] if is_lone else any(ticket[2] for ticket in batch)
        connection = self._connection
        try:
            if is_durable is not self._syncs:
                connection.pragma("synchronous", "full" if is_durable else "normal")
                self._syncs = is_durable
            before = 0 if self._is_well else connection.total_changes()
            connection.execute("BEGIN IMMEDIATE")
            outcomes = [self._try(batch[0])] if is_lone else self._run_together(batch)
            # What a job did wrong that has the transaction to itself is rolled back with it.
            connection.execute("ROLLBACK" if is_lone and outcomes[0][2] is not None else "COMMIT")
            if not self._is_well:
                # A full disk takes a transaction that writes nothing.
                self._is_well = connection.total_changes() != before
        except apsw.Error as error:
            self._is_well = False
            # Some failures have rolled the transaction back by themselves, others leave it open.
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            # Each gets a separate error: every waiter raises it, with a traceback.
            failed = [self._health.failed(error) for _ in batch]
            self.errors[failed[0].info.code] += 1
            return [(ticket, None, each) for ticket, each in zip(batch, failed, strict=True)]
        return outcomes

    def _run_together(self, batch: list[_Ticket]) -> list[_Outcome]:
        """Run all jobs by as few statements as it takes; if one breaks a rule, each in its own savepoint."""
        try:
            values = write_together(self._connection, [ticket[0] for ticket in batch])
            return [(ticket, value, None) for ticket, value in zip(batch, values, strict=True)]
        except (Unsure, apsw.ConstraintError, TreadleError):
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        # Not in the handler: an error in there would have that one for its context, and its frames hold the batch.
        self._connection.execute("BEGIN IMMEDIATE")
        return [self._run(ticket) for ticket in batch]

    def _run(self, ticket: _Ticket) -> _Outcome:
        self._connection.execute("SAVEPOINT job")
        outcome = self._try(ticket)
        if outcome[2] is not None:
            self._connection.execute("ROLLBACK TO job")
        self._connection.execute("RELEASE job")
        return outcome

    def _try(self, ticket: _Ticket) -> _Outcome:
        try:
            return ticket, ticket[0](self._connection), None
        except apsw.ConstraintError as error:
            return ticket, None, constraint_error(error)
        except TreadleError as error:
            # With its traceback the error would hold this frame, and the frame the future that holds the error: a cycle
            # around all that the run still had to write, which stays until the collector runs.
            return ticket, None, error.with_traceback(None)

    def _call_loop(self, callback: Callable[[Any], None], argument: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, argument)
        except RuntimeError:
            # The loop is closed: no waiter is left, and the jobs are committed all the same.
            return

    def _resolve(self, outcomes: list[_Outcome]) -> None:
        self._queued -= len(outcomes)
        for ticket, value, error in outcomes:
            self._resolve_one(ticket, value, error)
        if self._waiting:
            self._let_in(QUEUED_JOBS_MAX - self._queued)

    def _resolve_one(self, ticket: _Ticket, value: Any, error: TreadleError | None) -> None:
        _, future, _, then, otherwise = ticket
        if error is None:
            result = value if then is None else then(value)
            if not future.done():
                future.set_result(result)
            return
        if otherwise is not None:
            otherwise(error)
        if not future.done():
            future.set_exception(error)

    def _stop(self, unfinished: list[_Ticket]) -> None:
        self._is_open = False
        self._let_in(len(self._waiting))
        self._hand_over()
        unfinished += self._left
        while not self._queue.empty():
            unfinished += self._queue.get()
        self._resolve([(ticket, None, self._closed()) for ticket in unfinished])
        self._stopped.set()

    def _closed(self) -> StoreError:
        return StoreError(f"the store {self._health.path} is closed", code="store_closed")
