"""Writes to a run, as jobs on a write connection: each checks owner and epoch in the statement that writes.

Entries come chained to where their writer believes the run to stand, and the same statement asks whether it does: the
lease's row decides and never memory, so that a run stays dense and chained across all writers. Here each job is done
alone; `together` does many.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import apsw

from treadle.core.errors import Conflict, NotFound, StoreError, TreadleError
from treadle.core.journal_entries import Entry
from treadle.journal.journal_interface import IDEMPOTENCY_KEY_TAKEN, LEASE_LOST, RUN_ENDED, Chunk, busy
from treadle.journal.retention import Retention
from treadle.journal.sqlite.connection import Value, run_steps, select
from treadle.journal.sqlite.row_mapping import (
    BLOB,
    DIALECT,
    RUN_FIELDS,
    Chained,
    EndColumns,
    RunColumns,
    SqliteChainHead,
    Text,
    bind_text,
    chain_entries,
)

_INSERT_RUN = """
INSERT INTO runs (id, response_id, conversation_id, previous, session_id, key_id, protocol, model, status, store,
                  background, created_at, expires_at, idempotency_key, request_sha256, question, rounds, calls, epoch)
VALUES (?, ?, ?, (SELECT n FROM runs WHERE id = ?), ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, 1)
"""
# The status of a run that ends at once is the one of its end, the seventeenth value.
_INSERT_WHOLE = """
INSERT INTO runs (id, response_id, conversation_id, previous, session_id, key_id, protocol, model, store, background,
                  created_at, expires_at, idempotency_key, request_sha256, question,
                  status, ended_at, stop, limit_name, usage, error, rounds, calls, epoch, head, sha256)
VALUES (?1, ?2, ?3, (SELECT n FROM runs WHERE id = ?4), ?5, ?6, ?7, ?8, ?10, ?11, ?12, ?13, ?14, ?15, ?16,
        ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24, 1, ?25, ?26)
"""
REQUEST = "INSERT INTO requests (run, body) VALUES (?, ?)"
LEASE = "INSERT INTO leases (run, owner, epoch, until, head, sha256, session_id) VALUES (?, ?, 1, ?, ?, ?, ?)"
EVENTS_MAX = 16
"""How many entries one statement inserts: each statement costs a turn of the interpreter's lock."""
# A newer Treadle may have added columns, so that the table's own are not counted on.
_EVENT = """
INSERT INTO events (run, seq, epoch, kind, is_input, at, name, call_id, item_id, content, data, blob, sha256,
                    fingerprint)
VALUES
"""
_EVENTS = [f"{_EVENT}{','.join(['(?,?,?,?,?,?,?,?,?,?,?,?,?,?)'] * n)}" for n in range(EVENTS_MAX + 1)]
_HELD = "run = ? AND owner = ? AND epoch = ?"
# After a restore under a living process another run may have the number. What names no hash asks for the id.
_OURS = f"{_HELD} AND (SELECT id FROM runs WHERE n = leases.run) = ?"
_STANDS = f"SELECT head, sha256 FROM leases WHERE {_OURS}"
ADVANCE = f"""
UPDATE leases SET head = ?, sha256 = ?, until = ?, changes = changes + 1 WHERE {_HELD} AND head = ? AND sha256 = ?
"""
LEAVE = f"DELETE FROM leases WHERE {_HELD} AND head = ? AND sha256 = ?"
RENEW = f"UPDATE leases SET until = ?, changes = changes + 1 WHERE {_OURS}"
_RELEASE = f"""
UPDATE leases SET owner = '', until = 0, handed = handed + 1, changes = changes + 1 WHERE {_OURS}
"""
_CANCEL = """
UPDATE leases SET cancel = 1, changes = changes + 1 WHERE run = (SELECT n FROM runs WHERE id = ?) RETURNING run
"""
COUNT_CHANGE = "UPDATE leases SET changes = changes + 1 WHERE run = $1"
DROP_CHUNKS = "DELETE FROM chunks WHERE run = ?1 AND (first + count <= ?2 OR first + count > ?3)"
END_RUN = """
UPDATE runs SET status = ?, ended_at = ?, stop = ?, limit_name = ?, usage = ?, error = ?, rounds = ?, calls = ?,
                epoch = ?, head = ?, sha256 = ?
WHERE n = ?
"""
CHUNK = "INSERT INTO chunks (run, first, count, data) VALUES (?, ?, ?, ?)"
SILENCE = "DELETE FROM chunks WHERE run = ?"
OWE = """
INSERT INTO debts (run_id, key_id, model, ended_at, usage)
SELECT id, key_id, model, ended_at, usage FROM runs WHERE n = ? AND key_id <> ''
ON CONFLICT DO NOTHING
"""
_CLAIM = """
UPDATE leases SET owner = ?1, epoch = epoch + 1, until = ?2, changes = changes + 1
WHERE run IN (
  SELECT l.run FROM leases l JOIN runs r ON r.n = l.run
  WHERE l.until <= ?3 AND (?5 IS NULL OR r.id = ?5) AND (?6 IS NULL OR r.background = ?6)
    AND r.id NOT IN (SELECT value FROM json_each(?7))
  ORDER BY l.until, l.run LIMIT ?4
)
RETURNING run, epoch, handed, head, sha256
"""
_ABANDONED = """
SELECT r.id FROM leases l JOIN runs r ON r.n = l.run
WHERE l.until <= ? AND r.id IN (SELECT value FROM json_each(?)) ORDER BY l.until, l.run
"""
_THERE = "SELECT sha256 FROM blobs WHERE sha256 IN (SELECT value FROM json_each(?))"
_USE = "INSERT INTO blob_uses (run, blob) SELECT ?1, value FROM json_each(?2) WHERE true ON CONFLICT DO NOTHING"
_BUSY = "SELECT 1 FROM leases WHERE session_id = ?"


