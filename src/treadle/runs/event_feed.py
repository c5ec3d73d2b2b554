"""The events of one active run in memory, for any number of readers, each at its own position and pace."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import Protocol, Self

import msgspec

from treadle.core.events import ArgumentsDelta, Numbered, ReasoningDelta, RefusalDelta, RunEvent, TextDelta

BATCH_EVENTS_MAX = 256
"""How many events a reader with unread events gets at a time: between batches its client can apply backpressure."""

BATCH_TEXT_MAX = 262_144
"""How many characters it gets at a time (at least one event): encoded bytes stay in memory until they are taken."""

_DELTAS = (TextDelta, ReasoningDelta, ArgumentsDelta, RefusalDelta)

BatchHandler = Callable[[list[Numbered]], bool]
"""Handles a batch synchronously when it is published and returns True, or returns False to leave it to be read."""


class FeedBatches(Protocol):
    """The events of a run, in batches, until its end."""

    def __aiter__(self) -> AsyncIterator[list[Numbered]]:
        """Return the iterator."""
        ...

    def __anext__(self) -> Awaitable[list[Numbered]]:
        """Return the next batch."""
        ...

    def aclose(self) -> Awaitable[None]:
        """Stop reading."""
        ...


class EventFeed(msgspec.Struct, eq=False):
    """Grows while the run is active; a reader may start after any event. Positions count from 1; they are
    not the `seq` of journal entries.

    `sizes` are the cumulative bytes up to each event, computed on demand. The first `stored` events are in the store;
    a crash loses the others.
    """

    events: list[Numbered] = []
    is_closed: bool = False
    waiting: list["FeedReader"] = []
    sizes: list[int] | None = None
    stored: int = 0
    waiting_stored: list["StoredEventReader"] = []

    def publish(self, batch: list[Numbered]) -> None:
        """Add events; offer them to the handlers of readers that have all earlier ones, and wake the other readers."""
        events, size = self.events, len(batch)
        before = len(events)
        events += batch
        for reader in self.waiting.copy():
            fault = None
            if reader.on_batch is not None and reader.position == before and size <= BATCH_EVENTS_MAX:
                try:
                    if reader.on_batch(batch):
                        reader.position += size
                        continue
                except Exception as error:  # noqa: BLE001 - a reader's fault is not the run's
                    fault = error
            self.waiting.remove(reader)
            reader.wake(fault)

    def mark_stored(self, count: int) -> None:
        """Record that the first `count` events are in the store."""
        if count <= self.stored:
            return
        self.stored = count
        if self.waiting_stored:
            self._wake_stored()

    def close(self) -> None:
        """End the feed: no more events will come."""
        self.is_closed = True
        waiting, self.waiting = self.waiting, []
        for reader in waiting:
            reader.wake()
        self._wake_stored()

    def read_stored(self) -> "StoredEventReader":
        """Return a reader of stored events only."""
        return StoredEventReader(self)

    def _wake_stored(self) -> None:
        waiting, self.waiting_stored = self.waiting_stored, []
        for reader in waiting:
            reader.wake()

    def read(self, after: int = 0, on_batch: BatchHandler | None = None) -> "FeedReader":
        """Return a reader of the events after the first `after` ones.

        `on_batch` is offered each new batch while this reader is up to date; True means that it was handled.
        """
        return FeedReader(self, after, on_batch)

    def behind(self, taken: int) -> int:
        """Return roughly how many bytes of events there are after the first `taken`.

        Each event is measured once, by the first call after it was published.
        """
        if self.sizes is None:
            self.sizes = [0]
        sizes = self.sizes
        for numbered in self.events[len(sizes) - 1 :]:
            sizes.append(sizes[-1] + len(msgspec.json.encode(numbered.event)))
        return sizes[-1] - sizes[min(taken, len(sizes) - 1)]


class FeedReader(msgspec.Struct, eq=False):
    """One reader with its position. Fits `FeedBatches`."""

    feed: EventFeed
    position: int
    on_batch: BatchHandler | None
    waiter: asyncio.Future[None] | None = None

    def __aiter__(self) -> Self:
        """Return itself."""
        return self

    async def __anext__(self) -> list[Numbered]:
        """Return the next events, as soon as there are any."""
        feed = self.feed
        events = feed.events
        while self.position >= len(events):
            if feed.is_closed:
                raise StopAsyncIteration
            self.waiter = waiter = asyncio.get_running_loop().create_future()
            feed.waiting.append(self)
            try:
                await waiter
            finally:
                if self in feed.waiting:
                    feed.waiting.remove(self)
        position = self.position
        batch = _bounded(events[position : position + BATCH_EVENTS_MAX])
        self.position = position + len(batch)
        return batch

    async def aclose(self) -> None:
        """Do nothing: a reader holds no resources."""

    def wake(self, error: Exception | None = None) -> None:
        """Wake the waiting reader, with an error if its handler failed."""
        waiter = self.waiter
        if waiter is None or waiter.done():
            return
        if error is None:
            waiter.set_result(None)
        else:
            waiter.set_exception(error)


class StoredEventReader(msgspec.Struct, eq=False):
    """A reader of stored events only, slightly behind the others. Fits `FeedBatches`."""

    feed: EventFeed
    position: int = 0
    waiter: asyncio.Future[None] | None = None

    def __aiter__(self) -> Self:
        """Return itself."""
        return self

    async def __anext__(self) -> list[Numbered]:
        """Return the next stored events, as soon as there are any; after a lost run, its provisional end comes last."""
        feed = self.feed
        while self.position >= feed.stored:
            if feed.is_closed:
                return self._last()
            self.waiter = asyncio.get_running_loop().create_future()
            feed.waiting_stored.append(self)
            try:
                await self.waiter
            finally:
                if self in feed.waiting_stored:
                    feed.waiting_stored.remove(self)
        batch = _bounded(feed.events[self.position : min(feed.stored, self.position + BATCH_EVENTS_MAX)])
        self.position += len(batch)
        return batch

    async def aclose(self) -> None:
        """Do nothing: a reader holds no resources."""

    def wake(self) -> None:
        """Wake the waiting reader."""
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)

    def _last(self) -> list[Numbered]:
        events = self.feed.events
        # Only the provisional end of a lost run is shown without being stored.
        if self.position < len(events) and not events[-1].stands:
            self.position = len(events)
            return events[-1:]
        raise StopAsyncIteration


def count_within(events: Sequence[RunEvent], text_max: int = BATCH_TEXT_MAX) -> int:
    """Return how many leading events have at most `text_max` characters of deltas in total, at least one."""
    chars = 0
    for count, event in enumerate(events):
        if isinstance(event, _DELTAS):
            chars += len(event.text)
            if chars > text_max and count:
                return count
    return len(events)


def count_text(events: Iterable[RunEvent]) -> int:
    """Return how many characters the deltas among these events have."""
    return sum(len(event.text) for event in events if isinstance(event, _DELTAS))


def _bounded(batch: list[Numbered]) -> list[Numbered]:
    return batch if len(batch) == 1 else batch[: count_within([numbered.event for numbered in batch])]
