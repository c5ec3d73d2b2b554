"""Looking at a database: told what is there, and nothing is changed."""

from pathlib import Path

import apsw
import pytest

from treadle.core.errors import StoreError
from treadle.journal.open_store import JournalInspection, skew_s
from treadle.journal.sqlite.connection import connect
from treadle.journal.sqlite.migrations import inspect_file, migrate, read_migrations


def made(path: Path, steps: int | None = None) -> str:
    """Make a journal of so many steps and return where it is."""
    connection = connect(str(path))
    migrate(connection, read_migrations()[:steps], 1.0)
    connection.close()
    return str(path)


def test_the_version_is_told(tmp_path: Path) -> None:
    """Of a new one, of an older one, and of an empty file."""
    newest = len(read_migrations())
    assert inspect_file(made(tmp_path / "a.db")).state == f"at version {newest}"
    old = inspect_file(made(tmp_path / "b.db", 2))
    assert (old.version, old.newest, old.state) == (2, newest, "will be migrated")
    (tmp_path / "c.db").touch()
    assert inspect_file(str(tmp_path / "c.db")).state == "will be made"


def test_a_file_that_is_missing_or_damaged_is_an_error(tmp_path: Path) -> None:
    """It is not made."""
    with pytest.raises(StoreError, match="cannot be opened"):
        inspect_file(str(tmp_path / "none.db"))
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "x.db").write_text("no database at all, but long enough to be read as one", encoding="utf-8")
    with pytest.raises(StoreError, match="not a SQLite database"):
        inspect_file(str(tmp_path / "x.db"))


def test_a_lock_is_noticed_unless_nothing_shall_be_written(tmp_path: Path) -> None:
    """Reading goes on beside a writer."""
    path = made(tmp_path / "a.db")
    holder = apsw.Connection(path)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError) as caught:
        inspect_file(path, busy_ms=1)
    assert caught.value.info.code == "store_busy"
    assert inspect_file(path, is_read_only=True).runs == 0
    holder.close()


def test_a_clock_within_the_time_of_the_question_is_right() -> None:
    """Only what is surely ahead or behind counts."""
    import time

    now = time.time()
    assert skew_s(now - 0.5, now - 1) == 0.0
    assert skew_s(now + 100, now - 1) == pytest.approx(100, abs=5)
    assert skew_s(now - 100, now - 1) == pytest.approx(-99, abs=5)
    assert JournalInspection(engine="x", version=0, newest=1).state == "will be made"
