"""Copies of a SQLite journal: one moment of it, whole or not at all, and back in its place when nobody is there."""

import os
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from treadle.core.errors import Conflict, NotFound, StoreError
from treadle.journal.sqlite.backup import back_up, check, restore
from treadle.journal.sqlite.connection import connect, select
from treadle.journal.sqlite.migrations import migrate, read_migrations
from treadle.journal.sqlite.open_file_lock import OpenFileLock

WRITER = """
import sys, apsw
connection = apsw.Connection(sys.argv[1])
connection.set_busy_timeout(10_000)
connection.execute("CREATE TABLE pairs (a INTEGER, b INTEGER)")
number = 0
while True:
    number += 1
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("INSERT INTO pairs VALUES (?, 0)", (number,))
    connection.execute("UPDATE pairs SET b = a WHERE a = ?", (number,))
    connection.execute("COMMIT")
    print(number, flush=True)
"""


def ignore(done: int, total: int) -> None:
    """Hear nothing."""


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """An empty journal with a table of numbers beside its own."""
    connection = connect(str(tmp_path / "j.db"))
    migrate(connection, read_migrations(), 1.0)
    connection.execute("CREATE TABLE numbers (n INTEGER); BEGIN")
    connection.executemany("INSERT INTO numbers VALUES (?)", ((number,) for number in range(20_000)))
    connection.execute("COMMIT")
    connection.close()
    return tmp_path / "j.db"


def numbers(path: Path) -> int:
    """Count what was put in."""
    connection = apsw.Connection(str(path))
    try:
        return select(connection, "SELECT count(*) FROM numbers")[0][0]
    finally:
        connection.close()


def test_a_copy_holds_all_and_only_its_owner_can_read_it(journal: Path, tmp_path: Path) -> None:
    """What is told counts up to the whole; no other file is left."""
    told: list[tuple[int, int]] = []
    seen = back_up(journal, tmp_path / "copy.db", lambda done, total: told.append((done, total)))
    assert (seen.version, numbers(tmp_path / "copy.db")) == (len(read_migrations()), 20_000)
    assert told[-1][0] == told[-1][1] > 0
    assert (tmp_path / "copy.db").stat().st_mode & 0o777 == 0o600
    assert not list(tmp_path.glob("copy.db?*"))