_RETENTION = Retention(DIALECT)


class SqliteHold(NamedTuple):
    """Who writes to which run: the run's number, the owner, the owner's epoch, and the run's id.

    `handed` is how often earlier owners gave it up of their own will, `key_id` whom it is charged to.
    """

    run: int
    owner: str
    epoch: int
    run_id: str
    handed: int = 0
    key_id: str = ""

    @property
    def fence(self) -> tuple[Value, ...]:
        """Return what a lease, and the run it is of, must match."""
        return (*self[:3], bind_text(self.run_id))


Claimed = tuple[tuple[Any, ...], SqliteHold, SqliteChainHead]


class RunStart(NamedTuple):
    """The job that begins a run: its row, its request, its lease and its input, chained from the first number on.

    With an end the run is over at once: then it is all that is ever written of it, and it needs no lease. What is to
    be forgotten then is gone with the same commit.
    Raises: NotFound, Conflict.
    """

    columns: RunColumns
    body: str | bytes | None
    owner: str
    until: float
    chained: Chained
    end: EndColumns | None = None
    forget: tuple[str, ...] = ()

    def __call__(self, connection: apsw.Connection) -> SqliteHold:
        """Do it alone."""
        hold = self.insert(connection)
        if self.body is not None:
            connection.execute(REQUEST, (hold.run, self.body))
        if self.end is None:
            connection.execute(LEASE, self.lease(hold.run))
        write_events(connection, placed(connection, hold.run, self.chained))
        if self.end is not None and hold.key_id:
            connection.execute(OWE, (hold.run,))
        purge_ended(connection, self.forget)
        return hold

    def insert(self, connection: apsw.Connection) -> SqliteHold:
        """Insert the run's row; nothing can be written to it until it has a lease."""
        columns = self.columns
        if columns.idempotency_key is not None:
            _check_idempotency(connection, columns)
        if columns.previous_id is not None:
            _check_previous(connection, columns)
        if columns.session_id is not None and select(connection, _BUSY, columns.session_id):
            raise busy(str(columns.session_id))
        if self.end is None:
            connection.execute(_INSERT_RUN, columns)
        else:
            connection.execute(_INSERT_WHOLE, (*columns, *self.end, *self.chained.place))
        # What is not plain text the schema has refused by now.
        return SqliteHold(connection.last_insert_rowid(), self.owner, 1, str(columns.id), 0, str(columns.key_id))

    def lease(self, run: int) -> tuple[Value, ...]:
        """Return the values of the run's lease."""
        return (run, self.owner, self.until, *self.chained.place, self.columns.session_id)


