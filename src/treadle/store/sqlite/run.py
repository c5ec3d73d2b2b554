"""One run from its owner's side: it believes to know where the run stands, and every write asks the lease.

A run of which nobody hears before its next write may be laid by: it is then begun with that write, or in a moment.
"""

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
        chained = chain_entries(entries, hold.run_id, hold.epoch, place)
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


class LaidRun:
    """Fits `journal.RunJournal`: a run whose start waits for the first write and is made durable with it.

    `lay_down` writes it alone. `make` gives the journal of a run that is there, for all that is written later; `until`
    says when a lease ends that begins now.
    """

    epoch = 1
    attempt = 1

    def __init__(
        self,
        writer: Writer,
        start: fence.Start,
        make: Callable[[fence.Hold, Place], SqliteRunJournal],
        until: Callable[[], float],
    ) -> None:
        self.run_id = str(start.columns.id)
        self._writer = writer
        self._start: fence.Start | None = start
        self._make = make
        self._until = until
        self._birth: asyncio.Future[int] | None = None
        self._behind: list[tuple[Sequence[Entry], RunEnded | None, asyncio.Future[int]]] = []
        self._journal: SqliteRunJournal | None = None

    def lay_down(self) -> "asyncio.Future[int] | None":
        """Begin to write the run unless that has begun; return what is done when it is there, None if it is.

        What goes wrong is heard of with the next write, which tries again.
        """
        if self._journal is None and self._birth is None:
            self._birth = self._bear((), None, is_durable=False)
            self._birth.add_done_callback(_heard)
        return self._birth if self._journal is None else None

    def append(self, entries: Sequence[Entry]) -> asyncio.Future[int]:
        """Make the entries durable, in order; renew the lease."""
        return self._write(entries, None)

    def finish(self, entries: Sequence[Entry], ended: RunEnded) -> asyncio.Future[int]:
        """Append the last entries and end the run, in one step."""
        assert ended.status in ENDED, ended.status
        return self._write(entries, ended)

    def renew(self) -> asyncio.Future[int]:
        """Make the lease run from now."""
        return self._write((), None)

    async def release(self) -> None:
        """Give the run up, so that it can be claimed at once."""
        await (await self._written()).release()

    async def tell(self, chunk: Chunk, *, keep_from: int) -> None:
        """Let other processes read what the run says, before it is durable.

        Raises: StoreError, Conflict, NotFound.
        """
        await (await self._written()).tell(chunk, keep_from=keep_from)

    def _write(self, entries: Sequence[Entry], ended: RunEnded | None) -> asyncio.Future[int]:
        birth = self._birth
        if not self._behind:
            if self._journal is not None:
                return self._journal.append(entries) if ended is None else self._journal.finish(entries, ended)
            if birth is None or (birth.done() and birth.exception() is not None):
                self._birth = self._bear(entries, ended, is_durable=True)
                # Whoever gives it up does not stop it: it must not look as if it had never begun.
                return asyncio.shield(self._birth)
        # It is on its way, without this, and perhaps with others behind it.
        assert birth is not None
        if not self._behind:
            birth.add_done_callback(self._follow)
        future: asyncio.Future[int] = birth.get_loop().create_future()
        self._behind.append((entries, ended, future))
        return future

    def _follow(self, _: "asyncio.Future[int]") -> None:
        """Write what came while the start was on its way, in order."""
        behind, self._behind = self._behind, []
        for entries, ended, future in behind:
            self._write(entries, ended).add_done_callback(partial(_pass_on, future))

    async def _written(self) -> SqliteRunJournal:
        birth = self.lay_down()
        if birth is not None:
            await asyncio.shield(birth)
        assert self._journal is not None
        return self._journal

    def _bear(self, entries: Sequence[Entry], ended: RunEnded | None, *, is_durable: bool) -> "asyncio.Future[int]":
        start = self._start
        assert start is not None, "a run begins once"
        if self._birth is not None:
            # It was tried before, perhaps long ago.
            start = start._replace(until=self._until())
        if entries or ended is not None:
            start = start.followed_by(entries, None if ended is None else ended_columns(ended))
        return self._writer.submit(start, is_durable=is_durable, then=partial(self._born, start.chained.place))

    def _born(self, place: Place, hold: fence.Hold) -> int:
        self._journal, self._start = self._make(hold, place), None
        return place.head


def _heard(future: "asyncio.Future[int]") -> None:
    """Look at what went wrong, so that nobody complains that nobody did."""
    if not future.cancelled():
        future.exception()


def _pass_on(target: "asyncio.Future[int]", source: "asyncio.Future[int]") -> None:
    """Give one future what another has got."""
    if target.done():
        _heard(source)
    elif source.cancelled():
        target.cancel()
    elif (error := source.exception()) is not None:
        target.set_exception(error)
    else:
        target.set_result(source.result())
