"""What a process may be given instead of the default: a clock, ids, an environment, models."""

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


_CHANCE_BYTES = 10
_IDS_AHEAD = 128
_ahead: list[str] = []
# A child process must not give out what its parent has.
os.register_at_fork(after_in_child=_ahead.clear)


class SystemClock:
    """The machine's own time: the wall clock as `now`, and seconds that never go back as `monotonic`."""

    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)


class RandomIds:
    """Ids that nobody can guess, in the order of their making: neighbours in time are neighbours in an index.

    A clock's milliseconds, then chance. Both are asked for many ids at a time: the system takes long over each answer.
    """

    def new(self, prefix: str) -> str:
        """Return a new id."""
        try:
            return f"{prefix}_{_ahead.pop()}"
        except IndexError:
            now = f"{time.time_ns() >> 20:011x}"
            chances = os.urandom(_CHANCE_BYTES * _IDS_AHEAD).hex(" ", _CHANCE_BYTES).split()
            *later, first = map(now.__add__, sorted(chances, reverse=True))
            _ahead.extend(later)
            return f"{prefix}_{first}"

    def of(self, run_id: str, call: str) -> SeededIds:
        """Return the source of one model call's ids."""
        return SeededIds().of(run_id, call)


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """What tests and embedders may bring instead of the default: a clock, ids, an environment, more models.

    `report` hears what tools say of their progress. `is_attended` false says that nobody can be asked for approval.
    `is_local` says that no clients are served here, so that other tools and routes than those of servers are no fault.
    `tracer` makes spans, such as `telemetry.spans.Spans` around the provider of whoever embeds Treadle.
    """

    clock: Clock = SystemClock()
    ids: IdSource = RandomIds()
    env: Mapping[str, str] | None = None
    models: Mapping[str, Model] = {}
    report: Report | None = None
    is_attended: bool = True
    is_local: bool = False
    owner: str = ""
    """How the process is named in leases; by itself, unless whoever started it knows better."""
    workers: int = 1
    """How many processes of one machine share its limits."""
    demo_delay_s: float = DEMO_DELAY_S
    tracer: Tracer | None = None


DEFAULT_PARTS = Parts()
