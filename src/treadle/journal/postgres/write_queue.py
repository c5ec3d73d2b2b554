"""Bounds on the writes of one process: how many are active, how many go without a group, how long each waits.

What a write does, and the order of the writes of one run, are decided by the callers.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from treadle.journal.postgres.connection import closed
from treadle.journal.store_url import PostgresAddress

QUEUED_WRITES_MAX = 1_000
WRITE_WAIT_S = 10.0
"""How long a write waits in total while the database answers no write at all: less than a lease, so that this process
still holds the run afterwards."""
SLOW_WAIT_S = 40.0
"""How long a write waits while the database answers other writes: a slow one may work off a full queue."""
ALONE_WAIT_S = 7.0
"""How long a write may take once it has its slot."""

T = TypeVar("T")
Work = Callable[[], Coroutine[Any, Any, Any]]
OnDone = Callable[[], None]
"""Called when work that was started is over, also if it was cancelled before its first step."""


class WriteQueue:
    """Runs writes as tasks that their callers cannot cancel, a bounded number at a time. Belongs to one event loop."""

    def __init__(self, address: PostgresAddress) -> None:
        self._address = address
        self._queued = 0
        self._waiting: deque[tuple[Work, asyncio.Future[Any], OnDone | None]] = deque()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_open = True
        self._emptied = asyncio.Event()

    @property
    def queued(self) -> int:
        """Return how many writes are active: started here or counted in, and not done."""
        return self._queued

    @property
    def has_room(self) -> bool:
        """Return whether a write would start at once."""
        return self._is_open and self._queued < QUEUED_WRITES_MAX

    def submit(self, work: Callable[[], Coroutine[Any, Any, T]], on_done: OnDone | None = None) -> "asyncio.Future[T]":
        """Do the work to its end even if the caller stops waiting; the future gets its value, or what it raises.

        Without room the work starts later, unless its future was cancelled by then.
        """
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        if self.has_room:
            self.count_in()
            self.start(work, future, on_done)
        elif self._is_open:
            self._waiting.append((work, future, on_done))
        else:
            future.set_exception(closed(self._address))
        return future

    def count_in(self) -> None:
        """Count a write that the caller does itself, until `count_out`, or until `start` and its end."""
        self._queued += 1

    def start(self, work: Work, future: asyncio.Future[Any], on_done: OnDone | None = None) -> None:
        """Do the work of a write that was counted in, and resolve its future."""
        task = asyncio.create_task(work())
        self._tasks.add(task)
        task.add_done_callback(partial(self._finish, future, on_done))

    def count_out(self) -> None:
        """Make room: a write is done."""
        self._queued -= 1
        if self._waiting:
            self._start_waiting(QUEUED_WRITES_MAX - self._queued)
        if not self._queued:
            self._emptied.set()

    async def close(self) -> None:
        """Refuse new writes, start all waiting ones, and wait until all are done."""
        self._is_open = False
        self._start_waiting(len(self._waiting))
        while self._queued:
            self._emptied.clear()
            await self._emptied.wait()

    def _start_waiting(self, count: int) -> None:
        """Start up to `count` waiting writes, oldest first; skip those whose future was cancelled."""
        while self._waiting and count > 0:
            work, future, on_done = self._waiting.popleft()
            if not future.done():
                self.count_in()
                self.start(work, future, on_done)
                count -= 1

    def _finish(self, future: asyncio.Future[Any], on_done: OnDone | None, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if task.cancelled():
            future.cancel()
        elif not future.done() and error is not None:
            future.set_exception(error)
        elif not future.done():
            future.set_result(task.result())
        if on_done is not None:
            on_done()
        self.count_out()


class WriteSlots:
    """Bounds how many writes use a transaction of their own at the same time, and gives each a deadline.

    A write is identified by the time of its submission. While the database answers any write, the others keep waiting,
    at most `SLOW_WAIT_S`. `WRITE_WAIT_S` after the last answer all writes submitted before it fail together.
    Belongs to one event loop.
    """

    def __init__(self, count: int) -> None:
        self._free = count
        self._answered_at = float("-inf")
        self._waiting: deque[tuple[float, asyncio.Future[bool]]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def note_answer(self) -> None:
        """Record that the database has answered a write."""
        self._answered_at = time.monotonic()

    def deadline(self, submitted_at: float) -> float:
        """Return the deadline of a write as it stands now: every answer moves it."""
        return min(max(submitted_at, self._answered_at) + WRITE_WAIT_S, submitted_at + SLOW_WAIT_S)

    async def acquire(self, submitted_at: float) -> float | None:
        """Wait for a slot; return the deadline of the write, or None if it got no slot in time."""
        if self._free:
            self._free -= 1
        else:
            slot: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
            self._waiting.append((submitted_at, slot))
            if self._timer is None:
                self._expire()
            try:
                if not await slot:
                    return None
            except asyncio.CancelledError:
                if slot.done() and not slot.cancelled() and slot.result():
                    self.release()
                raise
        # A write that the database blocks gets no more time because others are answered.
        waited = min(time.monotonic() + ALONE_WAIT_S, self.deadline(submitted_at))
        return max(submitted_at + WRITE_WAIT_S, waited)

    def release(self) -> None:
        """Give the slot to the write that has waited longest."""
        while self._waiting:
            _, slot = self._waiting.popleft()
            if not slot.done():
                slot.set_result(True)
                return
        self._free += 1

    def _expire(self) -> None:
        """Fail the writes whose deadline has passed, and schedule the next check."""
        self._timer = None
        now = time.monotonic()
        waiting = [(at, slot) for at, slot in self._waiting if not slot.done()]
        self._waiting.clear()
        for at, slot in waiting:
            if self.deadline(at) <= now:
                slot.set_result(False)
            else:
                self._waiting.append((at, slot))
        if self._waiting:
            first = min(self.deadline(at) for at, _ in self._waiting)
            self._timer = asyncio.get_running_loop().call_later(first - now, self._expire)
