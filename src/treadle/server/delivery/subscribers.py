"""Counts the readers of each run in this process, and cancels a run without readers, at once or after a delay.

A client that lost its connection before it received anything may repeat its request. `repeat_key` identifies
the repeated request and finds its run.
"""

import asyncio
from typing import Protocol

from treadle.core.events import RunEnded
from treadle.core.request import Note
from treadle.core.shared_ports import Clock
from treadle.runs.event_feed import BatchHandler, FeedBatches


class EventSource(Protocol):
    """A source of events for one response: a run, or several that answer one request together."""

    @property
    def run_id(self) -> str:
        """Return the id of the run."""
        ...

    @property
    def has_run_tools(self) -> bool:
        """Return whether a tool has started."""
        ...

    @property
    def notes(self) -> tuple[Note, ...]:
        """Return what was dropped, coerced, emulated or repaired so far."""
        ...

    @property
    def cache(self) -> str:
        """Return the cache's result: `hit`, `miss`, or an empty string."""
        ...

    def events(self, *, on_batch: BatchHandler | None = None) -> FeedBatches:
        """Return events in batches until the end; `on_batch` may take a batch synchronously."""
        ...

    def stored_events(self) -> FeedBatches:
        """Return events as they are stored, a moment later."""
        ...

    def behind(self, taken: int) -> int:
        """Return roughly how many bytes are buffered for a reader that has taken `taken` events."""
        ...

    async def cancel(self) -> None:
        """Cancel the run, or all of them."""
        ...

    async def wait(self) -> RunEnded:
        """Wait for the end."""
        ...


class Subscribers:
    """Counts the readers of runs."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._readers: dict[str, int] = {}
        self._cancellations: dict[str, asyncio.Task[None]] = {}
        self._waiting: dict[str, EventSource] = {}

    @property
    def readers(self) -> int:
        """Return the number of readers."""
        return sum(self._readers.values())

    def enter(self, run_id: str) -> None:
        """Add a reader, which stops a pending cancellation."""
        self._readers[run_id] = self._readers.get(run_id, 0) + 1
        if run_id in self._cancellations:
            self._cancellations.pop(run_id).cancel()

    def find(self, repeat_key: str) -> EventSource | None:
        """Return the source that waits for this request to be repeated. The caller must `enter` it at once,
        because the delayed cancellation goes on until then."""
        return self._waiting.pop(repeat_key, None)

    def count_out(self, run_id: str) -> bool:
        """Remove a reader; return whether it was the last one."""
        left = self._readers[run_id] - 1
        if left:
            self._readers[run_id] = left
        else:
            del self._readers[run_id]
        return not left

    async def leave(self, source: EventSource, cancel_after_s: float | None, repeat_key: str = "") -> None:
        """Remove a reader; after the last one, cancel the run after `cancel_after_s`, or never if that is None."""
        run_id = source.run_id
        if not self.count_out(run_id):
            return
        if cancel_after_s == 0.0:
            await source.cancel()
        elif cancel_after_s is not None:
            if repeat_key:
                self._waiting[repeat_key] = source
            self._cancellations[run_id] = asyncio.create_task(
                self._cancel_later(source, cancel_after_s, repeat_key), name=f"{run_id}-waits"
            )

    async def close(self) -> None:
        """Stop waiting for readers. Does not cancel the runs."""
        tasks = list(self._cancellations.values())
        self._cancellations.clear()
        self._waiting.clear()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _cancel_later(self, source: EventSource, cancel_after_s: float, repeat_key: str) -> None:
        await self._clock.sleep(cancel_after_s)
        self._cancellations.pop(source.run_id, None)
        self._waiting.pop(repeat_key, None)
        await source.cancel()
