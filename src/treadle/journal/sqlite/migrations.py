"""Numbered migrations: `schema/NNNN_name.sql`, each applied once, in order, and remembered with its sha256.

A database that is newer than this code, was made by another text of a migration, or belongs to another program is
refused rather than guessed at.
"""

import hashlib
import time
from collections.abc import Sequence
from importlib.resources import files

import apsw
import msgspec

from treadle.core.errors import StoreError
from treadle.journal.open_store import REPLICAS_S, JournalInspection
from treadle.journal.sqlite.connection import open_existing, select, store_error

_LEDGER = """
CREATE TABLE IF NOT EXISTS schema_migrations (
  version    INTEGER PRIMARY KEY,
  sha256     TEXT NOT NULL,
  applied_at REAL NOT NULL
) STRICT
"""


_REPLICAS = "SELECT owner, facts FROM replicas WHERE seen_at >= ? ORDER BY started_at, owner"


class Migration(msgspec.Struct, frozen=True, kw_only=True):
    """One step of the schema."""

    version: int
    sql: str

    @property
    def sha256(self) -> str:
        """Return what identifies this very text."""
        return hashlib.sha256(self.sql.encode()).hexdigest()


def read_migrations() -> tuple[Migration, ...]:
    """Return the migrations that come with this code, in order."""
    found = sorted((files("treadle.journal.sqlite") / "schema").iterdir(), key=lambda file: file.name)
    texts = [file for file in found if file.name.endswith(".sql")]
    return tuple(Migration(version=int(file.name[:4]), sql=file.read_text("utf-8")) for file in texts)


def migrate(connection: apsw.Connection, migrations: Sequence[Migration], now: float) -> None:
    """Bring the database to the newest of the migrations, in one transaction, one process at a time.

    Raises: StoreError, when the database cannot be taken there.
    """
    if not _pending(connection, migrations):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute(_LEDGER)
        for step in _pending(connection, migrations):
            select(connection, step.sql)
            select(
                connection,
                "INSERT INTO schema_migrations (version, sha256, applied_at) VALUES (?, ?, ?)",
                step.version,
                step.sha256,
                now,
            )
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def inspect_file(path: str, *, busy_ms: int = 1_000, is_read_only: bool = False) -> JournalInspection:
    """Return what is in the database at `path`, which must exist, without changing it.

    That it can be written is tried, unless it need not be.
    Raises: StoreError.
    """
    steps = read_migrations()
    try:
        connection = open_existing(path, busy_ms=busy_ms)
        try:
            pending = _pending(connection, steps)
            is_new = len(pending) == len(steps)
            runs = 0 if is_new else int(select(connection, "SELECT count(*) FROM runs")[0][0])
            is_current = not pending
            replicas = select(connection, _REPLICAS, time.time() - REPLICAS_S) if is_current else []
            secrets = select(connection, "SELECT fingerprint FROM key_secrets") if is_current else []
            pages, page_bytes = int(connection.pragma("page_count")), int(connection.pragma("page_size"))
            if not is_read_only:
                connection.execute("BEGIN IMMEDIATE")
                connection.execute("ROLLBACK")
        finally:
            connection.close()
    except apsw.Error as error:
        raise store_error(error, path) from None
    return JournalInspection(
        engine=f"SQLite {apsw.sqlite_lib_version()}",
        version=0 if is_new else steps[-1].version - len(pending),
        newest=steps[-1].version,
        runs=runs,
        size_bytes=pages * page_bytes,
        replicas=tuple((str(owner), str(facts)) for owner, facts in replicas),
        secrets=frozenset(str(name) for (name,) in secrets),
    )


def _pending(connection: apsw.Connection, migrations: Sequence[Migration]) -> list[Migration]:
    applied = _applied(connection)
    known = {step.version: step.sha256 for step in migrations}
    for version, sha256 in applied.items():
        if version not in known:
            raise StoreError(
                f"the store {connection.filename} has schema version {version}, this Treadle knows up to {max(known)}",
                code="store_too_new",
                hint="use the newer Treadle that wrote it, or name another file",
            )
        if known[version] != sha256:
            raise StoreError(
                f"the store {connection.filename} was made by another text of schema version {version}",
                code="store_schema_changed",
                hint="use the Treadle that made it, or name another file",
            )
    return [step for step in migrations if step.version not in applied]


def _applied(connection: apsw.Connection) -> dict[int, str]:
    tables = {str(name) for (name,) in select(connection, "SELECT name FROM sqlite_schema WHERE type = 'table'")}
    if not tables:
        return {}
    if "schema_migrations" not in tables:
        raise StoreError(
            f"the store {connection.filename} is a database of another program (it has the table {min(tables)!r})",
            code="store_foreign",
            hint="name another file",
        )
    return dict(select(connection, "SELECT version, sha256 FROM schema_migrations ORDER BY version"))
