"""Writes one run for its owner: appends, renewals, live chunks and the end, in the order in which they were submitted.

It knows where the run's chain of entries ends, and each write checks that it still ends there. The deadline of a write
is taken when it is submitted; its group, its slot and its attempts share it. The SQL is in `leased_writes`.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from treadle.core.errors import StoreError
from treadle.core.events import ENDED, RunEnded
from treadle.core.journal_entries import Entry
from treadle.journal.journal_interface import Chunk
from treadle.journal.postgres import leased_writes as fence
from treadle.journal.postgres.connection import Connection, PostgresPool
from treadle.journal.postgres.group_commit import APPENDS_WAIT_S, Beginning, ChunkWrite, Group, Wish
from treadle.journal.postgres.notifications import NotificationListener
from treadle.journal.postgres.row_mapping import EndColumns, ended_columns
from treadle.journal.postgres.step_runner import purge_ended
from treadle.journal.postgres.write_queue import WRITE_WAIT_S, WriteQueue, WriteSlots

T = TypeVar("T")
TELL_WAIT_S = 4.0
"""How long a live chunk waits for the database: little, for the next append of its run waits behind it."""
GROUP_LEAST_S = 2 * APPENDS_WAIT_S
"""How much time a write must have left to go with others: it waits for a group that is under way, then for its own."""

_RESYNCS_MAX = 3


class PostgresWriterState(NamedTuple):
    """What all journals of a store write with; `lease_clock` is None where the database's own is used."""

    pool: PostgresPool
    writes: WriteQueue
    bell: NotificationListener
    lease_clock: Callable[[], float] | None
    slots: WriteSlots
    starts: Group[Beginning, fence.PostgresHold]
    appends: Group[Wish, bool]
    tells: Group[ChunkWrite, int]

    def lease(self, lease: fence.RunLease) -> fence.RunLease:
        """Return a lease as one that begins now."""
        return lease if self.lease_clock is None else lease._replace(now=self.lease_clock())


class WriteTurn:
    """Lets the writes of a run follow each other, in the order in which they begin."""

    def __init__(self) -> None:
        self.is_free = True
        self._waiting: deque[asyncio.Future[None]] = deque()

    def take(self) -> asyncio.Future[None]:
        """Return what to wait for: it is done when all who came before have left."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.is_free:
            self.is_free = False
            turn.set_result(None)
        else:
            self._waiting.append(turn)
        return turn

    def count_out(self) -> None:
        """Let the next one go."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self.is_free = True


class _Submitted(NamedTuple):
    """A write as it was submitted, and when, by the monotonic clock."""

    entries: Sequence[Entry]
    end: EndColumns | None
    at: float


