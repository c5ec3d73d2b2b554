# ruff: noqa: D102 - the methods are documented in journal_interface
"""The store on PostgreSQL: any number of processes share one database, and the leases in it decide who writes.

Every wait has a bound. A write whose answer was lost is looked for before it is tried again, so that nothing which was
acknowledged is lost and nothing is there twice.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from treadle.core.errors import StoreError, TreadleError
from treadle.core.events import ENDED
from treadle.core.journal_entries import Entry
from treadle.journal.approvals_store import StoredApprovals
from treadle.journal.journal_interface import Evidence, RunJournal, RunRow, StoreStats, question_place
from treadle.journal.postgres import audit_rows as evidence
from treadle.journal.postgres import leased_writes as fence
from treadle.journal.postgres.connection import Connection, PostgresPool, Work, closed
from treadle.journal.postgres.group_commit import (
    APPENDS_WAIT_S,
    STARTS_WAIT_S,
    TELLS_WAIT_S,
    Group,
    append_together,
    start_together,
    tell_together,
)
from treadle.journal.postgres.health_check import Probe
from treadle.journal.postgres.keys import PostgresKeys
from treadle.journal.postgres.migrations import migrate, read_migrations
from treadle.journal.postgres.notifications import NotificationListener
from treadle.journal.postgres.queries import STATEMENTS
from treadle.journal.postgres.replicas import PostgresReplicas
from treadle.journal.postgres.row_mapping import DIALECT, bind_text, read_run, run_columns
from treadle.journal.postgres.run_writer import PostgresRunJournal, PostgresWriterState
from treadle.journal.postgres.step_runner import as_work, in_transaction
from treadle.journal.postgres.write_queue import WriteQueue, WriteSlots
from treadle.journal.run_row_hash import root_hash
from treadle.journal.sql_steps import Steps, within
from treadle.journal.store_facade import StoreFacade
from treadle.journal.store_url import PostgresAddress
from treadle.journal.write_futures import failed

REQUEST_WAIT_S = 4.0
"""How long a new request waits for a database that is away, or for its turn."""
PING_WAIT_S = 2.0
FORGET_WAIT_S = 60.0
_TIME = "SELECT date_part('epoch', clock_timestamp())"

T = TypeVar("T")


class PostgresStore(StoreFacade):
    """Fits `journal.Store`. Use it from one event loop, between `open` and `close`.

    Leases run by the database's clock; `lease_clock` is for tests that move time.
    """

    def __init__(
        self,
        address: PostgresAddress,
        *,
        clock: Callable[[], float] = time.time,
        lease_clock: Callable[[], float] | None = None,
    ) -> None:
        super().__init__(DIALECT, STATEMENTS, clock)
        self._address = address
        self._lease_clock = lease_clock
        self._state: PostgresWriterState | None = None
        self._probe = Probe(address)
        self._held_off: StoreError | None = None

    @property
    def path(self) -> str:
        return self._address.shown

    @property
    def approvals(self) -> StoredApprovals:
        return StoredApprovals(
            self._access(), lambda run_id: self._open_state().bell.ring(run_id), "run, key_of(call_id)", None
        )

    @property
    def keys(self) -> PostgresKeys:
        return PostgresKeys(self._access())

    @property
    def replicas(self) -> PostgresReplicas:
        return PostgresReplicas(self._read_work, self._write_work)

    async def open(self) -> None:
        assert self._state is None, "the store is open already"
        await migrate(self._address, read_migrations(), self._clock())
        pool, writes, bell = PostgresPool(self._address), WriteQueue(self._address), NotificationListener(self._address)
        starts = Group(pool, start_together, STARTS_WAIT_S)
        appends = Group(pool, append_together, APPENDS_WAIT_S)
        tells = Group(pool, tell_together, TELLS_WAIT_S, flying_max=1)
        # Some connections are left to those who read.
        slots = WriteSlots(max(1, pool.shared_size * 3 // 4))
        state = PostgresWriterState(pool, writes, bell, self._lease_clock, slots, starts, appends, tells)
        await state.pool.open()
        state.bell.open()
        self._state = state

    async def close(self) -> None:
        state, self._state = self._state, None
        self._probe.close()
        if state is not None:
            await state.writes.close()
            await state.bell.close()
            await state.pool.close()

    @property
    def queued(self) -> int:
        return 0 if self._state is None else self._state.writes.queued

    async def server_time(self) -> float | None:
        return await self._read_work(lambda connection: connection.fetchval(_TIME), PING_WAIT_S)

    @property
    def stats(self) -> StoreStats:
        if self._state is None:
            return StoreStats()
        pool, bell = self._state.pool, self._state.bell
        return StoreStats(
            errors=pool.errors, pool_in_use=pool.in_use, pool_waiting=pool.waiting, reconnects=bell.reconnects
        )

    async def probe(self) -> None:
        self._open_state()
        await self._probe.check()

    def hold_off(self, error: StoreError | None) -> None:
        self._held_off = error

    async def ping(self) -> None:
        await self._read_work(
            lambda connection: connection.fetchval("SELECT max(version) FROM schema_migrations"), PING_WAIT_S
        )

    def start_run(
        self, row: RunRow, entries: Sequence[Entry], *, owner: str, lease_s: float, is_private: bool = False
    ) -> asyncio.Future[RunJournal]:
        """Make a run, its input and its lease durable, also a private one: a group of writes is synced once."""
        assert row.status not in ENDED, "a run cannot start with its end"
        assert owner, "a lease needs an owner"
        try:
            state, columns = self._ready_state(), run_columns(row)
        except TreadleError as error:
            return failed(error)
        question = question_place(entries)
        root = fence.PostgresChainHead(0, root_hash(row, question))
        batch = fence.make_batch(entries, fence.PostgresHold(0, owner, 1, row.id), root, shares_input=row.store)
        lease, deadline = state.lease(fence.RunLease(lease_s)), time.monotonic() + REQUEST_WAIT_S
        beginning = fence.Beginning(columns, batch, question, owner, lease)

        async def work(connection: Connection) -> fence.PostgresHold:
            return await fence.start_run(connection, beginning)

        async def settle(connection: Connection) -> fence.PostgresHold | None:
            return await fence.find_started(connection, columns, batch.place, owner)

        def alone(in_doubt: bool) -> Awaitable[fence.PostgresHold]:
            return state.pool.certain(work, deadline, settle, in_doubt=in_doubt)

        async def journal(hold: Awaitable[fence.PostgresHold]) -> RunJournal:
            return PostgresRunJournal(state, await hold, batch.place, lease_s)

        def land(hold: fence.PostgresHold | None, in_doubt: bool) -> None:
            if hold is None:
                state.writes.start(lambda: journal(alone(in_doubt)), future)
                return
            if not future.done():
                future.set_result(PostgresRunJournal(state, hold, batch.place, lease_s))
            state.writes.count_out()

        if batch.blobs:
            return state.writes.submit(lambda: journal(alone(False)))
        if not state.writes.has_room:
            return state.writes.submit(lambda: journal(state.starts.write(beginning, alone)))
        future: asyncio.Future[RunJournal] = asyncio.get_running_loop().create_future()
        state.writes.count_in()
        state.starts.join(beginning, land)
        return future

    async def claim_abandoned(
        self,
        owner: str,
        lease_s: float,
        limit: int,
        *,
        run_id: str | None = None,
        background: bool | None = None,
        besides: Sequence[str] = (),
    ) -> list[tuple[RunRow, RunJournal]]:
        """Take over runs that have not ended although their lease did.

        Raises: StoreError.
        """
        assert owner, "a lease needs an owner"
        state = self._open_state()
        lease = state.lease(fence.RunLease(lease_s))
        wanted = fence.PostgresWanted(
            within(limit), bind_text(run_id), background, [bind_text(each) for each in besides]
        )
        taken = await self._write_work(lambda connection: fence.claim(connection, owner, lease, wanted))
        for _, hold, _ in taken:
            state.bell.ring(hold.run_id)
        return [(read_run(values), PostgresRunJournal(state, hold, place, lease_s)) for values, hold, place in taken]

    async def abandoned(self, run_ids: Sequence[str]) -> list[str]:
        lease = self._open_state().lease(fence.RunLease(0.0))
        return await self._read_work(lambda connection: fence.abandoned(connection, run_ids, lease))

    async def end_leases(self, owner: str) -> int:
        assert owner, "runs without an owner have no lease to end"
        ended = await self._write_work(lambda connection: fence.end_leases(connection, owner))
        for run_id in ended:
            self._open_state().bell.ring(run_id)
        return len(ended)

    async def request_cancel(self, run_id: str) -> bool:
        is_live = await self._write_work(lambda connection: fence.request_cancel(connection, run_id))
        self._open_state().bell.ring(run_id)
        return is_live

    async def wait_change(self, run_id: str, timeout_s: float) -> None:
        await self._open_state().bell.wait(run_id, timeout_s)

    async def evidence(self, run_id: str) -> Evidence:
        return await self._read_work(lambda connection: evidence.collect(connection, run_id))

    async def strays(self) -> dict[str, int]:
        return await self._read_work(evidence.strays)

    async def put_blob(self, data: bytes, *, run_id: str) -> str:
        return await self._write_work(lambda connection: fence.put_blob(connection, run_id, data))

    async def _read(self, steps: Callable[[], Steps[T]]) -> T:
        return await self._read_work(as_work(steps))

    _read_stored = _read

    async def _write(self, steps: Callable[[], Steps[T]], settle: Callable[[], Steps[T | None]] | None = None) -> T:
        return await self._write_work(as_work(steps), None if settle is None else as_work(settle))

    async def _transact(self, steps: Callable[[], Steps[T]], settle: Callable[[], Steps[T | None]] | None = None) -> T:
        return await self._write_work(in_transaction(steps), None if settle is None else as_work(settle))

    async def _forget(self, steps: Callable[[], Steps[T]]) -> T:
        # Deleting may take its time, but a database that is away is reported soon.
        await self.ping()
        state = self._open_state()
        # Its time runs from its own beginning: it may be much work, which waits behind much other work.
        return await state.writes.submit(
            lambda: state.pool.certain(in_transaction(steps), time.monotonic() + FORGET_WAIT_S)
        )

    async def _read_work(self, work: Work[T], within_s: float = REQUEST_WAIT_S) -> T:
        return await self._ready_state().pool.certain(work, time.monotonic() + within_s)

    async def _write_work(self, work: Work[T], settle: Work[T | None] | None = None) -> T:
        state, deadline = self._ready_state(), time.monotonic() + REQUEST_WAIT_S
        return await state.writes.submit(lambda: state.pool.certain(work, deadline, settle))

    def _ready_state(self) -> PostgresWriterState:
        """Return the state for a request: none, while it is known that the database is away."""
        if self._held_off is not None:
            raise StoreError(self._held_off.message, code=self._held_off.info.code, hint=self._held_off.hint)
        return self._open_state()

    def _open_state(self) -> PostgresWriterState:
        if self._state is None:
            raise closed(self._address)
        return self._state
