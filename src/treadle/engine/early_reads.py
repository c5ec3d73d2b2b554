"""Reads that begin while the model still says the calls behind them.

Nothing of it is told when it begins; a mark stands beside the call in the journal, durable with it. Once the model has
ended well, the call is announced and answered in its place, and what it gave is taken from here. After any other end
it is stopped, and what it gave is not used.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from treadle.core.tool_definitions import Outcome
from treadle.engine.ports import Clock
from treadle.engine.run_decisions import PlannedCall

Run = Callable[[PlannedCall], Awaitable[Outcome]]
_NOT_RUN, _NOT_USED = "Not run: ", "Begun early, and its result is not used: "


class StartedRead:
    """One call under way: when it began, and, once it has, when it ended."""

    def __init__(self, planned: PlannedCall, run: Run, clock: Clock) -> None:
        self._clock = clock
        self.started_at = clock.monotonic()
        self.ended_at: float | None = None
        self.task = asyncio.create_task(self._run(planned, run))

    async def _run(self, planned: PlannedCall, run: Run) -> Outcome:
        outcome = await run(planned)
        self.ended_at = self._clock.monotonic()
        return outcome


class EarlyReads(msgspec.Struct):
    """The reads of a turn that began before the model ended: those `under_way`, and all that were ever `seen`.

    `is_marked` tells whether any call is to begin.
    """

    clock: Clock
    running: dict[str, StartedRead] = {}
    seen: tuple[str, ...] = ()
    marked: tuple[PlannedCall, ...] = ()
    is_marked: bool = False

    def __contains__(self, call_id: str) -> bool:
        return call_id in self.seen

    def mark(self, ready: Sequence[PlannedCall], call_id: str) -> bool:
        """Note a call that is to begin, if it is one of those that may; tell whether it is."""
        for planned in ready:
            if planned.call.call_id == call_id:
                self.marked += (planned,)
                self.is_marked = True
                return True
        return False

    def begin(self, run: Run) -> None:
        """Let the calls begin that were noted."""
        marked, self.marked, self.is_marked = self.marked, (), False
        for planned in marked:
            self.seen += (planned.call.call_id,)
            self.running[planned.call.call_id] = StartedRead(planned, run, self.clock)

    def take(self, call_id: str) -> StartedRead | None:
        """Hand over a call that has begun, to whoever waits for it."""
        return self.running.pop(call_id, None)

    async def cancel_unused(self) -> None:
        """Stop what nobody took, and wait until it has stopped."""
        self.marked, self.is_marked = (), False
        dropped = [begun.task for begun in self.running.values()]
        self.running.clear()
        for task in dropped:
            task.cancel()
        if dropped:
            await asyncio.wait(dropped)
            for task in dropped:
                if not task.cancelled():
                    task.exception()


def mark_unused(outcome: Outcome) -> Outcome:
    """Word the outcome of a call that had begun before its turn broke off, as no call that never ran."""
    return msgspec.structs.replace(
        outcome,
        text=outcome.text.replace(_NOT_RUN, _NOT_USED, 1),
        summary=None if outcome.summary is None else outcome.summary.replace(_NOT_RUN, _NOT_USED, 1),
    )
