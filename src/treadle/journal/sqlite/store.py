"""The journal on SQLite: every write is a job for the writer thread, every read a job for one of two readers.

Several processes may share one file; the leases in it decide who writes to which run. `:memory:` is a private
database that ends with the store: it has a single connection, so its reads go through the writer as well.
"""

import asyncio
import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from queue import SimpleQueue
from typing import TypeVar

import apsw
import msgspec

from treadle.core.errors import StoreError
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
)
from treadle.journal.sqlite import audit_rows as evidence
from treadle.journal.sqlite import leased_writes as fence
from treadle.journal.sqlite import queries as query
from treadle.journal.sqlite import retention, sessions
from treadle.journal.sqlite.approvals import SqliteApprovals
from treadle.journal.sqlite.change_watch import Changes, ChangeWatch
from treadle.journal.sqlite.connection import MEMORY, connect, select, store_error
from treadle.journal.sqlite.database_files import JournalFiles
from treadle.journal.sqlite.health_check import FREE_BYTES_MIN, JournalHealth, write_and_delete
from treadle.journal.sqlite.keys import SqliteKeys
from treadle.journal.sqlite.login_tickets import SqliteTickets
from treadle.journal.sqlite.migrations import migrate, read_migrations
from treadle.journal.sqlite.open_file_lock import OpenFileLock, SteadyClock
from treadle.journal.sqlite.replicas import SqliteReplicas
from treadle.journal.sqlite.row_mapping import (
    RunColumns,
    bind_json,
    bind_text,
    chain_entries,
    read_run,
    root_place,
    run_columns,
)
from treadle.journal.sqlite.run_writer import BegunRun, LaidRun, SqliteRunJournal, SqliteWriterState
from treadle.journal.sqlite.workspaces import SqliteWorkspaces
from treadle.journal.sqlite.writer_thread import BATCH_JOBS_MAX, Job, WriterThread
from treadle.journal.store_counters import StoreStats
from treadle.journal.write_futures import done, failed

READERS = 2
LAY_S = 0.05
"""How long the start of a run of which nobody hears yet may wait for the first write to it."""

T = TypeVar("T")


