"""A bounded set of daemon threads for functions that block.

Unlike the executor of asyncio it never makes the process wait at its end for a function that hangs. A thread
cannot be killed: whoever stops waiting drops the result, and the thread is busy until its function returns.
"""

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec


class PoolEnded(msgspec.Struct, frozen=True, kw_only=True):
    """How a function ended: with a value, or by raising."""

    value: Any = None
    raised: BaseException | None = None


LATE = PoolEnded()
"""What is heard of a function that nobody waits for any more."""


class PoolJob(msgspec.Struct, kw_only=True, eq=False):
    """One function to run and where to say how it ended."""

    function: Callable[[], Any]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[PoolEnded]


class Threads:
    """Runs blocking functions in at most `count_max` threads, started as they are needed and kept."""

    def __init__(self, count_max: int = 32) -> None:
        self._count_max = count_max
        self._jobs: queue.SimpleQueue[PoolJob | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._count = 0
        self._open = 0

    @property
    def count(self) -> int:
        """Return how many threads there are."""
        return self._count

    async def run(self, function: Callable[[], Any], timeout_s: float | None = None) -> PoolEnded:
        """Run the function in a thread and return how it ended; waits for a free thread when all are busy.

        When all of it takes longer than that it is `LATE`; what has not begun by then never does.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[PoolEnded] = loop.create_future()
        job = PoolJob(function=partial(contextvars.copy_context().run, function), loop=loop, future=future)
        with self._lock:
            self._open += 1
            is_new = self._count < min(self._open, self._count_max)
            if is_new:
                self._count += 1
        self._jobs.put(job)
        if is_new:
            threading.Thread(target=self._work, name="treadle-tool", daemon=True).start()
        if timeout_s is None:
            return await future
        timer = loop.call_later(timeout_s, _tell, future, LATE)
        try:
            return await future
        finally:
            timer.cancel()

    def close(self) -> None:
        """Let the threads end once they are idle; a queued job still runs first."""
        with self._lock:
            count, self._count_max = self._count, 0
        for _ in range(count):
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            ended = _ended(job)
            # Free first, and then heard of: whoever hears of it and asks at once shall find this thread.
            with self._lock:
                self._open -= 1
            _report(job, ended)
            del job, ended
        with self._lock:
            self._count -= 1


def _ended(job: PoolJob) -> PoolEnded:
    if job.future.done():
        return LATE
    try:
        return PoolEnded(value=job.function())
    except BaseException as error:  # noqa: BLE001 - the thread must live on, and the runner names every failure
        return PoolEnded(raised=error)


def _report(job: PoolJob, ended: PoolEnded) -> None:
    try:
        job.loop.call_soon_threadsafe(_tell, job.future, ended)
    except RuntimeError:
        # The loop may be gone by the time a function that hung returns; then nobody is left to be told.
        return


def _tell(future: asyncio.Future[PoolEnded], ended: PoolEnded) -> None:
    if not future.done():
        future.set_result(ended)
