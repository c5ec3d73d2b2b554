"""The events of one live run, for any number of readers, each at its own place and its own pace."""

import asyncio
from collections.abc import AsyncGenerator

from treadle.canon.events import Numbered


class Feed:
    """Grows while the run lasts; a reader that comes late or again starts after any durable event."""

    def __init__(self) -> None:
        self._events: list[Numbered] = []
        self._closed = False
        self._news = asyncio.Event()

    def publish(self, batch: list[Numbered]) -> None:
        """Add events and wake the readers."""
        self._events.extend(batch)
        self._wake()

    def close(self) -> None:
        """Say that no more events will come."""
        self._closed = True
        self._wake()

    async def read(self, after: int = 0) -> AsyncGenerator[list[Numbered], None]:
        """Yield everything that came after the event numbered `after`, in batches, until the run is over."""
        position = self._position(after)
        while True:
            if position < len(self._events):
                batch = self._events[position:]
                position = len(self._events)
                yield batch
            elif self._closed:
                return
            else:
                await self._news.wait()

    def _position(self, after: int) -> int:
        for position in range(len(self._events) - 1, -1, -1):
            if 0 < self._events[position].seq <= after:
                return position + 1
        return 0

    def _wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()
