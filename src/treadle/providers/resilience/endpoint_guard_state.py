"""The shared state that protects one endpoint: its circuit breaker, retry budget and limit on concurrent calls."""

import asyncio
import time
from collections.abc import Callable
from random import random as draw_random

import msgspec

from treadle.core.errors import CROWDED, CircuitOpen, UpstreamTimeout
from treadle.core.shared_ports import Clock, Meter
from treadle.providers.provider_endpoint import Endpoint
from treadle.providers.resilience.circuit_breaker import Breaker, BreakerRules, Permit, State
from treadle.providers.resilience.retry_backoff import RetryBudget, RetryRules

FAILED_REQUESTS_MAX = 1_000
"""How many different failed requests are remembered within the breaker's window."""


class GuardRules(msgspec.Struct, frozen=True, kw_only=True):
    """How an endpoint is protected. `streams_max` 0 means no limit; a call waits for a place for up to `queue_s`."""

    retry: RetryRules = RetryRules()
    breaker: BreakerRules = BreakerRules()
    streams_max: int = 0
    queue_s: float = 10.0


class EndpointHealth(msgspec.Struct, frozen=True, kw_only=True):
    """The health of an endpoint, for people and probes."""

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
    """The default clock: this machine's."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class EndpointGuard:
    """Shared by every call to one endpoint in this process."""

    def __init__(
        self,
        endpoint: Endpoint,
        rules: GuardRules | None = None,
        *,
        clock: Clock | None = None,
        meter: Meter | None = None,
        random: Callable[[], float] = draw_random,
    ) -> None:
        self.endpoint = endpoint
        self.rules = rules or GuardRules()
        self.breaker = Breaker(self.rules.breaker)
        self.budget = RetryBudget(self.rules.retry)
        self.meter = meter
        self.clock = clock or _SystemClock()
        self.random = random
        self.places = asyncio.Semaphore(self.rules.streams_max) if self.rules.streams_max else None
        self._changes: list[asyncio.Future[None]] = []
        self._failed_requests: dict[str, float] = {}
        self._live = 0
        self._waiting = 0
        self._calls = 0
        self._failures = 0
        self._last_error = ""
        self._last_error_at: float | None = None

    async def enter(self, *, may_wait: bool = True) -> Permit:
        """Get a permit for a call; the caller already has its place, if places are limited. `leave` releases the place.

        While a trial call is running, wait for its outcome if `may_wait`: it is known soon, and otherwise the caller's
        request would fail.

        Raises: CircuitOpen; then the place is released.
        """
        permit = self.breaker.permit or self.breaker.take(self.clock.monotonic())
        try:
            if permit is None and may_wait:
                permit = await self._wait_for_trial()
            if permit is None:
                raise self._rejection()
        except BaseException:
            if self.places is not None:
                self.places.release()
            raise
        self._live += 1
        return permit

    async def _wait_for_trial(self) -> Permit | None:
        """Wait for a permit while a trial runs; None if the breaker opens again or `queue_s` passes."""
        permit, breaker, clock = None, self.breaker, self.clock
        self._waiting += 1
        try:
            async with asyncio.timeout(self.rules.queue_s):
                while permit is None and breaker.state(clock.monotonic()) == "half_open":
                    changed = asyncio.get_running_loop().create_future()
                    self._changes.append(changed)
                    await changed
                    permit = breaker.take(clock.monotonic())
        except TimeoutError:
            return None
        finally:
            self._waiting -= 1
        return permit

    def begin(self, permit: Permit) -> Permit:
        """Report that a response has started, and return its permit from now on."""
        permit = self.breaker.begin(permit, self.clock.monotonic())
        self._wake()
        return permit

    def report(
        self, permit: Permit, now: float, *, ok: bool | None, request: str = "", can_probe: bool = False
    ) -> None:
        """Report the outcome of a call to the breaker.

        `request` is the fingerprint of a request that got an error response. Each counts once: one request may fail
        every time because of its content, and must not open the breaker for the others. `can_probe` marks a network
        failure, which is cheap to retry on this machine.
        """
        if ok is False and request:
            ok = None if self._has_failed(request, now) else False
        self.breaker.give_back(permit, now, ok=ok, can_probe=can_probe and self.endpoint.is_loopback)
        if self._changes:
            self._wake()

    def _has_failed(self, request: str, now: float) -> bool:
        """Return whether this request failed recently already, and remember it."""
        failed, since = self._failed_requests, now - self.rules.breaker.window_s
        while failed and next(iter(failed.values())) <= since:
            del failed[next(iter(failed))]
        has_failed = request in failed
        if len(failed) < FAILED_REQUESTS_MAX:
            failed.setdefault(request, now)
        return has_failed

    def _wake(self) -> None:
        """Wake the calls that wait for a trial, to check the breaker again."""
        changes, self._changes = self._changes, []
        for changed in changes:
            if not changed.done():
                changed.set_result(None)

    async def wait_for_place(self, places: asyncio.Semaphore) -> None:
        """Take one of the endpoint's places, which a call holds until `leave`.

        Raises: CircuitOpen; UpstreamTimeout, if no place became free.
        """
        if self.breaker.state(self.clock.monotonic()) == "open":
            # Fail without waiting: the places of a failing endpoint are held by calls that wait for it.
            raise self._rejection()
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
        """Count a finished call, and release its place."""
        self._live -= 1
        if self.places is not None:
            self.places.release()
        self._calls += 1
        if outcome == "failed":
            self._failures += 1
            self._last_error, self._last_error_at = error, self.clock.now()
        if self.meter is not None:
            self.meter.upstream_asked(self.endpoint.name, outcome)

    def _rejection(self) -> CircuitOpen:
        """Return the error for a call that the breaker rejects."""
        wait_s = self.breaker.wait_s(self.clock.monotonic())
        if self.meter is not None:
            self.meter.upstream_asked(self.endpoint.name, "open")
        reason = f": {self._last_error}" if self._last_error else ""
        return CircuitOpen(
            f"upstream '{self.endpoint.name}' failed too often and is left alone for {wait_s:.0f} s{reason}",
            hint="ask again then, or name a fallback for this route",
            retry_after_s=wait_s,
        )

    def repeat(self, *, elsewhere: bool) -> None:
        """Count a retry."""
        if self.meter is not None:
            self.meter.upstream_retried(self.endpoint.name, elsewhere=elsewhere)

    def health(self) -> EndpointHealth:
        """Return the current health."""
        now = self.clock.monotonic()
        return EndpointHealth(
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
