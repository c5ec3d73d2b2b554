"""Lets other processes read what a run says before it is durable: the events of the model call that is going on.

Chunks are written at most every 100 ms. A call that is over sooner writes none: the journal has it. All runs of a
process write at the same moments, so that the store commits their chunks together.
"""

import asyncio
import logging
import math

import msgspec

from treadle.canon.errors import StoreError, TreadleError
from treadle.canon.events import Numbered, RoundStarted, RunEnded, RunEvent, ToolFinished, ToolStarted
from treadle.store.journal import Chunk, RunJournal

log = logging.getLogger("treadle.runs")

FLUSH_S = 0.1
_APART: frozenset[type] = frozenset({RoundStarted, ToolStarted, ToolFinished, RunEnded})
"""Events that are no part of a model call, and come only when the one before them is in the journal."""


class Relay:
    """Tells one run's events as it goes."""

    def __init__(self, journal: RunJournal) -> None:
        self._journal = journal
        self._count = 0
        self._first = 1
        self._events: list[RunEvent] = []
        self._written = 0
        self._timer: asyncio.TimerHandle | None = None
        self._write: asyncio.Task[None] | None = None
        self._is_closed = False

    def note(self, batch: list[Numbered]) -> None:
        """Take events that were just published."""
        for numbered in batch:
            self._count += 1
            event = numbered.event
            if type(event) in _APART:
                self._first, self._written = self._count + 1, 0
                self._events.clear()
            else:
                self._events.append(event)
        is_idle = self._timer is None and self._write is None and not self._is_closed
        if is_idle and len(self._events) > self._written:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(_moment(loop.time() + FLUSH_S), self._flush)

    async def close(self) -> None:
        """Write nothing more."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._write is not None:
            await asyncio.wait([self._write])

    def _flush(self) -> None:
        self._timer = None
        if len(self._events) > self._written:
            self._write = asyncio.create_task(self._tell())

    async def _tell(self) -> None:
        first, start = self._first, self._written
        fresh = self._events[start:]
        if not fresh:
            # The call ended between the timer and this task: what it said is durable, and not told any more.
            self._write = None
            return
        chunk = Chunk(first=first + start, count=len(fresh), data=msgspec.json.encode(fresh))
        try:
            await self._journal.tell(chunk, keep_from=first)
        except StoreError as error:
            # What other processes could read may be gone: the whole call is written anew the next time.
            log.debug("live events not told", extra={"run_id": self._journal.run_id, "code": error.info.code})
            self._written = 0
        except TreadleError:
            self._written = start + len(fresh)
        else:
            if self._first == first:
                self._written = start + len(fresh)
        finally:
            self._write = None
        self.note([])


def _moment(time: float) -> float:
    """Return the next moment that all runs have in common, two in FLUSH_S."""
    return math.ceil(time / FLUSH_S * 2) * FLUSH_S / 2 if FLUSH_S else time
