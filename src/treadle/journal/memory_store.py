"""The store of a process without a journal: a private SQLite database behind the runs that only their owner reads.

Most runs here are started, written, ended and forgotten by their own owner, without another reader. Such a run is a
list of entries. Any other request writes all of them to the database first, in the order in which they started, and
continues there; so every promise of the journal holds without a second implementation. What every process does all
the time, or what concerns a run that is in the database, must not cause that: else one read would put all the runs
that overlap into the database for as long as there is load.
"""

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import msgspec

from treadle.core.errors import Conflict, NotFound, TreadleError
from treadle.core.events import ENDED, RunEnded
from treadle.core.journal_entries import Entry
from treadle.journal.journal_interface import RUN_ENDED, Chunk, RunJournal, RunRow, StoredTurn
from treadle.journal.keys_interface import Charge, KeyBudget, Reservation, ReservationResult, add_up
from treadle.journal.sql_steps import Access, RunSteps, Steps
from treadle.journal.sqlite import leased_writes as fence
from treadle.journal.sqlite.connection import run_steps, select
from treadle.journal.sqlite.keys import SqliteKeys, charge, pay
from treadle.journal.sqlite.row_mapping import bind_json, chain_entries, ended_columns, root_place, run_columns
from treadle.journal.sqlite.run_writer import SqliteRunJournal
from treadle.journal.sqlite.store import SqliteStore
from treadle.journal.sqlite.writer_thread import WriterThread
from treadle.journal.store_url import MEMORY
from treadle.journal.write_futures import done, failed

T = TypeVar("T")

_ONCE = ("tool_call", "tool_result")
_ANY = "SELECT 1 FROM runs LIMIT 1"
_TAKEN = "SELECT 1 FROM runs WHERE id = ?1 OR response_id = ?2"


