"""Ways to break the promises on purpose: a proof that catches none of them would prove nothing."""

from collections.abc import Callable
from typing import Any

import apsw
import pytest

from crash.checker import RETRYABLE
from sim.store import CURRENT
from treadle.core import events
from treadle.core.events import Numbered, RunEnded
from treadle.engine import run_loop as loop
from treadle.engine.run_loop import RunLoop
from treadle.engine.write_buffer import WriteBuffer
from treadle.journal.sqlite import leased_writes as fence
from treadle.journal.sqlite.row_mapping import SqliteChainHead
from treadle.runtime.database_clock import SharedClock
from treadle.server.delivery.stream_event_ids import FrameNumbers, Position

Mutation = Callable[[pytest.MonkeyPatch], None]


def no_fence(patch: pytest.MonkeyPatch) -> None:
    """Let whoever once held a run write to it."""
    anybody = "run = ? AND ifnull(?, '') IS NOT NULL AND ifnull(?, 0) IS NOT NULL"
    for name in ("_STANDS", "ADVANCE", "LEAVE"):
        patch.setattr(fence, name, getattr(fence, name).replace(fence._HELD, anybody))


def no_start_mark(patch: pytest.MonkeyPatch) -> None:
    """Tell that a tool starts, and write nothing of it."""
    announce = RunLoop._add_starts

    def tell_only(self: RunLoop, wave: list[loop.PlannedCall]) -> None:
        before = len(self._steps)
        announce(self, wave)
        self._steps[before:] = [(event, None) for event, _ in self._steps[before:] if event is not None]

    patch.setattr(RunLoop, "_add_starts", tell_only)


def blind_retry(patch: pytest.MonkeyPatch) -> None:
    """Run every interrupted tool again, whatever it does."""
    patch.setattr(loop, "RETRYABLE", frozenset({*RETRYABLE, "write", "destructive"}))


def sequence_from_memory(patch: pytest.MonkeyPatch) -> None:
    """Number entries by what the process remembers, and not by what is written."""
    append = fence.Append.__call__

    def remembered(self: fence.Append, connection: apsw.Connection) -> SqliteChainHead:
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

    async def write(self: WriteBuffer, ended: RunEnded | None = None) -> None:
        steps = self.steps.copy()
        self.steps.clear()
        self.publish([Numbered(event=event) for event, _ in steps if event is not None])
        entries = [entry for _, entry in steps if entry is not None]
        if entries and self._journal is not None:
            await self._journal.append(entries, ended)

    patch.setattr(WriteBuffer, "write", write)


def numbers_given_twice(patch: pytest.MonkeyPatch) -> None:
    """Number the events of a recovered run as if its clients had seen no more than the journal."""
    patch.setattr(events, "NUMBER_STEP", 0)


def ahead_is_another(patch: pytest.MonkeyPatch) -> None:
    """Tell every client that saw more than the journal that the answer went on differently."""
    recover = FrameNumbers.recover

    def differ(self: FrameNumbers, step: int) -> None:
        recover(self, step)
        self.has_diverged |= self.is_matching

    patch.setattr(FrameNumbers, "recover", differ)


def digest_ignored(patch: pytest.MonkeyPatch) -> None:
    """Take an answer for the one that the client has when it is as long."""

    def compare(self: FrameNumbers) -> None:
        if self._shown.chars >= (self._position.chars or 0):
            self.is_matching = False
            self._position = Position(self.number - 1)

    patch.setattr(FrameNumbers, "_compare", compare)


def older_ids_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Go on only after the newest id: a client that comes back with one from before a recovery gets what follows it."""
    recover = FrameNumbers.recover

    def forget(self: FrameNumbers, step: int) -> None:
        recover(self, step)
        if not self.is_matching and self._position.number < self.number:
            self._position = Position(self.number)

    patch.setattr(FrameNumbers, "recover", forget)


def own_clocks(patch: pytest.MonkeyPatch) -> None:
    """Let every process go by the clock of its machine."""
    patch.setattr(SharedClock, "now", lambda self: self._own.now())


def entries_taken_back(patch: pytest.MonkeyPatch) -> None:
    """Go on with a run from before its last entry, as if that had not been written."""
    claim = fence.claim

    def rewind(connection: apsw.Connection, *args: Any) -> list[fence.Claimed]:
        claimed: list[fence.Claimed] = []
        for values, hold, place in claim(connection, *args):
            connection.execute("DELETE FROM events WHERE run = ? AND seq = ?", (hold.run, place.head))
            last = "SELECT sha256 FROM events WHERE run = ? AND seq = ?"
            [(sha256,)] = connection.execute(last, (hold.run, place.head - 1)).fetchall()
            connection.execute(
                "UPDATE leases SET head = head - 1, sha256 = ? WHERE run = ?",
                (sha256, hold.run),
            )
            claimed.append((values, hold, SqliteChainHead(place.head - 1, sha256)))
        return claimed

    patch.setattr(fence, "claim", rewind)


MUTATIONS: dict[str, Mutation] = {
    "no fence": no_fence,
    "no start mark": no_start_mark,
    "blind retry": blind_retry,
    "sequence from memory": sequence_from_memory,
    "told before commit": told_before_commit,
    "numbers given twice": numbers_given_twice,
    "ahead is another": ahead_is_another,
    "digest ignored": digest_ignored,
    "older ids forgotten": older_ids_forgotten,
    "own clocks": own_clocks,
    "entries taken back": entries_taken_back,
}
