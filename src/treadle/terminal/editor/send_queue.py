"""Input that is not read yet: sent at once, or queued until the running turn ends."""

import asyncio


class InputQueue:
    """A queue of texts; None at its end means that the person has left."""

    def __init__(self) -> None:
        self._texts: asyncio.Queue[str | None] = asyncio.Queue()
        self.queued: list[str] = []
        """What waits for a turn to end, in order."""

    @property
    def is_empty(self) -> bool:
        """Return whether nothing waits to be read."""
        return self._texts.empty()

    async def read(self) -> str | None:
        """Return the next input; None when the person has left."""
        text = await self._texts.get()
        if self.queued:
            self.queued.pop(0)
        return text

    def send(self, text: str, *, waits: bool = False) -> None:
        """Queue a text; one that waits for the turn to end is shown until then."""
        if waits:
            self.queued.append(text)
        self._texts.put_nowait(text)

    def leave(self) -> None:
        """Mark the end of input."""
        self._texts.put_nowait(None)

    def take_back(self) -> str:
        """Return all unread input as one text. A pending leave without input stays in the queue."""
        waiting: list[str] = []
        is_leaving = False
        while not self._texts.empty():
            text = self._texts.get_nowait()
            is_leaving = is_leaving or text is None
            waiting += [] if text is None else [text]
        self.queued.clear()
        if is_leaving and not waiting:
            self.leave()
        return "\n".join(waiting)
