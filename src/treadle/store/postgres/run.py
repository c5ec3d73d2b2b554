"""One run from its owner's side: it knows where the run's chain ends and asks the database whether it still does."""

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from treadle.canon.errors import StoreError
from treadle.canon.events import ENDED, RunEnded
from treadle.canon.messages import Entry
from treadle.store.journal import Chunk
from treadle.store.postgres import fence
from treadle.store.postgres.bell import Bell
from treadle.store.postgres.connection import Connection, Pool
from treadle.store.postgres.rows import EndColumns, ended_columns
from treadle.store.postgres.writes import Writes
from treadle.store.together.postgres import Beginning, Group, Wish

APPEND_WAIT_S = 10.0
"""How long a run that goes on waits for a database that is away: less than a lease, so that it can still be held."""

TURN_WAIT_S = 30.0
"""How long an append waits behind those of other runs: a slow database may work off a full queue."""

_RESYNCS_MAX = 3


class Desk(NamedTuple):
    """What all journals of a store write with; `lease_clock` is None where the database's own is used."""

    pool: Pool
    writes: Writes
    bell: Bell
    lease_clock: Callable[[], float] | None
    turns: asyncio.Semaphore
    starts: Group[Beginning, fence.Hold]
    appends: Group[Wish, bool]

    def lease(self, seconds: float) -> fence.Lease:
        """Return a lease that begins now."""
        return fence.Lease(seconds, None if self.lease_clock is None else self.lease_clock())


class PostgresRunJournal:
    """Fits `journal.RunJournal`. Its writes follow each other in the order in which they were asked for."""

    def __init__(self, desk: Desk, hold: fence.Hold, place: fence.Place, lease_s: float) -> None:
        self._desk = desk
        self._hold = hold
        self._place = place
        self._lease_s = lease_s
        self._lock = asyncio.Lock()
        self._told: list[Chunk] = []
        self._is_end_unknown = False

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

    async def append(self, entries: Sequence[Entry]) -> list[Entry]:
        """Make the entries durable, in order, and return them with their numbers; renew the lease.

        Raises: StoreError, Conflict, NotFound.
        """
        return await self._desk.writes.submit(lambda: self._append(entries, None))

    async def finish(self, entries: Sequence[Entry], ended: RunEnded) -> list[Entry]:
        """Append the last entries and end the run, in one step.

        Raises: StoreError, Conflict, NotFound.
        """
        assert ended.status in ENDED, ended.status
        columns = ended_columns(ended)
        return await self._desk.writes.submit(lambda: self._append(entries, columns))

    async def renew(self) -> None:
        """Make the lease run from now.

        Raises: StoreError, Conflict, NotFound.
        """
        await self._desk.writes.submit(lambda: self._append((), None))

    async def release(self) -> None:
        """Give the run up, so that it can be claimed at once."""
        await self._desk.writes.submit(self._release)

    async def tell(self, chunk: Chunk, *, keep_from: int) -> None:
        """Let other processes read what the run says, before it is durable.

        Raises: StoreError, Conflict, NotFound.
        """
        assert chunk.first > 0, chunk.first
        assert chunk.count > 0, chunk.count
        await self._desk.writes.submit(lambda: self._tell(chunk, keep_from))

    async def _append(self, entries: Sequence[Entry], end: EndColumns | None) -> list[Entry]:
        async with self._lock:
            try:
                await self._write(entries, end)
            finally:
                self._desk.bell.ring(self.run_id)
            first = self._place.head - len(entries) + 1
            return [msgspec.structs.replace(entry, seq=seq) for seq, entry in enumerate(entries, first)]

    async def _wait_for_turn(self) -> None:
        """Wait before the time of the write itself begins: a slow database must not be taken for a dead one."""
        if not self._desk.turns.locked():
            await self._desk.turns.acquire()
            return
        try:
            async with asyncio.timeout(TURN_WAIT_S):
                await self._desk.turns.acquire()
        except TimeoutError:
            raise self._desk.pool.unavailable("too many writes wait for their turn") from None

    async def _write(self, entries: Sequence[Entry], end: EndColumns | None) -> None:
        """Write behind the place that is known; where an earlier write was done after all, behind that one."""
        for _ in range(_RESYNCS_MAX):
            batch = fence.make_batch(entries, self.run_id, self.epoch, self._place)
            try:
                await self._write_batch(batch, end, is_empty=not entries)
            except fence.Moved as moved:
                self._place = moved.place
                # The hash is of these very entries at this very place: it was this write.
                if entries and end is None and moved.place == batch.place:
                    return
                continue
            self._place = batch.place
            return
        raise StoreError("the run was written to by somebody else under the same lease", code="store_unavailable")

    async def _write_batch(self, batch: fence.Batch, end: EndColumns | None, *, is_empty: bool) -> None:
        lease = self._desk.lease(self._lease_s)

        async def work(connection: Connection) -> bool:
            await fence.append(connection, self._hold, batch, lease, end)
            return True

        async def settle(connection: Connection) -> bool | None:
            if end is None and is_empty:
                return None
            return await fence.find_appended(connection, self._hold, batch, end is not None) or None

        async def alone(in_doubt: bool) -> bool:
            in_doubt |= end is not None and self._is_end_unknown
            await self._wait_for_turn()
            try:
                return await self._desk.pool.certain(work, APPEND_WAIT_S, settle, in_doubt=in_doubt)
            finally:
                self._desk.turns.release()

        try:
            if batch.blobs or self._is_end_unknown:
                await alone(False)
            else:
                await self._desk.appends.write(Wish(self._hold, batch, lease, end), alone)
        except StoreError as error:
            self._is_end_unknown |= end is not None and error.info.code == StoreError.code
            raise

    async def _release(self) -> None:
        async with self._lock:
            await self._desk.pool.certain(lambda connection: fence.release(connection, self._hold), APPEND_WAIT_S)
            self._desk.bell.ring(self.run_id)

    async def _tell(self, chunk: Chunk, keep_from: int) -> None:
        async with self._lock:
            earlier = [each for each in self._told if keep_from < each.first + each.count <= chunk.first]
            self._told = [*earlier, chunk]
            lease = self._desk.lease(self._lease_s)
            try:
                kept = await self._tell_now([chunk], keep_from, lease)
                if kept < len(earlier):
                    # The death of the database emptied its table, or it was away when they were told.
                    await self._tell_now(self._told, keep_from, lease)
            finally:
                self._desk.bell.ring(self.run_id)

    async def _tell_now(self, chunks: Sequence[Chunk], keep_from: int, lease: fence.Lease) -> int:
        async def work(connection: Connection) -> int:
            return await fence.tell(connection, self._hold, chunks, keep_from, lease)

        return await self._desk.pool.certain(work, APPEND_WAIT_S)
