"""The process that takes a run in drives it, and goes on with every run that was abandoned."""

from treadle.runs.runners.runner_interface import RunHost


class LocalRunner:
    """Fits `Runner`. The one for a single process."""

    places_runs = False
    poll_s: float | None = None

    def capacity(self, driven: int) -> int | None:
        """Return no bound."""
        return None

    async def open(self, host: RunHost) -> None:
        """Need nothing."""

    async def place(self, run_id: str) -> None:
        """Need nothing: it is claimed with what was abandoned."""

    async def close(self) -> None:
        """Hold nothing."""
