"""The time limit of a run, and the context manager that cancels work at the limit."""

import asyncio
from types import TracebackType

import msgspec

from treadle.core.shared_ports import Clock


class Deadline(msgspec.Struct):
    """The point in time at which a run ends; there is none before `start`, nor without `wall_s`."""

    clock: Clock
    wall_s: float | None
    at: float | None = None

    def start(self) -> None:
        """Start the time limit."""
        if self.wall_s is not None:
            self.at = self.clock.monotonic() + self.wall_s

    def extend_to(self, seconds: float) -> None:
        """Ensure that at least this much time is left from now on."""
        if self.at is not None:
            self.at = max(self.at, self.clock.monotonic() + seconds)

    def exclude(self, seconds: float) -> None:
        """Exclude a period from the limit, such as a wait for approval."""
        if self.at is not None:
            self.at += seconds

    @property
    def is_over(self) -> bool:
        """Return whether the time is used up."""
        return self.at is not None and self.clock.monotonic() >= self.at

    def limit(self) -> "TimeLimit":
        """Return a context manager that cancels its body when the remaining time is over."""
        return TimeLimit(None if self.at is None else self.at - self.clock.monotonic())


class TimeLimit(msgspec.Struct):
    """Cancels the body of its `with` after so many seconds, as `asyncio.timeout` does, but without awaiting.

    The cancellation does not propagate; `has_cut_off` is true if it happened.
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
        # A cancellation of the whole run at the same time takes precedence.
        self.has_cut_off = isinstance(error, TimeoutError) or (is_own and isinstance(error, asyncio.CancelledError))
        return self.has_cut_off
