"""The journal on SQLite: every write is a job for the writer thread, every read a job for one of two readers.

Several processes may share one file; the leases in it decide who writes to which run. `:memory:` is a private
database that ends with the store: it has a single connection, so its reads go through the writer as well.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from queue import SimpleQueue
from typing import TypeVar

import apsw
import msgspec

from treadle.canon.errors import Conflict, NotFound, StoreError
from treadle.canon.events import ENDED, RunEnded, Status
from treadle.canon.messages import Entry
from treadle.store.journal import RunJournal, RunRow, SessionRow, StoredTurn
from treadle.store.sqlite import fence, query, retention
from treadle.store.sqlite.connection import MEMORY, connect, select, store_error
from treadle.store.sqlite.migrate import migrate, read_migrations
from treadle.store.sqlite.rows import (
    EndColumns,
    bind_json,
    bind_text,
    ended_columns,
    entry_columns,
    read_run,
    run_columns,
)
from treadle.store.sqlite.writer import Job, Writer

READERS = 2

_INSERT_SESSION = """
INSERT INTO sessions (id, name, key_id, created_at, updated_at, head) VALUES (?, ?, ?, ?, ?, ?)
"""

T = TypeVar("T")


class SqliteStore:
    """Fits `journal.Store`. Use it from one event loop, between `open` and `close`."""

    def __init__(self, path: str, *, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._clock = clock
        self._writer: Writer | None = None
        self._connections = ExitStack()
        self._reading = 0 if path == MEMORY else READERS
        self._has_forgotten = False
        self._idle: SimpleQueue[apsw.Connection] = SimpleQueue()
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="treadle-store-reader")

    @property
    def path(self) -> str:
        """Return where the database is."""
        return self._path

    async def open(self) -> None:
        """Open the database, creating or migrating it where needed.

        Raises: StoreError.
        """
        assert self._writer is None, "the store is open already"
        connection = await self._off_loop(self._connect)
        self._writer = Writer(connection, self._path)

    async def close(self) -> None:
        """Commit what is queued, then close all connections; without effect the second time."""
        if self._writer is not None:
            await self._writer.close()
            await self._off_loop(self._disconnect)
            self._writer = None
        self._readers.shutdown(wait=False)

    async def ping(self) -> None:
        """Check that reading works and that the writer takes jobs.

        Raises: StoreError.
        """
        await self._read(lambda connection: select(connection, "SELECT max(version) FROM schema_migrations"))

    async def start_run(self, row: RunRow, entries: Sequence[Entry], *, owner: str, lease_s: float) -> RunJournal:
        """Make a run, its input and its lease durable.

        Raises: Conflict, NotFound, StoreError.
        """
        assert row.status not in ENDED, "a run cannot start with its end"
        assert owner, "a lease needs an owner"
        columns, inputs = run_columns(row), [entry_columns(entry) for entry in entries]
        body = None if row.request is None else bind_json(bytes(row.request))
        until = self._clock() + lease_s

        def job(connection: apsw.Connection) -> fence.Hold:
            hold = fence.start_run(connection, columns, body, owner)
            fence.append(connection, hold, inputs, until)
            return hold

        writer = self._open_writer()
        return SqliteRunJournal(writer, self._clock, row.id, await writer.submit(job), lease_s)

    async def claim_abandoned(self, owner: str, lease_s: float, limit: int) -> list[tuple[RunRow, RunJournal]]:
        """Take over runs that have not ended although their lease did.

        Raises: StoreError.
        """
        assert owner, "a lease needs an owner"
        now = self._clock()
        writer = self._open_writer()
        taken = await writer.submit(lambda connection: fence.claim(connection, owner, now, now + lease_s, limit))
        rows = [(read_run(values), hold) for values, hold in taken]
        return [(row, SqliteRunJournal(writer, self._clock, row.id, hold, lease_s)) for row, hold in rows]

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
    ) -> list[RunRow]:
        """Return runs, newest first.

        Raises: NotFound.
        """
        only = (status, session_id, key_id)
        return await self._read(lambda connection: query.list_runs(connection, limit, before, only))

    async def entries(self, run_id: str, *, after: int = 0, limit: int | None = None) -> list[Entry]:
        """Return the entries of a run whose number is above `after`, in order.

        Raises: NotFound.
        """
        return await self._read(lambda connection: query.entries(connection, run_id, after, limit))

    async def history(self, run_id: str) -> list[Entry]:
        """Return the items of the run and of all it continues, oldest first.

        Raises: NotFound.
        """
        return await self._read(lambda connection: query.history(connection, run_id))

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
        self._has_forgotten = True
        return await self._write(lambda connection: retention.delete_run(connection, run_or_response_id))

    async def purge_run(self, run_id: str) -> None:
        """Forget the content of an ended run and keep its numbers.

        Raises: NotFound, Conflict.
        """
        self._has_forgotten = True
        await self._write(lambda connection: retention.purge_run(connection, run_id))

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
        return await self._write(
            lambda connection: fence.put_blob(connection, query.run_number(connection, run_id), data)
        )

    async def get_blob(self, sha256: str, offset: int, length: int) -> bytes:
        """Return a piece of a blob.

        Raises: NotFound.
        """
        return await self._read(lambda connection: query.get_blob(connection, sha256, offset, length))

    async def create_session(self, row: SessionRow) -> None:
        """Keep a new session.

        Raises: Conflict, NotFound.
        """
        texts = (bind_text(row.id), bind_text(row.name), bind_text(row.key_id))

        def job(connection: apsw.Connection) -> None:
            head = None if row.head_run_id is None else query.run_number(connection, row.head_run_id)
            select(connection, _INSERT_SESSION, *texts, row.created_at, row.updated_at, head)

        await self._write(job)

    async def find_session(self, id_or_name: str, *, key_id: str | None = None) -> SessionRow | None:
        """Return the session of that id, else the one of that name used last."""
        return await self._read(lambda connection: query.find_session(connection, id_or_name, key_id))

    async def list_sessions(self, limit: int = 50, *, key_id: str | None = None) -> list[SessionRow]:
        """Return sessions, the one used last first."""
        return await self._read(lambda connection: query.list_sessions(connection, limit, key_id))

    async def set_session_head(self, session_id: str, run_id: str, *, expected: str | None) -> None:
        """Let the session go on from `run_id`, if it still stands at `expected`.

        Raises: NotFound, Conflict.
        """
        now = self._clock()

        def job(connection: apsw.Connection) -> None:
            session = query.find_session(connection, session_id, None)
            if session is None or session.id != session_id:
                raise NotFound(f"there is no session {session_id!r}")
            if session.head_run_id != expected:
                raise Conflict(f"the session {session_id} stands at {session.head_run_id}, not at {expected}")
            head = query.run_number(connection, run_id)
            select(connection, "UPDATE sessions SET head = ?, updated_at = ? WHERE id = ?", head, now, session_id)

        await self._write(job)

    async def _write(self, job: Job[T]) -> T:
        return await self._open_writer().submit(job)

    async def _read(self, job: Job[T]) -> T:
        writer = self._open_writer()
        if not self._reading:
            return await writer.submit(job)
        return await self._off_loop(lambda: self._with_reader(job))

    def _with_reader(self, job: Job[T]) -> T:
        connection = self._idle.get()
        try:
            return job(connection)
        except apsw.Error as error:
            raise store_error(error, self._path) from None
        finally:
            self._idle.put(connection)

    async def _off_loop(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._readers, work)

    def _open_writer(self) -> Writer:
        if self._writer is None or not self._writer.is_open:
            raise StoreError(f"the store {self._path} is not open", code="store_closed")
        return self._writer

    def _connect(self) -> apsw.Connection:
        with ExitStack() as undo:
            try:
                writing = connect(self._path)
                undo.callback(writing.close)
                migrate(writing, read_migrations(), self._clock())
                for _ in range(self._reading):
                    reading = connect(self._path, query_only=True)
                    undo.callback(reading.close)
                    self._idle.put(reading)
            except apsw.Error as error:
                raise store_error(error, self._path) from None
            self._connections = undo.pop_all()
        return writing

    def _disconnect(self) -> None:
        # Reads that began before the writer closed give their connection back first.
        for _ in range(self._reading):
            self._idle.get()
        self._connections.close()


class SqliteRunJournal:
    """Fits `journal.RunJournal`."""

    def __init__(
        self, writer: Writer, clock: Callable[[], float], run_id: str, hold: fence.Hold, lease_s: float
    ) -> None:
        self._writer = writer
        self._clock = clock
        self._run_id = run_id
        self._hold = hold
        self._lease_s = lease_s

    @property
    def run_id(self) -> str:
        """Return the run this journal writes to."""
        return self._run_id

    @property
    def epoch(self) -> int:
        """Return which owner this is, counted from 1."""
        return self._hold.epoch

    async def append(self, entries: Sequence[Entry]) -> list[Entry]:
        """Make the entries durable, in order, and return them with their numbers; renew the lease.

        Raises: StoreError, Conflict, NotFound.
        """
        return await self._append(entries, None)

    async def finish(self, entries: Sequence[Entry], ended: RunEnded) -> list[Entry]:
        """Append the last entries and end the run, in one step.

        Raises: StoreError, Conflict, NotFound.
        """
        assert ended.status in ENDED, ended.status
        return await self._append(entries, ended_columns(ended))

    async def renew(self) -> None:
        """Make the lease run from now.

        Raises: StoreError, Conflict, NotFound.
        """
        await self._append((), None)

    async def release(self) -> None:
        """Give the run up, so that it can be claimed at once."""
        await self._writer.submit(lambda connection: fence.release(connection, self._hold))

    async def _append(self, entries: Sequence[Entry], end: EndColumns | None) -> list[Entry]:
        columns = [entry_columns(entry) for entry in entries]
        until = self._clock() + self._lease_s

        def job(connection: apsw.Connection) -> int:
            head = fence.append(connection, self._hold, columns, until)
            if end is not None:
                fence.end_run(connection, self._hold, end)
            return head

        first = await self._writer.submit(job) - len(entries) + 1
        return [msgspec.structs.replace(entry, seq=seq) for seq, entry in enumerate(entries, first)]