def test_a_copy_made_while_another_process_writes_is_one_moment(journal: Path, tmp_path: Path) -> None:
    """Every pair is whole, however much was written during the copy."""
    with subprocess.Popen([sys.executable, "-c", WRITER, str(journal)], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        try:
            for _ in range(20):
                writer.stdout.readline()
            for number in range(5):
                back_up(journal, tmp_path / f"{number}.db", lambda done, total: writer.stdout.readline())
        finally:
            writer.kill()
    counts: list[int] = []
    for number in range(5):
        connection = apsw.Connection(str(tmp_path / f"{number}.db"))
        count, whole = select(connection, "SELECT count(*), count(*) FILTER (WHERE a = b) FROM pairs")[0]
        assert count == whole
        counts.append(count)
        connection.close()
    assert counts[0] >= 20
    assert counts == sorted(counts)


def test_what_can_not_be_copied_leaves_no_file(tmp_path: Path) -> None:
    """A journal that is missing, and one that is none."""
    with pytest.raises(NotFound, match="no journal"):
        back_up(tmp_path / "none.db", tmp_path / "copy.db", ignore)
    (tmp_path / "text.db").write_text("this is a diary and not a journal", encoding="utf-8")
    with pytest.raises(StoreError, match="not a SQLite database"):
        back_up(tmp_path / "text.db", tmp_path / "copy.db", ignore)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["text.db"]


def test_a_copy_goes_back_and_what_was_there_is_put_aside(journal: Path, tmp_path: Path) -> None:
    """Nothing is lost by restoring the wrong one."""
    back_up(journal, tmp_path / "copy.db", ignore)
    connection = apsw.Connection(str(journal))
    connection.execute("DELETE FROM numbers")
    connection.close()
    with pytest.raises(Conflict, match="already") as caught:
        restore(tmp_path / "copy.db", journal, ignore)
    assert "--replace" in (caught.value.hint or "")
    aside = restore(tmp_path / "copy.db", journal, ignore, is_replacing=True)
    assert aside is not None
    assert (numbers(journal), numbers(aside)) == (20_000, 0)


def test_a_copy_makes_a_journal_where_there_is_none(journal: Path, tmp_path: Path) -> None:
    """Also in a folder that is not there yet, and also when told to replace."""
    back_up(journal, tmp_path / "copy.db", ignore)
    for name, is_replacing in (("a", False), ("b", True)):
        target = tmp_path / name / "j.db"
        assert restore(tmp_path / "copy.db", target, ignore, is_replacing=is_replacing) is None
        assert numbers(target) == 20_000
        assert sorted(path.name for path in target.parent.iterdir()) == ["j.db"]


def test_a_journal_that_is_in_use_is_left_alone(journal: Path, tmp_path: Path) -> None:
    """Who has it open would go on writing into the old file."""
    back_up(journal, tmp_path / "copy.db", ignore)
    user = OpenFileLock(str(journal), lambda: None)
    try:
        with pytest.raises(Conflict, match="a process has") as caught:
            restore(tmp_path / "copy.db", journal, ignore, is_replacing=True)
    finally:
        user.close()
    assert (caught.value.info.code, caught.value.hint) == ("store_in_use", "stop every Treadle that uses it")
    assert not list(tmp_path.glob("*.before-*"))


def test_a_copy_is_not_written_over_a_journal_in_use(journal: Path, tmp_path: Path) -> None:
    """Neither over the journal itself, by whatever name, nor over another one that a program has open."""
    (tmp_path / "link.db").symlink_to(journal)
    connection = apsw.Connection(str(tmp_path / "other.db"))
    connection.execute("PRAGMA journal_mode = wal; CREATE TABLE diary (n)").fetchall()
    for target in (journal, tmp_path / "link.db", tmp_path / "other.db"):
        before = target.stat()
        with pytest.raises(Conflict, match="is a journal in use"):
            back_up(journal, target, ignore)
        assert os.path.samestat(target.stat(), before)
    connection.close()
    back_up(journal, tmp_path / "other.db", ignore)
    assert numbers(tmp_path / "other.db") == 20_000


def test_a_damaged_or_foreign_copy_is_refused(journal: Path, tmp_path: Path) -> None:
    """Before anything is moved."""
    back_up(journal, tmp_path / "copy.db", ignore)
    data = bytearray((tmp_path / "copy.db").read_bytes())
    data[100_000:200_000] = bytes(100_000)
    (tmp_path / "damaged.db").write_bytes(data)
    connection = apsw.Connection(str(tmp_path / "foreign.db"))
    connection.execute("CREATE TABLE diary (n)")
    connection.close()
    for name, code in (("damaged.db", "store_corrupt"), ("foreign.db", "store_foreign")):
        with pytest.raises(StoreError) as caught:
            restore(tmp_path / name, journal, ignore, is_replacing=True)
        assert caught.value.info.code == code
    assert numbers(journal) == 20_000


def test_damage_is_found_by_reading_all(journal: Path, tmp_path: Path) -> None:
    """A sound one has no problem; one with a zeroed page and one with a loose reference have."""
    assert check(journal, ignore) == []
    back_up(journal, tmp_path / "copy.db", ignore)
    connection = apsw.Connection(str(tmp_path / "copy.db"))
    connection.execute("CREATE TABLE child (n INTEGER REFERENCES runs (n)); INSERT INTO child VALUES (7)")
    connection.close()
    assert check(tmp_path / "copy.db", ignore) == ["a row of child refers to one that is missing in runs"]
    data = bytearray(journal.read_bytes())
    data[100_000:200_000] = bytes(100_000)
    journal.write_bytes(data)
    assert check(journal, ignore)
