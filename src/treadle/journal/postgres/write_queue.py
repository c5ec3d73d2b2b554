"""The queue of writes: a bound on how many wait, and each goes on when nobody waits for it any longer."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from treadle.journal.postgres.connection import closed
from treadle.journal.store_url import PostgresAddress

QUEUED_WRITES_MAX = 1_000

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
