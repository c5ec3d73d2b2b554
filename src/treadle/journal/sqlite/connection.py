"""Connections to SQLite: opened one way, with the settings the journal's promises rest on, and their failures named.

Nothing here knows a table.
"""

import functools
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import apsw

from treadle.core.errors import Conflict, NotFound, ProtocolError, StoreError, TreadleError
from treadle.journal.sql_steps import Steps
from treadle.journal.sqlite import database_files as files

Value = str | bytes | float | None
"""What is bound to a statement; ints and bools are floats to the type checker."""

T = TypeVar("T")

_PARAMETER = re.compile(r"\$(\d)")

MEMORY = ":memory:"
BUSY_TIMEOUT_MS = 10_000
WAL_BYTES_MAX = 64 * 1024 * 1024

_FAILURES: dict[type[apsw.Error], tuple[str, str, str]] = {
    apsw.FullError: (
        "store_full",
        "the disk is full, or the database has reached its largest size",
        "free some space; `treadle store prune` forgets old conversations",
    ),
    apsw.BusyError: (
        "store_busy",
        "another process holds the database",
        "end that process (`treadle doctor` names it), or name another file with --store",
    ),
    apsw.ReadOnlyError: ("store_read_only", "it cannot be written", "check the permissions of the file and its folder"),
    apsw.CantOpenError: ("store_cannot_open", "it cannot be opened", "check the path and the permissions"),
    apsw.NotADBError: (
        "store_not_a_database",
        "it is not a SQLite database",
        "name another file, or move this one away",
    ),
    apsw.CorruptError: (
        "store_corrupt",
        "the database is damaged",
        "restore a backup (`treadle store restore`), or move the file away",
    ),
    apsw.IOError: ("store_io", "reading or writing it failed", "check the disk"),
}


def connect(path: str, *, query_only: bool = False) -> apsw.Connection:
    """Open a database, creating the file (readable by its owner only) and its folder where they are missing.

    Raises: StoreError, apsw.Error.
    """
    if path != MEMORY:
        # Where a link leads nowhere yet, SQLite would make the file readable by everybody.
        _create(Path(os.path.realpath(path)))
    try:
        connection = apsw.Connection(path)
    except apsw.CantOpenError as error:
        raise store_error(error, path) from None
    try:
        _configure(connection, path, query_only)
    except BaseException:
        connection.close()
        raise
    return connection


def open_existing(path: str, *, busy_ms: int = BUSY_TIMEOUT_MS) -> apsw.Connection:
    """Open a database that is there, as it is, to inspect, copy or check it.

    Raises: apsw.Error.
    """
    connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE)
    connection.set_busy_timeout(busy_ms)
    return connection


def store_error(error: apsw.Error, path: str) -> StoreError:
    """Return the StoreError for an error of SQLite in the database at `path`."""
    code, what, hint = _FAILURES.get(type(error), ("store_unavailable", "SQLite failed", "see the message"))
    return StoreError(f"the store {path}: {what} ({error})", code=code, hint=hint)


def constraint_error(error: apsw.ConstraintError) -> TreadleError:
    """Return the error for the rule of the schema that a write would have broken."""
    extended = cast("int", getattr(error, "extendedresult", 0))  # set on every error of SQLite's, not in the stubs
    match extended:
        case apsw.SQLITE_CONSTRAINT_FOREIGNKEY:
            return NotFound("the run, the previous run or the session that this refers to is not in the store")
        case apsw.SQLITE_CONSTRAINT_DATATYPE | apsw.SQLITE_CONSTRAINT_NOTNULL:
            return ProtocolError(f"a field is not plain Unicode text, or not a number: {error}")
        case _:
            return Conflict(f"the journal holds this already: {error}")


def select(connection: apsw.Connection, sql: str, *values: Value) -> list[tuple[Any, ...]]:
    """Run one statement to its end and return all rows: SQLite would otherwise store it half executed."""
    return cast("list[tuple[Any, ...]]", connection.execute(sql, values).fetchall())


def _create(path: Path) -> None:
    try:
        files.create(path)
    except OSError as error:
        raise StoreError(
            f"the store {path}: it cannot be opened for writing ({error.strerror or error})",
            code="store_cannot_open",
            hint="check the path and the permissions of its folder, or name another file",
        ) from None


def _configure(connection: apsw.Connection, path: str, query_only: bool) -> None:
    connection.set_busy_timeout(BUSY_TIMEOUT_MS)
    mode = connection.pragma("journal_mode", "wal")
    if path != MEMORY and mode != "wal":
        raise StoreError(
            f"the store {path}: its file system does not allow a write-ahead log (SQLite chose {mode!r})",
            code="store_no_wal",
            hint="put the file on a local disk",
        )
    connection.pragma("synchronous", "full")
    connection.pragma("foreign_keys", True)
    connection.pragma("secure_delete", True)
    connection.pragma("journal_size_limit", WAL_BYTES_MAX)
    connection.pragma("query_only", query_only)
    connection.create_scalar_function("holds", _holds, 2, deterministic=True)


def _holds(*values: Any) -> bool:
    """Return whether a text holds another, which is casefolded already; SQLite itself folds ASCII only."""
    text, folded = (str(value, "utf-8", "surrogateescape") if isinstance(value, bytes) else value for value in values)
    return text is not None and folded in text.casefold()


def run_steps(steps: Callable[[], Steps[T]], connection: apsw.Connection) -> T:
    """Run steps on a connection and return what they return."""
    running = steps()
    try:
        statement = next(running)
        while True:
            sql, *values = statement
            statement = running.send(select(connection, _numbered(sql), *values))
    except StopIteration as ended:
        return ended.value


@functools.lru_cache(maxsize=1024)
def _numbered(sql: str) -> str:
    # SQLite takes `$1` for a name and would bind by the order of appearance; `?1` is a number.
    return _PARAMETER.sub(r"?\1", sql)


def empty_log(connection: apsw.Connection) -> bool:
    """Move the write-ahead log into the database and empty it; False while other connections use it."""
    connection.set_busy_timeout(0)
    try:
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except (apsw.BusyError, apsw.LockedError):
        return False
    finally:
        connection.set_busy_timeout(BUSY_TIMEOUT_MS)
    return True
