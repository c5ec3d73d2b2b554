"""The journal on PostgreSQL."""

from treadle.store.postgres.run import PostgresRunJournal
from treadle.store.postgres.store import PostgresStore

__all__ = ["PostgresRunJournal", "PostgresStore"]
