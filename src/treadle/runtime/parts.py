"""What a process may be given instead of the default: a clock, ids, an environment, models."""

import asyncio
import os
import time
from collections.abc import Mapping

import msgspec

from treadle.canon.ids import IdSource
from treadle.engine.ports import Clock, Model
from treadle.telemetry.watch import Tracer
from treadle.tools.runner import Report

DEMO_DELAY_S = 0.02
"""How long the demo model pauses between pieces of its answer, so that a person sees it stream."""


class SystemClock:
    """The machine's own time."""

    def now(self) -> float:
        """Return the wall clock."""
        return time.time()

    def monotonic(self) -> float:
        """Return seconds that never go back."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)


class RandomIds:
    """Ids that nobody can guess."""

    def new(self, prefix: str) -> str:
        """Return a new id."""
        return f"{prefix}_{os.urandom(12).hex()}"


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """What tests and embedders may bring instead of the default: a clock, ids, an environment, more models.

    `report` hears what tools say of their progress. `is_attended` false says that nobody can be asked for approval.
    `tracer` makes spans, such as `telemetry.spans.Spans` around the provider of whoever embeds Treadle.
    """

    clock: Clock = SystemClock()
    ids: IdSource = RandomIds()
    env: Mapping[str, str] | None = None
    models: Mapping[str, Model] = {}
    report: Report | None = None
    is_attended: bool = True
    owner: str = ""
    """How the process is named in leases; by itself, unless whoever started it knows better."""
    workers: int = 1
    """How many processes of one machine share its limits."""
    demo_delay_s: float = DEMO_DELAY_S
    tracer: Tracer | None = None


DEFAULT_PARTS = Parts()
