"""Any process of a store claims what has no owner, up to a number of runs: the store itself is the queue.

A process that takes a run in drives it while it has room. Beyond that the run waits, durable and without an owner, for
the first process that has; the store's leases decide who that is.
"""

from treadle.runs.runners.runner_interface import RunHost

POLL_S = 1.0
"""How long a run waits at most for a process that has room."""


class SharedStoreRunner:
    """Fits `Runner`. The one for several processes on one store."""

    places_runs = False
    poll_s: float | None = POLL_S

    def __init__(self, background_max: int = 0) -> None:
        self._background_max = background_max

    def capacity(self, driven: int) -> int | None:
        """Return what is left of the bound, if there is one."""
        return max(0, self._background_max - driven) if self._background_max else None

    async def open(self, host: RunHost) -> None:
        """Need nothing."""

    async def place(self, run_id: str) -> None:
        """Need nothing: every process looks once a second."""

    async def close(self) -> None:
        """Hold nothing."""
