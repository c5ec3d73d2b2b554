"""Whether the journal can be kept: what is wrong with a store is said before a server would trip over it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

from postgres import postgres_server
from treadle.cli.doctor.check_result import Check
from treadle.cli.doctor.journal_file_checks import holder_of
from treadle.cli.doctor.store_checks import check_store, report_postgres
from treadle.config import Settings, StoreSection
from treadle.journal.open_store import JournalInspection
from treadle.journal.sqlite.connection import connect
from treadle.journal.sqlite.migrations import migrate, read_migrations
from treadle.journal.store_url import PostgresAddress

HOLDER = """
import sys, apsw
connection = apsw.Connection(sys.argv[1])
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
"""


def settings_of(place: Path | str) -> Settings:
    """Settings with a store."""
    return Settings(store=StoreSection(url=place if isinstance(place, str) else f"sqlite:///{place}"))


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """A journal of this version."""
    connection = connect(str(tmp_path / "j.db"))
    migrate(connection, read_migrations(), 1.0)
    connection.close()
    return tmp_path / "j.db"


@contextmanager
def held(path: Path) -> Iterator[int]:
    """Let another process hold the lock, and give its id."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == b"held\n"
        try:
            yield process.pid
        finally:
            process.stdin.close()


def test_a_journal_is_described_and_left_as_it_was(journal: Path) -> None:
    """Its size, its runs and its version; looking leaves no file behind."""
    before = sorted(path.name for path in journal.parent.iterdir())
    found = check_store(settings_of(journal))
    assert (found.state, found.advice) == ("ok", "")
    assert f"0 runs, 0.3 MiB, schema at version {len(read_migrations())}" in found.detail
    assert sorted(path.name for path in journal.parent.iterdir()) == before


def test_a_locked_journal_names_who_holds_it(journal: Path) -> None:
    """The process and its name, where the system tells."""
    with held(journal) as pid:
        found = check_store(settings_of(journal))
        name = holder_of(journal)
    assert found.state == "broken"
    assert "another process holds the database" in found.detail
    assert "--store" in found.advice
    if Path("/proc/locks").exists():
        assert name.startswith(f"process {pid} (")
        assert found.detail.endswith(name)
    assert check_store(settings_of(journal)).state == "ok"


@pytest.mark.parametrize(
    ("sql", "detail", "advice"),
    [
        ("INSERT INTO schema_migrations VALUES (99, 'x', 0)", "has schema version 99", "newer Treadle"),
        ("UPDATE schema_migrations SET sha256 = 'x' WHERE version = 1", "another text of schema", "Treadle that made"),
        ("DROP TABLE schema_migrations", "a database of another program", "name another file"),
    ],
)
def test_a_journal_of_another_treadle_is_broken(journal: Path, sql: str, detail: str, advice: str) -> None:
    """As the server would refuse it."""
    apsw.Connection(str(journal)).execute(sql)
    found = check_store(settings_of(journal))
    assert (found.state, detail in found.detail, advice in found.advice) == ("broken", True, True), found


def test_an_older_journal_will_be_migrated(tmp_path: Path) -> None:
    """That is no mistake, and it is not done here."""
    connection = connect(str(tmp_path / "old.db"))
    migrate(connection, read_migrations()[:2], 1.0)
    connection.close()
    found = check_store(settings_of(tmp_path / "old.db"))
    assert (found.state, found.detail.endswith("schema will be migrated")) == ("ok", True)


@pytest.mark.parametrize(("free", "state"), [(500 << 20, "note"), (1 << 20, "broken"), (2 << 30, "ok")])
def test_a_disk_with_little_room_is_noticed(
    free: int, state: str, journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the journal can not be written any more."""
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(1 << 40, 0, free))
    found = check_store(settings_of(journal))
    assert found.state == state
    assert ("are free" in found.detail) == (state != "ok")


def look(**changes: object) -> Check:
    """Judge a PostgreSQL that was seen."""
    seen = {"engine": "PostgreSQL 18.1", "version": 4, "newest": 4, "connections_left": 90, **changes}
    return report_postgres(PostgresAddress("postgresql://a@b/c"), JournalInspection(**seen))


def test_a_postgres_with_a_wrong_clock_or_few_connections_is_worth_knowing() -> None:
    """Both at once, each with its advice."""
    assert look().state == "ok"
    found = look(skew_s=-42.4, connections_left=3)
    assert found.state == "note"
    assert found.detail.splitlines()[1:] == [
        "this machine's clock is 42 s ahead of that of the database",
        "it has 3 connections left, and this process wants 16",
    ]
    assert [line.split()[0] for line in found.advice.splitlines()] == ["set", "raise"]
    assert "behind" in look(skew_s=30.0).detail


def test_a_real_postgres_is_asked_and_a_dead_one_is_broken() -> None:
    """It answers with its version; one that is not there with a reason and a way out; offline nobody is asked."""
    server = postgres_server()
    found = check_store(settings_of(server.url(server.new_schema())), {})
    assert (found.state, "PostgreSQL" in found.detail, "will be made" in found.detail) == ("ok", True, True)
    dead = "postgresql://127.0.0.1:1/x"
    found = check_store(settings_of(dead), {})
    assert (found.state, "cannot be reached" in found.detail, bool(found.advice)) == ("broken", True, True)
    assert check_store(settings_of(dead), {}, is_offline=True).state == "note"


def test_a_password_is_never_shown() -> None:
    """Neither that of the address nor that of the variable."""
    found = check_store(settings_of("postgresql://a:geheim@127.0.0.1:1/x"), {"PGPASSWORD": "secret-word"})
    assert "geheim" not in repr(found)
    assert "secret-word" not in repr(found)


def test_our_own_lock_is_nobody_else(journal: Path) -> None:
    """The process that asks is not named."""
    connection = apsw.Connection(str(journal))
    connection.execute("BEGIN IMMEDIATE")
    assert str(os.getpid()) not in holder_of(journal)
    connection.close()
