"""What the person has said and nobody has read yet: sent at once, or queued behind the turn that goes on."""

import asyncio


class Outbox:
    """A queue of texts. None at its end is the person's leaving."""

    def __init__(self) -> None:
        self._said: asyncio.Queue[str | None] = asyncio.Queue()
        self.queued: list[str] = []
        """What waits for a turn to end, in order."""

    @property
    def is_empty(self) -> bool:
        """Tell whether nothing waits to be read."""
        return self._said.empty()

    async def read(self) -> str | None:
        """Return what was said next; None when the person has left."""
        text = await self._said.get()
        if self.queued:
            self.queued.pop(0)
        return text

    def send(self, text: str, *, waits: bool = False) -> None:
        """Have a text read next; one that waits for the turn is shown until then."""
        if waits:
            self.queued.append(text)
        self._said.put_nowait(text)

    def leave(self) -> None:
        """Say that nothing more will come."""
        self._said.put_nowait(None)

    def take_back(self) -> str:
        """Return all that nobody has read, as one text. Who would leave without having said anything, leaves."""
        waiting: list[str] = []
        is_leaving = False
        while not self._said.empty():
            text = self._said.get_nowait()
            is_leaving = is_leaving or text is None
            waiting += [] if text is None else [text]
        self.queued.clear()
        if is_leaving and not waiting:
            self.leave()
        return "\n".join(waiting)
