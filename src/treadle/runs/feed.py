"""The events of one live run, for any number of readers, each at its own place and its own pace."""

import asyncio
from collections.abc import AsyncGenerator

import msgspec

from treadle.canon.events import Numbered

BATCH_EVENTS_MAX = 256
"""What a reader that is behind gets at a time: whoever writes it out waits for its client in between."""


class Feed:
    """Grows while the run lasts; a reader that comes late or again starts after any event: the n-th is number n."""

    def __init__(self) -> None:
        self._events: list[Numbered] = []
        self._sizes: list[int] = [0]
        self._closed = False
        self._waiters: list[asyncio.Future[None]] = []

    def publish(self, batch: list[Numbered]) -> None:
        """Add events and wake the readers."""
        self._events.extend(batch)
        if self._waiters:
            self._wake()

    def close(self) -> None:
        """Say that no more events will come."""
        self._closed = True
        self._wake()

    async def read(self, after: int = 0) -> AsyncGenerator[list[Numbered], None]:
        """Yield everything that came after the first `after` events, in batches, until the run is over."""
        position = after
        while True:
            if position < len(self._events):
                batch = self._events[position : position + BATCH_EVENTS_MAX]
                position += len(batch)
                yield batch
            elif self._closed:
                return
            else:
                waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._waiters.append(waiter)
                await waiter

    def behind(self, taken: int) -> int:
        """Return about how many bytes of events there are beyond the first `taken`.

        Events are measured when a reader is first found waiting for its client, and once for all readers.
        """
        sizes = self._sizes
        for numbered in self._events[len(sizes) - 1 :]:
            sizes.append(sizes[-1] + len(msgspec.json.encode(numbered.event)))
        return sizes[-1] - sizes[min(taken, len(sizes) - 1)]

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
