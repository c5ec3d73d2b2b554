"""Runs read-only calls while the model is still writing the calls after them.

Nothing is published when such a call starts; a `tool_early` entry is durable with the call. If the model call ends
normally, the call is announced and answered in its place with the outcome from here. Otherwise it is cancelled and its
outcome is not used.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from treadle.core.shared_ports import Clock
from treadle.core.tool_definitions import Outcome
from treadle.engine.run_decisions import PlannedCall

Run = Callable[[PlannedCall], Awaitable[Outcome]]
_NOT_RUN, _NOT_USED = "Not run: ", "Begun early, and its result is not used: "


class StartedRead:
    """One running call, with the times at which it started and ended."""

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
    """The reads of a round that started before the model call ended: those `running`, and all ever `seen`.

    `is_marked` is true while a call is waiting to be started.
    """

    clock: Clock
    running: dict[str, StartedRead] = {}
    seen: tuple[str, ...] = ()
    marked: tuple[PlannedCall, ...] = ()
    is_marked: bool = False

    def __contains__(self, call_id: str) -> bool:
        return call_id in self.seen

    def mark(self, ready: Sequence[PlannedCall], call_id: str) -> bool:
        """Mark a call to be started, if it is one of those that are ready; return whether it is."""
        for planned in ready:
            if planned.call.call_id == call_id:
                self.marked += (planned,)
                self.is_marked = True
                return True
        return False

    def begin(self, run: Run) -> None:
        """Start the marked calls."""
        marked, self.marked, self.is_marked = self.marked, (), False
        for planned in marked:
            self.seen += (planned.call.call_id,)
            self.running[planned.call.call_id] = StartedRead(planned, run, self.clock)

    def take(self, call_id: str) -> StartedRead | None:
        """Return a started call to the caller, who waits for it."""
        return self.running.pop(call_id, None)

    async def cancel_unused(self) -> None:
        """Cancel the calls that were not taken, and wait for them to stop."""
        self.marked, self.is_marked = (), False
        unused = [started.task for started in self.running.values()]
        self.running.clear()
        for task in unused:
            task.cancel()
        if unused:
            await asyncio.wait(unused)
            for task in unused:
                if not task.cancelled():
                    # Retrieved, so that asyncio does not log it as never retrieved.
                    task.exception()


def mark_unused(outcome: Outcome) -> Outcome:
    """Return the outcome of a call that had started before its round was cut off: it must not say that it never ran."""
    return msgspec.structs.replace(
        outcome,
        text=outcome.text.replace(_NOT_RUN, _NOT_USED, 1),
        summary=None if outcome.summary is None else outcome.summary.replace(_NOT_RUN, _NOT_USED, 1),
    )
