"""The time that all processes on one store agree on: that of its database, wherever they run.

What one process writes another one compares: when an approval or a key expires, when a run began, what a day is. The
clocks of machines differ, so none of them decides. A process asks the database for its time when it opens the store and
every few seconds, and counts on from there by seconds that never go back: neither a wrong clock nor one that is set
while it runs changes what is due.
"""

import logging
from collections.abc import Awaitable, Callable

from treadle.core.errors import StoreError
from treadle.core.shared_ports import Clock

log = logging.getLogger("treadle.runtime")

MEASURE_S = 5.0
"""How often the database is asked."""

ANSWER_S_MAX = 1.0
"""An answer that took longer says too little."""

SKEW_S_MAX = 2.0
"""A clock that is further off than this is logged."""

Ask = Callable[[], Awaitable[float | None]]
"""Returns the database's time; None where all processes are on one machine and so have one clock."""


class SharedClock:
    """Fits `Clock`. Until it has measured, and where there is nothing to measure, it is this machine's own."""

    def __init__(self, own: Clock) -> None:
        self._own = own
        self._anchor: tuple[float, float] | None = None
        self._is_logged = False
        self.monotonic = own.monotonic

    def now(self) -> float:
        """Return the time that all processes agree on: seconds since 1970.

        A method, for it is handed out before the first measurement.
        """
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

    async def measure(self, ask: Ask) -> bool:
        """Ask once; return whether there is anything to measure. Raises: StoreError."""
        asked = self._own.monotonic()
        answer_s = await ask()
        if answer_s is None:
            return False
        answered = self._own.monotonic()
        doubt_s = (answered - asked) / 2
        # The answer was given somewhere between asking and receiving: a difference within that moves nothing.
        if self._anchor is None or (doubt_s * 2 <= ANSWER_S_MAX and abs(answer_s + doubt_s - self.now()) > doubt_s):
            self._anchor = answer_s + doubt_s, answered
        self._log_skew()
        return True

    async def keep_measuring(self, ask: Ask) -> None:
        """Ask for ever. A database that is away changes nothing: time goes on from what it said last."""
        while True:
            await self._own.sleep(MEASURE_S)
            try:
                await self.measure(ask)
            except (TimeoutError, StoreError):
                continue

    def _log_skew(self) -> None:
        """Log that this machine's clock is wrong, once until it is right again."""
        is_wrong = abs(self.skew_s) > SKEW_S_MAX
        if is_wrong and not self._is_logged:
            where = "ahead of" if self.skew_s > 0 else "behind"
            log.warning(
                "this machine's clock is %.0f s %s that of the database, whose time holds; set both by NTP",
                abs(self.skew_s),
                where,
            )
        self._is_logged = is_wrong
