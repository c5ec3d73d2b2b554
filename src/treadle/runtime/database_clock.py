"""The clock that all processes on one store share: the time of its database.

Processes compare times that others wrote: when an approval or a key expires, when a run started, when a day begins.
The clocks of machines differ, so none of them is used. A process reads the database's time when it opens the store and
every few seconds, and adds its own monotonic seconds in between: a wrong clock, or one that is set while the process
runs, has no effect.
"""

import logging
from collections.abc import Awaitable, Callable

from treadle.core.errors import StoreError
from treadle.core.shared_ports import Clock

log = logging.getLogger("treadle.runtime")

MEASURE_S = 5.0
"""How often the database's time is read."""

ANSWER_S_MAX = 1.0
"""A slower answer is too imprecise to be used."""

SKEW_S_MAX = 2.0
"""A larger difference is logged."""

ReadTime = Callable[[], Awaitable[float | None]]
"""Returns the database's time; None if all processes are on one machine and share its clock."""


class SharedClock:
    """A `Clock` with the database's time; this machine's own before the first measurement, or without a database."""

    def __init__(self, own: Clock) -> None:
        self._own = own
        self._anchor: tuple[float, float] | None = None
        self._is_logged = False
        self.monotonic = own.monotonic

    def now(self) -> float:
        """Return the shared time in seconds since 1970."""
        # A method and not an attribute, because `now` is passed around before the first measurement.
        if self._anchor is None:
            return self._own.now()
        shared, at = self._anchor
        return shared + (self._own.monotonic() - at)

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await self._own.sleep(seconds)

    @property
    def skew_s(self) -> float:
        """Return how far this machine's clock is ahead of the shared one."""
        return 0.0 if self._anchor is None else self._own.now() - self.now()

    async def measure(self, read_time: ReadTime) -> bool:
        """Read the database's time once; return whether it has one. Raises: StoreError."""
        asked_at = self._own.monotonic()
        answer_s = await read_time()
        if answer_s is None:
            return False
        answered_at = self._own.monotonic()
        error_s = (answered_at - asked_at) / 2
        # The answer was made at some point of the round trip: a difference within that error changes nothing.
        if self._anchor is None or (error_s * 2 <= ANSWER_S_MAX and abs(answer_s + error_s - self.now()) > error_s):
            self._anchor = answer_s + error_s, answered_at
        self._log_skew()
        return True

    async def measure_forever(self, read_time: ReadTime) -> None:
        """Read it again forever. While the database is unavailable, time continues from the last measurement."""
        while True:
            await self._own.sleep(MEASURE_S)
            try:
                await self.measure(read_time)
            except (TimeoutError, StoreError):
                continue

    def _log_skew(self) -> None:
        """Log once when this machine's clock becomes wrong."""
        is_wrong = abs(self.skew_s) > SKEW_S_MAX
        if is_wrong and not self._is_logged:
            where = "ahead of" if self.skew_s > 0 else "behind"
            log.warning(
                "this machine's clock is %.0f s %s that of the database, whose time holds; set both by NTP",
                abs(self.skew_s),
                where,
            )
        self._is_logged = is_wrong