class SqliteStore:
    """Fits `journal.Store`. Use it from one event loop, between `open` and `close`."""

    def __init__(
        self,
        path: str,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] | None = None,
    ) -> None:
        """Keep the database at `path`.

        Leases count by `clock` as it was when the first process opened it, and on from there by `monotonic`, which all
        processes of a machine share; without one by `clock` alone.
        """
        self._path = path
        self._clock = clock
        self._steady = None if monotonic is None else SteadyClock(clock, monotonic)
        self._lease_clock = self._steady or clock
        self._writer: WriterThread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._health = JournalHealth(path)
        self._connections = ExitStack()
        self._opened: list[apsw.Connection] = []
        self._reading = 0 if path == MEMORY else READERS
        self._has_forgotten = False
        self._errors: Counter[str] = Counter()
        self._laid: list[LaidRun] = []
        self._births: set[asyncio.Future[int]] = set()
        self._idle: SimpleQueue[apsw.Connection] = SimpleQueue()
        self._polling: SimpleQueue[apsw.Connection] = SimpleQueue()
        self._watch = ChangeWatch(self._data_version if self._reading else None, self._changes)
        self._readers = ThreadPoolExecutor(READERS + 1, thread_name_prefix="treadle-store-reader")
        # Slow reads of others must not make a healthy store look as if it did not answer.
        self._probing: SimpleQueue[apsw.Connection] = SimpleQueue()
        self._prober = ThreadPoolExecutor(1, thread_name_prefix="treadle-store-probe")

    @property
    def path(self) -> str:
        """Return where the database is."""
        return self._path

    @property
    def approvals(self) -> SqliteApprovals:
        """Return where approvals are kept: in the same database."""
        return SqliteApprovals(self._read, self._write, self._watch.wake)

    @property
    def keys(self) -> SqliteKeys:
        """Return where keys are kept: in the same database."""
        return SqliteKeys(self._look, self._write, self._jot)

    @property
    def tickets(self) -> SqliteTickets:
        """Return where ended logins are kept: in the same database."""
        return SqliteTickets(self._look, self._write)

    @property
    def replicas(self) -> SqliteReplicas:
        """Return where the processes that share the database are kept: in it."""
        return SqliteReplicas(self._look, self._write, self._jot, self._lease_clock)

    @property
    def workspaces(self) -> SqliteWorkspaces:
        """Return where workspaces are kept: in the same database."""
        return SqliteWorkspaces(self._read, self._write, self._forget)

    async def open(self) -> None:
        """Open the database, creating or migrating it where needed.

        Raises: StoreError.
        """
        assert self._writer is None, "the store is open already"
        self._loop = asyncio.get_running_loop()
        connection = await self._off_loop(self._connect)
        self._writer = WriterThread(connection, self._health, is_inline=self._path == MEMORY)

    async def close(self) -> None:
        """Commit what is queued, then close all connections; without effect the second time."""
        if self._writer is not None:
            await self._watch.close()
            self._lay_down()
            await self._writer.close()
            # In a thread of its own that ends here: it waits for the threads that read.
            with ThreadPoolExecutor(1, thread_name_prefix="treadle-store-closer") as closer:
                await asyncio.get_running_loop().run_in_executor(closer, self._disconnect)
            self._writer = None
        self._readers.shutdown(wait=False)
        self._prober.shutdown(wait=False)

    @property
    def queued(self) -> int:
        """Return how many writes wait."""
        return 0 if self._writer is None else self._writer.queued

    async def server_time(self) -> float | None:
        """Return None: all processes that share the file are on this machine, and have its clock."""
        return None

    @property
    def stats(self) -> StoreStats:
        """Return what it has counted, as it is now."""
        return StoreStats(errors=self._errors if self._writer is None else self._errors + self._writer.errors)

    async def probe(self) -> None:
        """Check that reading works, that there is room on the disk, and that what failed to be written could be now.

        Raises: StoreError.
        """
        writer = self._open_writer()
        if self._path == MEMORY:
            return
        try:
            free = await asyncio.get_running_loop().run_in_executor(self._prober, self._probe)
        except OSError as error:
            raise StoreError(f"the store {self._path}: {error}", code="store_io") from None
        if free < FREE_BYTES_MIN:
            raise store_error(apsw.FullError(f"{free} bytes are free"), self._path)
        if not writer.is_well:
            await self._jot(write_and_delete)

    def _probe(self) -> int:
        """Read something by a connection that nobody else uses, and return how many bytes are free on the disk."""
        self._with(self._probing, lambda connection: select(connection, "SELECT max(version) FROM schema_migrations"))
        return shutil.disk_usage(os.path.dirname(os.path.realpath(self._path))).free

    def hold_off(self, error: StoreError | None) -> None:
        """Refuse nothing: a file is never away, and what fails with it fails at once."""

    async def ping(self) -> None:
        """Check that reading works and that the writer takes jobs.

        Raises: StoreError.
        """
        await self._look(lambda connection: select(connection, "SELECT max(version) FROM schema_migrations"))

    def start_run(
        self, row: RunRow, entries: Sequence[Entry], *, owner: str, lease_s: float, is_private: bool = False
    ) -> asyncio.Future[RunJournal]:
        """Make a run, its input and its lease durable."""
        assert row.status not in ENDED, "a run cannot start with its end"
        assert owner, "a lease needs an owner"
        try:
            desk = self._open_desk()
        except StoreError as error:
            return failed(error)
        columns = run_columns(row, entries)
        body = None if row.request is None else bind_json(row.request)
        root = root_place(row, entries)
        if is_private and self._may_wait(desk.writer, columns):
            return done(self._lay_by(LaidRun(desk, BegunRun(columns, body, owner, entries, root), lease_s)))
        chained = chain_entries(entries, row.id, 1, root, shares_input=row.store)
        start = fence.RunStart(columns, body, owner, self._lease_clock() + lease_s, chained)

        def journal(hold: fence.SqliteHold) -> RunJournal:
            return SqliteRunJournal(desk, hold, chained.place, lease_s)

        return desk.writer.submit(start, is_durable=not is_private, then=journal)

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
        now = self._lease_clock()
        desk = self._open_desk()
        wanted = fence.SqliteWanted(limit, bind_text(run_id), background, json.dumps([*besides]))
        taken = await desk.writer.submit(lambda connection: fence.claim(connection, owner, now, now + lease_s, wanted))
        for _, hold, _ in taken:
            self._watch.wake(hold.run_id)
        return [(read_run(values), SqliteRunJournal(desk, hold, place, lease_s)) for values, hold, place in taken]

    async def abandoned(self, run_ids: Sequence[str]) -> list[str]:
        """Return those of the runs that have not ended although their lease did."""
        now = self._lease_clock()
        return await self._look(lambda connection: fence.abandoned(connection, run_ids, now))

    async def end_leases(self, owner: str) -> int:
        """End the leases of an owner that is known to be dead, and return how many it had."""
        assert owner, "runs without an owner have no lease to end"
        ended = await self._write(lambda connection: fence.end_leases_of(connection, owner))
        for run_id in ended:
            self._watch.wake(run_id)
        return len(ended)

    async def find_idempotent(self, idempotency_key: str, *, key_id: str) -> RunRow | None:
        """Return the run that was started under this idempotency key."""
        return await self._look(lambda connection: query.find_idempotent(connection, idempotency_key, key_id))

    async def request_cancel(self, run_id: str) -> bool:
        """Ask whoever drives the run to cancel it; False if it has ended or is not there."""
        is_live = await self._write(lambda connection: fence.request_cancel(connection, bind_text(run_id)))
        self._watch.wake(run_id)
        return is_live

    async def cancel_requests(self, owner: str) -> list[str]:
        """Return the runs held by this owner that somebody asked to cancel."""
        return await self._look(lambda connection: query.cancel_requests(connection, owner))

    async def chunks(self, run_id: str, *, after: int = 0) -> list[Chunk]:
        """Return what a live run said, in order, in the chunks that hold events numbered above `after`."""
        return await self._read(lambda connection: query.chunks(connection, run_id, after))

    async def wait_change(self, run_id: str, timeout_s: float) -> None:
        """Return soon after something was written to the run, at once if it is not live, or when the time is over.

        Raises: StoreError.
        """
        await self._watch.wait(run_id, timeout_s)

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
        return await self._look(lambda connection: query.find_turns(connection, call_ids, questions, key_id))

    async def delete_run(self, run_or_response_id: str) -> bool:
        """Forget a run and all of its content; tell whether there was one."""
        return await self._forget(lambda connection: retention.delete_run(connection, run_or_response_id))

    async def purge_run(self, run_id: str) -> None:
        """Forget the content of an ended run and keep its numbers.

        Raises: NotFound, Conflict.
        """
        await self._forget(lambda connection: retention.purge_run(connection, run_id))

    async def expire(self, now: float) -> int:
        """Forget the ended runs past their time, a batch at a time, and return how many.

        What was forgotten since the last time is then taken out of the write-ahead log too.
        """
        count = batch = await self._write(lambda connection: retention.expire_runs(connection, now))
        while batch == retention.EXPIRE_RUNS_MAX:
            batch = await self._write(lambda connection: retention.expire_runs(connection, now))
            count += batch
        if (count or self._has_forgotten) and self._path != MEMORY:
            self._has_forgotten = not await self._read(retention.empty_log)
        return count

    async def put_blob(self, data: bytes, *, run_id: str) -> str:
        """Keep bytes as long as the run is kept and return their sha256.

        Raises: NotFound.
        """
        [sha256] = await self._write(
            lambda connection: fence.put_blobs(connection, query.run_number(connection, run_id), [data])
        )
        return sha256

    async def get_blob(self, sha256: str, offset: int, length: int, *, run_id: str | None = None) -> bytes:
        """Return a piece of a blob; with a run, only of one that it may read.

        Raises: NotFound.
        """

        def work(connection: apsw.Connection) -> bytes:
            return query.get_blob(connection, (sha256, offset, length), run_id)

        return await self._read(work)

    async def create_session(self, row: SessionRow) -> None:
        """Keep a new session.

        Raises: Conflict, NotFound.
        """
        await self._write(lambda connection: sessions.create(connection, row))

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
        await self._write(lambda connection: sessions.move_head(connection, session_id, run_id, expected, now))

    def _may_wait(self, writer: WriterThread, columns: RunColumns) -> bool:
        """Tell whether nothing can be wrong with a run, and nothing is with the database, as far as can be seen."""
        refers = columns.previous_id or columns.session_id or columns.idempotency_key
        is_calm = writer.is_well and writer.queued < BATCH_JOBS_MAX
        return refers is None and type(columns.model) is str and is_calm and self._reading > 0

    def _lay_by(self, run: LaidRun) -> RunJournal:
        if not self._laid:
            asyncio.get_running_loop().call_later(LAY_S, self._lay_down)
        self._laid.append(run)
        return run

    def _lay_down(self) -> None:
        """Write the runs that still wait, in the order in which they began; `_births` are done when they are there."""
        laid, self._laid = self._laid, []
        for run in laid:
            birth = run.lay_down()
            if birth is not None:
                self._births.add(birth)
                birth.add_done_callback(self._births.discard)

    async def _write(self, job: Job[T]) -> T:
        writer = self._open_writer()
        if self._laid:
            self._lay_down()
        return await writer.submit(job)

    async def _jot(self, job: Job[T]) -> T:
        """Write what may be lost with the machine: it is done again then."""
        return await self._open_writer().submit(job, is_durable=False)

    async def _forget(self, job: Job[T]) -> T:
        self._note_forgetting()
        forgotten = await self._write(job)
        self._watch.wake_all()
        return forgotten

    async def _read(self, job: Job[T]) -> T:
        """Read what the database holds, and all that this process has begun."""
        if self._laid:
            self._lay_down()
        if self._births:
            await asyncio.wait(self._births)
        return await self._look(job)

    async def _look(self, job: Job[T]) -> T:
        """Read what cannot be in a run that is laid by."""
        writer = self._open_writer()
        if not self._reading:
            return await writer.submit(job)
        return await self._off_loop(lambda: self._with(self._idle, job))

    def _with(self, idle: SimpleQueue[apsw.Connection], job: Job[T]) -> T:
        connection = idle.get()
        try:
            return job(connection)
        except apsw.Error as error:
            found = self._health.failed(error)
            self._errors[found.info.code] += 1
            raise found from None
        finally:
            idle.put(connection)

    def _damaged(self) -> None:
        """Let those who wait for a change read again, and be told what is wrong. Called from any thread, once."""
        assert self._loop is not None
        with suppress(RuntimeError):  # the loop is closed, and nobody waits
            self._loop.call_soon_threadsafe(self._watch.wake_all)

    async def _data_version(self) -> int:
        return await self._off_loop(
            lambda: self._with(self._polling, lambda connection: select(connection, "PRAGMA data_version")[0][0])
        )

    async def _changes(self, run_ids: Sequence[str]) -> Changes:
        return await self._look(lambda connection: query.changes(connection, run_ids))

    async def _off_loop(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._readers, work)

    def _open_writer(self) -> WriterThread:
        if (damage := self._health.damage) is not None:
            raise damage
        if self._writer is None or not self._writer.is_open:
            raise StoreError(f"the store {self._path} is not open", code="store_closed")
        return self._writer

    def _open_desk(self) -> SqliteWriterState:
        return self._desk_of(self._open_writer())

    def _desk_of(self, writer: WriterThread) -> SqliteWriterState:
        return SqliteWriterState(writer, self._lease_clock, self._watch.wake, self._note_forgetting)

    def _note_forgetting(self) -> None:
        # Content that is gone from the database still stands in its log until that is emptied: see `expire`.
        self._has_forgotten = True

    def _connect(self) -> apsw.Connection:
        with ExitStack() as undo:
            # Closed last: others may open the files again when SQLite has let go of them.
            unguard = undo.enter_context(ExitStack())
            try:
                writing = connect(self._path)
                self._opened.append(writing)
                undo.callback(writing.close)
                migrate(writing, read_migrations(), self._clock())
                if self._reading:
                    undo.callback(OpenFileLock(self._path, lambda: fence.end_leases(writing), self._steady).close)
                for idle in self._pools():
                    reading = connect(self._path, query_only=True)
                    self._opened.append(reading)
                    undo.callback(reading.close)
                    idle.put(reading)
                if self._reading:
                    files = JournalFiles(os.path.realpath(self._path))
                    unguard.callback(files.close)
                    self._health = JournalHealth(self._path, files, self._damaged)
            except apsw.Error as error:
                raise store_error(error, self._path) from None
            except OSError as error:
                raise StoreError(f"the store {self._path}: {error}", code="store_cannot_open") from None
            self._connections = undo.pop_all()
        return writing

    def _disconnect(self) -> None:
        # Reads that were asked for before the writer closed are done first. Taking their connections from them one by
        # one would not do: a read that waits for one may be overtaken each time.
        self._readers.shutdown(wait=True)
        self._prober.shutdown(wait=True)
        if not self._health.may_checkpoint:
            for connection in self._opened:
                connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        self._opened.clear()
        self._connections.close()

    def _pools(self) -> list[SimpleQueue[apsw.Connection]]:
        return [*[self._idle] * self._reading, self._polling, self._probing] if self._reading else []
