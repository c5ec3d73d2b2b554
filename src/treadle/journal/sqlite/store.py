# ruff: noqa: D102 - the methods are documented in journal_interface
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
from functools import partial
from queue import SimpleQueue
from typing import TypeVar

import apsw

from treadle.core.errors import StoreError
from treadle.core.events import ENDED
from treadle.core.journal_entries import Entry
from treadle.journal.approvals_store import StoredApprovals
from treadle.journal.journal_interface import Evidence, RunJournal, RunRow, StoreStats
from treadle.journal.run_queries import run_number
from treadle.journal.sql_steps import Steps
from treadle.journal.sqlite import audit_rows as evidence
from treadle.journal.sqlite import leased_writes as fence
from treadle.journal.sqlite import queries as query
from treadle.journal.sqlite.change_watch import Changes, ChangeWatch
from treadle.journal.sqlite.connection import MEMORY, connect, empty_log, run_steps, select, store_error
from treadle.journal.sqlite.database_files import JournalFiles
from treadle.journal.sqlite.health_check import FREE_BYTES_MIN, JournalHealth, write_and_delete
from treadle.journal.sqlite.keys import SqliteKeys
from treadle.journal.sqlite.migrations import migrate, read_migrations
from treadle.journal.sqlite.open_file_lock import OpenFileLock, SteadyClock
from treadle.journal.sqlite.replicas import SqliteReplicas
from treadle.journal.sqlite.row_mapping import (
    DIALECT,
    RunColumns,
    bind_json,
    bind_text,
    chain_entries,
    read_run,
    root_place,
    run_columns,
)
from treadle.journal.sqlite.run_writer import DeferredRun, RunToStart, SqliteRunJournal, SqliteWriterState
from treadle.journal.sqlite.writer_thread import BATCH_JOBS_MAX, Job, WriterThread
from treadle.journal.store_facade import StoreFacade
from treadle.journal.write_futures import done, failed

READERS = 2
START_DEFER_S = 0.05
"""How long the start of a run without a reader may be deferred."""

T = TypeVar("T")


