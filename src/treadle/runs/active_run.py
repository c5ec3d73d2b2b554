"""The state of an active run in this process, and the handle through which others read, cancel and await any run."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Protocol, cast

import msgspec

from treadle.core.errors import ErrorInfo, StoreError
from treadle.core.events import (
    ItemDone,
    Noted,
    Numbered,
    RunEnded,
    RunEvent,
    ToolFinished,
    ToolStarted,
)
from treadle.core.journal_entries import Entry
from treadle.core.request import Note
from treadle.core.run_endings import failure_of
from treadle.engine.run_loop import RunLoop
from treadle.journal.journal_interface import RunJournal, RunRow, Store
from treadle.runs.approvals.pending_turn import ResumedTurn
from treadle.runs.conversation_history import JoinedHistory
from treadle.runs.event_feed import BatchHandler, EventFeed, FeedBatches
from treadle.runs.live_event_relay import LiveEventRelay
from treadle.runs.remote_run_reader import after_number, tail
from treadle.runs.response_cache import HIT, CachedModel
from treadle.runs.session_locks import SessionLock
from treadle.telemetry.run_observer import RunObserver

TRACKED: frozenset[type] = frozenset({Noted, RunEnded})
"""Events that change the state of a run that others ask for."""
_OUTPUT: frozenset[type] = frozenset({ItemDone, ToolFinished})
_NEW_FUTURE = cast("Callable[[], asyncio.Future[None]]", asyncio.Future)
"""Makes a future of the running event loop."""


class RunHandle(Protocol):
    """A run as the packages above see it, wherever it is driven and whether it is active or has ended."""

    @property
    def run_id(self) -> str:
        """Return the id of the run."""
        ...

    @property
    def response_id(self) -> str:
        """Return the id under which the client's API knows it."""
        ...

    @property
    def created_at(self) -> float:
        """Return when it was started."""
        ...

    @property
    def is_attached(self) -> bool:
        """Return whether the run existed before this handle was requested."""
        ...

    @property
    def has_run_tools(self) -> bool:
        """Return whether a tool has started, so that repeating the request may repeat its effect."""
        ...

    @property
    def notes(self) -> tuple[Note, ...]:
        """Return what was dropped, coerced, emulated or repaired so far."""
        ...

    @property
    def cache(self) -> str:
        """Return whether the cache answered the first model call (`hit`) or not (`miss`); empty without a cache."""
        ...

    def events(self, after: int = 0, on_batch: BatchHandler | None = None) -> FeedBatches:
        """Return the events numbered above `after`, in batches, until the end.

        For a run of this process `on_batch` is offered each new batch at once, when all earlier ones have been read.
        """
        ...

    def stored_events(self) -> FeedBatches:
        """Return only events that are stored, slightly later: a crash cannot void them."""
        ...

    def behind(self, taken: int) -> int:
        """Return roughly how many bytes of events wait in memory for a reader that has taken so many events."""
        ...

    async def cancel(self) -> None:
        """End the run and wait until its end is durable."""
        ...

    async def wait(self) -> RunEnded:
        """Wait for the end."""
        ...


class LiveRun(msgspec.Struct, eq=False):
    """The state of a run that is driven in this process."""

    row: RunRow
    loop: RunLoop
    history: JoinedHistory
    session_lock: SessionLock | None = None
    entries: Sequence[Entry] = ()
    opening: list[Numbered] = []
    notes: tuple[Note, ...] = ()
    feed: EventFeed = msgspec.field(default_factory=EventFeed)
    journal: RunJournal | None = None
    relay: LiveEventRelay | None = None
    observer: RunObserver | None = None
    cache: CachedModel | None = None
    carried: ResumedTurn | None = None
    started: asyncio.Future[None] = msgspec.field(default_factory=_NEW_FUTURE)
    ended: RunEnded | None = None
    task: asyncio.Task[None] | None = None
    abort_error: ErrorInfo | None = None
    is_private: bool = False
    is_shared: bool = False
    is_driven: bool = False
    is_handed_over: bool = False
    is_cancelled: bool = False
    is_over: bool = False
    is_lost: bool = False

    @property
    def has_output(self) -> bool:
        """Return whether the run has produced any item or tool result."""
        return any(type(numbered.event) in _OUTPUT for numbered in self.feed.events)

    def leaves_hidden_items(self, ended: RunEnded) -> bool:
        """Return whether the next run needs items that only this one has."""
        return ended.status == "requires_action" and self.loop.has_hidden_items

    def runs_deleted_by(self, ended: RunEnded) -> tuple[str, ...]:
        """Return the runs whose content is deleted with this end: its own, if it is not to be stored, and those that
        were stored for this run alone.

        After a failure the client may retry, so those stay until a later success or their expiry; also if this run
        leaves calls open, since the next one needs the content of the whole chain.
        """
        rejoined = self.history.rejoined
        if (self.row.store and not rejoined) or self.leaves_hidden_items(ended):
            return ()
        own = () if self.row.store else (self.row.id,)
        return own if failure_of(ended) is not None else (*own, *rejoined)

    def mark_started(self, error: BaseException | None = None) -> None:
        """Complete the future that the starter of the run awaits."""
        if self.started.done():
            return
        if error is None:
            self.started.set_result(None)
        else:
            self.started.set_exception(error)

    def cancel(self, error: ErrorInfo | None = None) -> None:
        """Ask the run to end as cancelled, or as failed with this error; it still answers its open calls."""
        if self.is_cancelled:
            return
        self.is_cancelled = True
        self.abort_error = error
        if self.loop.is_replaying:
            self.loop.stop(error)
            return
        if self.task is not None and self.is_driven and self.ended is None:
            self.task.cancel()

    def hand_over(self) -> None:
        """Stop driving the run without ending it: the process that claims it next resumes it from the journal."""
        if self.task is not None and self.ended is None and not self.is_cancelled:
            self.is_handed_over = True
            if self.is_driven:
                self.task.cancel()

    def track(self, event: RunEvent) -> None:
        """Record what others ask for while the run is active, and what its end depends on."""
        if type(event) is RunEnded:
            self.is_over = True
            if self.session_lock is not None:
                self.session_lock.has_ended = True
        elif type(event) is Noted:
            self.notes += (event.note,)

    def append(self, entries: Sequence[Entry], ended: RunEnded | None = None) -> "asyncio.Future[int]":
        """Write to the journal; fits the engine's `Journal` port."""
        if self.journal is None:
            raise StoreError("The run was never made durable.")
        if ended is None:
            return self.journal.append(entries)
        return self.journal.finish(entries, ended, forget=self.runs_deleted_by(ended))


