"""The journal on SQLite."""

from treadle.store.sqlite.run import SqliteRunJournal
from treadle.store.sqlite.store import SqliteStore

__all__ = ["SqliteRunJournal", "SqliteStore"]
