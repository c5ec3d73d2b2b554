"""The time of a run: until when it may last, and what ends whoever works past that."""

import asyncio
from types import TracebackType

import msgspec

from treadle.engine.ports import Clock


class Deadline(msgspec.Struct):
    """When the time of a run is used up; it never is until it is started, nor without a bound of `wall_s`."""

    clock: Clock
    wall_s: float | None
    at: float | None = None

    def start(self) -> None:
        """Let the time run."""
        if self.wall_s is not None:
            self.at = self.clock.monotonic() + self.wall_s

    def extend_to(self, seconds: float) -> None:
        """Leave at least so long from now."""
        if self.at is not None:
            self.at = max(self.at, self.clock.monotonic() + seconds)

    def exclude(self, seconds: float) -> None:
        """Not count a time that was not the run's own."""
        if self.at is not None:
            self.at += seconds

    @property
    def is_over(self) -> bool:
        """Tell whether the time is used up."""
        return self.at is not None and self.clock.monotonic() >= self.at

    def limit(self) -> "TimeLimit":
        """Return what bounds a piece of work by the time that is left."""
        return TimeLimit(None if self.at is None else self.at - self.clock.monotonic())


class TimeLimit(msgspec.Struct):
    """Ends the work of a task after so many seconds, as `asyncio.timeout` does, but without awaiting.

    What stands in its `with` is then cancelled and the cancellation goes no further; `is_cut` says so.
    """

    seconds: float | None
    has_cut_off: bool = False
    is_over: bool = False
    cancelled_before: int = 0
    task: asyncio.Task[object] | None = None
    timer: asyncio.Handle | None = None

    def __enter__(self) -> None:
        if self.seconds is not None:
            self.task = task = asyncio.current_task()
            assert task is not None
            self.cancelled_before = task.cancelling()
            loop = task.get_loop()
            has_time = self.seconds > 0
            self.timer = loop.call_later(self.seconds, self._expire) if has_time else loop.call_soon(self._expire)

    def _expire(self) -> None:
        assert self.task is not None
        self.is_over = True
        self.task.cancel()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if self.timer is None:
            return False
        self.timer.cancel()
        if not self.is_over:
            return False
        assert self.task is not None
        is_own = self.task.uncancel() <= self.cancelled_before
        # Somebody who cancels the run at the same time goes first.
        self.has_cut_off = isinstance(error, TimeoutError) or (is_own and isinstance(error, asyncio.CancelledError))
        return self.has_cut_off
