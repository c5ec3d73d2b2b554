"""The ward of one endpoint: its breaker, its retry budget, and how many may be there at once."""

import asyncio
import random
import time
from collections.abc import Callable
from typing import Protocol

import msgspec

from treadle.canon.errors import CROWDED, CircuitOpen, UpstreamTimeout
from treadle.upstream.endpoint import Endpoint
from treadle.upstream.ward.breaker import Breaker, BreakerRules, Permit, State
from treadle.upstream.ward.retry import Budget, RetryRules


class Meter(Protocol):
    """Who counts what befalls endpoints."""

    def upstream_asked(self, upstream: str, outcome: str) -> None:
        """Count one call by its outcome: `ok`, `failed`, `refused`, `open`, `left`."""
        ...

    def upstream_retried(self, upstream: str, *, elsewhere: bool) -> None:
        """Count a call that is made again, there or at another endpoint."""
        ...


class Clock(Protocol):
    """Time, injected."""

    def now(self) -> float:
        """Return the wall clock."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never go back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class WardRules(msgspec.Struct, frozen=True, kw_only=True):
    """How an endpoint is protected. `streams_max` 0 sets no bound; who waits for a place does so for `queue_s`."""

    retry: RetryRules = RetryRules()
    breaker: BreakerRules = BreakerRules()
    streams_max: int = 0
    queue_s: float = 10.0


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """How an endpoint does, for people and probes."""

    name: str
    host: str
    protocol: str
    breaker: State
    retry_in_s: float
    live: int
    calls: int
    waiting: int = 0
    failures: int
    last_error: str = ""
    last_error_at: float | None = None


class _SystemClock:
    """The machine's own time, for who brings none."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Ward:
    """Shared by every call to one endpoint in this process."""

    def __init__(
        self,
        endpoint: Endpoint,
        rules: WardRules | None = None,
        *,
        clock: Clock | None = None,
        meter: Meter | None = None,
        dice: Callable[[], float] = random.random,
    ) -> None:
        self.endpoint = endpoint
        self.rules = rules or WardRules()
        self.breaker = Breaker(self.rules.breaker)
        self.budget = Budget(self.rules.retry)
        self.meter = meter
        self.clock = clock or _SystemClock()
        self.dice = dice
        self.places = asyncio.Semaphore(self.rules.streams_max) if self.rules.streams_max else None
        self._live = 0
        self._waiting = 0
        self._calls = 0
        self._failures = 0
        self._last_error = ""
        self._last_error_at: float | None = None

    def enter(self) -> Permit:
        """Take leave to make a call; where there are places, with one of them. `leave` gives both back.

        Raises: CircuitOpen.
        """
        permit = self.breaker.permit or self.breaker.take(self.clock.monotonic())
        if permit is None:
            if self.places is not None:
                self.places.release()
            raise self._closed()
        self._live += 1
        return permit

    async def wait_for_place(self, places: asyncio.Semaphore) -> None:
        """Take one of the endpoint's places, which a call has as long as it lasts.

        Raises: CircuitOpen; UpstreamTimeout, when no place became free.
        """
        if self.breaker.is_shut(self.clock.monotonic()):
            # At once, for the places of a sick endpoint are taken by those who wait for it.
            raise self._closed()
        self._waiting += 1
        try:
            async with asyncio.timeout(self.rules.queue_s):
                await places.acquire()
        except TimeoutError:
            raise UpstreamTimeout(
                f"upstream '{self.endpoint.name}' has no place free: {self.rules.streams_max} calls are under way",
                code=CROWDED,
                hint="ask again later, or raise its streams_max",
            ) from None
        finally:
            self._waiting -= 1

    def leave(self, outcome: str, error: str = "") -> None:
        """Count a call that is over, and give its place back."""
        self._live -= 1
        if self.places is not None:
            self.places.release()
        self._calls += 1
        if outcome == "failed":
            self._failures += 1
            self._last_error, self._last_error_at = error, self.clock.now()
        if self.meter is not None:
            self.meter.upstream_asked(self.endpoint.name, outcome)

    def _closed(self) -> CircuitOpen:
        """Return the error of a call that is not made."""
        wait_s = self.breaker.wait_s(self.clock.monotonic())
        if self.meter is not None:
            self.meter.upstream_asked(self.endpoint.name, "open")
        said = f": {self._last_error}" if self._last_error else ""
        return CircuitOpen(
            f"upstream '{self.endpoint.name}' failed too often and is left alone for {wait_s:.0f} s{said}",
            hint="ask again then, or name a fallback for this route",
            retry_after_s=wait_s,
        )

    def repeat(self, *, elsewhere: bool) -> None:
        """Count a call that is made again."""
        if self.meter is not None:
            self.meter.upstream_retried(self.endpoint.name, elsewhere=elsewhere)

    def health(self) -> Health:
        """Return how the endpoint does now."""
        now = self.clock.monotonic()
        return Health(
            name=self.endpoint.name,
            host=self.endpoint.host,
            protocol=self.endpoint.protocol,
            breaker=self.breaker.state(now),
            retry_in_s=round(self.breaker.wait_s(now), 1),
            live=self._live,
            waiting=self._waiting,
            calls=self._calls,
            failures=self._failures,
            last_error=self._last_error,
            last_error_at=self._last_error_at,
        )
