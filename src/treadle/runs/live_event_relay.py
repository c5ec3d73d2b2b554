"""Writes the events of the current model call as chunks, so that other processes can read them before they are durable.

Chunks are written at most every 100 ms. A model call that ends sooner writes none: the journal has it. All runs of a
process flush at the same moments, so that the store commits their chunks together.
"""

import asyncio
import logging
import math
from functools import partial

import msgspec

from treadle.core.errors import StoreError, TreadleError
from treadle.core.events import RoundStarted, RunEnded, ToolFinished, ToolStarted
from treadle.journal.journal_interface import Chunk, RunJournal
from treadle.runs.event_feed import EventFeed, count_within

log = logging.getLogger("treadle.runs")

FLUSH_S = 0.1
OUTSIDE_MODEL_CALLS: frozenset[type] = frozenset({RoundStarted, ToolStarted, ToolFinished, RunEnded})
"""Events that belong to no model call, published only when the one before them is in the journal."""


class LiveEventRelay:
    """Writes one run's live chunks from its feed.

    `is_durable` is for a run whose clients are shown what is stored and count on it.
    """

    def __init__(self, journal: RunJournal, feed: EventFeed, *, is_durable: bool = False) -> None:
        self._journal = journal
        self._is_durable = is_durable
        self._feed = feed
        self._events = feed.events
        self._first = 0
        self._written = 0
        self._timer: asyncio.TimerHandle | None = None
        self._write: asyncio.Future[None] | None = None
        self._is_closed = self._is_behind = False

    def notify(self) -> None:
        """Schedule a flush: the feed has new events."""
        if self._timer is None and self._write is None:
            self._schedule()

    async def close(self) -> None:
        """Stop, and wait for the write in progress."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._write is not None:
            await asyncio.wait([self._write])

    def _schedule(self) -> None:
        """Schedule the next flush, if there is anything new."""
        events = self._events
        is_fresh = len(events) > self._written and type(events[-1].event) not in OUTSIDE_MODEL_CALLS
        if is_fresh and not self._is_closed:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(_next_flush(loop.time() + FLUSH_S), self._flush)

    def _flush(self) -> None:
        self._timer = None
        fresh = [numbered.event for numbered in self._events[self._written :]]
        kinds = [*map(type, fresh)]
        if not OUTSIDE_MODEL_CALLS.isdisjoint(kinds):
            # The current model call starts after the last of them.
            start = len(kinds)
            while kinds[start - 1] not in OUTSIDE_MODEL_CALLS:
                start -= 1
            self._first = self._written = self._written + start
            del fresh[:start]
        if fresh:
            # What the store cannot take yet waits in the feed, which holds it anyway, and not in the writer too.
            count = count_within(fresh)
            self._is_behind = count < len(fresh)
            chunk = Chunk(first=self._written + 1, count=count, data=msgspec.json.encode(fresh[:count]))
            self._write = asyncio.ensure_future(self._write_chunk(chunk))
            self._write.add_done_callback(partial(self._flushed, self._first, self._written + count))

    async def _write_chunk(self, chunk: Chunk) -> None:
        await self._journal.write_chunk(chunk, keep_from=self._first + 1, is_durable=self._is_durable)

    def _flushed(self, first: int, written: int, write: "asyncio.Future[None]") -> None:
        self._write = None
        if write.cancelled():
            return
        error = write.exception()
        if isinstance(error, StoreError):
            # Chunks may be lost: write the whole call again the next time.
            log.debug("live events not told", extra={"run_id": self._journal.run_id, "code": error.info.code})
            self._written = first
        elif error is not None and not isinstance(error, TreadleError):
            raise error
        else:
            self._written = written
            self._feed.mark_stored(written)
            if self._is_behind and not self._is_closed:
                self._flush()
                return
        self._schedule()


def _next_flush(time: float) -> float:
    """Return the next flush time, a multiple of half of FLUSH_S: the same for all runs."""
    return math.ceil(time / FLUSH_S * 2) * FLUSH_S / 2 if FLUSH_S else time
