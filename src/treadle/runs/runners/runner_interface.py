"""The interface of runners, which decide which process drives background runs and recovers abandoned ones."""

from typing import Protocol

import msgspec

from treadle.core.events import Status


class PlacementFailed(Exception):
    """A run could not be placed; the process that started it must drive it."""


class ShuttingDown(Exception):
    """This process is shutting down: another one must drive the run."""


class RunnerTerms(msgspec.Struct, frozen=True, kw_only=True):
    """Terms of placed runs: a process that sends no heartbeat for so long loses them; `runs_max` bounds its number."""

    heartbeat_s: float = 10.0
    runs_max: int = 0


DEFAULT_TERMS = RunnerTerms()


class RunHost(Protocol):
    """A process that drives runs, as its runner uses it."""

    async def drive_to_end(self, run_id: str) -> Status | None:
        """Drive a run to its end, or wait until another process has; return its status, None if there is no such run.

        Raises: Leaving, StoreError.
        """
        ...

    async def cancel(self, run_id: str) -> bool:
        """Cancel a run, also in another process, and wait for its end; False if it had ended.

        Raises: StoreError.
        """
        ...


class RunDriver(Protocol):
    """Decides which process drives a run. `driven` is the number of background runs that this process drives now."""

    @property
    def places_runs(self) -> bool:
        """Return whether the runner places background runs, so that processes do not claim them by themselves."""
        ...

    @property
    def poll_s(self) -> float | None:
        """Return how often to poll for abandoned runs beside the heartbeat; None is never."""
        ...

    def capacity(self, driven: int) -> int | None:
        """Return how many more runs this process may claim; None is unbounded."""
        ...

    async def open(self, host: RunHost) -> None:
        """Start; `host` is ready to be called.

        Raises: ConfigError.
        """
        ...

    async def place(self, run_id: str) -> None:
        """Find a process for a run that is durable and has no owner; no effect if it has one already.

        Raises: Unplaced.
        """
        ...

    async def close(self) -> None:
        """Take no more runs, and wait for those that are driven here; idempotent."""
        ...