class MemoryStore(SqliteStore):
    """Fits `journal.Store`. Use it from one event loop, between `open` and `close`."""

    def __init__(self, *, clock: Callable[[], float] = time.time, monotonic: Callable[[], float] | None = None) -> None:
        super().__init__(MEMORY, clock=clock, monotonic=monotonic)
        self._held: dict[str, HeldRun] = {}
        self._unpaid: dict[str, str] = {}
        self._response_ids: set[str] = set()
        self._has_rows = False

    def start_run(
        self, row: RunRow, entries: Sequence[Entry], *, owner: str, lease_s: float, is_private: bool = False
    ) -> asyncio.Future[RunJournal]:
        """Start a run and return the right to write to it."""
        assert row.status not in ENDED, "a run cannot start with its end"
        assert owner, "a lease needs an owner"
        try:
            if not self._stands_alone(row, super()._open_writer()):
                self._has_rows = True
                return super().start_run(row, entries, owner=owner, lease_s=lease_s, is_private=is_private)
            run: RunJournal = self._hold(HeldRun(self, row, owner, lease_s), entries)
        except TreadleError as error:
            return failed(error)
        return done(run)

    @property
    def keys(self) -> SqliteKeys:
        """Charging a run does not write it to the database."""
        return _Keys(self, self._access(), self._write_beside)

    async def _write_beside(self, steps: Callable[[], Steps[T]]) -> T:
        """Run steps that concern no run that is held in memory."""
        return super()._open_writer().run_now(partial(run_steps, steps))

    def charge(self, charges: Sequence[Charge]) -> tuple[set[str], list[Charge]]:
        """Charge the runs that are, or were, held in memory, once; return their ids and the other charges.

        Raises: StoreError.
        """
        owed: list[tuple[str, Charge]] = []
        others: list[Charge] = []
        for each in charges:
            run = self._held.get(each.run_id)
            if run is not None:
                if run.owes:
                    owed.append((run.row.key_id, each))
            elif each.run_id in self._unpaid:
                owed.append((self._unpaid[each.run_id], each))
            else:
                others.append(each)
        if owed:
            steps = partial(charge, add_up(owed), [each.run_id for _, each in owed])
            super()._open_writer().run_now(partial(run_steps, steps))
        for _, each in owed:
            if self._unpaid.pop(each.run_id, None) is None:
                self._held[each.run_id].is_charged = True
        return {each.run_id for _, each in owed}, others

    async def delete_run(self, run_or_response_id: str) -> bool:
        """Forget a run and all of its content and return whether it was there."""
        run = self._held.get(run_or_response_id)
        if run is not None:
            self._let_go(run)
            run.is_deleted = True
            if run.owes:
                # Its debt outlives it, as in a database.
                self._unpaid[run.run_id] = run.row.key_id
            self._watch.wake_all()
            return True
        if run_or_response_id in self._response_ids:
            self.write_held()
        writer = super()._open_writer()
        has_had = await writer.submit(partial(run_steps, partial(self._retention.delete_run, run_or_response_id)))
        self._has_rows = bool(writer.run_now(lambda connection: select(connection, _ANY)))
        self._watch.wake_all()
        return has_had

    async def find_turns(
        self, call_ids: Sequence[str], questions: Sequence[str], *, key_id: str | None = None
    ) -> list[StoredTurn]:
        """Return the last rounds that hold such calls. Runs in progress have none, so most often nothing is written."""
        if not self._has_rows and all(run.ended is None for run in self._held.values()):
            return []
        return await super().find_turns(call_ids, questions, key_id=key_id)

    async def cancel_requests(self, owner: str) -> list[str]:
        """Return the runs of this owner whose cancellation was requested: the request wrote them to the database."""
        if not self._has_rows:
            return []
        return await super()._open_writer().submit(partial(run_steps, partial(self._queries.cancel_requests, owner)))

    def now(self) -> float:
        """Return the time for leases.

        Raises: StoreError, when the store is closed.
        """
        super()._open_writer()
        return self._lease_clock()

    def wake(self, run_id: str) -> None:
        """Wake the waiters of a run."""
        self._watch.wake(run_id)

    def write_held(self) -> None:
        """Write all runs that are held in memory to the database, where they stay.

        Raises: StoreError.
        """
        writer = super()._open_writer()
        while self._held:
            self._has_rows = True
            run = next(iter(self._held.values()))
            run.written = self._write_down(writer, run)
            self._let_go(run)

    def _open_writer(self) -> WriterThread:
        if self._held:
            self.write_held()
        return super()._open_writer()

    def _hold(self, run: "HeldRun", entries: Sequence[Entry]) -> "HeldRun":
        run.add(entries)
        self._held[run.run_id] = run
        self._response_ids.add(run.row.response_id)
        return run

    def _let_go(self, run: "HeldRun") -> None:
        del self._held[run.run_id]
        self._response_ids.discard(run.row.response_id)

    def _stands_alone(self, row: RunRow, writer: WriterThread) -> bool:
        """Return whether a run refers to no other and breaks no rule that can be checked without the database."""
        if row.previous_id is not None or row.session_id is not None or row.idempotency_key is not None:
            return False
        texts = (row.id, row.response_id, row.conversation_id, row.key_id, row.protocol, row.model, row.request_sha256)
        if not all(map(str.isascii, texts)) or row.id in self._held or row.response_id in self._response_ids:
            return False
        return not (self._has_rows and writer.run_now(lambda each: select(each, _TAKEN, row.id, row.response_id)))

    def _write_down(self, writer: WriterThread, run: "HeldRun") -> SqliteRunJournal:
        row = run.row
        body = None if row.request is None else bind_json(row.request)
        chained = chain_entries(run.entries, row.id, 1, root_place(row, run.entries))
        hold = writer.run_now(fence.RunStart(run_columns(row, run.entries), body, run.owner, run.until, chained))
        if run.ended is not None:
            nothing = chain_entries((), row.id, 1, chained.place)
            forget = (row.id,) if run.is_purged else ()
            end = ended_columns(run.ended)
            writer.run_now(fence.Append(hold, (), chained.place, nothing, run.until, end, forget=forget))
        if run.is_charged:
            writer.run_now(partial(run_steps, partial(pay, row.id)))
        return SqliteRunJournal(self._state_of(writer), hold, chained.place, run.lease_s)


class _Keys(SqliteKeys):
    """Keys, with runs held in memory."""

    def __init__(self, store: MemoryStore, access: Access, write_beside: RunSteps) -> None:
        super().__init__(access, write_beside)
        self._store = store

    async def settle(self, charges: Sequence[Charge]) -> set[str]:
        """Charge runs that ended to their keys, and forget their debts."""
        charged, others = self._store.charge(charges)
        return charged | await super().settle(others) if others else charged

    async def reserve(self, wanted: Reservation, budget: KeyBudget, period: str, now: float) -> ReservationResult:
        """Reserve what a run may use, until it is charged or released: runs that are held have no lease to see."""
        return await super().reserve(msgspec.structs.replace(wanted, until=math.inf), budget, period, now)


