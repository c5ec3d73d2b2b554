"""The journal on SQLite."""

from treadle.store.sqlite.store import SqliteRunJournal, SqliteStore

__all__ = ["SqliteRunJournal", "SqliteStore"]
