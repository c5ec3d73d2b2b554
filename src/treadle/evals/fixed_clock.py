"""A clock that stands still, so that two plays write the same journal. Sleeps are real and short."""

import asyncio

BEGIN = 1_700_000_000.0
"""The time of every play."""
LEASE_OVER_S = 60.0
"""How far the clock moves before another process recovers a crashed one's run: past its lease."""


class StillClock:
    """A clock that only moves when it is set."""

    def __init__(self, now: float = BEGIN) -> None:
        self._now = now

    def now(self) -> float:
        """Return the fixed time."""
        return self._now

    def monotonic(self) -> float:
        """Return the fixed time as well."""
        return self._now

    async def sleep(self, seconds: float) -> None:
        """Sleep for real: lease renewal sleeps here and must not spin."""
        await asyncio.sleep(seconds)


async def no_sleep(seconds: float) -> None:
    """Skip a scripted silence; its length alone decides whether it counts as too long."""
