"""Several runs that answer one request, as Chat's `n` asks: a choice is a run, and one that fails ends the others."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

from treadle.canon.errors import TreadleError
from treadle.canon.events import KeptAlive, Numbered, RunEnded
from treadle.canon.request import Note, Request
from treadle.runs import RunHandle
from treadle.server.http import Exchange
from treadle.server.service import Service
from treadle.server.stream import Reply, as_configured, start
from treadle.wire.chat import Choices

_BAD = ("failed", "cancelled")


class Chosen(Numbered, frozen=True, kw_only=True):
    """An event of the run of one choice."""

    choice: int = 0


class Bundle:
    """The runs of all choices, carried as one."""

    def __init__(self, handles: Sequence[RunHandle]) -> None:
        self._handles = handles

    @property
    def run_id(self) -> str:
        """Return the id of the first choice's run."""
        return self._handles[0].run_id

    @property
    def has_run_tools(self) -> bool:
        """Tell whether a tool has started in any of them."""
        return any(handle.has_run_tools for handle in self._handles)

    @property
    def notes(self) -> tuple[Note, ...]:
        """Return the notes of all."""
        return tuple(note for handle in self._handles for note in handle.notes)

    async def events(self) -> AsyncGenerator[list[Numbered], None]:
        """Yield what happens in any of them, as it happens, until all have ended."""
        queue: asyncio.Queue[list[Numbered] | None] = asyncio.Queue()
        pumps = [asyncio.create_task(self._pump(choice, queue)) for choice in range(len(self._handles))]
        going = len(pumps)
        try:
            while going:
                batch = await queue.get()
                if batch is None:
                    going -= 1
                else:
                    yield batch
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.wait(pumps)

    async def cancel(self) -> None:
        """End them all."""
        await asyncio.gather(*(handle.cancel() for handle in self._handles))

    async def wait(self) -> RunEnded:
        """Wait for all and return the end of one that ended badly, else of the last."""
        ends = [await handle.wait() for handle in self._handles]
        return next((ended for ended in ends if ended.status in _BAD), ends[-1])

    async def _pump(self, choice: int, queue: "asyncio.Queue[list[Numbered] | None]") -> None:
        try:
            async for batch in self._handles[choice].events():
                queue.put_nowait([Chosen(event=each.event, seq=each.seq, choice=choice) for each in batch])
                if isinstance(batch[-1].event, RunEnded) and batch[-1].event.status in _BAD:
                    await self.cancel()
        finally:
            queue.put_nowait(None)


class ManyRuns:
    """Tells the runs of all choices as one completion."""

    def __init__(self, choices: Choices, count: int) -> None:
        self._choices = choices
        self._going = set(range(count))
        self.ended: RunEnded | None = None

    def feed(self, numbered: Numbered) -> list[bytes]:
        """Return the frames to send for an event; what belongs to no choice goes to the first that goes on."""
        event = numbered.event
        if isinstance(event, KeptAlive) and self._going:
            return self._choices.feed(min(self._going), event)
        choice = numbered.choice if isinstance(numbered, Chosen) else 0
        frames = self._choices.feed(choice, event)
        if isinstance(event, RunEnded):
            self._going.discard(choice)
            if self.ended is None and self._choices.is_over:
                self.ended = event
        return frames

    def body(self) -> bytes:
        """Return the whole completion, once all choices have ended."""
        return self._choices.body()


async def reply(service: Service, exchange: Exchange, request: Request) -> None:
    """Answer a request for several choices.

    Raises: TreadleError, before anything is sent.
    """
    request = as_configured(request, service.runtime.settings, exchange)
    count = request.surface.choices
    handles: list[RunHandle] = []
    try:
        for _ in range(count):
            handles.append(await start(service, request))
    except TreadleError:
        await asyncio.gather(*(handle.cancel() for handle in handles))
        raise
    telling = ManyRuns(Choices(request, service.runtime.ids, count), count)
    carried = Reply(exchange, Bundle(handles), telling, surface=request.surface)
    await carried.run(service.runtime.settings.server.keep_alive_s)
