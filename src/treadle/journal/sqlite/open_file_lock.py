"""Finds out whether any process has a database open, by a lock on a file beside it that ends with the process.

Leases keep living processes apart. A process that finds itself alone need not wait for the leases of dead ones.

All that have the database open count leases by one time, which runs steadily while the machine's clock is set: the
first one writes into the file by how much it is ahead of the seconds since the machine started, the same for all.
"""

import math
import os
from collections.abc import Callable
from contextlib import suppress

try:
    import fcntl
except ImportError:  # Windows: no process is ever known to be alone, so leases are waited for
    fcntl = None

SUFFIX = "-lock"
_OFFSET_BYTES = 64


class SteadyClock:
    """Seconds since 1970 as they were when it was set, and on from there: no one who sets the clock moves them."""

    def __init__(self, wall: Callable[[], float], monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self.offset = wall() - monotonic()

    def __call__(self) -> float:
        """Return the time."""
        return self.offset + self._monotonic()


class OpenFileLock:
    """The mark of one open store. `close` takes it away, and so does the death of the process."""

    def __init__(self, path: str, when_alone: Callable[[], None], steady: SteadyClock | None = None) -> None:
        """Leave the mark, and call `when_alone` first if there is no other; no other process gets in until it returns.

        `steady` is set to the time of those that have the database open.

        Raises: OSError, and what `when_alone` raises.
        """
        # As SQLite names its own files beside it: processes that go by different links to a database see each other.
        self._path = os.path.realpath(path) + SUFFIX
        self._file = -1
        self._steady = steady
        while fcntl is not None and self._file < 0:
            self._enter(when_alone)

    def close(self) -> None:
        """Take the mark away; the last one takes the file too."""
        if fcntl is None or self._file < 0:
            return
        with suppress(OSError):
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(self._path)
        os.close(self._file)
        self._file = -1

    def _enter(self, when_alone: Callable[[], None]) -> None:
        """Lock the file, unless its last user deleted it just then."""
        assert fcntl is not None
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            with suppress(BlockingIOError):
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if self._is_there():
                    when_alone()
                    self._write_offset()
            fcntl.flock(self._file, fcntl.LOCK_SH)
            self._read_offset()
        except BaseException:
            os.close(self._file)
            raise
        if not self._is_there():
            os.close(self._file)
            self._file = -1

    def _write_offset(self) -> None:
        if self._steady is not None:
            with suppress(OSError):  # a full disk: the others then take the time from their own clocks
                os.pwrite(self._file, repr(self._steady.offset).ljust(_OFFSET_BYTES).encode(), 0)

    def _read_offset(self) -> None:
        """Take over the time of who was first; an older version wrote none."""
        if self._steady is None:
            return
        with suppress(ValueError):
            written = float(os.pread(self._file, _OFFSET_BYTES, 0))
            if math.isfinite(written):
                self._steady.offset = written

    def _is_there(self) -> bool:
        """Return whether the file that is locked is still the one that others would lock."""
        with suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(self._file), os.stat(self._path))
        return False
