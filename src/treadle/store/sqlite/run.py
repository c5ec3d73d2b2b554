"""One run from its owner's side: it believes to know where the run stands, and every write asks the lease."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from treadle.canon.events import ENDED, RunEnded
from treadle.canon.messages import Entry
from treadle.store.journal import Chunk
from treadle.store.sqlite import fence
from treadle.store.sqlite.rows import EndColumns, Place, chain_entries, ended_columns
from treadle.store.sqlite.writer import Job, T, Writer


class SqliteRunJournal:
    """Fits `journal.RunJournal`. `wake` is called with the run's id after each write."""

    def __init__(
        self,
        writer: Writer,
        clock: Callable[[], float],
        wake: Callable[[str], None],
        hold: fence.Hold,
        place: Place,
        lease_s: float,
    ) -> None:
        self._writer = writer
        self._clock = clock
        self._wake = wake
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

    def finish(self, entries: Sequence[Entry], ended: RunEnded) -> asyncio.Future[int]:
        """Append the last entries and end the run, in one step."""
        assert ended.status in ENDED, ended.status
        return self._append(entries, ended_columns(ended))

    def renew(self) -> asyncio.Future[int]:
        """Make the lease run from now."""
        return self._append((), None)

    async def release(self) -> None:
        """Give the run up, so that it can be claimed at once."""
        await self._submit(lambda connection: fence.release(connection, self._hold))

    async def tell(self, chunk: Chunk, *, keep_from: int) -> None:
        """Let other processes read what the run says, before it is durable.

        Raises: StoreError, Conflict, NotFound.
        """
        assert chunk.first > 0, chunk.first
        assert chunk.count > 0, chunk.count
        until = self._clock() + self._lease_s
        self._has_chunks = True
        await self._submit(fence.Tell(self._hold, chunk, keep_from, until), is_durable=False)

    def _append(self, entries: Sequence[Entry], end: EndColumns | None) -> asyncio.Future[int]:
        hold, place = self._hold, self._place
        chained = chain_entries(entries, hold.run, hold.run_id, hold.epoch, place)
        until = self._clock() + self._lease_s
        # What is asked for before this is done goes behind it; where that does not hold, the lease tells.
        self._place = chained.place
        job = fence.Append(hold, entries, place, chained, until, end, self._has_chunks)
        return self._writer.submit(job, then=partial(self._written, chained.place))

    def _written(self, expected: Place, stands: Place) -> int:
        if stands is not expected:
            self._place = stands
        self._wake(self._hold.run_id)
        return stands.head

    async def _submit(self, job: Job[T], *, is_durable: bool = True) -> T:
        try:
            return await self._writer.submit(job, is_durable=is_durable)
        finally:
            self._wake(self._hold.run_id)