class HeldRun:
    """Fits `journal.RunJournal`: a run as a list, until it is `written` to the database; then it is written there."""

    epoch = 1
    attempt = 1

    def __init__(self, store: MemoryStore, row: RunRow, owner: str, lease_s: float) -> None:
        self._store = store
        self.row = row
        self.owner = owner
        self.lease_s = lease_s
        self.until = store.now() + lease_s
        self.entries: list[Entry] = []
        self.ended: RunEnded | None = None
        self.is_deleted = self.is_purged = False
        self.is_charged = False
        self.written: SqliteRunJournal | None = None
        self._calls: set[tuple[str, str]] = set()

    @property
    def run_id(self) -> str:
        """Return the run this journal writes to."""
        return self.row.id

    @property
    def owes(self) -> bool:
        """Return whether the run ended and is still to be charged to a key."""
        return self.ended is not None and not self.is_charged and bool(self.row.key_id)

    def append(self, entries: Sequence[Entry]) -> asyncio.Future[int]:
        """Add the entries, in order; renew the lease."""
        if self.written is not None:
            return self.written.append(entries)
        try:
            head = self._add(entries)
        except TreadleError as error:
            return failed(error)
        # Done one loop turn later: a run that waits for nothing else must let other tasks run.
        loop = asyncio.get_running_loop()
        future: asyncio.Future[int] = loop.create_future()
        loop.call_soon(_resolve, future, head)
        return future

    def finish(self, entries: Sequence[Entry], ended: RunEnded, *, forget: Sequence[str] = ()) -> asyncio.Future[int]:
        """Add the last entries, end the run and forget what is to be forgotten with it, in one step."""
        assert ended.status in ENDED, ended.status
        if any(run_id != self.run_id for run_id in forget):
            # The runs it continues were read from the database, so they are there; this one has to be too.
            self._ensure_written()
        if self.written is not None:
            return self.written.finish(entries, ended, forget=forget)
        try:
            head = self._add(entries)
        except TreadleError as error:
            return failed(error)
        self.ended = ended
        if forget:
            self.is_purged = True
            self.entries.clear()
        return done(head)

    def renew(self) -> asyncio.Future[int]:
        """Make the lease run from now."""
        return self.append(())

    async def release(self) -> None:
        """Give the run up, so that it can be claimed at once."""
        written = self._ensure_written()
        if written is not None:
            await written.release()

    async def write_chunk(self, chunk: Chunk, *, keep_from: int, is_durable: bool = False) -> None:
        """Publish events to other readers before they are written.

        Raises: StoreError, Conflict, NotFound.
        """
        written = self._ensure_written()
        if written is None:
            raise _deleted()
        await written.write_chunk(chunk, keep_from=keep_from, is_durable=is_durable)

    def add(self, entries: Sequence[Entry]) -> int:
        """Add entries to the run and return the number of the last one.

        Raises: Conflict, when a call would get a second call or result entry.
        """
        calls = [
            (entry.kind, entry.call_id)
            for entry in entries
            if entry.kind in _ONCE and entry.call_id is not None and not entry.is_input
        ]
        if calls:
            if len(set(calls)) < len(calls) or not self._calls.isdisjoint(calls):
                raise Conflict("the journal holds this already: a call has one entry, and one result")
            self._calls.update(calls)
        self.entries += entries
        return len(self.entries)

    def _add(self, entries: Sequence[Entry]) -> int:
        now = self._store.now()
        if self.is_deleted:
            raise _deleted()
        if self.ended is not None:
            raise Conflict("the run has ended", code=RUN_ENDED)
        head = self.add(entries)
        self.until = now + self.lease_s
        self._store.wake(self.run_id)
        return head

    def _ensure_written(self) -> SqliteRunJournal | None:
        """Write the run to the database unless it is there already or deleted."""
        if self.written is None and not self.is_deleted:
            self._store.write_held()
        return self.written


def _resolve(future: asyncio.Future[int], head: int) -> None:
    if not future.done():
        future.set_result(head)


def _deleted() -> NotFound:
    return NotFound("the run was deleted")