class SqliteStore(StoreFacade):
    """Fits `journal.Store`. Use it from one event loop, between `open` and `close`."""

    def __init__(
        self,
        path: str,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] | None = None,
    ) -> None:
        """Store the database at `path`.

        Leases count by `clock` as it was when the first process opened it, and on from there by `monotonic`, which all
        processes of a machine share; without one by `clock` alone.
        """
        super().__init__(DIALECT, query.STATEMENTS, clock)
        self._path = path
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
        self._deferred: list[DeferredRun] = []
        self._starting: set[asyncio.Future[int]] = set()
        self._idle: SimpleQueue[apsw.Connection] = SimpleQueue()
        self._polling: SimpleQueue[apsw.Connection] = SimpleQueue()
        self._watch = ChangeWatch(self._data_version if self._reading else None, self._changes)
        self._readers = ThreadPoolExecutor(READERS + 1, thread_name_prefix="treadle-store-reader")
        # Slow reads of others must not make a healthy store seem not to answer.
        self._probing: SimpleQueue[apsw.Connection] = SimpleQueue()
        self._prober = ThreadPoolExecutor(1, thread_name_prefix="treadle-store-probe")

    @property
    def path(self) -> str:
        return self._path

    @property
    def approvals(self) -> StoredApprovals:
        return StoredApprovals(self._access(), self._watch.wake, "run, call_id", fence.COUNT_CHANGE)

    @property
    def keys(self) -> SqliteKeys:
        return SqliteKeys(self._access(self._read_stored), self._write_lazily)

    @property
    def replicas(self) -> SqliteReplicas:
        return SqliteReplicas(self._access(self._read_stored), self._write_lazily, self._lease_clock)

    async def open(self) -> None:
        assert self._writer is None, "the store is open already"
        self._loop = asyncio.get_running_loop()
        connection = await self._off_loop(self._connect)
        self._writer = WriterThread(connection, self._health, is_inline=self._path == MEMORY)

    async def close(self) -> None:
        if self._writer is not None:
            await self._watch.close()
            self._write_deferred()
            await self._writer.close()
            # In a separate thread that ends here: it waits for the threads that read.
            with ThreadPoolExecutor(1, thread_name_prefix="treadle-store-closer") as closer:
                await asyncio.get_running_loop().run_in_executor(closer, self._disconnect)
            self._writer = None
        self._readers.shutdown(wait=False)
        self._prober.shutdown(wait=False)

    @property
    def queued(self) -> int:
        return 0 if self._writer is None else self._writer.queued

    async def server_time(self) -> float | None:
        return None

    @property
    def stats(self) -> StoreStats:
        return StoreStats(errors=self._errors if self._writer is None else self._errors + self._writer.errors)

    async def probe(self) -> None:
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
            await self._open_writer().submit(write_and_delete, is_durable=False)

    def _probe(self) -> int:
        """Read something on a connection used for nothing else, and return how many bytes are free on the disk."""
        self._with(self._probing, lambda connection: select(connection, "SELECT max(version) FROM schema_migrations"))
        return shutil.disk_usage(os.path.dirname(os.path.realpath(self._path))).free

    def hold_off(self, error: StoreError | None) -> None:
        """Refuse nothing: a file is never away, and what fails with it fails at once."""

    async def ping(self) -> None:
        await self._read_stored_job(lambda connection: select(connection, "SELECT max(version) FROM schema_migrations"))

    def start_run(
        self, row: RunRow, entries: Sequence[Entry], *, owner: str, lease_s: float, is_private: bool = False
    ) -> asyncio.Future[RunJournal]:
        """Make a run, its input and its lease durable."""
        assert row.status not in ENDED, "a run cannot start with its end"
        assert owner, "a lease needs an owner"
        try:
            state = self._open_state()
        except StoreError as error:
            return failed(error)
        columns = run_columns(row, entries)
        body = None if row.request is None else bind_json(row.request)
        root = root_place(row, entries)
        if is_private and self._may_wait(state.writer, columns):
            return done(self._defer_start(DeferredRun(state, RunToStart(columns, body, owner, entries, root), lease_s)))
        chained = chain_entries(entries, row.id, 1, root, shares_input=row.store)
        start = fence.RunStart(columns, body, owner, self._lease_clock() + lease_s, chained)

        def journal(hold: fence.SqliteHold) -> RunJournal:
            return SqliteRunJournal(state, hold, chained.place, lease_s)

        return state.writer.submit(start, is_durable=not is_private, then=journal)

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
        state = self._open_state()
        wanted = fence.SqliteWanted(limit, bind_text(run_id), background, json.dumps([*besides]))
        taken = await state.writer.submit(lambda connection: fence.claim(connection, owner, now, now + lease_s, wanted))
        for _, hold, _ in taken:
            self._watch.wake(hold.run_id)
        return [(read_run(values), SqliteRunJournal(state, hold, place, lease_s)) for values, hold, place in taken]

    async def abandoned(self, run_ids: Sequence[str]) -> list[str]:
        now = self._lease_clock()
        return await self._read_stored_job(lambda connection: fence.abandoned(connection, run_ids, now))

    async def end_leases(self, owner: str) -> int:
        assert owner, "runs without an owner have no lease to end"
        ended = await self._write_job(lambda connection: fence.end_leases_of(connection, owner))
        for run_id in ended:
            self._watch.wake(run_id)
        return len(ended)

    async def request_cancel(self, run_id: str) -> bool:
        is_live = await self._write_job(lambda connection: fence.request_cancel(connection, bind_text(run_id)))
        self._watch.wake(run_id)
        return is_live

    async def wait_change(self, run_id: str, timeout_s: float) -> None:
        await self._watch.wait(run_id, timeout_s)

    async def evidence(self, run_id: str) -> Evidence:
        return await self._read_job(lambda connection: evidence.collect(connection, run_id))

    async def strays(self) -> dict[str, int]:
        return await self._read_job(evidence.strays)

    async def expire(self, now: float) -> int:
        count = await super().expire(now)
        # What was forgotten since the last time stands in the write-ahead log until that is emptied.
        if (count or self._has_forgotten) and self._path != MEMORY:
            self._has_forgotten = not await self._read_job(empty_log)
        return count

    async def _expire_batch(self, now: float) -> int:
        return await self._write(partial(self._retention.expire_runs, now))

    async def put_blob(self, data: bytes, *, run_id: str) -> str:
        def job(connection: apsw.Connection) -> str:
            run = run_steps(partial(run_number, DIALECT, run_id), connection)
            return fence.put_blobs(connection, run, [data])[0]

        return await self._write_job(job)

    def _may_wait(self, writer: WriterThread, columns: RunColumns) -> bool:
        """Return whether the start of a run may be deferred: it refers to no other, and the database is well."""
        refers = columns.previous_id or columns.session_id or columns.idempotency_key
        is_calm = writer.is_well and writer.queued < BATCH_JOBS_MAX
        return refers is None and type(columns.model) is str and is_calm and self._reading > 0

    def _defer_start(self, run: DeferredRun) -> RunJournal:
        if not self._deferred:
            asyncio.get_running_loop().call_later(START_DEFER_S, self._write_deferred)
        self._deferred.append(run)
        return run

    def _write_deferred(self) -> None:
        """Write the deferred starts, in order; the futures in `_starting` are done when they are there."""
        deferred, self._deferred = self._deferred, []
        for run in deferred:
            starting = run.write_start()
            if starting is not None:
                self._starting.add(starting)
                starting.add_done_callback(self._starting.discard)

    async def _read(self, steps: Callable[[], Steps[T]]) -> T:
        return await self._read_job(partial(run_steps, steps))

    async def _read_stored(self, steps: Callable[[], Steps[T]]) -> T:
        return await self._read_stored_job(partial(run_steps, steps))

    async def _write(self, steps: Callable[[], Steps[T]], settle: Callable[[], Steps[T | None]] | None = None) -> T:
        # Its answer cannot be lost, so there is nothing to settle.
        return await self._write_job(partial(run_steps, steps))

    _transact = _write

    async def _forget(self, steps: Callable[[], Steps[T]]) -> T:
        self._note_forgetting()
        forgotten = await self._write(steps)
        self._watch.wake_all()
        return forgotten

    async def _write_lazily(self, steps: Callable[[], Steps[T]]) -> T:
        """Write what may be lost with the machine: it is done again then."""
        return await self._open_writer().submit(partial(run_steps, steps), is_durable=False)

    async def _write_job(self, job: Job[T]) -> T:
        writer = self._open_writer()
        if self._deferred:
            self._write_deferred()
        return await writer.submit(job)

    async def _read_job(self, job: Job[T]) -> T:
        """Read what the database holds, and all that this process has started."""
        if self._deferred:
            self._write_deferred()
        if self._starting:
            await asyncio.wait(self._starting)
        return await self._read_stored_job(job)

    async def _read_stored_job(self, job: Job[T]) -> T:
        """Read what cannot be in a run whose start is deferred."""
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
        """Wake all waiters, so that they read again and get the error. Called from any thread, once."""
        assert self._loop is not None
        with suppress(RuntimeError):  # the loop is closed, so there are no waiters
            self._loop.call_soon_threadsafe(self._watch.wake_all)

    async def _data_version(self) -> int:
        return await self._off_loop(
            lambda: self._with(self._polling, lambda connection: select(connection, "PRAGMA data_version")[0][0])
        )

    async def _changes(self, run_ids: Sequence[str]) -> Changes:
        return await self._read_stored_job(lambda connection: query.changes(connection, run_ids))

    async def _off_loop(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._readers, work)

    def _open_writer(self) -> WriterThread:
        if (damage := self._health.damage) is not None:
            raise damage
        if self._writer is None or not self._writer.is_open:
            raise StoreError(f"the store {self._path} is not open", code="store_closed")
        return self._writer

    def _open_state(self) -> SqliteWriterState:
        return self._state_of(self._open_writer())

    def _state_of(self, writer: WriterThread) -> SqliteWriterState:
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
