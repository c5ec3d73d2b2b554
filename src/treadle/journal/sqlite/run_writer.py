"""One run from its owner's side: it knows where the run stands, and every write checks that against the lease.

The start of a run without a reader may be deferred: it is written with the run's next write, or after a moment.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from treadle.core.errors import TreadleError
from treadle.core.events import ENDED, RunEnded
from treadle.core.journal_entries import Entry
from treadle.journal.journal_interface import Chunk
from treadle.journal.sqlite import leased_writes as fence
from treadle.journal.sqlite.row_mapping import EndColumns, RunColumns, SqliteChainHead, chain_entries, ended_columns
from treadle.journal.sqlite.writer_thread import Job, T, WriterThread


class SqliteWriterState(NamedTuple):
    """What all journals of a store write with.

    `wake` is called with a run's id after each write to it, `forgets` when content is about to be forgotten.
    """

    writer: WriterThread
    clock: Callable[[], float]
    wake: Callable[[str], None]
    forgets: Callable[[], None]


class SqliteRunJournal:
    """Fits `journal.RunJournal`."""

    def __init__(
        self, state: SqliteWriterState, hold: fence.SqliteHold, place: SqliteChainHead, lease_s: float
    ) -> None:
        self._writer, self._clock, self._wake, self._forgets = state
        self._hold = hold
        self._place = place
        self._lease_s = lease_s
        self._has_chunks = hold.epoch > 1

    @property
    def run_id(self) -> str:
        """Return the run this journal writes to."""
        return self._hold.run_id

    @property
    def epoch(self) -> int:
        """Return which owner this is, counted from 1."""
        return self._hold.epoch

    @property
    def attempt(self) -> int:
        """Return how many owners there were that did not give the run up of their own will."""
        return self._hold.epoch - self._hold.handed

    def append(self, entries: Sequence[Entry]) -> asyncio.Future[int]:
        """Make the entries durable, in order; renew the lease."""
        return self._append(entries, None)

    def finish(self, entries: Sequence[Entry], ended: RunEnded, *, forget: Sequence[str] = ()) -> asyncio.Future[int]:
        """Append the last entries, end the run and forget what is to be forgotten with it, in one step."""
        assert ended.status in ENDED, ended.status
        if forget:
            self._forgets()
        return self._append(entries, ended_columns(ended), tuple(forget))

    def renew(self) -> asyncio.Future[int]:
        """Make the lease run from now."""
        return self._append((), None)

    async def release(self) -> None:
        """Give the run up, so that it can be claimed at once."""
        await self._submit(lambda connection: fence.release(connection, self._hold))

    async def write_chunk(self, chunk: Chunk, *, keep_from: int, is_durable: bool = False) -> None:
        """Let other processes read what the run publishes, before it is journalled.

        Raises: StoreError, Conflict, NotFound.
        """
        assert chunk.first > 0, chunk.first
        assert chunk.count > 0, chunk.count
        until = self._clock() + self._lease_s
        self._has_chunks = True
        await self._submit(fence.ChunkJob(self._hold, chunk, keep_from, until), is_durable=is_durable)

    def _append(
        self, entries: Sequence[Entry], end: EndColumns | None, forget: tuple[str, ...] = ()
    ) -> asyncio.Future[int]:
        hold, place = self._hold, self._place
        chained = chain_entries(entries, hold.run_id, hold.epoch, place)
        # The next write goes behind this one before it is done; if that fails, the check of the lease finds out.
        self._place = chained.place
        until = self._clock() + self._lease_s
        job = fence.Append(hold, entries, place, chained, until, end, self._has_chunks, forget)
        return self._writer.submit(job, then=partial(self._written, chained.place))

    def _written(self, expected: SqliteChainHead, stands: SqliteChainHead) -> int:
        if stands is not expected:
            self._place = stands
        self._wake(self._hold.run_id)
        return stands.head

    async def _submit(self, job: Job[T], *, is_durable: bool = True) -> T:
        try:
            return await self._writer.submit(job, is_durable=is_durable)
        finally:
            self._wake(self._hold.run_id)


class RunToStart(NamedTuple):
    """A run that was started: its row and its request as they are stored, who holds it, its input, and where its chain
    begins."""

    columns: RunColumns
    body: str | bytes | None
    owner: str
    entries: Sequence[Entry]
    root: SqliteChainHead


class DeferredRun:
    """Fits `journal.RunJournal`: a run whose start is deferred to its first write.

    `write_start` writes the start alone. Writes after that go through a `SqliteRunJournal`.
    """

    epoch = 1
    attempt = 1

    def __init__(self, state: SqliteWriterState, run: RunToStart, lease_s: float) -> None:
        self.run_id = str(run.columns.id)
        self._state = state
        self._run: RunToStart | None = run
        self._lease_s = lease_s
        self._is_starting = False
        self._position: tuple[fence.SqliteHold, SqliteChainHead] | None = None
        self._start_done: asyncio.Future[int] | None = None
        self._queued_writes: list[tuple[Sequence[Entry], RunEnded | None, tuple[str, ...], asyncio.Future[int]]] = []
        self._journal: SqliteRunJournal | None = None

    def write_start(self) -> "asyncio.Future[int] | None":
        """Start to write the run unless that has started; return a future that is done when it is there, None if it is.

        A failure is raised by the next write, which tries again.
        """
        if self._position is not None:
            return None
        if self._start_done is None:
            self._start_done = _unawaited()
            if not self._is_starting:
                self._submit_start((), None, is_durable=False).add_done_callback(_retrieve_error)
        return self._start_done

    def append(self, entries: Sequence[Entry]) -> asyncio.Future[int]:
        """Make the entries durable, in order; renew the lease."""
        return self._write(entries, None)

    def finish(self, entries: Sequence[Entry], ended: RunEnded, *, forget: Sequence[str] = ()) -> asyncio.Future[int]:
        """Append the last entries, end the run and forget what is to be forgotten with it, in one step."""
        assert ended.status in ENDED, ended.status
        return self._write(entries, ended, tuple(forget))

    def renew(self) -> asyncio.Future[int]:
        """Make the lease run from now."""
        return self._write((), None)

    async def release(self) -> None:
        """Give the run up, so that it can be claimed at once."""
        await (await self._written()).release()

    async def write_chunk(self, chunk: Chunk, *, keep_from: int, is_durable: bool = False) -> None:
        """Let other processes read what the run publishes, before it is journalled.

        Raises: StoreError, Conflict, NotFound.
        """
        await (await self._written()).write_chunk(chunk, keep_from=keep_from, is_durable=is_durable)

    def _write(
        self, entries: Sequence[Entry], ended: RunEnded | None, forget: tuple[str, ...] = ()
    ) -> asyncio.Future[int]:
        if self._position is not None:
            journal = self._journal_at(*self._position)
            return journal.append(entries) if ended is None else journal.finish(entries, ended, forget=forget)
        if not self._is_starting:
            return self._submit_start(entries, ended, is_durable=True, forget=forget)
        # It is on its way, without this, and perhaps with others behind it.
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._queued_writes.append((entries, ended, forget, future))
        return future

    def _journal_at(self, hold: fence.SqliteHold, place: SqliteChainHead) -> SqliteRunJournal:
        if self._journal is None:
            self._journal = SqliteRunJournal(self._state, hold, place, self._lease_s)
        return self._journal

    async def _written(self) -> SqliteRunJournal:
        start_done = self.write_start()
        if start_done is not None:
            await asyncio.shield(start_done)
        assert self._position is not None
        return self._journal_at(*self._position)

    def _submit_start(
        self, entries: Sequence[Entry], ended: RunEnded | None, *, is_durable: bool, forget: tuple[str, ...] = ()
    ) -> "asyncio.Future[int]":
        assert self._run is not None, "a run begins once"
        columns, body, owner, asked, root = self._run
        chained = chain_entries([*asked, *entries], self.run_id, 1, root, shares_input=columns.store)
        until = self._state.clock() + self._lease_s
        if forget:
            self._state.forgets()
        end = None if ended is None else ended_columns(ended)
        start = fence.RunStart(columns, body, owner, until, chained, end, forget)
        self._is_starting = True
        if self._start_done is not None and self._start_done.done():
            self._start_done = None
        on_started = partial(self._on_started, chained.place)
        # Cancelling the future does not stop the start: the next write needs its outcome, awaited or not.
        return self._state.writer.submit(start, is_durable=is_durable, then=on_started, otherwise=self._failed)

    def _on_started(self, place: SqliteChainHead, hold: fence.SqliteHold) -> int:
        self._position, self._run, self._is_starting = (hold, place), None, False
        if self._queued_writes:
            self._write_queued()
        if self._start_done is not None:
            self._start_done.set_result(place.head)
        return place.head

    def _failed(self, error: TreadleError) -> None:
        self._is_starting = False
        start_done = self._start_done = self._start_done or _unawaited()
        start_done.set_exception(error)
        self._write_queued()

    def _write_queued(self) -> None:
        """Write what came while the start was on its way, in order."""
        queued, self._queued_writes = self._queued_writes, []
        for entries, ended, forget, future in queued:
            self._write(entries, ended, forget).add_done_callback(partial(_pass_on, future))


def _unawaited() -> "asyncio.Future[int]":
    """Return a future that need not be awaited."""
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    future.add_done_callback(_retrieve_error)
    return future


def _retrieve_error(future: "asyncio.Future[int]") -> None:
    """Retrieve the error, so that asyncio does not log it as never retrieved."""
    if not future.cancelled():
        future.exception()


def _pass_on(target: "asyncio.Future[int]", source: "asyncio.Future[int]") -> None:
    """Give one future what another has got."""
    if target.done():
        _retrieve_error(source)
    elif source.cancelled():
        target.cancel()
    elif (error := source.exception()) is not None:
        target.set_exception(error)
    else:
        target.set_result(source.result())