class Append(NamedTuple):
    """The job that writes to a run, chained to where it is believed to stand; with an end, the run ends.

    What there is to `forget` is purged with the end, so no run that has ended ever holds it. It gives the place where
    the run stands then.
    Raises: StoreError (lease lost), Conflict (the run has ended), NotFound (it was deleted).
    """

    hold: SqliteHold
    entries: Sequence[Entry]
    place: SqliteChainHead
    chained: Chained
    until: float
    end: EndColumns | None = None
    has_chunks: bool = False
    forget: tuple[str, ...] = ()

    def __call__(self, connection: apsw.Connection) -> SqliteChainHead:
        """Do it alone, and where the run stands elsewhere, from there."""
        move, where = (ADVANCE, self.move()) if self.end is None else (LEAVE, self.leave())
        connection.execute(move, where)
        if connection.changes() != 1:
            return self._from(_stand(connection, self.hold))(connection)
        write_events(connection, placed(connection, self.hold.run, self.chained))
        if self.end is not None:
            connection.execute(END_RUN, self.ending(self.end))
            if self.hold.key_id:
                connection.execute(OWE, (self.hold.run,))
            if self.has_chunks:
                connection.execute(SILENCE, (self.hold.run,))
        purge_ended(connection, self.forget)
        return self.chained.place

    def _from(self, place: SqliteChainHead) -> "Append":
        hold = self.hold
        chained = chain_entries(self.entries, hold.run_id, hold.epoch, place)
        return self._replace(place=place, chained=chained)

    def move(self) -> tuple[Value, ...]:
        """Return the values of the statement that moves the lease on."""
        return (*self.chained.place, self.until, *self.hold[:3], *self.place)

    def leave(self) -> tuple[Value, ...]:
        """Return the values of the statement that takes the lease away: without one, nothing can be written."""
        return (*self.hold[:3], *self.place)

    def ending(self, end: EndColumns) -> tuple[Value, ...]:
        """Return the values of the statement that gives the run its end."""
        return (*end, self.hold.epoch, *self.chained.place, self.hold.run)


class ChunkJob(NamedTuple):
    """The job that renews a lease and stores the events that its run publishes, replacing those from that number on.

    Raises: as `Append`.
    """

    hold: SqliteHold
    chunk: Chunk
    keep_from: int
    until: float

    def __call__(self, connection: apsw.Connection) -> None:
        """Do it alone."""
        connection.execute(RENEW, self.renewal())
        if not connection.changes():
            raise _lost(connection, self.hold)
        connection.execute(DROP_CHUNKS, self.dropped())
        connection.execute(CHUNK, self.row())

    def renewal(self) -> tuple[Value, ...]:
        """Return the values of the statement that renews the lease."""
        return (self.until, *self.hold.fence)

    def dropped(self) -> tuple[Value, ...]:
        """Return the values of the statement that drops what is not needed any more."""
        return (self.hold.run, self.keep_from, self.chunk.first)

    def row(self) -> tuple[Value, ...]:
        """Return the chunk as the values of its insert."""
        chunk = self.chunk
        return (self.hold.run, chunk.first, chunk.count, chunk.data)


def release(connection: apsw.Connection, hold: SqliteHold) -> None:
    """Leave the run without an owner and its lease ended."""
    select(connection, _RELEASE, *hold.fence)


def request_cancel(connection: apsw.Connection, run_id: Text) -> bool:
    """Mark a run for the owner of it; False if it has ended or is not there."""
    return bool(select(connection, _CANCEL, run_id))


def end_leases(connection: apsw.Connection) -> None:
    """End every lease: for a process that is alone, and so knows that all owners are dead."""
    select(connection, "UPDATE leases SET owner = '', until = 0, changes = changes + 1")
    select(connection, "DELETE FROM replicas")


def end_leases_of(connection: apsw.Connection, owner: str) -> list[str]:
    """End the leases of a dead owner and return the runs that it had."""
    select(connection, "DELETE FROM replicas WHERE owner = ?", owner)
    sql = "UPDATE leases SET owner = '', until = 0, changes = changes + 1 WHERE owner = ? RETURNING run"
    ended = [run for (run,) in select(connection, sql, owner)]
    return [select(connection, "SELECT id FROM runs WHERE n = ?", run)[0][0] for run in ended]


class SqliteWanted(NamedTuple):
    """Which abandoned runs are taken: how many, one of them, those in the background or not, and besides which (a list
    of ids as JSON)."""

    limit: int
    run_id: Text = None
    background: bool | None = None
    besides: str = "[]"


