"""Bounds on the writes of one process: how many are queued, how many go to the database alone, and how long one waits.

How a write is done, and in which order those of a run follow each other, is not known here.
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
"""How long a write to a run waits for a database that answers none of them, all of its steps together: less than a
lease, so that the run is still held afterwards."""
SLOW_WAIT_S = 40.0
"""How long it waits at a database that answers others: a slow one may work off a full queue."""
ALONE_WAIT_S = 7.0
"""How long a write that waited for its slot has for itself."""

T = TypeVar("T")
Work = Callable[[], Coroutine[Any, Any, Any]]
Left = Callable[[], None]
"""Is called when work that has begun is over, also when it was cancelled before its first step."""


class WriteQueue:
    """Belongs to one event loop."""

    def __init__(self, address: PostgresAddress) -> None:
        self._address = address
        self._queued = 0
        self._waiting: deque[tuple[Work, asyncio.Future[Any], Left | None]] = deque()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_open = True
        self._emptied = asyncio.Event()

    @property
    def queued(self) -> int:
        """Return how many writes were taken and are not done yet."""
        return self._queued

    @property
    def has_room(self) -> bool:
        """Tell whether a write would begin at once."""
        return self._is_open and self._queued < QUEUED_WRITES_MAX

    def submit(self, work: Callable[[], Coroutine[Any, Any, T]], left: Left | None = None) -> "asyncio.Future[T]":
        """Do the work to its end, whoever still waits for it; the future gets its value, or what it raises.

        While too many are queued it does not begin, and never does if by then nobody waits any longer.
        """
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        if self.has_room:
            self.enter()
            self.go_on(work, future, left)
        elif self._is_open:
            self._waiting.append((work, future, left))
        else:
            future.set_exception(closed(self._address))
        return future

    def enter(self) -> None:
        """Count a write that is done elsewhere, until it leaves or goes on here."""
        self._queued += 1

    def go_on(self, work: Work, future: asyncio.Future[Any], left: Left | None = None) -> None:
        """Do the work of a write that has entered, and tell its future."""
        task = asyncio.create_task(work())
        self._tasks.add(task)
        task.add_done_callback(partial(self._finish, future, left))

    def leave(self) -> None:
        """Make room, now that a write is done."""
        self._queued -= 1
        if self._waiting:
            self._let_in(QUEUED_WRITES_MAX - self._queued)
        if not self._queued:
            self._emptied.set()

    async def close(self) -> None:
        """Take no more, and wait for those that came before."""
        self._is_open = False
        self._let_in(len(self._waiting))
        while self._queued:
            self._emptied.clear()
            await self._emptied.wait()

    def _let_in(self, count: int) -> None:
        """Begin so many of those that are still waited for, those first that came first."""
        while self._waiting and count > 0:
            work, future, left = self._waiting.popleft()
            if not future.done():
                self.enter()
                self.go_on(work, future, left)
                count -= 1

    def _finish(self, future: asyncio.Future[Any], left: Left | None, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if task.cancelled():
            future.cancel()
        elif not future.done() and error is not None:
            future.set_exception(error)
        elif not future.done():
            future.set_result(task.result())
        if left is not None:
            left()
        self.leave()


class WriteSlots:
    """Bounds how many writes go to the database alone at once, and says how long each waits.

    A write is known here by the moment at which it was submitted. While the database answers writes, those behind them
    go on waiting; when it answers none for `WRITE_WAIT_S`, all that were submitted before fail at the same time.
    Belongs to one event loop.
    """

    def __init__(self, count: int) -> None:
        self._free = count
        self._answered_at = float("-inf")
        self._waiting: deque[tuple[float, asyncio.Future[bool]]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def note_answer(self) -> None:
        """Note that the database has done a write."""
        self._answered_at = time.monotonic()

    def deadline(self, submitted_at: float) -> float:
        """Return until when a write waits, as far as is known now."""
        return min(max(submitted_at, self._answered_at) + WRITE_WAIT_S, submitted_at + SLOW_WAIT_S)

    async def acquire(self, submitted_at: float) -> float | None:
        """Wait for a slot; return until when the write may take, or None if it got no slot in time."""
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
        # One that the database blocks, while it answers others, waits no longer for that.
        waited = min(time.monotonic() + ALONE_WAIT_S, self.deadline(submitted_at))
        return max(submitted_at + WRITE_WAIT_S, waited)

    def release(self) -> None:
        """Give the slot to the write that waits longest."""
        while self._waiting:
            _, slot = self._waiting.popleft()
            if not slot.done():
                slot.set_result(True)
                return
        self._free += 1

    def _expire(self) -> None:
        """Fail the writes whose time is over, and look again when that of the next one is."""
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
