"""A journal that was damaged or taken away: noticed within a second, told in words, and never written to again."""

import asyncio
import logging
import os
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from treadle.core.errors import ErrorInfo, StoreError
from treadle.core.journal_entries import Entry
from treadle.journal.journal_interface import RunRow
from treadle.journal.sqlite.health_check import JournalHealth
from treadle.journal.sqlite.store import SqliteStore
from warm import start

NOTICED_S = 1.0
SLACK_S = 4.0
"""Machines that run tests are busy."""
ROW = RunRow(
    id="run_1", response_id="resp_1", conversation_id="conv_1", protocol="responses", model="m", created_at=1.0
)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    """An open store."""
    opened = SqliteStore(str(tmp_path / "a.db"))
    await opened.open()
    yield opened
    await opened.close()


def _replace(path: Path) -> None:
    path.with_name("new").write_bytes(path.with_name("a copy").read_bytes())
    os.replace(path.with_name("new"), path)


CHANGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "the log is deleted": (
        lambda path: path.with_name("a.db-wal").unlink(),
        "its write-ahead log was deleted while it was open",
    ),
    "the index is deleted": (
        lambda path: path.with_name("a.db-shm").unlink(),
        "its index of the write-ahead log was deleted while it was open",
    ),
    "the database is moved": (
        lambda path: path.rename(path.with_name("moved.db")),
        "its database was deleted while it was open",
    ),
    "another database is put there": (_replace, "its database was replaced while it was open"),
}


async def _damage(store: SqliteStore) -> StoreError:
    """Return what the store says when it has noticed by itself."""
    async with asyncio.timeout(NOTICED_S + SLACK_S):
        while True:
            try:
                await store.ping()
            except StoreError as error:
                return error
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("change", CHANGES)
async def test_what_became_of_the_files_is_noticed_while_nothing_is_written(
    store: SqliteStore, change: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Within a second, logged once with the path; then reads, writes and the health check are refused."""
    path = Path(store.path)
    path.with_name("a copy").write_bytes(b"")
    act, words = CHANGES[change]
    act(path)
    with caplog.at_level(logging.CRITICAL, "treadle.journal"):
        error = await _damage(store)
    message = f"the store {path}: {words}; what is written now would be lost"
    hint = "stop this process, put the right files back (`treadle store check` reads them), and start it again"
    assert (error.message, error.hint) == (message, hint)
    info = ErrorInfo(
        code="store_replaced",
        message="The files of the journal were deleted or replaced under this server.",
        status=503,
        hint="Ask whoever runs the server; its log says more.",
    )
    assert error.info == info
    for work in (store.list_runs(), store.keys.find("lookup"), store.start_run(ROW, [], owner="o", lease_s=1.0)):
        with pytest.raises(StoreError) as caught:
            await work
        assert caught.value.info == info
    assert [record.message for record in caplog.records] == [f"{message}; no work is taken any more: {hint}"]


async def test_a_write_to_a_log_without_a_name_is_not_answered(store: SqliteStore) -> None:
    """What comes before it is noticed: it is told as failed, and the run's journal takes nothing more."""
    journal = await store.start_run(ROW, [], owner="o", lease_s=9.0)
    os.unlink(f"{store.path}-wal")
    for _ in range(2):
        with pytest.raises(StoreError) as caught:
            await journal.append([Entry(kind="note", at=1.0)])
        assert caught.value.info.code == "store_replaced"


async def test_who_waits_for_a_change_is_told(store: SqliteStore) -> None:
    """A reader of a run that goes on elsewhere does not wait for a journal that is no more."""
    await store.start_run(ROW, [], owner="o", lease_s=9.0)
    waiting = asyncio.create_task(store.wait_change("run_1", 60.0))
    await asyncio.sleep(0)
    os.unlink(f"{store.path}-wal")
    await asyncio.wait_for(asyncio.wait({waiting}), NOTICED_S + SLACK_S)
    with pytest.raises(StoreError):
        await store.find_run("run_1")


FOREIGN = """
import sqlite3, sys
journal = sqlite3.connect(sys.argv[1])
journal.execute("CREATE TABLE own_notes (note TEXT)")
journal.execute("INSERT INTO own_notes VALUES ('theirs')")
journal.commit()
journal.close()
"""


@pytest.mark.parametrize("is_used_meanwhile", [False, True])
@pytest.mark.parametrize("suffix", ["-wal", "-shm"])
async def test_leaving_saves_what_the_log_holds_and_spoils_nothing(
    tmp_path: Path, suffix: str, is_used_meanwhile: bool
) -> None:
    """Closing puts it into the database, unless another program wrote since: without an index of its own it cannot."""
    store = SqliteStore(str(tmp_path / "a.db"))
    await store.open()
    await store.start_run(ROW, [Entry(kind="note", at=1.0)], owner="o", lease_s=9.0)
    os.unlink(f"{store.path}{suffix}")
    has_written = False
    if is_used_meanwhile:
        done = await asyncio.to_thread(start.run, [sys.executable, "-c", FOREIGN, store.path])
        has_written = done.returncode == 0
        assert has_written == (suffix == "-shm"), done.stderr
    await _damage(store)
    await store.close()
    with closing(sqlite3.connect(tmp_path / "a.db")) as journal:
        assert journal.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert journal.execute("SELECT id FROM runs").fetchall() == [("run_1",)]
        tables = journal.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'own_notes'").fetchall()
        assert tables == [(int(has_written),)]


@pytest.mark.parametrize("error", [apsw.CorruptError("malformed"), apsw.NotADBError("no database")])
def test_damage_is_remembered(error: apsw.Error, caplog: pytest.LogCaptureFixture) -> None:
    """Seen by any one statement: from then on there is an error for all work, and it was said once."""
    told: list[str] = []
    health = JournalHealth("/data/a.db", None, lambda: told.append("damaged"))
    health.failed(apsw.FullError("full"))
    assert (health.damage, health.check_files(), told) == (None, None, [])
    with caplog.at_level(logging.CRITICAL, "treadle.journal"):
        for _ in range(2):
            health.failed(error)
    assert [each and each.info.code for each in (health.damage, health.check_files())] == ["store_corrupt"] * 2
    critical = [record for record in caplog.records if record.levelno == logging.CRITICAL]
    assert (told, len(critical)) == (["damaged"], 1)


async def test_a_database_whose_pages_are_overwritten_takes_no_work(tmp_path: Path) -> None:
    """One read that meets the damage is enough: no run starts afterwards."""
    store = SqliteStore(str(tmp_path / "a.db"))
    await store.open()
    await store.start_run(ROW, [Entry(kind="note", at=1.0)], owner="o", lease_s=9.0)
    await store.close()
    whole = (tmp_path / "a.db").read_bytes()
    (tmp_path / "a.db").write_bytes(whole[:4_096] + bytes(b ^ 0xA5 for b in whole[4_096:]))
    store = SqliteStore(str(tmp_path / "a.db"))
    with pytest.raises(StoreError) as caught:
        await store.open()
    assert caught.value.info.code == "store_corrupt"
    assert str(tmp_path) not in caught.value.info.message
    await store.close()