class PostgresRunJournal:
    """Fits `journal.RunJournal`. Its writes follow each other in the order in which they were asked for."""

    def __init__(
        self, desk: PostgresWriterState, hold: fence.PostgresHold, place: fence.PostgresChainHead, lease_s: float
    ) -> None:
        self._desk = desk
        self._hold = hold
        self._place = place
        self._lease = fence.RunLease(lease_s)
        self._turn = WriteTurn()
        self._told: list[Chunk] = []
        self._are_chunks_durable = False
        self._is_end_unknown = False
        self._forget: tuple[str, ...] = ()

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
        return self._submit(entries, None)

    def finish(self, entries: Sequence[Entry], ended: RunEnded, *, forget: Sequence[str] = ()) -> asyncio.Future[int]:
        """Append the last entries, end the run and forget what is to be forgotten with it, in one step."""
        assert ended.status in ENDED, ended.status
        self._forget = tuple(forget)
        return self._submit(entries, ended_columns(ended))

    def renew(self) -> asyncio.Future[int]:
        """Make the lease run from now."""
        return self._submit((), None)

    async def release(self) -> None:
        """Give the run up, so that it can be claimed at once."""
        deadline = time.monotonic() + WRITE_WAIT_S
        await self._queue(lambda turn: self._release(turn, deadline))

    async def write_chunk(self, chunk: Chunk, *, keep_from: int, is_durable: bool = False) -> None:
        """Let other processes read what the run says, before it is journalled.

        Raises: StoreError, Conflict, NotFound.
        """
        assert chunk.first > 0, chunk.first
        assert chunk.count > 0, chunk.count
        deadline = time.monotonic() + TELL_WAIT_S
        self._are_chunks_durable |= is_durable
        await self._queue(lambda turn: self._tell(turn, chunk, keep_from, deadline))

    def _queue(self, work: Callable[[asyncio.Future[None]], Coroutine[Any, Any, T]]) -> asyncio.Future[T]:
        """Do some work in this run's turn, which is over with the task that does it, however that ends."""
        turns: list[asyncio.Future[None]] = []

        def begin() -> Coroutine[Any, Any, T]:
            turns.append(self._turn.take())
            return work(turns[0])

        return self._desk.writes.submit(begin, lambda: self._end_turn(turns[0]))

    def _end_turn(self, turn: asyncio.Future[None]) -> None:
        if turn.done() and not turn.cancelled():
            self._leave()
        else:
            turn.cancel()  # it never came

    def _submit(self, entries: Sequence[Entry], end: EndColumns | None) -> asyncio.Future[int]:
        """Begin a write: beside those of other runs, which takes no task of its own."""
        desk, write = self._desk, _Submitted(entries, end, time.monotonic())
        is_plain = end is None or not self._forget
        if not self._turn.is_free or self._is_end_unknown or not desk.writes.has_room or not is_plain:
            return self._queue(lambda turn: self._append(turn, write))
        batch = fence.make_batch(entries, self._hold, self._place)
        if batch.blobs:
            return self._queue(lambda turn: self._append(turn, write))
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._turn.is_free = False
        desk.writes.count_in()
        wish = Wish(self._hold, batch, desk.lease(self._lease), end)
        desk.appends.join(wish, partial(self._land, future, write, wish))
        return future

    def _land(
        self, future: asyncio.Future[int], write: _Submitted, wish: Wish, is_done: bool | None, in_doubt: bool
    ) -> None:
        """Take the outcome of a write beside others; where it was not done, it goes on alone."""
        if not is_done:
            self._desk.writes.start(lambda: self._go_on(write, in_doubt), future, self._leave)
            return
        self._desk.slots.note_answer()
        self._place = wish.batch.place
        if not future.done():
            future.set_result(self._place.head)
        self._leave()
        self._desk.writes.count_out()

    def _leave(self) -> None:
        self._turn.count_out()
        self._desk.bell.ring(self._hold.run_id)

    async def _append(self, turn: asyncio.Future[None], write: _Submitted) -> int:
        await turn
        return await self._go_on(write)

    async def _go_on(self, write: _Submitted, in_doubt: bool | None = None) -> int:
        """Write in this run's turn; `in_doubt` is whether it may have been done beside others, None if it was not."""
        await self._write(write, in_doubt)
        self._desk.slots.note_answer()
        return self._place.head

    async def _write(self, write: _Submitted, in_doubt: bool | None) -> None:
        """Write behind the place that is known; where an earlier write was done after all, behind that one."""
        entries, end, submitted_at = write
        for _ in range(_RESYNCS_MAX):
            batch = fence.make_batch(entries, self._hold, self._place)
            try:
                await self._write_batch(batch, end, submitted_at, in_doubt)
            except fence.Moved as moved:
                in_doubt, self._place = None, moved.place
                # The hash is of these very entries at this very place: it was this write.
                if entries and end is None and moved.place == batch.place:
                    return
                continue
            self._place = batch.place
            return
        raise StoreError("the run was written to by somebody else under the same lease", code="store_unavailable")

    async def _write_batch(
        self, batch: fence.Batch, end: EndColumns | None, submitted_at: float, in_doubt: bool | None
    ) -> None:
        desk, lease = self._desk, self._desk.lease(self._lease)
        forget = () if end is None else self._forget

        async def work(connection: Connection) -> bool:
            if not forget:
                await fence.append(connection, self._hold, batch, lease, end)
                return True
            async with connection.transaction():
                await fence.append(connection, self._hold, batch, lease, end)
                await purge_ended(connection, forget)
            return True

        async def settle(connection: Connection) -> bool | None:
            if end is None and not batch.rows:
                return None
            return await fence.find_appended(connection, self._hold, batch, end is not None) or None

        async def alone(in_doubt: bool) -> bool:
            in_doubt |= end is not None and self._is_end_unknown
            deadline = await desk.slots.acquire(submitted_at)
            if deadline is None:
                raise desk.pool.unavailable("too many writes wait for their turn")
            try:
                return await desk.pool.certain(work, deadline, settle, in_doubt=in_doubt)
            finally:
                desk.slots.release()

        is_late = time.monotonic() + GROUP_LEAST_S > desk.slots.deadline(submitted_at)
        try:
            if in_doubt is not None:
                await alone(in_doubt)
            elif batch.blobs or self._is_end_unknown or forget or is_late:
                await alone(False)
            else:
                await desk.appends.write(Wish(self._hold, batch, lease, end), alone)
        except StoreError as error:
            self._is_end_unknown |= end is not None and error.info.code == StoreError.code
            raise

    async def _release(self, turn: asyncio.Future[None], deadline: float) -> None:
        await turn
        await self._desk.pool.certain(lambda connection: fence.release(connection, self._hold), deadline)

    async def _tell(self, turn: asyncio.Future[None], chunk: Chunk, keep_from: int, deadline: float) -> None:
        await turn
        if time.monotonic() >= deadline:
            raise self._desk.pool.unavailable("it was waited for too long")
        earlier = [each for each in self._told if keep_from < each.first + each.count <= chunk.first]
        self._told = [*earlier, chunk]
        lease = self._desk.lease(self._lease)

        async def work(connection: Connection) -> int:
            return await fence.tell(
                connection, self._hold, self._told, keep_from, lease, is_durable=self._are_chunks_durable
            )

        def alone(_in_doubt: bool) -> Awaitable[int]:
            return self._desk.pool.certain(work, deadline)

        write = ChunkWrite(self._hold, chunk, keep_from, lease, self._are_chunks_durable)
        kept = await self._desk.tells.write(write, alone)
        if kept < len(earlier):
            # They were lost with the database, or it was away when they were told.
            await alone(False)
