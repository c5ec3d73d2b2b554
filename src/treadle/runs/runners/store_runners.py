"""The two runners that need nothing but the store: for a single process, and for several processes on one store.

The store is the queue. A process drives the runs that it starts while it has capacity. Further runs wait, durable and
without an owner, for the first process that has; the store's leases decide which one.
"""

from treadle.runs.runners.runner_interface import RunHost

POLL_S = 1.0
"""How long a run waits at most once a process has capacity."""


class LocalRunner:
    """The runner of a single process: it drives what it starts and recovers all abandoned runs. Fits `RunDriver`."""

    places_runs = False
    poll_s: float | None = None

    def capacity(self, driven: int) -> int | None:
        """Return no bound."""
        return None

    async def open(self, host: RunHost) -> None:
        """Do nothing."""

    async def place(self, run_id: str) -> None:
        """Do nothing: it is claimed with the abandoned runs."""

    async def close(self) -> None:
        """Do nothing."""


class SharedStoreRunner(LocalRunner):
    """The runner of several processes: each claims runs without an owner, up to a limit. Fits `RunDriver`."""

    poll_s = POLL_S

    def __init__(self, background_max: int = 0) -> None:
        self._background_max = background_max

    def capacity(self, driven: int) -> int | None:
        """Return the remaining capacity, if it is bounded."""
        return max(0, self._background_max - driven) if self._background_max else None
