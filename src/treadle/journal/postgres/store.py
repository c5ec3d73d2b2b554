"""The store on PostgreSQL: any number of processes share one database, and the leases in it decide who writes.

Every wait has a bound. A write whose answer was lost is looked for before it is tried again, so that nothing which was
acknowledged is lost and nothing is there twice.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import msgspec

from treadle.core.errors import StoreError, TreadleError
from treadle.core.events import ENDED, Status
from treadle.core.journal_entries import Entry
from treadle.journal.journal_interface import (
    AuditLine,
    Chunk,
    Evidence,
    RunJournal,
    RunRow,
    RunSearch,
    SessionKind,
    SessionRow,
    StoredTurn,
    question_place,
)
from treadle.journal.postgres import audit_rows as evidence
from treadle.journal.postgres import leased_writes as fence
from treadle.journal.postgres import queries as query
from treadle.journal.postgres import retention, sessions
from treadle.journal.postgres.approvals import PostgresApprovals
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
from treadle.journal.postgres.login_tickets import PostgresTickets
from treadle.journal.postgres.migrations import migrate, read_migrations
from treadle.journal.postgres.notifications import NotificationListener
from treadle.journal.postgres.replicas import PostgresReplicas
from treadle.journal.postgres.row_mapping import bind_text, read_run, run_columns
from treadle.journal.postgres.run_writer import PostgresRunJournal, PostgresWriterState
from treadle.journal.postgres.workspaces import PostgresWorkspaces
from treadle.journal.postgres.write_queue import WriteQueue, WriteSlots
from treadle.journal.run_row_hash import root_hash
from treadle.journal.store_counters import StoreStats
from treadle.journal.store_url import PostgresAddress
from treadle.journal.write_futures import failed

REQUEST_WAIT_S = 4.0
"""How long a new request waits for a database that is away, or for its turn."""
PING_WAIT_S = 2.0
FORGET_WAIT_S = 60.0
_TIME = "SELECT date_part('epoch', clock_timestamp())"

T = TypeVar("T")


class PostgresStore:
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
        self._address = address
        self._clock = clock
        self._lease_clock = lease_clock
        self._desk: PostgresWriterState | None = None
        self._probe = Probe(address)
        self._held_off: StoreError | None = None

    @property
    def path(self) -> str:
        """Return where the database is, without the password."""
        return self._address.shown

    @property
    def approvals(self) -> PostgresApprovals:
        """Return where approvals are kept: in the same database."""
        return PostgresApprovals(self._read, self._write, lambda run_id: self._open_desk().bell.ring(run_id))

    @property
    def keys(self) -> PostgresKeys:
        """Return where keys are kept: in the same database."""
        return PostgresKeys(self._read, self._write)

    @property
    def tickets(self) -> PostgresTickets:
        """Return where ended logins are kept: in the same database."""
        return PostgresTickets(self._read, self._write)

    @property
    def replicas(self) -> PostgresReplicas:
        """Return where the processes that share the database are kept: in it."""
        return PostgresReplicas(self._read, self._write)

    @property
    def workspaces(self) -> PostgresWorkspaces:
        """Return where workspaces are kept: in the same database."""
        return PostgresWorkspaces(self._read, self._write, self._forget)

    async def open(self) -> None:
        """Connect, creating or migrating the schema where needed.

        Raises: StoreError.
        """
        assert self._desk is None, "the store is open already"
        await migrate(self._address, read_migrations(), self._clock())
        pool, writes, bell = PostgresPool(self._address), WriteQueue(self._address), NotificationListener(self._address)
        starts = Group(pool, start_together, STARTS_WAIT_S)
        appends = Group(pool, append_together, APPENDS_WAIT_S)
        tells = Group(pool, tell_together, TELLS_WAIT_S, flying_max=1)
        # Some connections are left to those who read.
        slots = WriteSlots(max(1, pool.shared_size * 3 // 4))
        desk = PostgresWriterState(pool, writes, bell, self._lease_clock, slots, starts, appends, tells)
        await desk.pool.open()
        desk.bell.open()
        self._desk = desk

    async def close(self) -> None:
        """Finish the writes that were asked for, then let go of all connections; without effect the second time."""
        desk, self._desk = self._desk, None
        self._probe.close()
        if desk is not None:
            await desk.writes.close()
            await desk.bell.close()
            await desk.pool.close()

    @property
    def queued(self) -> int:
        """Return how many writes wait."""
        return 0 if self._desk is None else self._desk.writes.queued

    async def server_time(self) -> float | None:
        """Return the time of the database.

        Raises: StoreError.
        """
        return await self._read(lambda connection: connection.fetchval(_TIME), PING_WAIT_S)

    @property
    def stats(self) -> StoreStats:
        """Return what it has counted, as it is now."""
        if self._desk is None:
            return StoreStats()
        pool, bell = self._desk.pool, self._desk.bell
        return StoreStats(
            errors=pool.errors, pool_in_use=pool.in_use, pool_waiting=pool.waiting, reconnects=bell.reconnects
        )

    async def probe(self) -> None:
        """Check that what is written now would be kept.

        Raises: StoreError.
        """
        self._open_desk()
        await self._probe.check()

    def hold_off(self, error: StoreError | None) -> None:
        """Refuse requests at once with this error, until called with None."""
        self._held_off = error

    async def ping(self) -> None:
        """Check that the database answers.

        Raises: StoreError.
        """
        await self._read(
            lambda connection: connection.fetchval("SELECT max(version) FROM schema_migrations"), PING_WAIT_S
        )

    def start_run(
        self, row: RunRow, entries: Sequence[Entry], *, owner: str, lease_s: float, is_private: bool = False
    ) -> asyncio.Future[RunJournal]:
        """Make a run, its input and its lease durable, also a private one: a group of writes is synced once."""
        assert row.status not in ENDED, "a run cannot start with its end"
        assert owner, "a lease needs an owner"
        try:
            desk, columns = self._ready_desk(), run_columns(row)
        except TreadleError as error:
            return failed(error)
        question = question_place(entries)
        root = fence.PostgresChainHead(0, root_hash(row, question))
        batch = fence.make_batch(entries, fence.PostgresHold(0, owner, 1, row.id), root, shares_input=row.store)
        lease, deadline = desk.lease(fence.RunLease(lease_s)), time.monotonic() + REQUEST_WAIT_S
        beginning = fence.Beginning(columns, batch, question, owner, lease)

        async def work(connection: Connection) -> fence.PostgresHold:
            return await fence.start_run(connection, beginning)

        async def settle(connection: Connection) -> fence.PostgresHold | None:
            return await fence.find_started(connection, columns, batch.place, owner)

        def alone(in_doubt: bool) -> Awaitable[fence.PostgresHold]:
            return desk.pool.certain(work, deadline, settle, in_doubt=in_doubt)

        async def journal(hold: Awaitable[fence.PostgresHold]) -> RunJournal:
            return PostgresRunJournal(desk, await hold, batch.place, lease_s)

        def land(hold: fence.PostgresHold | None, in_doubt: bool) -> None:
            if hold is None:
                desk.writes.go_on(lambda: journal(alone(in_doubt)), future)
                return
            if not future.done():
                future.set_result(PostgresRunJournal(desk, hold, batch.place, lease_s))
            desk.writes.leave()

        if batch.blobs:
            return desk.writes.submit(lambda: journal(alone(False)))
        if not desk.writes.has_room:
            return desk.writes.submit(lambda: journal(desk.starts.write(beginning, alone)))
        future: asyncio.Future[RunJournal] = asyncio.get_running_loop().create_future()
        desk.writes.enter()
        desk.starts.join(beginning, land)
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
        desk = self._open_desk()
        lease = desk.lease(fence.RunLease(lease_s))
        wanted = fence.PostgresWanted(
            query.within(limit), bind_text(run_id), background, [bind_text(each) for each in besides]
        )
        taken = await self._write(lambda connection: fence.claim(connection, owner, lease, wanted))
        for _, hold, _ in taken:
            desk.bell.ring(hold.run_id)
        return [(read_run(values), PostgresRunJournal(desk, hold, place, lease_s)) for values, hold, place in taken]

    async def abandoned(self, run_ids: Sequence[str]) -> list[str]:
        """Return those of the runs that have not ended although their lease did."""
        lease = self._open_desk().lease(fence.RunLease(0.0))
        return await self._read(lambda connection: fence.abandoned(connection, run_ids, lease))

    async def end_leases(self, owner: str) -> int:
        """End the leases of an owner that is known to be dead, and return how many it had."""
        assert owner, "runs without an owner have no lease to end"
        ended = await self._write(lambda connection: fence.end_leases(connection, owner))
        for run_id in ended:
            self._open_desk().bell.ring(run_id)
        return len(ended)

    async def find_idempotent(self, idempotency_key: str, *, key_id: str) -> RunRow | None:
        """Return the run that was started under this idempotency key."""
        return await self._read(lambda connection: query.find_idempotent(connection, idempotency_key, key_id))

    async def request_cancel(self, run_id: str) -> bool:
        """Ask whoever drives the run to cancel it; False if it has ended or is not there."""
        is_live = await self._write(lambda connection: fence.request_cancel(connection, run_id))
        self._open_desk().bell.ring(run_id)
        return is_live

    async def cancel_requests(self, owner: str) -> list[str]:
        """Return the runs held by this owner that somebody asked to cancel."""
        return await self._read(lambda connection: query.cancel_requests(connection, owner))

    async def chunks(self, run_id: str, *, after: int = 0) -> list[Chunk]:
        """Return what a live run said, in order, in the chunks that hold events numbered above `after`."""
        return await self._read(lambda connection: query.chunks(connection, run_id, after))

    async def wait_change(self, run_id: str, timeout_s: float) -> None:
        """Return soon after something was written to the run, or when it is time to look anyway.

        Raises: StoreError.
        """
        await self._open_desk().bell.wait(run_id, timeout_s)

    async def audit(self, run_id: str) -> list[AuditLine]:
        """Return the entries of a run with the hash each carries and the one computed from what is stored.

        Raises: NotFound.
        """
        return (await self.evidence(run_id)).lines

    async def evidence(self, run_id: str) -> Evidence:
        """Return all that is kept of a run as it is at one moment.

        Raises: NotFound.
        """
        return await self._read(lambda connection: evidence.collect(connection, run_id))

    async def strays(self) -> dict[str, int]:
        """Return how many rows belong to runs that are not there, by table: those were deleted by hand."""
        return await self._read(evidence.strays)

    async def find_run(self, run_or_response_id: str, *, key_id: str | None = None) -> RunRow | None:
        """Return the run of that id or response id."""
        return await self._read(lambda connection: query.find_run(connection, run_or_response_id, key_id))

    async def list_runs(
        self,
        *,
        limit: int = 50,
        before: str | None = None,
        status: Status | None = None,
        session_id: str | None = None,
        key_id: str | None = None,
        fingerprint: str | None = None,
    ) -> list[RunRow]:
        """Return runs, newest first.

        Raises: NotFound.
        """
        only = query.RunFilter(status, session_id, key_id, fingerprint)
        return await self._read(lambda connection: query.list_runs(connection, limit, before, only))

    async def search_runs(self, wanted: RunSearch, *, limit: int = 50, before: str | None = None) -> list[RunRow]:
        """Return the runs that are looked for, newest first.

        Raises: NotFound.
        """
        return await self._read(lambda connection: query.search_runs(connection, wanted, limit, before))

    async def questions(self, run_ids: Sequence[str]) -> dict[str, str]:
        """Return the beginning of the last thing that each of the runs was asked, where that is known."""
        return await self._read(lambda connection: query.questions(connection, run_ids))

    async def entries(
        self, run_id: str, *, after: int = 0, limit: int | None = None, for_next: bool = False
    ) -> list[Entry]:
        """Return the entries of a run whose number is above `after`, in order.

        Raises: NotFound.
        """
        return await self._read(lambda connection: query.entries(connection, run_id, after, limit, for_next))

    async def history(self, run_id: str, *, for_next: bool = False) -> list[Entry]:
        """Return the items of the run and of all it continues, oldest first.

        Raises: NotFound.
        """
        return await self._read(lambda connection: query.history(connection, run_id, for_next))

    async def find_item(self, item_id: str, *, key_id: str | None = None) -> list[Entry]:
        """Return the item of that id and, for a call, the result that its run gave it."""
        return await self._read(lambda connection: query.find_item(connection, item_id, key_id))

    async def find_turns(
        self, call_ids: Sequence[str], questions: Sequence[str], *, key_id: str | None = None
    ) -> list[StoredTurn]:
        """Return the last rounds that hold such calls and more than a client knows of them, newest first."""
        return await self._read(lambda connection: query.find_turns(connection, call_ids, questions, key_id))

    async def delete_run(self, run_or_response_id: str) -> bool:
        """Forget a run and all of its content; tell whether there was one."""
        return await self._forget(lambda connection: retention.delete_run(connection, run_or_response_id))

    async def purge_run(self, run_id: str) -> None:
        """Forget the content of an ended run and keep its numbers.

        Raises: NotFound, Conflict.
        """
        await self._forget(lambda connection: retention.purge_run(connection, run_id))

    async def expire(self, now: float) -> int:
        """Forget the ended runs past their time, a batch at a time, and return how many."""
        count = batch = await self._forget(lambda connection: retention.expire_runs(connection, now))
        while batch == retention.EXPIRE_RUNS_MAX:
            batch = await self._forget(lambda connection: retention.expire_runs(connection, now))
            count += batch
        return count

    async def put_blob(self, data: bytes, *, run_id: str) -> str:
        """Keep bytes as long as the run is kept and return their sha256.

        Raises: NotFound.
        """
        return await self._write(lambda connection: fence.put_blob(connection, run_id, data))

    async def get_blob(self, sha256: str, offset: int, length: int, *, run_id: str | None = None) -> bytes:
        """Return a piece of a blob; with a run, only of one that it may read.

        Raises: NotFound.
        """

        def work(connection: Connection) -> Awaitable[bytes]:
            return query.get_blob(connection, (sha256, offset, length), run_id)

        return await self._read(work)

    async def create_session(self, row: SessionRow) -> None:
        """Keep a new session.

        Raises: Conflict, NotFound.
        """

        async def work(connection: Connection) -> bool:
            await sessions.create(connection, row)
            return True

        async def settle(connection: Connection) -> bool | None:
            return await sessions.find(connection, row.id, None) == row or None

        await self._write(work, settle)

    async def find_session(self, id_or_name: str, *, key_id: str | None = None) -> SessionRow | None:
        """Return the session of that id, else the one of that name used last."""
        return await self._read(lambda connection: sessions.find(connection, id_or_name, key_id))

    async def list_sessions(
        self,
        limit: int = 50,
        *,
        key_id: str | None = None,
        kind: SessionKind = "session",
        before: str | None = None,
        search: str | None = None,
    ) -> list[SessionRow]:
        """Return sessions, the one used last first.

        Raises: NotFound.
        """
        only = (kind, key_id, search)
        return await self._read(lambda connection: sessions.page(connection, limit, before, only))

    async def update_session(
        self, session_id: str, *, name: str | None = None, metadata: msgspec.Raw | None = None
    ) -> SessionRow:
        """Give a session another name or other metadata; what is None stays.

        Raises: NotFound, Conflict.
        """
        return await self._write(lambda connection: sessions.update(connection, session_id, name, metadata))

    async def delete_session(self, session_id: str, *, with_runs: bool) -> bool:
        """Forget a session, and with it the ended runs made in it, if wanted; tell whether there was one.

        Raises: Conflict.
        """
        return await self._forget(lambda connection: sessions.delete(connection, session_id, with_runs))

    async def set_session_head(self, session_id: str, run_id: str | None, *, expected: str | None) -> None:
        """Let the session go on from `run_id`, if it still stands at `expected`.

        Raises: NotFound, Conflict.
        """
        now = self._clock()

        async def work(connection: Connection) -> bool:
            async with connection.transaction():
                await sessions.move_head(connection, session_id, run_id, expected, now)
            return True

        async def settle(connection: Connection) -> bool | None:
            found = await sessions.find(connection, session_id, None)
            return (found is not None and (found.id, found.head_run_id) == (session_id, run_id)) or None

        await self._write(work, settle)

    async def _read(self, work: Work[T], within_s: float = REQUEST_WAIT_S) -> T:
        return await self._ready_desk().pool.certain(work, time.monotonic() + within_s)

    async def _write(self, work: Work[T], settle: Work[T | None] | None = None) -> T:
        desk, deadline = self._ready_desk(), time.monotonic() + REQUEST_WAIT_S
        return await desk.writes.submit(lambda: desk.pool.certain(work, deadline, settle))

    async def _forget(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Run work that may take its time, once the database has answered; one that is away is told soon."""

        async def in_transaction(connection: Connection) -> T:
            async with connection.transaction():
                return await work(connection)

        await self.ping()
        desk = self._open_desk()
        # Its time runs from its own beginning: it may be much work, which waits behind much other work.
        return await desk.writes.submit(lambda: desk.pool.certain(in_transaction, time.monotonic() + FORGET_WAIT_S))

    def _ready_desk(self) -> PostgresWriterState:
        """Return the desk for a request: none, while it is known that the database is away."""
        if self._held_off is not None:
            raise StoreError(self._held_off.message, code=self._held_off.info.code, hint=self._held_off.hint)
        return self._open_desk()

    def _open_desk(self) -> PostgresWriterState:
        if self._desk is None:
            raise closed(self._address)
        return self._desk
