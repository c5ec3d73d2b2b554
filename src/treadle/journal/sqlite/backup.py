"""Copies SQLite journals: made while others write, checked, and restored where no process has the journal open."""

import os
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import overload

import apsw

from treadle.core.errors import Conflict, NotFound, StoreError
from treadle.journal.open_store import JournalInspection
from treadle.journal.sqlite.connection import open_existing, select, store_error
from treadle.journal.sqlite.migrations import inspect_file
from treadle.journal.sqlite.open_file_lock import OpenFileLock

PAGES_AT_ONCE = 512
PROGRESS_STEPS = 100_000
PROBLEMS_MAX = 20
Progress = Callable[[int, int], None]
"""Called with how much is done and of how much; 0 of 0 where that is not known."""


def back_up(source: Path, target: Path, progress: Progress) -> JournalInspection:
    """Copy the journal as it is at this moment, while others may write to it, and check the copy.

    The file is there whole or not at all, and only its owner can read it.
    Raises: NotFound, StoreError.
    """
    if not source.exists():
        raise NotFound(f"there is no journal at {source}", hint="name another with --store")
    if target.exists() and (target.samefile(source) or Path(f"{os.path.realpath(target)}-wal").exists()):
        # A process that has it open would write to a file without a name, and its log would be taken for the copy's.
        raise Conflict(f"{target} is a journal in use", hint="name a file for the copy that no program has open")
    with _part(target) as part:
        with _failures(source):
            _copy(source, part, progress)
        _refuse_damaged(part)
        return inspect_file(str(part), is_read_only=True)


def restore(backup: Path, target: Path, progress: Progress, *, is_replacing: bool = False) -> Path | None:
    """Put a copy in the place of a journal and return where the journal that was there is now.

    Raises: NotFound, Conflict, StoreError: nothing has changed then.
    """
    if not backup.is_file():
        raise NotFound(f"there is no file {backup}", param="file")
    inspect_file(str(backup), is_read_only=True)
    _refuse_damaged(backup)
    if target.exists() and not is_replacing:
        raise Conflict(f"there is a journal at {target} already", hint="--replace puts it aside, under another name")
    target = Path(os.path.realpath(target))  # SQLite puts the log beside the real file, not beside a link to it
    target.parent.mkdir(parents=True, exist_ok=True)
    moved: list[Path | None] = []

    def swap() -> None:
        with _part(target) as part:
            with _failures(backup):
                _copy(backup, part, progress)
            moved.append(_put_aside(target))

    OpenFileLock(str(target), swap).close()
    if not moved:
        raise Conflict(f"a process has {target} open", code="store_in_use", hint="stop every Treadle that uses it")
    return moved[0]


@overload
def check(path: Path, progress: Progress) -> list[str]: ...
@overload
def check(path: Path, progress: Progress, *, within_s: float) -> list[str] | None: ...
def check(path: Path, progress: Progress, *, within_s: float | None = None) -> list[str] | None:
    """Read the whole database and return what is wrong with it, at most so much; None if the time did not suffice.

    Raises: StoreError.
    """
    deadline = None if within_s is None else time.monotonic() + within_s
    with _failures(path):
        connection = open_existing(str(path))
        try:
            connection.set_progress_handler(lambda: _is_late(progress, deadline), PROGRESS_STEPS)
            found = [str(row[0]) for row in select(connection, f"PRAGMA integrity_check({PROBLEMS_MAX})")]
            loose = select(connection, "PRAGMA foreign_key_check")
        except apsw.CorruptError as error:
            return [str(error)]
        except apsw.InterruptError:
            return None
        finally:
            connection.close()
    problems = [line for line in found if line != "ok"]
    problems += [f"a row of {row[0]} refers to one that is missing in {row[2]}" for row in loose]
    return problems[:PROBLEMS_MAX]


def _is_late(progress: Progress, deadline: float | None) -> bool:
    progress(0, 0)
    return deadline is not None and time.monotonic() > deadline


def _refuse_damaged(path: Path) -> None:
    if problems := check(path, lambda _done, _total: None):
        raise StoreError(
            f"{path} is damaged: {problems[0]}",
            code="store_corrupt",
            hint="take another copy; this one holds no journal",
        )


def _copy(source: Path, target: Path, progress: Progress) -> None:
    """Copy page by page within one read transaction: what others write in the meantime does not begin it anew."""
    reader, writer = open_existing(str(source)), open_existing(str(target))
    try:
        reader.execute("BEGIN")
        select(reader, "SELECT count(*) FROM sqlite_schema")
        with writer.backup("main", reader, "main") as copying:
            while not copying.done:
                copying.step(PAGES_AT_ONCE)
                progress(copying.page_count - copying.remaining, copying.page_count)
        reader.execute("ROLLBACK")
        writer.pragma("journal_mode", "delete")
    finally:
        writer.close()
        reader.close()


def _put_aside(target: Path) -> Path | None:
    """Move a journal and what belongs to it out of the way; return where to, nothing where there was none."""
    if not target.exists():
        return None
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    aside = target.with_name(f"{target.name}.before-{stamp}")
    for suffix in ("", "-wal"):
        with suppress(FileNotFoundError):
            os.rename(f"{target}{suffix}", f"{aside}{suffix}")
    with suppress(FileNotFoundError):
        os.unlink(f"{target}-shm")
    return aside


@contextmanager
def _part(target: Path) -> Generator[Path, None, None]:
    """Make a file under another name, and give it its own when all has gone well."""
    part = target.with_name(f"{target.name}.part")
    part.unlink(missing_ok=True)
    os.close(os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        yield part
        with part.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def _failures(path: Path) -> Generator[None, None, None]:
    """Return the error for SQLite's failure."""
    try:
        yield
    except apsw.Error as error:
        raise store_error(error, str(path)) from None
