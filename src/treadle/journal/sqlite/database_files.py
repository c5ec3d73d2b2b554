"""The files of a SQLite journal, outside of SQLite: created, guarded from being opened, and watched, but never read.

A process loses all POSIX locks it has on a file as soon as it closes *any* descriptor of that file. To SQLite in
another process the database then looks unused: on closing it, that SQLite deletes the write-ahead log which is still
being written to here, and every commit from then on is lost. So in a process that has a journal open, nothing but the
SQLite that opened it may open the database, the log or its index: not even Python's `sqlite3`, which is another copy.
"""

import contextlib
import errno
import os
import sys
import threading
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote, urlsplit

SUFFIXES = {"": "database", "-wal": "write-ahead log", "-shm": "index of the write-ahead log"}
"""What SQLite adds to the path of a database for each of its files, and what that file is."""

Identity = tuple[int, int]
"""Device and inode: what a file is, whatever its name."""

_creating = threading.Lock()
_guarding = threading.Lock()
_guarded: Counter[Identity] = Counter()
_is_hooked = False
_O_PATH = getattr(os, "O_PATH", 0)
_REFUSED = (
    "this process has the journal open, and opening its file a second time would drop SQLite's locks; "
    "read it from another process, or through Treadle"
)


def create(path: Path) -> None:
    """Make an empty file, readable by its owner only, and its folder; what is there already is not touched.

    Raises: OSError.
    """
    # One at a time: what is made here has no locks yet, but another thread may take some before this one closes it.
    with _creating:
        if path.exists():
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        # Another process may make it in the meantime.
        with contextlib.suppress(FileExistsError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


class JournalFiles:
    """The files of one open database. Make it when SQLite has opened them all, and close it after SQLite has."""

    def __init__(self, path: str) -> None:
        self._paths = {f"{path}{suffix}": what for suffix, what in SUFFIXES.items()}
        self._opened = {each: identity(each) for each in self._paths}
        _guard(self._opened.values())

    def problem(self) -> str:
        """Return which file is not the one that was opened, if any. It costs three system calls."""
        for path, opened in self._opened.items():
            try:
                found = _identity(path)
            except OSError:
                continue  # unknown just now, which is no damage; the next check will show
            if found != opened:
                return f"its {self._paths[path]} was {'deleted' if found is None else 'replaced'} while it was open"
        return ""

    @property
    def are_replaced(self) -> bool:
        """Return whether other processes may have written since a file was replaced: not with an empty log."""
        others = [path for path, opened in self._opened.items() if identity(path) not in (opened, None)]
        try:
            return any(not path.endswith("-wal") or os.path.getsize(path) for path in others)
        except OSError:
            return False  # it is gone again

    def close(self) -> None:
        """Let others open the files again."""
        with _guarding:
            _guarded.subtract(each for each in self._opened.values() if each is not None)
            for each in [each for each, count in _guarded.items() if count <= 0]:
                del _guarded[each]


def identity(path: str | bytes) -> Identity | None:
    """Return which file a path leads to, None where there is none or it cannot be known."""
    try:
        return _identity(path)
    except OSError:
        return None


def _identity(path: str | bytes) -> Identity | None:
    """Return which file a path leads to, None where there is none.

    Raises: OSError, when it cannot be known.
    """
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


def _guard(opened: Iterable[Identity | None]) -> None:
    global _is_hooked
    with _guarding:
        _guarded.update(each for each in opened if each is not None)
        if not _is_hooked:
            # A hook stays for the life of the process; while no journal is open it returns at once.
            sys.addaudithook(_refuse)
            _is_hooked = True


def _refuse(event: str, args: tuple[Any, ...]) -> None:
    """Raise PermissionError when Python is about to open a file that SQLite has open here."""
    if not _guarded or (event != "open" and event != "sqlite3.connect"):
        return
    if event == "open" and _O_PATH and isinstance(args[2], int) and args[2] & _O_PATH:
        return  # a descriptor by which nothing can be read takes no lock with it
    try:
        place = cast("str | bytes", os.fspath(args[0]))
    except TypeError:
        return  # a descriptor that is open already
    if event == "sqlite3.connect" and isinstance(place, str) and place.startswith("file:"):
        place = unquote(urlsplit(place).path)
    with contextlib.suppress(ValueError):  # a path with a NUL in it leads nowhere
        if identity(place) in _guarded:
            raise PermissionError(errno.EACCES, _REFUSED, place)
