"""A clock that stands still, so that two plays write the same journal. Waiting is real; nothing here waits long."""

import asyncio

BEGIN = 1_700_000_000.0
"""When every play happens."""
LEASE_OVER_S = 60.0
"""How much later the process comes that goes on with what a dead one left."""


class StillClock:
    """Time that only moves when it is told to."""

    def __init__(self, now: float = BEGIN) -> None:
        self._now = now

    def now(self) -> float:
        """Return when it is."""
        return self._now

    def monotonic(self) -> float:
        """Return the same, since nothing passes."""
        return self._now

    async def sleep(self, seconds: float) -> None:
        """Really wait: what sleeps here looks after leases, and must not spin."""
        await asyncio.sleep(seconds)


async def no_sleep(seconds: float) -> None:
    """Let a scripted silence pass at once; whether it was too long is decided by its length."""
