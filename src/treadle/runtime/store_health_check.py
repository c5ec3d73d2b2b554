"""Checks the store in the background, so that readiness requests are answered at once whatever the store does.

The result is that of the last check, at most some seconds old; a check that hangs counts as a failure.
"""

import asyncio
import logging
from collections import Counter

from treadle.core.errors import StoreError
from treadle.core.shared_ports import Clock
from treadle.journal.journal_interface import Store
from treadle.telemetry import Metrics

log = logging.getLogger("treadle.journal")

CHECK_S = 1.0
"""The pause between two checks."""
ANSWER_S = 2.5
"""Time limit of one check."""
AWAY_S = 1.5
"""How long the store must be failing before requests are refused without trying it: shorter outages, such as a restart,
are waited out. One check that timed out is enough."""
STALE_S = 6.0
"""How old the last check may be; longer than a check that times out."""
FAILED_S = 5.0
"""How long a write that failed for lack of space marks the store as unhealthy, whatever a check finds."""
UNWRITABLE = ("store_full", "store_io", "store_corrupt", "store_not_a_database")
"""Error codes of writes that show a fault which a check may not find."""


class StoreHealth:
    """Checks a store periodically while it is open."""

    def __init__(self, store: Store, clock: Clock, metrics: Metrics) -> None:
        self._store = store
        self._clock = clock
        self._now = clock.monotonic
        self._metrics = metrics
        self._task: asyncio.Task[None] | None = None
        self._problem: StoreError | None = None
        self._failing_since = 0.0
        self._checked_at = float("-inf")
        self._counted = 0
        self._errors_before: Counter[str] = Counter()
        self._unwritable: tuple[float, str] = (float("-inf"), "")
        metrics.show("treadle_store_up", "Whether the store is well: 1, else 0.", lambda: float(self.problem is None))
        metrics.show_store(lambda: store.stats)

    def open(self) -> None:
        """Start checking a store that was just opened, and so is healthy."""
        self._checked_at = self._now()
        self._task = asyncio.create_task(self._check_forever(), name="treadle-store-health")

    async def close(self) -> None:
        """Stop checking."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    @property
    def problem(self) -> StoreError | None:
        """Return what is wrong with the store; None while it is healthy."""
        if self._problem is not None or self._task is None:
            return self._problem
        if self._now() - self._checked_at > STALE_S:
            return StoreError("the store did not answer for some seconds")
        failed_at, code = self._unwritable
        if self._now() - failed_at < FAILED_S:
            return StoreError("something could not be written just now", code=code)
        return None

    async def _check_forever(self) -> None:
        while True:
            await self.check()
            await self._clock.sleep(CHECK_S)

    async def check(self) -> None:
        """Check once; if the store has been failing for a while, make requests fail at once."""
        started_at = self._now()
        problem: StoreError | None = None
        try:
            async with asyncio.timeout(ANSWER_S):
                await self._store.probe()
            self._metrics.store_answered(self._now() - started_at)
        except TimeoutError:
            problem = StoreError(f"the store {self._store.path}: it did not answer within {ANSWER_S:g} s")
        except StoreError as error:
            problem = error
        except Exception as error:
            log.exception("the store could not be looked at")
            problem = StoreError(f"the store {self._store.path}: {error}")
        self._checked_at = self._now()
        self._note_failed_writes()
        self._report(problem, started_at)
        is_away = problem is not None and problem.info.code == StoreError.code
        self._store.hold_off(problem if is_away and self._checked_at - self._failing_since >= AWAY_S else None)

    def _report(self, problem: StoreError | None, started_at: float) -> None:
        """Log a change, with the path and error that clients must not see."""
        before, self._problem = self._problem, problem
        if problem is None:
            if before is not None:
                log.warning("the store is well again after %.1f s", self._checked_at - self._failing_since)
            return
        if before is None:
            self._failing_since = started_at
        if before is None or before.info.code != problem.info.code:
            log.error("%s", problem.message, extra={"code": problem.info.code, "hint": problem.hint})

    def _note_failed_writes(self) -> None:
        """Count writes that failed for lack of space since the last check, which may not detect that."""
        errors = self._store.stats.errors
        counted = sum(errors[code] for code in UNWRITABLE)
        if counted > self._counted:
            code = max(UNWRITABLE, key=lambda each: errors[each] - self._errors_before[each])
            self._unwritable = self._now(), code
        self._counted, self._errors_before = counted, Counter(errors)
