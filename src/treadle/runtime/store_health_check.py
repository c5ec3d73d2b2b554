"""Whether the store is well, looked at in the background: whoever asks is answered at once, whatever the store does.

An answer is true as of the last look, which is at most some seconds old; a look that hangs is an answer too.
"""

import asyncio
import logging
from collections import Counter

from treadle.core.errors import StoreError
from treadle.core.shared_ports import Clock
from treadle.journal.journal_interface import Store
from treadle.telemetry import Metrics

log = logging.getLogger("treadle.journal")

LOOK_S = 1.0
"""How long after a look the next one begins."""
ANSWER_S = 2.5
"""How long the store may take to answer."""
AWAY_S = 1.5
"""For how long the store must have been failing until requests are refused without asking it: shorter outages, such as
a restart, are waited out. One look that got no answer is enough."""
STALE_S = 6.0
"""How old the last look may be: longer than one that gets no answer takes."""
FAILED_S = 5.0
"""For how long a write that found no room keeps the store from being taken for well, whatever a look finds."""
UNWRITABLE = ("store_full", "store_io", "store_corrupt", "store_not_a_database")
"""Codes of failures that say of the store what a look may not find."""


class StoreHealth:
    """Looks at a store for as long as it is open."""

    def __init__(self, store: Store, clock: Clock, metrics: Metrics) -> None:
        self._store = store
        self._clock = clock
        self._now = clock.monotonic
        self._metrics = metrics
        self._task: asyncio.Task[None] | None = None
        self._problem: StoreError | None = None
        self._failing_since = 0.0
        self._looked_at = float("-inf")
        self._counted = 0
        self._errors_before: Counter[str] = Counter()
        self._unwritable: tuple[float, str] = (float("-inf"), "")
        metrics.show("treadle_store_up", "Whether the store is well: 1, else 0.", lambda: float(self.problem is None))
        metrics.show_store(lambda: store.stats)

    def open(self) -> None:
        """Begin to look, at a store that was just opened and so is well."""
        self._looked_at = self._now()
        self._task = asyncio.create_task(self._keep_looking(), name="treadle-store-health")

    async def close(self) -> None:
        """Look no more."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    @property
    def problem(self) -> StoreError | None:
        """Return what is wrong with the store; None while it is well."""
        if self._problem is not None or self._task is None:
            return self._problem
        if self._now() - self._looked_at > STALE_S:
            return StoreError("the store did not answer for some seconds")
        failed_at, code = self._unwritable
        if self._now() - failed_at < FAILED_S:
            return StoreError("something could not be written just now", code=code)
        return None

    async def _keep_looking(self) -> None:
        while True:
            await self.look()
            await self._clock.sleep(LOOK_S)

    async def look(self) -> None:
        """Look once, and let requests be refused at once where the store has been failing for a while."""
        began = self._now()
        problem: StoreError | None = None
        try:
            async with asyncio.timeout(ANSWER_S):
                await self._store.probe()
            self._metrics.store_answered(self._now() - began)
        except TimeoutError:
            problem = StoreError(f"the store {self._store.path}: it did not answer within {ANSWER_S:g} s")
        except StoreError as error:
            problem = error
        except Exception as error:
            log.exception("the store could not be looked at")
            problem = StoreError(f"the store {self._store.path}: {error}")
        self._looked_at = self._now()
        self._note_failed_writes()
        self._report(problem, began)
        is_away = problem is not None and problem.info.code == StoreError.code
        self._store.hold_off(problem if is_away and self._looked_at - self._failing_since >= AWAY_S else None)

    def _report(self, problem: StoreError | None, began: float) -> None:
        """Log what changed, with the place and the words that no client is told."""
        before, self._problem = self._problem, problem
        if problem is None:
            if before is not None:
                log.warning("the store is well again after %.1f s", self._looked_at - self._failing_since)
            return
        if before is None:
            self._failing_since = began
        if before is None or before.info.code != problem.info.code:
            log.error("%s", problem.message, extra={"code": problem.info.code, "hint": problem.hint})

    def _note_failed_writes(self) -> None:
        """Take note of writes that found no room since the last look: what is looked for may be elsewhere."""
        errors = self._store.stats.errors
        counted = sum(errors[code] for code in UNWRITABLE)
        if counted > self._counted:
            code = max(UNWRITABLE, key=lambda each: errors[each] - self._errors_before[each])
            self._unwritable = self._now(), code
        self._counted, self._errors_before = counted, Counter(errors)
