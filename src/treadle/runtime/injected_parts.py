"""The parts of a runtime that tests and embedders may replace: clock, ids, environment, models, tracer."""

import asyncio
import os
import time
from collections.abc import Mapping

import msgspec

from treadle.core.ids import IdSource, SeededIds
from treadle.core.shared_ports import Clock
from treadle.engine.ports import Model
from treadle.telemetry.run_observer import Tracer
from treadle.tools.tool_runner import Report

DEMO_DELAY_S = 0.02
"""How long the demo model pauses between pieces of its answer, so that a person sees it stream."""


_RANDOM_BYTES = 10
_BATCH = 128
_batch: list[str] = []
# A forked child must not use the ids that its parent holds.
os.register_at_fork(after_in_child=_batch.clear)


class SystemClock:
    """This machine's wall clock and monotonic clock."""

    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)


class RandomIds:
    """Unguessable ids that sort by creation time, so that recent rows are close to each other in an index.

    An id is about a millisecond's time and then random bytes. They are created in batches to save system calls.
    """

    def new(self, prefix: str) -> str:
        """Return a new id."""
        try:
            return f"{prefix}_{_batch.pop()}"
        except IndexError:
            now = f"{time.time_ns() >> 20:011x}"
            random_parts = os.urandom(_RANDOM_BYTES * _BATCH).hex(" ", _RANDOM_BYTES).split()
            *later, first = map(now.__add__, sorted(random_parts, reverse=True))
            _batch.extend(later)
            return f"{prefix}_{first}"

    def of(self, run_id: str, call: str) -> SeededIds:
        """Return the source of one model call's ids."""
        return SeededIds().of(run_id, call)


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """Replacements for the default parts of a runtime.

    `report` receives the progress messages of tools. `is_attended` is false if no person can be asked for approval.
    `is_local` means that no clients are served, so tools and routes may differ from those of servers on the journal.
    `tracer` makes spans, such as `telemetry.spans.Spans` on the embedder's OpenTelemetry provider.
    """

    clock: Clock = SystemClock()
    ids: IdSource = RandomIds()
    env: Mapping[str, str] | None = None
    models: Mapping[str, Model] = {}
    report: Report | None = None
    is_attended: bool = True
    is_local: bool = False
    owner: str = ""
    """The name of the process in leases; by default one is generated."""
    workers: int = 1
    """How many processes on this machine share its limits."""
    demo_delay_s: float = DEMO_DELAY_S
    tracer: Tracer | None = None


DEFAULT_PARTS = Parts()
