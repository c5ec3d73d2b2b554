"""Connections: their settings, and what is said when one cannot be had."""

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import apsw
import pytest

from treadle.core.errors import STORE_MESSAGES, StoreError
from treadle.journal.sqlite.connection import MEMORY, connect, constraint_error, select, store_error


def test_a_connection_has_the_settings_the_promises_rest_on(tmp_path: Path) -> None:
    """A write-ahead log that is synced at every commit, foreign keys, overwriting deletes."""
    connection = connect(str(tmp_path / "a.db"))
    names = ("journal_mode", "synchronous", "foreign_keys", "secure_delete", "busy_timeout")
    assert [connection.pragma(name) for name in names] == ["wal", 2, 1, 1, 10_000]
    connection.close()


def test_a_new_file_and_its_folder_are_private(tmp_path: Path) -> None:
    """Conversations are readable by their owner only, the write-ahead log included."""
    path = tmp_path / "new" / "folder" / "a.db"
    connection = connect(str(path))
    connection.execute("CREATE TABLE t (n)")
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    assert modes == {"a.db": 0o600, "a.db-wal": 0o600, "a.db-shm": 0o600}
    connection.close()


def test_a_reading_connection_cannot_write(tmp_path: Path) -> None:
    """A mistake in a query cannot go round the writer."""
    path = str(tmp_path / "a.db")
    connect(path).execute("CREATE TABLE t (n)")
    reading = connect(path, query_only=True)
    with pytest.raises(apsw.ReadOnlyError):
        reading.execute("INSERT INTO t VALUES (1)")


def test_memory_is_a_database_without_a_file() -> None:
    """Each one is its own."""
    connection = connect(MEMORY)
    connection.execute("CREATE TABLE t (n)")
    assert select(connect(MEMORY), "SELECT name FROM sqlite_schema") == []
    assert not Path(MEMORY).exists()


@pytest.mark.parametrize("place", ["a folder", "below a file"])
def test_a_place_that_cannot_hold_a_file_is_named(tmp_path: Path, place: str) -> None:
    """The error has the path, the reason and a hint."""
    (tmp_path / "file").write_text("")
    path = tmp_path if place == "a folder" else tmp_path / "file" / "a.db"
    with pytest.raises(StoreError, match=str(path)) as caught:
        connect(str(path))
    assert caught.value.info.code == "store_cannot_open"
    assert "permissions" in str(caught.value.hint)


READ_ONLY = """
import os, sys
from treadle.core.errors import StoreError
from treadle.journal.sqlite.connection import connect
if os.getuid() == 0:
    os.setuid(65534)
try:
    connect(sys.argv[1])
except StoreError as error:
    print(error.info.code, error.message)
"""


def test_a_read_only_folder_is_named() -> None:
    """As a user who may not write there, also when the tests are run by root."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o555)
        path = f"{folder}/a.db"
        done = subprocess.run([sys.executable, "-c", READ_ONLY, path], capture_output=True, text=True, check=False)
        os.chmod(folder, 0o755)
    assert done.stderr == ""
    assert done.stdout.startswith(f"store_cannot_open the store {path}: it cannot be opened for writing (")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (apsw.FullError("x"), "store_full"),
        (apsw.BusyError("x"), "store_busy"),
        (apsw.CorruptError("x"), "store_corrupt"),
        (apsw.NotADBError("x"), "store_not_a_database"),
        (apsw.IOError("x"), "store_io"),
        (apsw.SQLError("x"), "store_unavailable"),
    ],
)
def test_failures_have_a_code_the_path_and_a_hint(error: apsw.Error, code: str) -> None:
    """Every failure of SQLite is a 503; operators are told where and what to do, clients neither."""
    found = store_error(error, "some.db")
    lasts = code in ("store_corrupt", "store_not_a_database")
    assert (found.info.code, found.info.status, found.info.retryable) == (code, 503, not lasts)
    assert "some.db" in found.message
    assert found.hint
    assert found.info.message == STORE_MESSAGES[code]
    assert "some.db" not in str(found.info)


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("INSERT INTO t VALUES (1, 'a', NULL)", "conflict"),
        ("INSERT INTO t VALUES (2, x'ff', NULL)", "invalid_value"),
        ("INSERT INTO t VALUES (2, NULL, NULL)", "invalid_value"),
        ("INSERT INTO t VALUES (2, 'a', 9)", "not_found"),
    ],
)
def test_broken_rules_become_errors_for_the_caller(sql: str, code: str) -> None:
    """A taken key is a conflict, bytes for text a wrong value, a missing parent not found."""
    connection = connect(MEMORY)
    connection.execute("CREATE TABLE t (n INTEGER PRIMARY KEY, a TEXT NOT NULL, p INTEGER REFERENCES t (n)) STRICT")
    connection.execute("INSERT INTO t VALUES (1, 'a', NULL)")
    with pytest.raises(apsw.ConstraintError) as caught:
        select(connection, sql)
    assert constraint_error(caught.value).info.code == code


@pytest.mark.parametrize(
    ("text", "folded", "holds"),
    [
        ("The Weather", "weather", 1),
        ("ПОГОДА", "погода", 1),
        ("STRASSE", "straße".casefold(), 1),
        ("a%b", "a_b", 0),
        ("a\x00Needle", "needle", 1),
        (b"half \xed\xa0\xbd", b"half \xed\xa0\xbd", 1),
        (b"half \xed\xa0\xbd", "half", 1),
        ("half", b"half \xed\xa0\xbd", 0),
        (None, "a", 0),
        ("", "", 1),
    ],
)
def test_a_text_is_searched_without_regard_to_case(text: str | bytes | None, folded: str | bytes, holds: int) -> None:
    """In every script, with NUL, and where it is not Unicode; nothing stands for anything else."""
    assert select(connect(MEMORY), "SELECT holds(?, ?)", text, folded) == [(holds,)]
