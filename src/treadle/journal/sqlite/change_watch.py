"""Wakes the waiters for a change of a run: at this process's own writes, and by polling for those of others.

SQLite notifies no other process of a commit. A connection's `data_version` moves when another one commits, which is
cheap to read; only then is each watched run's count of changes read. Without waiters nothing is polled.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from treadle.core.errors import StoreError

POLL_S = 0.025

Changes = dict[str, int]
"""How often each live run was written to."""


class _Waiter:
    """One who waits: for which run, since which of its changes, None as long as that is not known."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.seen: int | None = None
        self.woken = asyncio.Event()


class ChangeWatch:
    """Wakes those who wait for a change of a run. Belongs to one event loop."""

    def __init__(
        self, version: Callable[[], Awaitable[int]] | None, changes: Callable[[Sequence[str]], Awaitable[Changes]]
    ) -> None:
        """Take the readers of the data's version (None where no other process writes) and of the runs' changes."""
        self._version = version
        self._changes = changes
        self._waiters: set[_Waiter] = set()
        self._has_joined = False
        self._poller: asyncio.Task[None] | None = None

    async def wait(self, run_id: str, timeout_s: float) -> None:
        """Return after the next change of the run, at once if nothing can change any more, or when the time is over."""
        waiter = _Waiter(run_id)
        self._waiters.add(waiter)
        try:
            async with asyncio.timeout(timeout_s):
                waiter.seen = (await self._changes([run_id])).get(run_id)
                if waiter.seen is None:
                    return
                self._has_joined = True
                self._start_polling()
                await waiter.woken.wait()
        except TimeoutError:
            return
        finally:
            self._waiters.discard(waiter)

    def wake(self, run_id: str) -> None:
        """Wake the waiters of the run."""
        for waiter in self._waiters:
            if waiter.run_id == run_id:
                waiter.woken.set()

    def wake_all(self) -> None:
        """Wake all waiters, which read again."""
        for waiter in self._waiters:
            waiter.woken.set()

    async def close(self) -> None:
        """Wake everybody and stop polling."""
        self.wake_all()
        if self._poller is not None:
            self._poller.cancel()
            await asyncio.wait({self._poller})

    def _start_polling(self) -> None:
        if self._version is not None and (self._poller is None or self._poller.done()):
            self._poller = asyncio.create_task(self._poll(self._version), name="treadle-store-watch")

    async def _poll(self, version: Callable[[], Awaitable[int]]) -> None:
        seen: int | None = None
        try:
            while self._waiters:
                now = await version()
                # What a newcomer has seen may be older than the version seen last.
                if now != seen or self._has_joined:
                    self._has_joined = False
                    await self._compare()
                seen = now
                await asyncio.sleep(POLL_S)
        except StoreError:
            self.wake_all()  # they read, and get the error

    async def _compare(self) -> None:
        """Wake those whose run has changed since they began to wait."""
        waiting = [waiter for waiter in self._waiters if waiter.seen is not None]
        changes = await self._changes(sorted({waiter.run_id for waiter in waiting}))
        for waiter in waiting:
            if changes.get(waiter.run_id) != waiter.seen:
                waiter.woken.set()
