"""Hands that change a database behind Treadle's back: one bit of a cell, a cell, a row; and put it back again."""

import random
import struct
from typing import Any, Protocol

import apsw
import asyncpg

from treadle.journal.postgres.connection import connect
from treadle.journal.store_url import PostgresAddress

COVERED: dict[str, tuple[str, ...]] = {
    "runs": (
        *("id", "response_id", "conversation_id", "previous", "session_id", "key_id", "protocol", "model", "status"),
        *("store", "background", "created_at", "ended_at", "expires_at", "stop", "limit_name", "usage", "error"),
        *("rounds", "calls", "epoch", "idempotency_key", "request_sha256", "head", "sha256", "question", "amended"),
    ),
    "requests": ("run", "body"),
    "events": (
        *("run", "seq", "epoch", "kind", "is_input", "at", "name", "call_id", "item_id", "content", "data", "blob"),
        *("sha256", "fingerprint"),
    ),
    "blobs": ("sha256", "data"),
    "leases": ("head", "sha256", "session_id"),
}
"""What docs/journal.md promises that an audit finds, by table."""

REFUSED = (apsw.Error, asyncpg.PostgresError, asyncpg.InterfaceError, OverflowError, ValueError)
"""What a database says that does not let itself be changed so."""


class Hand(Protocol):
    """Changes rows of one database; a row is known by a place, which may change with it."""

    async def rows(self, table: str) -> list[tuple[Any, dict[str, Any]]]:
        """Return all rows of a table, each with its place."""
        ...

    async def update(self, table: str, place: Any, values: dict[str, Any]) -> Any:
        """Change a row, and return where it is then."""
        ...

    async def delete(self, table: str, place: Any) -> None:
        """Take a row away, and nothing with it."""
        ...

    async def insert(self, table: str, row: dict[str, Any]) -> None:
        """Put a row back."""
        ...


class SqliteHand:
    """Fits `Hand`, on a file."""

    def __init__(self, path: str) -> None:
        self._connection = apsw.Connection(path)
        self._connection.set_busy_timeout(5_000)

    async def rows(self, table: str) -> list[tuple[Any, dict[str, Any]]]:
        found = self._connection.execute(f"SELECT rowid AS place, * FROM {table}").fetchall()
        names = [row[1] for row in self._connection.execute(f"PRAGMA table_info({table})").fetchall()]
        return [(row[0], dict(zip(names, row[1:], strict=True))) for row in found]

    async def update(self, table: str, place: Any, values: dict[str, Any]) -> Any:
        changes = ", ".join(f"{name} = ?" for name in values)
        sql = f"UPDATE {table} SET {changes} WHERE rowid = ? RETURNING rowid"
        return self._connection.execute(sql, (*values.values(), place)).fetchall()[0][0]

    async def delete(self, table: str, place: Any) -> None:
        self._connection.execute(f"DELETE FROM {table} WHERE rowid = ?", (place,))

    async def insert(self, table: str, row: dict[str, Any]) -> None:
        names = ", ".join(row)
        self._connection.execute(f"INSERT INTO {table} ({names}) VALUES ({','.join('?' * len(row))})", [*row.values()])

    async def close(self) -> None:
        """Let go."""
        self._connection.close()


class PostgresHand:
    """Fits `Hand`, on a connection that minds no foreign key and no trigger."""

    def __init__(self, connection: "asyncpg.Connection[Any]") -> None:
        self._connection = connection

    @classmethod
    async def open(cls, url: str) -> "PostgresHand":
        """Connect."""
        connection = await connect(PostgresAddress(url))
        await connection.execute("SET session_replication_role = replica")
        return cls(connection)

    async def rows(self, table: str) -> list[tuple[Any, dict[str, Any]]]:
        found = [dict(row) for row in await self._connection.fetch(f"SELECT ctid AS place, * FROM {table}")]
        return [(row.pop("place"), row) for row in found]

    async def update(self, table: str, place: Any, values: dict[str, Any]) -> Any:
        changes = ", ".join(f"{name} = ${n}" for n, name in enumerate(values, 2))
        sql = f"UPDATE {table} SET {changes} WHERE ctid = $1 RETURNING ctid"
        return await self._connection.fetchval(sql, place, *values.values())

    async def delete(self, table: str, place: Any) -> None:
        await self._connection.execute(f"DELETE FROM {table} WHERE ctid = $1", place)

    async def insert(self, table: str, row: dict[str, Any]) -> None:
        places = ", ".join(f"${n}" for n in range(1, len(row) + 1))
        sql = f"INSERT INTO {table} ({', '.join(row)}) OVERRIDING SYSTEM VALUE VALUES ({places})"
        await self._connection.execute(sql, *row.values())

    async def close(self) -> None:
        """Let go."""
        await self._connection.close()


def changed(value: Any, column: str, chance: random.Random) -> Any:
    """Return a value with one bit changed; where there is none, or it is empty, something."""
    match value:
        case None:
            return 1 if column in ("previous", "question", "ended_at", "expires_at") else "x"
        case bool():
            return not value
        case int():
            return value ^ 1 << chance.randrange(8)
        case float():
            bits = struct.unpack(">Q", struct.pack(">d", value))[0] ^ 1 << chance.randrange(52)
            return struct.unpack(">d", struct.pack(">Q", bits))[0]
        case bytes() if value:
            at = chance.randrange(len(value))
            return value[:at] + bytes([value[at] ^ 1 << chance.randrange(8)]) + value[at + 1 :]
        case str() if value:
            at = chance.randrange(min(len(value), 2_000))
            return value[:at] + chr(ord(value[at]) ^ 1 << chance.randrange(5)) + value[at + 1 :]
        case _:
            return "x" if isinstance(value, str) else b"x"
