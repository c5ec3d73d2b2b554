"""Checks of a SQLite journal file that a process may be using: locks, deleted files, damage.

Only Linux shows which files a process has open, and only for one's own processes. Nothing is changed here.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from treadle.core.errors import NotFound
from treadle.journal.sqlite.database_files import SUFFIXES, identity
from treadle.journal.sqlite.open_file_lock import SUFFIX

_WRITER_LOCK = 120
"""The byte of the -shm file that SQLite's writer locks."""
_DELETED = " (deleted)"
_LOST = "nothing else sees what it commits"


def file_problems(path: Path) -> list[str]:
    """Name the processes that use a journal of that path which others do not see: it was deleted or replaced."""
    real = os.path.realpath(path)
    current = identity(real)
    problems: list[str] = []
    for pid, links in _open_files(real):
        deleted = [suffix for suffix in SUFFIXES if f"{real}{suffix}{_DELETED}" in links]
        is_user = real + SUFFIX in links
        if deleted:
            what = SUFFIXES[deleted[0]]
            problems.append(f"process {pid} ({_name_of(pid)}) has a {what} open that was deleted: {_LOST}")
        elif is_user and current is not None and current not in _identities(pid):
            problems.append(f"process {pid} ({_name_of(pid)}) has another database open than the one there: {_LOST}")
    return problems


def find_damage(path: Path, progress: Callable[[int, int], None]) -> list[str]:
    """Return what is wrong with those who use a journal, else read the whole of it and return what is wrong there.

    Raises: NotFound, StoreError.
    """
    from treadle.journal.sqlite.backup import check

    # Beside a process with other files, what can be read here is not what it has written.
    if problems := file_problems(path):
        return problems
    if not path.exists():
        raise NotFound(f"there is no journal at {path}", hint="name another with --store; the first run makes one")
    return check(path, progress)


def holder_of(path: Path) -> str:
    """Name the process that holds the lock of a database; nothing where that can not be known."""
    wanted: dict[tuple[str, int], int | None] = {}
    for suffix, at in (("", None), ("-shm", _WRITER_LOCK)):
        try:
            found = os.stat(f"{path}{suffix}")
        except OSError:
            continue
        device = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}"
        wanted[device, found.st_ino] = at
    for pid, device, inode, first in _locks():
        if (device, inode) in wanted and wanted[device, inode] in (None, first) and pid != os.getpid():
            return f"process {pid} ({_name_of(pid)})"
    return ""


def _open_files(path: str) -> Iterator[tuple[int, set[str]]]:
    """Yield each other process that has files open whose names begin so, and those files."""
    here = _read_link("/proc/self/ns/mnt")
    for pid in _processes():
        if _read_link(f"/proc/{pid}/ns/mnt") != here:
            continue  # the same path is another file in a container
        links = {link for fd in _descriptors(pid) if (link := _read_link(fd)).startswith(path)}
        if links and pid != os.getpid():
            yield pid, links


def _processes() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    except OSError:
        return []


def _descriptors(pid: int) -> list[str]:
    try:
        return [f"/proc/{pid}/fd/{name}" for name in os.listdir(f"/proc/{pid}/fd")]
    except OSError:
        return []


def _identities(pid: int) -> "set[tuple[int, int] | None]":
    return {identity(fd) for fd in _descriptors(pid)}


def _read_link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _locks() -> list[tuple[int, str, int, int]]:
    """Return the holders of write locks: process, device, inode, first byte. Linux only."""
    try:
        lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except OSError:
        return []
    words = [line.split() for line in lines if " WRITE " in line and "->" not in line]
    found: list[tuple[int, str, int, int]] = []
    for word in words:
        device, _, inode = word[5].rpartition(":")
        if word[4].isdecimal() and inode.isdecimal() and word[6].isdecimal():
            found.append((int(word[4]), device, int(inode), int(word[6])))
    return found


def _name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return "of another user"
