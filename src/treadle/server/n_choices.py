"""Several runs that answer one request, for Chat's `n` and Gemini's `candidateCount`.

A choice is a run, and one that fails cancels the others.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence

import msgspec

from treadle.core.errors import TreadleError
from treadle.core.events import KeptAlive, Numbered, RoundBroken, RoundStarted, RunEnded, RunEvent
from treadle.core.request import Note, Request
from treadle.core.run_endings import failure_of
from treadle.protocols.codec_interfaces import ChoicesEncoder
from treadle.protocols.protocol_registry import PROTOCOLS
from treadle.protocols.stream_deduplication import ReplayDiff
from treadle.runs import Idempotency, RunHandle
from treadle.runs.event_feed import BatchHandler, FeedBatches
from treadle.server.delivery.replay_encoders import RunIds
from treadle.server.delivery.request_headers import RequestOptions
from treadle.server.http_exchange import Exchange
from treadle.server.run_response import RunResponse, as_configured, delivery_options, find_retried, options_of
from treadle.server.server_state import Service


class ChoiceEvent(Numbered, frozen=True, kw_only=True):
    """An event of the run of one choice."""

    choice: int = 0


class ChoiceRuns:
    """The runs of all choices as one event source."""

    def __init__(self, handles: Sequence[RunHandle]) -> None:
        self._handles = handles

    @property
    def run_id(self) -> str:
        """Return the id of the first choice's run."""
        return self._handles[0].run_id

    @property
    def has_run_tools(self) -> bool:
        """Return whether a tool has started in any of them."""
        return any(handle.has_run_tools for handle in self._handles)

    @property
    def notes(self) -> tuple[Note, ...]:
        """Return the notes of all."""
        return tuple(note for handle in self._handles for note in handle.notes)

    @property
    def cache(self) -> str:
        """Return an empty string: several choices should differ, so the cache is not used."""
        return ""

    async def events(self, *, on_batch: BatchHandler | None = None) -> AsyncGenerator[list[Numbered], None]:
        """Yield the events of all runs as they happen, until all have ended. `hear` is not used."""
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

    def stored_events(self) -> FeedBatches:
        """Return the same events: no background response has several choices."""
        return self.events()

    def behind(self, taken: int) -> int:
        """Return 0: buffered bytes are not counted per choice."""
        return 0

    async def cancel(self) -> None:
        """Cancel all runs."""
        await asyncio.gather(*(handle.cancel() for handle in self._handles))

    async def wait(self) -> RunEnded:
        """Wait for all runs and return the end of the first that failed, else of the last."""
        ends = [await handle.wait() for handle in self._handles]
        return next((ended for ended in ends if failure_of(ended) is not None), ends[-1])

    async def _pump(self, choice: int, queue: "asyncio.Queue[list[Numbered] | None]") -> None:
        try:
            async for batch in self._handles[choice].events():
                queue.put_nowait(
                    [ChoiceEvent(event=each.event, seq=each.seq, stands=each.stands, choice=choice) for each in batch]
                )
                if isinstance(last := batch[-1].event, RunEnded) and failure_of(last) is not None:
                    await self.cancel()
        finally:
            queue.put_nowait(None)


