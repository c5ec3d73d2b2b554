"""Migrations: applied once, in order, and refused where they do not fit."""

import hashlib
from pathlib import Path

import apsw
import pytest

from treadle.core.errors import StoreError
from treadle.core.events import RunEnded
from treadle.core.journal_entries import Entry
from treadle.journal.hash_chain import entry_hash
from treadle.journal.sqlite.connection import connect, select
from treadle.journal.sqlite.migrations import Migration, migrate, read_migrations
from treadle.journal.sqlite.store import SqliteStore

ONE = Migration(version=1, sql="CREATE TABLE one (n INTEGER) STRICT; INSERT INTO one VALUES (1);")
TWO = Migration(version=2, sql="CREATE TABLE two (n INTEGER) STRICT; INSERT INTO two SELECT n + 1 FROM one;")


@pytest.fixture
def connection(tmp_path: Path) -> apsw.Connection:
    """An empty database."""
    return connect(str(tmp_path / "m.db"))


def test_our_own_migrations_are_numbered_from_one_without_a_gap() -> None:
    """The files' numbers are their places."""
    assert [step.version for step in read_migrations()] == list(range(1, len(read_migrations()) + 1))


def test_a_migration_is_known_by_the_hash_of_its_text() -> None:
    """Line endings do not count, because the file is read as text."""
    assert ONE.sha256 == hashlib.sha256(ONE.sql.encode()).hexdigest()
    assert all("\r" not in step.sql for step in read_migrations())


def test_all_statements_of_all_steps_are_applied_and_remembered(connection: apsw.Connection) -> None:
    """Each step with its hash and the time it was applied."""
    migrate(connection, [ONE, TWO], 7.5)
    assert select(connection, "SELECT n FROM two") == [(2,)]
    ledger = select(connection, "SELECT version, sha256, applied_at FROM schema_migrations")
    assert ledger == [(1, ONE.sha256, 7.5), (2, TWO.sha256, 7.5)]


def test_only_what_is_missing_is_applied(connection: apsw.Connection) -> None:
    """An older database is brought up to date; doing it again changes nothing."""
    migrate(connection, [ONE], 1.0)
    migrate(connection, [ONE, TWO], 2.0)
    migrate(connection, [ONE, TWO], 3.0)
    assert select(connection, "SELECT version, applied_at FROM schema_migrations") == [(1, 1.0), (2, 2.0)]
    assert select(connection, "SELECT n FROM one") == [(1,)]


def test_a_step_that_fails_leaves_the_database_as_it_was(connection: apsw.Connection) -> None:
    """All steps are one transaction."""
    broken = Migration(version=2, sql="CREATE TABLE two (n INTEGER) STRICT; INSERT INTO nowhere VALUES (1);")
    with pytest.raises(apsw.SQLError):
        migrate(connection, [ONE, broken], 1.0)
    assert select(connection, "SELECT name FROM sqlite_schema") == []
    migrate(connection, [ONE, TWO], 1.0)


def test_a_newer_database_is_refused(connection: apsw.Connection) -> None:
    """It says both versions, the file, and what to do."""
    migrate(connection, [ONE, TWO], 1.0)
    with pytest.raises(StoreError, match=r"m\.db has schema version 2, this Treadle knows up to 1") as caught:
        migrate(connection, [ONE], 2.0)
    assert (caught.value.info.code, "newer Treadle" in str(caught.value.hint)) == ("store_too_new", True)


def test_a_changed_migration_is_refused(connection: apsw.Connection) -> None:
    """The database was made by another text of the same number."""
    migrate(connection, [ONE], 1.0)
    with pytest.raises(StoreError, match="another text of schema version 1") as caught:
        migrate(connection, [Migration(version=1, sql=ONE.sql + " "), TWO], 2.0)
    assert caught.value.info.code == "store_schema_changed"
    assert select(connection, "SELECT version FROM schema_migrations") == [(1,)]


