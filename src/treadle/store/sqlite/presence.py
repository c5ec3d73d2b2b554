"""Tells whether any process has a database open, by a lock on a file beside it that ends with the process.

Leases keep living processes apart. A process that finds itself alone need not wait for those of the dead.
"""

import os
from collections.abc import Callable
from contextlib import suppress

try:
    import fcntl
except ImportError:  # Windows: nobody is ever known to be alone, so leases are waited for
    fcntl = None

SUFFIX = "-lock"


class Presence:
    """The mark of one open store. `close` takes it away, and so does the death of the process."""

    def __init__(self, path: str, when_alone: Callable[[], None]) -> None:
        """Leave the mark, and call `when_alone` first if there is no other; nobody else gets in meanwhile.

        Raises: OSError, and what `when_alone` raises.
        """
        # As SQLite names its own files beside it: processes that go by different links to a database see each other.
        self._path = os.path.realpath(path) + SUFFIX
        self._file = -1
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
        """Lock the file, unless whoever had it took it away just then."""
        assert fcntl is not None
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            with suppress(BlockingIOError):
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if self._is_there():
                    when_alone()
            fcntl.flock(self._file, fcntl.LOCK_SH)
        except BaseException:
            os.close(self._file)
            raise
        if not self._is_there():
            os.close(self._file)
            self._file = -1

    def _is_there(self) -> bool:
        """Tell whether the file that is locked is still the one that others would lock."""
        with suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(self._file), os.stat(self._path))
        return False