class ChoicesWriter:
    """Writes the runs of all choices as one answer.

    After a crash, a stream continues with what its client has not seen, and a folded answer omits broken rounds.
    """

    def __init__(self, new_choices: Callable[[], ChoicesEncoder], count: int, *, streams: bool) -> None:
        self._new_choices = new_choices
        self._choices = new_choices()
        self._running = set(range(count))
        self._deduplicators = [ReplayDiff() for _ in range(count)] if streams else []
        self._sent: list[list[RunEvent]] = [[] for _ in range(count)]
        self._round_at = [0] * count
        self._early: list[Numbered] = []
        self._is_started = False
        self.ended: RunEnded | None = None

    def feed(self, numbered: Numbered) -> list[bytes]:
        """Return the frames to send for an event; one of no choice goes to the first choice that is running."""
        event = numbered.event
        if isinstance(event, KeptAlive):
            return self._choices.feed(min(self._running), event) if self._running else []
        choice = numbered.choice if isinstance(numbered, ChoiceEvent) else 0
        if choice and not self._is_started:
            # The answer takes its id from the first choice's run, so that run's events must come first.
            self._early.append(numbered)
            return []
        frames = self._feed_choice(choice, event)
        if not self._is_started:
            self._is_started = True
            frames += [frame for early in self._early for frame in self.feed(early)]
        return frames

    def encode(self, batch: list[Numbered]) -> list[bytes]:
        """Return the frames to send for events of any of them."""
        return [frame for numbered in batch for frame in self.feed(numbered)]

    def try_encode_now(self, batch: list[Numbered]) -> list[bytes] | None:
        """Return None: every batch is left to the reader, because each run waits for its own."""
        return None

    def _feed_choice(self, choice: int, event: RunEvent) -> list[bytes]:
        if not self._deduplicators:
            return self._fold(choice, event)
        return [frame for each in self._deduplicators[choice].feed(event) for frame in self._encode(choice, each)]

    def body(self) -> bytes:
        """Return the whole answer, once all choices have ended."""
        return self._choices.body()

    def _fold(self, choice: int, event: RunEvent) -> list[bytes]:
        encoded = self._sent[choice]
        if isinstance(event, RoundBroken):
            del encoded[self._round_at[choice] :]
            self._choices = self._new_choices()
            for again, events in enumerate(self._sent):
                for each in events:
                    self._choices.feed(again, each)
            return []
        if isinstance(event, RoundStarted):
            self._round_at[choice] = len(encoded)
        encoded.append(event)
        return self._encode(choice, event)

    def _encode(self, choice: int, event: RunEvent) -> list[bytes]:
        frames = self._choices.feed(choice, event)
        if isinstance(event, RunEnded):
            self._running.discard(choice)
            if self.ended is None and self._choices.is_over:
                self.ended = event
        return frames


async def reply(service: Service, exchange: Exchange, request: Request) -> None:
    """Answer a request for several choices.

    Raises: TreadleError, before anything is sent.
    """
    request = as_configured(request, service.runtime.settings, exchange)
    options = await options_of(service, exchange, request)
    source = find_retried(service, options) or await _start_all(service, exchange, request, options)
    count, run_id = request.surface.choices, source.run_id
    new_choices = PROTOCOLS[request.protocol].codec.choices_encoder
    assert new_choices is not None, "only clients of some protocols may ask for several answers"
    writer = ChoicesWriter(lambda: new_choices(request, RunIds(run_id), count), count, streams=request.surface.stream)
    carried = RunResponse(exchange, source, writer, delivery_options(request, options), service.subscribers)
    await carried.run(service.runtime.settings.server.keep_alive_s)


async def _start_all(service: Service, exchange: Exchange, request: Request, options: RequestOptions) -> ChoiceRuns:
    """Start a run for each choice; if one cannot be started, cancel the others.

    Raises: TreadleError.
    """
    handles: list[RunHandle] = []
    try:
        for choice in range(request.surface.choices):
            idempotency = _idempotency_of(options, choice)
            handles.append(await service.start(request, exchange.client, idempotency=idempotency))
    except TreadleError:
        await asyncio.gather(*(handle.cancel() for handle in handles if not handle.is_attached))
        raise
    return ChoiceRuns(handles)


def _idempotency_of(options: RequestOptions, choice: int) -> Idempotency | None:
    """Return a separate key for each choice. The first choice has the client's own key, so that a different request
    under that key is detected."""
    idempotency = options.idempotency
    if idempotency is None or choice == 0:
        return idempotency
    return msgspec.structs.replace(idempotency, key=f"{idempotency.key}\x1f{choice}")