class LocalRun(msgspec.Struct, frozen=True, eq=False):
    """A run that is driven in this process. Fits `RunHandle`."""

    live: LiveRun
    run_id: str
    is_attached: bool = False

    @property
    def response_id(self) -> str:
        """Return the id under which the client's API knows it."""
        return self.live.row.response_id

    @property
    def created_at(self) -> float:
        """Return when it began."""
        return self.live.row.created_at

    @property
    def has_run_tools(self) -> bool:
        """Return whether a tool has started, so that the same request again would not be harmless."""
        return self.live.loop.has_run_tools

    @property
    def notes(self) -> tuple[Note, ...]:
        """Return what was dropped, coerced, emulated or repaired so far."""
        return self.live.notes

    @property
    def cache(self) -> str:
        """Return what the cache did for the first model call."""
        return "" if self.live.cache is None else self.live.cache.first or ""

    def events(self, after: int = 0, on_batch: BatchHandler | None = None) -> FeedBatches:
        """Return the events numbered above `after`, in batches, until the end; `on_batch` takes them at once."""
        return after_number(self.live.feed.read(), after) if after else self.live.feed.read(on_batch=on_batch)

    def stored_events(self) -> FeedBatches:
        """Return the events as they are stored; those of a run that is not stored as they come."""
        return self.live.feed.read_stored() if self.live.is_shared else self.live.feed.read()

    def behind(self, taken: int) -> int:
        """Return how much waits for a reader that has taken so many events."""
        return self.live.feed.behind(taken)

    async def cancel(self) -> None:
        """End the run and wait until its end is durable."""
        self.live.cancel()
        await self.wait()

    async def wait(self) -> RunEnded:
        """Wait for the end."""
        assert self.live.task is not None
        await asyncio.wait([self.live.task])
        assert self.live.ended is not None, "a run always ends"
        return self.live.ended


class RemoteRun:
    """A run that is driven by another process, or has ended: read from the store. Fits `RunHandle`."""

    def __init__(
        self, store: Store, row: RunRow, cancel: Callable[[str], Awaitable[bool]], *, is_attached: bool = True
    ) -> None:
        self._store = store
        self._row = row
        self._cancel = cancel
        self._notes: list[Note] = []
        self.has_run_tools = False
        self.is_attached = is_attached

    @property
    def run_id(self) -> str:
        """Return the id of the run."""
        return self._row.id

    @property
    def response_id(self) -> str:
        """Return the id under which the client's API knows it."""
        return self._row.response_id

    @property
    def created_at(self) -> float:
        """Return when it began."""
        return self._row.created_at

    @property
    def notes(self) -> tuple[Note, ...]:
        """Return what was dropped, coerced, emulated or repaired, as far as it has been read."""
        return tuple(self._notes)

    @property
    def cache(self) -> str:
        """Return what the cache did, as far as it has been read."""
        return "hit" if any(note.code == HIT for note in self._notes) else ""

    def behind(self, taken: int) -> int:
        """Return nothing: what is read from the store waits there."""
        return 0

    async def events(
        self, after: int = 0, on_batch: BatchHandler | None = None
    ) -> AsyncGenerator[list[Numbered], None]:
        """Yield the events numbered above `after`, in batches, until the end; all of them are read."""
        async for batch in after_number(self._read(), after):
            yield batch

    def stored_events(self) -> FeedBatches:
        """Return the events as they are stored, which is all that is known here."""
        return self.events()

    async def _read(self) -> AsyncGenerator[list[Numbered], None]:
        async for batch in tail(self._store, self._row.id):
            for numbered in batch:
                if isinstance(numbered.event, Noted):
                    self._notes.append(numbered.event.note)
                self.has_run_tools = self.has_run_tools or isinstance(numbered.event, ToolStarted)
            yield batch

    async def cancel(self) -> None:
        """End the run and wait until its end is durable."""
        await self._cancel(self._row.id)

    async def wait(self) -> RunEnded:
        """Wait for the end."""
        async for batch in tail(self._store, self._row.id):
            for numbered in batch:
                if isinstance(numbered.event, RunEnded):
                    return numbered.event
        raise AssertionError("a run always ends")
