"""The files of a journal: made once, opened by SQLite alone, and noticed when they are not what they were."""

import asyncio
import errno
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from treadle.journal.sqlite import database_files as files
from treadle.journal.sqlite.store import SqliteStore

FOREIGN = """
import sqlite3, sys
journal = sqlite3.connect(sys.argv[1])
journal.execute("SELECT count(*) FROM runs").fetchall()
journal.close()
"""


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    """An open store, with the links to it that a test may try."""
    opened = SqliteStore(str(tmp_path / "a.db"))
    await opened.open()
    os.symlink(tmp_path / "a.db", tmp_path / "link")
    os.link(tmp_path / "a.db", tmp_path / "second name")
    yield opened
    await opened.close()


def _by_relative_path(path: Path) -> None:
    before = Path.cwd()
    os.chdir(path.parent)
    try:
        Path(path.name).read_bytes()
    finally:
        os.chdir(before)


def _by_descriptor(path: Path) -> None:
    seen = os.open(path, os.O_PATH)
    try:
        os.open(f"/proc/self/fd/{seen}", os.O_RDONLY)
    finally:
        os.close(seen)


WAYS: dict[str, Callable[[Path], object]] = {
    "open": lambda path: path.open("rb"),
    "os.open": lambda path: os.open(path, os.O_RDONLY),
    "a path of bytes": lambda path: os.open(os.fsencode(path), os.O_RDWR),
    "a relative path": _by_relative_path,
    "a link": lambda path: path.with_name("link").read_bytes(),
    "a second name": lambda path: path.with_name("second name").read_bytes(),
    "a descriptor": _by_descriptor,
    "a copy": lambda path: shutil.copyfile(path, path.with_name("copy")),
    "the log": lambda path: path.with_name("a.db-wal").read_bytes(),
    "the index of the log": lambda path: path.with_name("a.db-shm").read_bytes(),
    "sqlite3": lambda path: sqlite3.connect(path),
    "sqlite3 by an address": lambda path: sqlite3.connect(f"file:{path}?mode=ro", uri=True),
}


async def test_no_python_code_opens_an_open_journal(store: SqliteStore) -> None:
    """Whatever the way: it is refused with the reason, and another program does not take the log away afterwards."""
    path = Path(store.path)
    for name, way in WAYS.items():
        with pytest.raises(PermissionError, match="this process has the journal open"):
            way(path)
        assert path.with_name("copy").exists() is False, name
    await asyncio.to_thread(subprocess.run, [sys.executable, "-c", FOREIGN, path], check=True)
    assert path.with_name("a.db-wal").exists()
    await store.ping()


async def test_other_files_and_a_closed_journal_are_opened_as_ever(tmp_path: Path) -> None:
    """Only the files of a journal are meant, and only as long as one of its stores is open in this process."""
    first, second = SqliteStore(str(tmp_path / "a.db")), SqliteStore(str(tmp_path / "a.db"))
    await first.open()
    await second.open()
    (tmp_path / "b.db").write_bytes(b"other")
    assert (tmp_path / "b.db").read_bytes() == b"other"
    await first.close()
    with pytest.raises(PermissionError):
        (tmp_path / "a.db").read_bytes()
    await second.close()
    assert (tmp_path / "a.db").read_bytes()[:15] == b"SQLite format 3"


def test_a_file_that_is_there_is_not_touched(tmp_path: Path) -> None:
    """Neither opened nor changed: only what is missing is made, for its owner alone, with its folder."""
    path = tmp_path / "new" / "a.db"
    opened: list[str] = []
    real = os.open

    def note(place: str, *rest: int, **more: int) -> int:
        opened.append(str(place))
        return real(place, *rest, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "open", note)
        files.create(path)
        files.create(path)
    assert opened == [str(path)]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_threads_make_a_file_once(tmp_path: Path) -> None:
    """Of many that need it at once, one makes it and the others find it."""
    path = tmp_path / "a.db"
    together = threading.Barrier(8)
    failures: list[BaseException] = []

    def make() -> None:
        together.wait()
        try:
            files.create(path)
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (failures, path.stat().st_size) == ([], 0)


def test_a_file_that_cannot_be_looked_at_just_now_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault of the disk that passes is no damage: the journal would stay closed until somebody starts it anew."""
    for each in files.SUFFIXES:
        (tmp_path / f"a.db{each}").write_bytes(b"x")
    watched = files.JournalFiles(str(tmp_path / "a.db"))

    def failing(path: object) -> os.stat_result:
        raise OSError(errno.EIO, "it cannot be read")

    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", failing)
        assert watched.problem() == ""
    assert watched.problem() == ""
    watched.close()


@pytest.mark.parametrize(("suffix", "what"), files.SUFFIXES.items())
@pytest.mark.parametrize("how", ["deleted", "replaced"])
def test_each_file_is_missed(tmp_path: Path, suffix: str, what: str, how: str) -> None:
    """By device and inode: one with the same name and content is another file."""
    for each in files.SUFFIXES:
        (tmp_path / f"a.db{each}").write_bytes(b"x")
    watched = files.JournalFiles(str(tmp_path / "a.db"))
    assert watched.problem() == ""
    changed = tmp_path / f"a.db{suffix}"
    if how == "replaced":
        (tmp_path / "new").write_bytes(b"x")
        os.replace(tmp_path / "new", changed)
    else:
        changed.unlink()
    assert watched.problem() == f"its {what} was {how} while it was open"
    watched.close()
