"""The runner for a single process: it drives the runs that it starts, and recovers all abandoned ones."""

from treadle.runs.runners.runner_interface import RunHost


class LocalRunner:
    """Fits `RunDriver`."""

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
