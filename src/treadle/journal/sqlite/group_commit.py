"""Many writes as one on SQLite: the jobs of a batch that write to runs are done by the same few statements.

Where these do not find what they expect, nothing of the batch counts, and its jobs are done one by one.
"""

from collections.abc import Callable, Sequence
from typing import Any

import apsw

from treadle.journal.sqlite.connection import Value
from treadle.journal.sqlite.leased_writes import (
    ADVANCE,
    CHUNK,
    DROP_CHUNKS,
    END_RUN,
    LEASE,
    LEAVE,
    OWE,
    RENEW,
    REQUEST,
    SILENCE,
    Append,
    ChunkJob,
    RunStart,
    SqliteHold,
    placed,
    write_events,
)


class Unsure(Exception):
    """Some of the writes that were done together did not find what they expected."""


def write_together(connection: apsw.Connection, jobs: Sequence[Callable[[apsw.Connection], Any]]) -> list[Any]:
    """Do many jobs by few statements, and return their values in order; all must be undone if it raises.

    Those that write to runs come first: they were all asked for before any of them was done.
    Raises: Unsure, what the jobs raise, apsw.Error.
    """
    values: list[Any] = [None] * len(jobs)
    others: list[int] = []
    batch = _Batch()
    for index, job in enumerate(jobs):
        if isinstance(job, Append | RunStart) and job.forget:
            others.append(index)
        elif isinstance(job, Append):
            batch.append(connection, job)
            values[index] = job.chained.place
        elif isinstance(job, RunStart):
            values[index] = batch.start(connection, job)
        elif isinstance(job, ChunkJob):
            batch.add_chunk(job)
        else:
            others.append(index)
    batch.write(connection)
    for index in others:
        values[index] = jobs[index](connection)
    return values


class _Batch:
    """The values of the statements by which many writes are done; in the order of the statements."""

    def __init__(self) -> None:
        self._requests: list[tuple[Value, ...]] = []
        self._leases: list[tuple[Value, ...]] = []
        self._moves: list[tuple[Value, ...]] = []
        self._leaves: list[tuple[Value, ...]] = []
        self._events: list[tuple[Value, ...]] = []
        self._ends: list[tuple[Value, ...]] = []
        self._owed: list[tuple[Value, ...]] = []
        self._silent: list[tuple[Value, ...]] = []
        self._chunk_writes: list[ChunkJob] = []

    def start(self, connection: apsw.Connection, job: RunStart) -> SqliteHold:
        """Insert a run's row, which gives it its number, and take the rest of it in."""
        hold = job.insert(connection)
        if job.body is not None:
            self._requests.append((hold.run, job.body))
        if job.end is None:
            self._leases.append(job.lease(hold.run))
        elif hold.key_id:
            self._owed.append((hold.run,))
        self._events += placed(connection, hold.run, job.chained)
        return hold

    def append(self, connection: apsw.Connection, job: Append) -> None:
        """Take a write in."""
        if job.end is None:
            self._moves.append(job.move())
        else:
            self._leaves.append(job.leave())
            self._ends.append(job.ending(job.end))
            if job.hold.key_id:
                self._owed.append((job.hold.run,))
            if job.has_chunks:
                self._silent.append((job.hold.run,))
        self._events += placed(connection, job.hold.run, job.chained)

    def add_chunk(self, job: ChunkJob) -> None:
        """Take in what a run publishes."""
        self._chunk_writes.append(job)

    def write(self, connection: apsw.Connection) -> None:
        """Write all that was taken in.

        Raises: Unsure, where a run is not held, or stands elsewhere.
        """
        _write_all(connection, REQUEST, self._requests)
        _write_all(connection, LEASE, self._leases)
        before = connection.total_changes()
        _write_all(connection, ADVANCE, self._moves)
        _write_all(connection, LEAVE, self._leaves)
        _write_all(connection, RENEW, [job.renewal() for job in self._chunk_writes])
        if connection.total_changes() - before != len(self._moves) + len(self._leaves) + len(self._chunk_writes):
            raise Unsure
        write_events(connection, self._events)
        _write_all(connection, END_RUN, self._ends)
        _write_all(connection, OWE, self._owed)
        _write_all(connection, SILENCE, self._silent)
        _write_all(connection, DROP_CHUNKS, [job.dropped() for job in self._chunk_writes])
        _write_all(connection, CHUNK, [job.row() for job in self._chunk_writes])


def _write_all(connection: apsw.Connection, sql: str, values: list[tuple[Value, ...]]) -> None:
    if values:
        connection.executemany(sql, values)
