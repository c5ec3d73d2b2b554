"""The ports that every package shares: the clock, and the meter that counts calls to endpoints and guest runs.

Interfaces only: the implementations are `SystemClock` in `runtime/` and `Metrics` in `telemetry/`.
"""

from typing import Protocol


class Clock(Protocol):
    """Time, injected so that tests and replays control it."""

    def now(self) -> float:
        """Return the wall clock: seconds since 1970."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never go back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class Meter(Protocol):
    """Counts what happens in packages that do not know the metrics."""

    def upstream_asked(self, upstream: str, outcome: str) -> None:
        """Count one call to an endpoint by its outcome: `ok`, `failed`, `refused`, `open`, `left`."""
        ...

    def upstream_retried(self, upstream: str, *, elsewhere: bool) -> None:
        """Count a retry, at the same endpoint or at another one."""
        ...

    def guest_ended(self, code: str, cpu_s: float) -> None:
        """Count a guest's end, by its stop code or `ok`, and its CPU time."""
        ...

    def guest_compiled(self, seconds: float, *, was_cached: bool) -> None:
        """Count a compilation, or a cache hit."""
        ...


class NoMeter:
    """Counts nothing. Fits `Meter`."""

    def upstream_asked(self, upstream: str, outcome: str) -> None:
        """Count nothing."""

    def upstream_retried(self, upstream: str, *, elsewhere: bool) -> None:
        """Count nothing."""

    def guest_ended(self, code: str, cpu_s: float) -> None:
        """Count nothing."""

    def guest_compiled(self, seconds: float, *, was_cached: bool) -> None:
        """Count nothing."""