def test_the_database_of_another_program_is_refused(connection: apsw.Connection) -> None:
    """Nothing is added to tables that are not ours."""
    connection.execute("CREATE TABLE bookmarks (url TEXT)")
    with pytest.raises(StoreError, match=r"another program.*bookmarks") as caught:
        migrate(connection, [ONE], 1.0)
    assert caught.value.info.code == "store_foreign"
    assert select(connection, "SELECT name FROM sqlite_schema") == [("bookmarks",)]


def test_a_database_of_the_first_version_is_carried_over(connection: apsw.Connection) -> None:
    """Its plans are found by fingerprint, its ended runs know their last number, and no entry is chained."""
    first, *rest = read_migrations()
    migrate(connection, [first], 1.0)
    for n, ended_at in ((1, 5.0), (2, None)):
        select(
            connection,
            "INSERT INTO runs (n, id, response_id, conversation_id, key_id, protocol, model, status, store, background,"
            " created_at, ended_at, rounds, calls, epoch)"
            " VALUES (?1, 'run_' || ?1, 'resp_' || ?1, 'c', '', 'chat', 'demo', 'running', 1, 0, 1.0, ?2, 0, 0, 1)",
            n,
            ended_at,
        )
    select(connection, "INSERT INTO leases VALUES (2, 'owner', 1, 9.0, 3)")
    select(connection, "INSERT INTO sessions VALUES (1, 'sess_1', 'work', '', 1.0, 1.0, NULL)")
    data = ['{"fingerprint":"f1"}', "not json", None]
    for n in (1, 2):
        for seq, value in enumerate(data, 1):
            sql = "INSERT INTO events (run, seq, epoch, kind, is_input, at, data) VALUES (?, ?, 1, 'plan', 0, 1.0, ?)"
            select(connection, sql, n, seq, value)
    migrate(connection, [first, *rest], 2.0)
    prints = select(connection, "SELECT fingerprint, sha256 FROM events WHERE run = 1 ORDER BY seq")
    assert prints == [("f1", None), (None, None), (None, None)]
    assert select(connection, "SELECT head, sha256, idempotency_key, request_sha256 FROM runs ORDER BY n") == [
        (3, "", None, ""),
        (0, "", None, ""),
    ]
    assert select(connection, "SELECT sha256, cancel, changes FROM leases") == [("", 0, 0)]
    assert select(connection, "SELECT kind, metadata FROM sessions") == [("session", None)]


async def test_a_run_from_before_the_chain_goes_on_in_it(tmp_path: Path) -> None:
    """Its old entries are reported as unchained, the new ones are chained, and the old run can end."""
    path = str(tmp_path / "old.db")
    old = connect(path)
    migrate(old, read_migrations()[:1], 1.0)
    select(
        old,
        "INSERT INTO runs (n, id, response_id, conversation_id, key_id, protocol, model, status, store, background,"
        " created_at, rounds, calls, epoch)"
        " VALUES (1, 'run_1', 'resp_1', 'c', '', 'chat', 'demo', 'running', 1, 0, 1.0, 0, 0, 1)",
    )
    select(old, "INSERT INTO leases VALUES (1, 'gone', 1, 0.0, 1)")
    select(
        old, "INSERT INTO events (run, seq, epoch, kind, is_input, at, content) VALUES (1, 1, 1, 'user', 1, 1.0, 'hi')"
    )
    old.close()
    store = SqliteStore(path)
    await store.open()
    [(row, journal)] = await store.claim_abandoned("owner", 15.0, 1)
    assert (row.id, row.request_sha256, row.idempotency_key) == ("run_1", "", None)
    entry = Entry(kind="assistant", at=2.0, content="hello")
    await journal.finish([entry], RunEnded(status="completed", ended_at=3.0))
    sha256 = entry_hash("", "run_1", 2, 2, entry)
    lines = [(line.seq, line.sha256, line.expected) for line in await store.audit("run_1")]
    assert lines == [(1, "", ""), (2, sha256, sha256)]
    await store.close()


def test_the_first_migration_is_never_changed() -> None:
    """Databases in the field remember its hash."""
    assert read_migrations()[0].sha256 == "01d0dcc3325ff1e10dd88960fed2854c22b1c4d25049909f2c5228606877f2a5"
