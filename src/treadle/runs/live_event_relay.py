"""Lets other processes read what a run says before it is durable: the events of the model call that is going on.

Chunks are written at most every 100 ms. A call that is over sooner writes none: the journal has it. All runs of a
process write at the same moments, so that the store commits their chunks together.
"""

import asyncio
import logging
import math
from functools import partial

import msgspec

from treadle.core.errors import StoreError, TreadleError
from treadle.core.events import RoundStarted, RunEnded, ToolFinished, ToolStarted
from treadle.journal.journal_interface import Chunk, RunJournal
from treadle.runs.event_feed import Feed, count_within

log = logging.getLogger("treadle.runs")

FLUSH_S = 0.1
APART: frozenset[type] = frozenset({RoundStarted, ToolStarted, ToolFinished, RunEnded})
"""Events that are no part of a model call, and come only when the one before them is in the journal."""


class Relay:
    """Tells one run's events as it goes, as they come into its feed."""

    def __init__(self, journal: RunJournal, feed: Feed) -> None:
        self._journal = journal
        self._feed = feed
        self._events = feed.events
        self._first = 0
        self._written = 0
        self._timer: asyncio.TimerHandle | None = None
        self._write: asyncio.Future[None] | None = None
        self._is_closed = self._is_behind = False

    def note(self) -> None:
        """Hear that there are more events."""
        if self._timer is None and self._write is None:
            self._wait()

    async def close(self) -> None:
        """Write nothing more."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._write is not None:
            await asyncio.wait([self._write])

    def _wait(self) -> None:
        """Write what is fresh at the next moment, if anything is."""
        events = self._events
        is_fresh = len(events) > self._written and type(events[-1].event) not in APART
        if is_fresh and not self._is_closed:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(_moment(loop.time() + FLUSH_S), self._flush)

    def _flush(self) -> None:
        self._timer = None
        fresh = [numbered.event for numbered in self._events[self._written :]]
        kinds = [*map(type, fresh)]
        if not APART.isdisjoint(kinds):
            # The model call that is going on begins behind the last of them.
            begun = len(kinds)
            while kinds[begun - 1] not in APART:
                begun -= 1
            self._first = self._written = self._written + begun
            del fresh[:begun]
        if fresh:
            # A model that says more than the store takes waits in the feed, where it is anyway, not in the writer too.
            count = count_within(fresh)
            self._is_behind = count < len(fresh)
            chunk = Chunk(first=self._written + 1, count=count, data=msgspec.json.encode(fresh[:count]))
            self._write = asyncio.ensure_future(self._journal.write_chunk(chunk, keep_from=self._first + 1))
            self._write.add_done_callback(partial(self._told, self._first, self._written + count))

    def _told(self, first: int, written: int, write: "asyncio.Future[None]") -> None:
        self._write = None
        if write.cancelled():
            return
        error = write.exception()
        if isinstance(error, StoreError):
            # What other processes could read may be gone: the whole call is written anew the next time.
            log.debug("live events not told", extra={"run_id": self._journal.run_id, "code": error.info.code})
            self._written = first
        elif error is not None and not isinstance(error, TreadleError):
            raise error
        else:
            self._written = written
            self._feed.keep(written)
            if self._is_behind and not self._is_closed:
                self._flush()
                return
        self._wait()


def _moment(time: float) -> float:
    """Return the next moment that all runs have in common, two in FLUSH_S."""
    return math.ceil(time / FLUSH_S * 2) * FLUSH_S / 2 if FLUSH_S else time
