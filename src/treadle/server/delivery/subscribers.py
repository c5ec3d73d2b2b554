"""Who still reads which run of this process. A run that nobody reads any more is ended, at once or after a while.

A client that lost its connection before it heard anything may ask the same again: by `again` it finds its run.
"""

import asyncio
from typing import Protocol

from treadle.core.events import RunEnded
from treadle.core.request import Note
from treadle.core.shared_ports import Clock
from treadle.runs.event_feed import BatchHandler, FeedBatches


class EventSource(Protocol):
    """What is carried: a run, or several that answer one request together."""

    @property
    def run_id(self) -> str:
        """Return the id by which the answer is found again."""
        ...

    @property
    def has_run_tools(self) -> bool:
        """Tell whether a tool has started."""
        ...

    @property
    def notes(self) -> tuple[Note, ...]:
        """Return what was dropped, coerced, emulated or repaired so far."""
        ...

    @property
    def cache(self) -> str:
        """Return what the cache did for the answer: `hit`, `miss`, or nothing."""
        ...

    def events(self, *, on_batch: BatchHandler | None = None) -> FeedBatches:
        """Return what happens, in batches, until the end; `on_batch` may take them at once."""
        ...

    def stored_events(self) -> FeedBatches:
        """Return what happens as it is stored, a moment later."""
        ...

    def behind(self, taken: int) -> int:
        """Return about how many bytes wait in memory for a reader that has taken so many events."""
        ...

    async def cancel(self) -> None:
        """End it."""
        ...

    async def wait(self) -> RunEnded:
        """Wait for the end."""
        ...


class Subscribers:
    """Counts the readers of runs."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._readers: dict[str, int] = {}
        self._endings: dict[str, asyncio.Task[None]] = {}
        self._waiting: dict[str, EventSource] = {}

    @property
    def readers(self) -> int:
        """Return how many read."""
        return sum(self._readers.values())

    def enter(self, run_id: str) -> None:
        """Count a reader; a run that waited for one goes on."""
        self._readers[run_id] = self._readers.get(run_id, 0) + 1
        if run_id in self._endings:
            self._endings.pop(run_id).cancel()

    def find(self, again: str) -> EventSource | None:
        """Return what waits for this request to come again, to be entered at once."""
        return self._waiting.pop(again, None)

    def count_out(self, run_id: str) -> bool:
        """Count a reader out; tell whether it was the last one."""
        left = self._readers[run_id] - 1
        if left:
            self._readers[run_id] = left
        else:
            del self._readers[run_id]
        return not left

    async def leave(self, source: EventSource, patience_s: float | None, again: str = "") -> None:
        """Count a reader out; without any the run ends after that time, and with None it goes on by itself."""
        run_id = source.run_id
        if not self.count_out(run_id):
            return
        if patience_s == 0.0:
            await source.cancel()
        elif patience_s is not None:
            if again:
                self._waiting[again] = source
            self._endings[run_id] = asyncio.create_task(self._end(source, patience_s, again), name=f"{run_id}-waits")

    async def close(self) -> None:
        """Wait for nobody any more."""
        endings = list(self._endings.values())
        self._endings.clear()
        self._waiting.clear()
        for ending in endings:
            ending.cancel()
        if endings:
            await asyncio.wait(endings)

    async def _end(self, source: EventSource, patience_s: float, again: str) -> None:
        await self._clock.sleep(patience_s)
        self._endings.pop(source.run_id, None)
        self._waiting.pop(again, None)
        await source.cancel()
