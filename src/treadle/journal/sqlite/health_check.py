"""Decides whether an open SQLite journal can be relied on. Once it cannot, that stays so until the process restarts."""

import logging
from collections.abc import Callable

import apsw

from treadle.core.errors import StoreError
from treadle.journal.sqlite.connection import select, store_error
from treadle.journal.sqlite.database_files import JournalFiles

log = logging.getLogger("treadle.journal")

CHECK_S = 0.5
"""How often the files of a journal are looked at while nothing is written."""

FREE_BYTES_MIN = 1_048_576
"""With less room than this on its disk a journal is taken to be full: it would not even hold the next run."""

_FILLER = "INSERT OR REPLACE INTO replicas (owner, facts, started_at, seen_at) VALUES ('', ?, 0, 0)", "x" * 65_536
_DAMAGE = (apsw.CorruptError, apsw.NotADBError)
_RESTORE = "stop this process, and restore a backup (`treadle store restore`) or move the file away"
_RESTART = "stop this process, put the right files back (`treadle store check` reads them), and start it again"


class JournalHealth:
    """Remembers the first damage that is seen: from then on the store takes no work. Any thread may use it."""

    def __init__(
        self, path: str, files: JournalFiles | None = None, when_damaged: Callable[[], None] = lambda: None
    ) -> None:
        """Watch the database at `path`; one in memory has no files. `when_damaged` is called once, by any thread."""
        self.path = path
        self._files = files
        self._when_damaged = when_damaged
        self._damage: tuple[str, str, str] | None = None

    @property
    def damage(self) -> StoreError | None:
        """Return the error for all work from now on, None while all is well."""
        if self._damage is None:
            return None
        message, code, hint = self._damage
        return StoreError(message, code=code, hint=hint)

    def check_files(self) -> StoreError | None:
        """Check the files, without opening them; return the error if they are not the ones that were opened."""
        if self._damage is None and self._files is not None and (problem := self._files.problem()):
            message = f"the store {self.path}: {problem}; what is written now would be lost"
            self._note(message, "store_replaced", _RESTART)
        return self.damage

    @property
    def may_checkpoint(self) -> bool:
        """Return whether closing may move what is in the log into the database.

        Where a file was only deleted, that saves what the log holds. Where another stands in its place, other processes
        may have written there, and SQLite here would not see their locks.
        """
        return self._files is None or not self._files.are_replaced

    def failed(self, error: apsw.Error) -> StoreError:
        """Return the StoreError for an error of SQLite; a damaged database is remembered."""
        found = store_error(error, self.path)
        if isinstance(error, _DAMAGE):
            self._note(found.message, "store_corrupt", _RESTORE)
        else:
            log.warning("%s", found.message, extra={"code": found.info.code})
        return found

    def _note(self, message: str, code: str, hint: str) -> None:
        if self._damage is not None:
            return
        self._damage = message, code, hint
        log.critical("%s; no work is taken any more: %s", message, hint, extra={"code": code})
        self._when_damaged()


def write_and_delete(connection: apsw.Connection) -> None:
    """Check that the disk takes a write: a row is inserted and deleted again."""
    select(connection, *_FILLER)
    select(connection, "DELETE FROM replicas WHERE owner = ''")
