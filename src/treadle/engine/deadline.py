"""The time of a run: until when it may last, and what ends whoever works past that."""

import asyncio
from types import TracebackType

from treadle.engine.ports import Clock


class Deadline:
    """When the time of a run is used up; it never is until it is started, nor without a bound."""

    def __init__(self, clock: Clock, wall_s: float | None) -> None:
        self._clock = clock
        self._wall_s = wall_s
        self._at: float | None = None

    def start(self) -> None:
        """Let the time run."""
        if self._wall_s is not None:
            self._at = self._clock.monotonic() + self._wall_s

    def spare(self, seconds: float) -> None:
        """Leave at least so long from now."""
        if self._at is not None:
            self._at = max(self._at, self._clock.monotonic() + seconds)

    def put_off(self, seconds: float) -> None:
        """Not count a time that was not the run's own."""
        if self._at is not None:
            self._at += seconds

    @property
    def is_over(self) -> bool:
        """Tell whether the time is used up."""
        return self._at is not None and self._clock.monotonic() >= self._at

    def limit(self) -> "Limit":
        """Return what bounds a piece of work by the time that is left."""
        return Limit(None if self._at is None else max(0.0, self._at - self._clock.monotonic()))


class Limit:
    """Ends the work of a task after so many seconds, as `asyncio.timeout` does, but without awaiting.

    What stands in its `with` is then cancelled and the cancellation goes no further; `is_cut` says so.
    """

    __slots__ = ("_cancelled_before", "_is_over", "_seconds", "_task", "_timer", "is_cut")

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._is_over = False
        self._timer: asyncio.Handle | None = None
        self.is_cut = False

    def __enter__(self) -> None:
        if self._seconds is not None:
            self._task = asyncio.current_task()
            assert self._task is not None
            self._cancelled_before = self._task.cancelling()
            loop = asyncio.get_running_loop()
            has_time = self._seconds > 0
            self._timer = loop.call_later(self._seconds, self._expire) if has_time else loop.call_soon(self._expire)

    def _expire(self) -> None:
        assert self._task is not None
        self._is_over = True
        self._task.cancel()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if self._timer is None:
            return False
        self._timer.cancel()
        if not self._is_over:
            return False
        assert self._task is not None
        is_own = self._task.uncancel() <= self._cancelled_before
        # Somebody who cancels the run at the same time goes first.
        self.is_cut = isinstance(error, TimeoutError) or (is_own and isinstance(error, asyncio.CancelledError))
        return self.is_cut
