"""The queue of writes: a bound on how many wait, and each goes on when its caller is cancelled."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from treadle.store.address import PostgresAddress
from treadle.store.postgres.connection import closed

QUEUED_WRITES_MAX = 1_000

T = TypeVar("T")


class Writes:
    """Belongs to one event loop."""

    def __init__(self, address: PostgresAddress) -> None:
        self._address = address
        self._room = asyncio.Semaphore(QUEUED_WRITES_MAX)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_open = True

    @property
    def queued(self) -> int:
        """Return how many writes were taken and are not done yet."""
        return len(self._tasks)

    async def submit(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Do the work to its end, also when the caller is cancelled; wait first while too many are queued.

        Raises: StoreError, and what the work raises.
        """
        await self._room.acquire()
        if not self._is_open:
            self._room.release()
            raise closed(self._address)
        task = asyncio.create_task(work())
        self._tasks.add(task)
        task.add_done_callback(self._finish)
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Take no more, and wait for those that were taken."""
        self._is_open = False
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _finish(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        self._room.release()
        if not task.cancelled():
            task.exception()  # somebody has looked, also when the caller is gone
