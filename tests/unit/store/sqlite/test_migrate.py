"""Migrations: applied once, in order, and refused where they do not fit."""

import hashlib
from pathlib import Path

import apsw
import pytest

from treadle.canon.errors import StoreError
from treadle.store.sqlite.connection import connect, select
from treadle.store.sqlite.migrate import Migration, migrate, read_migrations

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