def claim(connection: apsw.Connection, owner: str, now: float, until: float, wanted: SqliteWanted) -> list[Claimed]:
    """Take the runs whose lease ended, each under a new epoch, and return their RUN_FIELDS with it."""
    taken = sorted(select(connection, _CLAIM, owner, until, now, *wanted))
    sql = f"SELECT {RUN_FIELDS} FROM runs r WHERE r.n = ?"
    found = [(select(connection, sql, run)[0], run, *rest) for run, *rest in taken]
    return [
        (values, SqliteHold(run, owner, epoch, values[0], handed, values[5]), SqliteChainHead(head, sha256))
        for values, run, epoch, handed, head, sha256 in found
    ]


def abandoned(connection: apsw.Connection, run_ids: Sequence[str], now: float) -> list[str]:
    """Return those of the runs whose lease has ended, longest abandoned first."""
    return [run_id for (run_id,) in select(connection, _ABANDONED, now, json.dumps([*run_ids]))]


def put_blobs(connection: apsw.Connection, run: int, datas: Iterable[bytes | memoryview]) -> list[str]:
    """Store pieces of data for a run, each once however often it comes, and return their sha256s."""
    named = [(hashlib.sha256(data).hexdigest(), data) for data in datas]
    names = [name for name, _ in named]
    asked = json.dumps(names)
    # Of a conversation that comes again most are there, and then their bytes need not be handed over.
    there = {name for (name,) in select(connection, _THERE, asked)}
    missing = {name: data for name, data in named if name not in there}
    if missing:
        connection.executemany("INSERT INTO blobs (sha256, data) VALUES (?, ?)", missing.items())
    connection.execute(_USE, (run, asked))
    return names


def placed(connection: apsw.Connection, run: int, chained: Chained) -> list[tuple[Value, ...]]:
    """Return the rows of a run, with the names of the blobs to which large data went."""
    rows, large = chained.rows, chained.large
    if large:
        rows = list(rows)
        for index, name in zip(large, put_blobs(connection, run, large.values()), strict=True):
            rows[index] = (*rows[index][:BLOB], name, *rows[index][BLOB + 1 :])
    return [*map((run,).__add__, rows)]


def write_events(connection: apsw.Connection, rows: list[tuple[Value, ...]]) -> None:
    """Insert entries, by as few statements as it takes."""
    for start in range(0, len(rows), EVENTS_MAX):
        some = rows[start : start + EVENTS_MAX]
        connection.execute(_EVENTS[len(some)], [*chain.from_iterable(some)])


def purge_ended(connection: apsw.Connection, run_ids: Sequence[str]) -> None:
    """Forget the content of those of the runs that have ended and are still there."""
    if run_ids:
        run_steps(partial(_RETENTION.purge_ended, run_ids), connection)


def _stand(connection: apsw.Connection, hold: SqliteHold) -> SqliteChainHead:
    """Return where a run stands that is held.

    Raises: as `Append`.
    """
    found = select(connection, _STANDS, *hold.fence)
    if not found:
        raise _lost(connection, hold)
    return SqliteChainHead(*found[0])


def _check_previous(connection: apsw.Connection, columns: RunColumns) -> None:
    found = select(connection, "SELECT conversation_id FROM runs WHERE id = ?", columns.previous_id)
    if not found:
        raise NotFound(f"there is no run {columns.previous_id!r} to continue")
    if found[0][0] != columns.conversation_id:
        raise Conflict(f"the run {columns.previous_id!r} belongs to another conversation")


def _check_idempotency(connection: apsw.Connection, columns: RunColumns) -> None:
    sql = "SELECT id FROM runs WHERE key_id = ? AND idempotency_key = ?"
    for (run_id,) in select(connection, sql, columns.key_id, columns.idempotency_key):
        raise Conflict(f"the idempotency key belongs to the run {run_id}", code=IDEMPOTENCY_KEY_TAKEN)


def _lost(connection: apsw.Connection, hold: SqliteHold) -> TreadleError:
    sql = "SELECT ended_at, epoch FROM runs WHERE n = ? AND id = ?"
    found = select(connection, sql, hold.run, bind_text(hold.run_id))
    if not found:
        return NotFound("the run was deleted")
    ended_at, epoch = found[0]
    if ended_at is not None and epoch == hold.epoch:
        return Conflict("the run has ended", code=RUN_ENDED)
    return StoreError("another owner has taken the run over", code=LEASE_LOST)
