"""Many writes as one on SQLite: the same outcome as one by one, by fewer statements, and all or nothing."""

from collections.abc import Iterator
from typing import Any

import apsw
import msgspec
import pytest

from treadle.core.errors import Conflict
from treadle.core.events import RunEnded
from treadle.core.journal_entries import Entry
from treadle.journal.journal_interface import INLINE_BYTES_MAX, Chunk, RunRow
from treadle.journal.sqlite import audit_rows as evidence
from treadle.journal.sqlite.connection import MEMORY, connect, select
from treadle.journal.sqlite.group_commit import Unsure, write_together
from treadle.journal.sqlite.leased_writes import (
    _EVENTS,
    ADVANCE,
    EVENTS_MAX,
    Append,
    ChunkJob,
    RunStart,
    SqliteHold,
    claim,
)
from treadle.journal.sqlite.leased_writes import SqliteWanted as Claims
from treadle.journal.sqlite.migrations import migrate, read_migrations
from treadle.journal.sqlite.row_mapping import SqliteChainHead, chain_entries, ended_columns, run_columns

END = ended_columns(RunEnded(status="completed", stop="done", ended_at=9.0, rounds=1))
LARGE = msgspec.Raw(b'"' + b"x" * INLINE_BYTES_MAX + b'"')


@pytest.fixture
def connection() -> Iterator[apsw.Connection]:
    """An empty journal, in a transaction."""
    opened = connect(MEMORY)
    migrate(opened, read_migrations(), 1.0)
    opened.execute("BEGIN IMMEDIATE")
    yield opened
    opened.close()


def note(text: str, **fields: Any) -> Entry:
    """An entry."""
    return Entry(kind="note", at=1.0, content=text, **fields)


def start(name: str, *entries: Entry, **fields: Any) -> RunStart:
    """A job that begins a run called `name`."""
    row = RunRow(
        id=f"run_{name}",
        response_id=f"resp_{name}",
        conversation_id=f"conv_{name}",
        protocol="chat",
        model="demo",
        created_at=1.0,
        **fields,
    )
    return RunStart(
        run_columns(row, entries), '{"a":1}', "me", 20.0, chain_entries(entries, row.id, 1, SqliteChainHead())
    )


def append(hold: SqliteHold, place: SqliteChainHead, *entries: Entry, **fields: Any) -> Append:
    """A job that writes to a run which is believed to stand at `place`."""
    chained = chain_entries(entries, hold.run_id, hold.epoch, place)
    return Append(hold, entries, place, chained, 30.0, **fields)


def rows(connection: apsw.Connection, table: str) -> list[tuple[Any, ...]]:
    """Return all of a table."""
    return select(connection, f"SELECT * FROM {table} ORDER BY 1, 2")


TABLES = ("runs", "requests", "leases", "events", "blobs", "blob_uses", "debts", "chunks")


def jobs_of(connection: apsw.Connection) -> list[Any]:
    """Begin three runs and return jobs that write to them, end one, begin a fourth, count, and tell."""
    first, second, third = (start(name, note(f"in {name}"), key_id="key_1") for name in ("1", "2", "3"))
    holds = [job(connection) for job in (first, second, third)]
    for hold in (holds[1], holds[2]):
        ChunkJob(hold, Chunk(first=1, count=1, data=b"[1]"), 1, 20.0)(connection)
    on = append(holds[0], first.chained.place, note("on"), note("large", data=LARGE))
    return [
        on,
        append(holds[1], second.chained.place, note("last"), end=END, has_chunks=True),
        lambda each: select(each, "SELECT count(*) FROM events")[0][0],
        append(holds[0], on.chained.place, note("further")),
        append(holds[2], third.chained.place),
        start("4", note("in 4")),
        ChunkJob(holds[0], Chunk(first=1, count=2, data=b"[1,2]"), 1, 40.0),
        ChunkJob(holds[2], Chunk(first=2, count=1, data=b"[2]"), 2, 40.0),
    ]


def test_together_is_as_one_by_one(connection: apsw.Connection) -> None:
    """Every table holds the same, and every job gives the same, but for what was counted in between."""
    jobs = jobs_of(connection)
    connection.execute("SAVEPOINT begun")
    alone = [job(connection) for job in jobs]
    expected = {table: rows(connection, table) for table in TABLES}
    connection.execute("ROLLBACK TO begun")
    together = write_together(connection, jobs)
    assert {table: rows(connection, table) for table in TABLES} == expected
    assert [*together[:2], *together[3:]] == [*alone[:2], *alone[3:]]
    assert together[2] == len(expected["events"])
    for name in ("1", "2", "3", "4"):
        assert all(line.sha256 == line.expected for line in evidence.collect(connection, f"run_{name}").lines)


def test_many_appends_are_few_statements(connection: apsw.Connection) -> None:
    """However many runs they are of: one for all leases, told once for every row, and one for many entries."""
    starts = [start(str(number)) for number in range(20)]
    holds = write_together(connection, starts)
    seen: list[str] = []
    connection.set_exec_trace(lambda _, sql, __: seen.append(sql) or True)
    write_together(connection, [append(hold, SqliteChainHead(), note("on")) for hold in holds])
    connection.set_exec_trace(None)
    assert seen == [ADVANCE] * 20 + [_EVENTS[EVENTS_MAX], _EVENTS[20 - EVENTS_MAX]]
    assert rows(connection, "events")[-1][:2] == (20, 1)


@pytest.mark.parametrize("ends", [False, True])
def test_a_run_that_stands_elsewhere_makes_a_batch_unsure(connection: apsw.Connection, ends: bool) -> None:
    """Nobody can tell which of them it was; alone it is written behind what is there."""
    first, second = start("1"), start("2")
    holds = [first(connection), second(connection)]
    append(holds[1], SqliteChainHead(), note("unknown to its writer"))(connection)
    late = append(holds[1], SqliteChainHead(), note("late"), end=END if ends else None)
    connection.execute("SAVEPOINT begun")
    with pytest.raises(Unsure):
        write_together(connection, [append(holds[0], SqliteChainHead(), note("on")), late])
    connection.execute("ROLLBACK TO begun")
    assert late(connection).head == 2
    assert [*select(connection, "SELECT content FROM events WHERE run = 2 ORDER BY seq")] == [
        ("unknown to its writer",),
        ("late",),
    ]
    assert all(line.sha256 == line.expected for line in evidence.collect(connection, "run_2").lines)


def test_a_lost_lease_makes_a_batch_unsure(connection: apsw.Connection) -> None:
    """The fence is part of the statements that many share."""
    first, second = start("1"), start("2")
    holds = [first(connection), second(connection)]
    claim(connection, "other", 50.0, 60.0, Claims(1, "run_2"))
    with pytest.raises(Unsure):
        write_together(connection, [append(hold, SqliteChainHead(), note("on")) for hold in holds])
    with pytest.raises(Unsure):
        write_together(connection, [ChunkJob(hold, Chunk(first=1, count=1, data=b"[1]"), 1, 40.0) for hold in holds])


def test_what_a_job_raises_comes_through(connection: apsw.Connection) -> None:
    """A broken rule of the schema, and one that is checked before."""
    write_together(connection, [start("1", idempotency_key="a")])
    with pytest.raises(apsw.ConstraintError):
        write_together(connection, [start("2"), start("2")])
    with pytest.raises(Conflict, match="idempotency key"):
        write_together(connection, [start("3"), start("4", idempotency_key="a")])
