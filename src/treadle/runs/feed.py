"""The events of one live run, for any number of readers, each at its own place and its own pace."""

import asyncio
from collections.abc import AsyncGenerator

from treadle.canon.events import Numbered


class Feed:
    """Grows while the run lasts; a reader that comes late or again starts after any event: the n-th is number n."""

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
        """Yield everything that came after the first `after` events, in batches, until the run is over."""
        position = after
        while True:
            if position < len(self._events):
                batch = self._events[position:]
                position = len(self._events)
                yield batch
            elif self._closed:
                return
            else:
                await self._news.wait()

    def _wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()
