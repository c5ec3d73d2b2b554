"""The port of runners: who drives runs in the background, and which abandoned runs a process goes on with."""

from typing import Protocol

import msgspec

from treadle.core.events import Status


class PlacementFailed(Exception):
    """A run could not be given to anybody; whoever took it in drives it."""


class ShuttingDown(Exception):
    """This process is about to end: somebody else must see to the run."""


class RunnerTerms(msgspec.Struct, frozen=True, kw_only=True):
    """How runs are placed from outside: a process that is silent for so long has lost them, and drives so many."""

    heartbeat_s: float = 10.0
    runs_max: int = 0


DEFAULT_TERMS = RunnerTerms()


class RunHost(Protocol):
    """A process that drives runs, as its runner sees it."""

    async def drive_to_end(self, run_id: str) -> Status | None:
        """Drive a run to its end, or wait for whoever does; return how it ended, None if there is no such run.

        Raises: Leaving, StoreError.
        """
        ...

    async def cancel(self, run_id: str) -> bool:
        """Cancel a run wherever it is driven, and wait for its end; False if it had ended.

        Raises: StoreError.
        """
        ...


class RunDriver(Protocol):
    """Decides who drives. `driven` is always the number of runs in the background that this process drives now."""

    @property
    def places_runs(self) -> bool:
        """Return whether runs in the background are placed from outside, so that no process looks for them itself."""
        ...

    @property
    def poll_s(self) -> float | None:
        """Return how often abandoned runs are looked for beside the heartbeat; None is never."""
        ...

    def capacity(self, driven: int) -> int | None:
        """Return how many more runs this process may take; None is any number."""
        ...

    async def open(self, host: RunHost) -> None:
        """Begin; `host` is what may be asked from now on.

        Raises: ConfigError.
        """
        ...

    async def place(self, run_id: str) -> None:
        """See that somebody drives a run that is durable and has no owner; without effect if that is so already.

        Raises: Unplaced.
        """
        ...

    async def close(self) -> None:
        """Take no more runs, and wait for those that are seen to here; without effect the second time."""
        ...
