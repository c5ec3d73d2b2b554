"""A bounded pool of daemon threads for blocking functions.

Unlike asyncio's executor it never delays the exit of the process for a function that hangs. A thread cannot be killed:
after a timeout its result is dropped, and the thread stays busy until its function returns.
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
    """The outcome of a function: its value, or the exception it raised."""

    value: Any = None
    raised: BaseException | None = None


LATE = PoolEnded()
"""The outcome of a function that missed its deadline."""


class PoolJob(msgspec.Struct, kw_only=True, eq=False):
    """One function to run, and the future that receives its outcome."""

    function: Callable[[], Any]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[PoolEnded]


class Threads:
    """Runs blocking functions in at most `count_max` threads, started on demand and reused."""

    def __init__(self, count_max: int = 32) -> None:
        self._count_max = count_max
        self._jobs: queue.SimpleQueue[PoolJob | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._count = 0
        self._open = 0

    @property
    def count(self) -> int:
        """Return the number of threads."""
        return self._count

    async def run(self, function: Callable[[], Any], timeout_s: float | None = None) -> PoolEnded:
        """Run the function in a thread and return its outcome; waits for a free thread when all are busy.

        The timeout includes the wait. After it the outcome is `LATE`, and a job still queued is never run.
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
        timer = loop.call_later(timeout_s, _set_result, future, LATE)
        try:
            return await future
        finally:
            timer.cancel()

    def close(self) -> None:
        """End the threads once they are idle; queued jobs still run first."""
        with self._lock:
            count, self._count_max = self._count, 0
        for _ in range(count):
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            ended = _execute(job)
            # Decrement before publishing the outcome: a caller that submits its next job right away must find this
            # thread free instead of starting another.
            with self._lock:
                self._open -= 1
            _publish(job, ended)
            del job, ended
        with self._lock:
            self._count -= 1


def _execute(job: PoolJob) -> PoolEnded:
    if job.future.done():
        return LATE
    try:
        return PoolEnded(value=job.function())
    except BaseException as error:  # noqa: BLE001 - the thread must survive, and the runner reports every failure
        return PoolEnded(raised=error)


def _publish(job: PoolJob, ended: PoolEnded) -> None:
    try:
        job.loop.call_soon_threadsafe(_set_result, job.future, ended)
    except RuntimeError:
        # The loop may be closed by the time a hung function returns; its outcome has no receiver then.
        return


def _set_result(future: asyncio.Future[PoolEnded], ended: PoolEnded) -> None:
    if not future.done():
        future.set_result(ended)
