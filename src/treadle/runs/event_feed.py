"""The events of one live run, for any number of readers, each at its own place and its own pace."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import Protocol, Self

import msgspec

from treadle.core.events import ArgumentsDelta, Numbered, ReasoningDelta, RefusalDelta, RunEvent, TextDelta

BATCH_EVENTS_MAX = 256
"""What a reader that is behind gets at a time: whoever writes it out waits for its client in between."""

BATCH_TEXT_MAX = 262_144
"""How many characters it gets at a time, or one event: what is written out is held until the client takes it."""

_DELTAS = (TextDelta, ReasoningDelta, ArgumentsDelta, RefusalDelta)

BatchHandler = Callable[[list[Numbered]], bool]
"""Takes a batch at once, in the turn of whoever publishes it, or leaves it to be read."""


class FeedBatches(Protocol):
    """What happens in a run, in batches, until its end."""

    def __aiter__(self) -> AsyncIterator[list[Numbered]]:
        """Be read."""
        ...

    def __anext__(self) -> Awaitable[list[Numbered]]:
        """Return the next batch."""
        ...

    def aclose(self) -> Awaitable[None]:
        """Be read no more."""
        ...


class EventFeed(msgspec.Struct, eq=False):
    """Grows while the run lasts; a reader that comes late or again starts after any event: the n-th is number n.

    `sizes` are how many bytes there are up to each event, as far as anybody asked. The first `kept` events are in the
    store; a crash takes back the others.
    """

    events: list[Numbered] = []
    is_closed: bool = False
    waiting: list["FeedReader"] = []
    sizes: list[int] | None = None
    stored: int = 0
    waiting_stored: list["StoredEventReader"] = []

    def publish(self, batch: list[Numbered]) -> None:
        """Add events, and let the readers that have all others on_batch them, or wake up for them."""
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
        """Say that the first events are in the store."""
        if count <= self.stored:
            return
        self.stored = count
        if self.waiting_stored:
            self._wake_stored()

    def close(self) -> None:
        """Say that no more events will come."""
        self.is_closed = True
        waiting, self.waiting = self.waiting, []
        for reader in waiting:
            reader.wake()
        self._wake_stored()

    def read_stored(self) -> "StoredEventReader":
        """Return a reader of the events that no crash takes back."""
        return StoredEventReader(self)

    def _wake_stored(self) -> None:
        waiting, self.waiting_stored = self.waiting_stored, []
        for reader in waiting:
            reader.wake()

    def read(self, after: int = 0, on_batch: BatchHandler | None = None) -> "FeedReader":
        """Return a reader of everything that comes after the first `after` events.

        What `on_batch` takes is not read again: it is offered what is published while there is nothing else to read.
        """
        return FeedReader(self, after, on_batch)

    def behind(self, taken: int) -> int:
        """Return about how many bytes of events there are beyond the first `taken`.

        Events are measured when a reader is first found waiting for its client, and once for all readers.
        """
        if self.sizes is None:
            self.sizes = [0]
        sizes = self.sizes
        for numbered in self.events[len(sizes) - 1 :]:
            sizes.append(sizes[-1] + len(msgspec.json.encode(numbered.event)))
        return sizes[-1] - sizes[min(taken, len(sizes) - 1)]


class FeedReader(msgspec.Struct, eq=False):
    """One reader at its place. Fits `FeedBatches`."""

    feed: EventFeed
    position: int
    on_batch: BatchHandler | None
    waiter: asyncio.Future[None] | None = None

    def __aiter__(self) -> Self:
        """Be read."""
        return self

    async def __anext__(self) -> list[Numbered]:
        """Return what came next, as soon as there is something."""
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
        """Have nothing to give back: whoever waits no more is not waited for."""

    def wake(self, error: Exception | None = None) -> None:
        """Go on reading, or fail."""
        waiter = self.waiter
        if waiter is None or waiter.done():
            return
        if error is None:
            waiter.set_result(None)
        else:
            waiter.set_exception(error)


class StoredEventReader(msgspec.Struct, eq=False):
    """A reader of what is in the store already, a moment after the others. Fits `FeedBatches`."""

    feed: EventFeed
    position: int = 0
    waiter: asyncio.Future[None] | None = None

    def __aiter__(self) -> Self:
        """Be read."""
        return self

    async def __anext__(self) -> list[Numbered]:
        """Return what was stored next, as soon as there is something; last the end, also one that does not stand."""
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
        """Have nothing to give back."""

    def wake(self) -> None:
        """Go on reading."""
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)

    def _last(self) -> list[Numbered]:
        events = self.feed.events
        if self.position < len(events) and not events[-1].stands:
            self.position = len(events)
            return events[-1:]
        raise StopAsyncIteration


def count_within(events: Sequence[RunEvent], text_max: int = BATCH_TEXT_MAX) -> int:
    """Return how many of the first events say no more than that together; the first one counts in any case."""
    said = 0
    for count, event in enumerate(events):
        if isinstance(event, _DELTAS):
            said += len(event.text)
            if said > text_max and count:
                return count
    return len(events)


def count_text(events: Iterable[RunEvent]) -> int:
    """Return how many characters the pieces among these events have."""
    return sum(len(event.text) for event in events if isinstance(event, _DELTAS))


def _bounded(batch: list[Numbered]) -> list[Numbered]:
    return batch if len(batch) == 1 else batch[: count_within([numbered.event for numbered in batch])]
