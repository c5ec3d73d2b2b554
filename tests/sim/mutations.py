"""Ways to break the promises on purpose: a proof that catches none of them would prove nothing."""

from collections.abc import Callable

import apsw
import pytest

from crash.checker import RETRYABLE
from sim.store import CURRENT
from treadle.canon import events
from treadle.canon.events import Numbered, RunEnded
from treadle.engine import loop
from treadle.engine.loop import Loop
from treadle.engine.minutes import Minutes
from treadle.store.sqlite import fence
from treadle.store.sqlite.rows import Place

Mutation = Callable[[pytest.MonkeyPatch], None]


def no_fence(patch: pytest.MonkeyPatch) -> None:
    """Let whoever once held a run write to it."""
    anybody = "run = ? AND ifnull(?, '') IS NOT NULL AND ifnull(?, 0) IS NOT NULL"
    for name in ("_STANDS", "ADVANCE", "LEAVE"):
        patch.setattr(fence, name, getattr(fence, name).replace(fence._HELD, anybody))


def no_start_mark(patch: pytest.MonkeyPatch) -> None:
    """Tell that a tool starts, and write nothing of it."""
    announce = Loop._announce

    def tell_only(self: Loop, wave: list[loop.PlannedCall]) -> None:
        before = len(self._steps)
        announce(self, wave)
        self._steps[before:] = [(event, None) for event, _ in self._steps[before:] if event is not None]

    patch.setattr(Loop, "_announce", tell_only)


def blind_retry(patch: pytest.MonkeyPatch) -> None:
    """Run every interrupted tool again, whatever it does."""
    patch.setattr(loop, "RETRYABLE", frozenset({*RETRYABLE, "write", "destructive"}))


def sequence_from_memory(patch: pytest.MonkeyPatch) -> None:
    """Number entries by what the process remembers, and not by what is written."""
    append = fence.Append.__call__

    def remembered(self: fence.Append, connection: apsw.Connection) -> Place:
        process = CURRENT.get()
        heads: dict[str, int] = process.__dict__.setdefault("heads", {}) if process is not None else {}
        if self.hold.run_id in heads:
            connection.execute("UPDATE leases SET head = ? WHERE run = ?", (heads[self.hold.run_id], self.hold.run))
        place = append(self, connection)
        heads[self.hold.run_id] = place.head
        return place

    patch.setattr(fence.Append, "__call__", remembered)


def told_before_commit(patch: pytest.MonkeyPatch) -> None:
    """Tell everything at once and write it afterwards."""

    async def write(self: Minutes, ended: RunEnded | None = None) -> None:
        steps = self.steps.copy()
        self.steps.clear()
        self.publish([Numbered(event=event) for event, _ in steps if event is not None])
        entries = [entry for _, entry in steps if entry is not None]
        if entries and self._journal is not None:
            await self._journal.append(entries, ended)

    patch.setattr(Minutes, "write", write)


def numbers_given_twice(patch: pytest.MonkeyPatch) -> None:
    """Number the events of a recovered run as if its clients had seen no more than the journal."""
    patch.setattr(events, "NUMBER_STEP", 0)


MUTATIONS: dict[str, Mutation] = {
    "no fence": no_fence,
    "no start mark": no_start_mark,
    "blind retry": blind_retry,
    "sequence from memory": sequence_from_memory,
    "told before commit": told_before_commit,
    "numbers given twice": numbers_given_twice,
}
