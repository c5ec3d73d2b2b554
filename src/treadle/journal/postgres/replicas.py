"""The processes of a store on PostgreSQL: seen by the clock of the database."""

from treadle.journal.postgres.connection import Connection
from treadle.journal.postgres.row_mapping import bind_text, read_text
from treadle.journal.postgres.step_runner import Reads, WorkspaceWrites
from treadle.journal.replicas_interface import ReplicaRow

_NOW = "date_part('epoch', clock_timestamp())"
_BEAT = f"""
WITH forgotten AS (DELETE FROM replicas WHERE seen_at < {_NOW} - $3::float8 AND owner <> $1)
INSERT INTO replicas (owner, facts, started_at, seen_at) VALUES ($1, $2, {_NOW}, {_NOW})
ON CONFLICT (owner) DO UPDATE SET facts = excluded.facts, seen_at = excluded.seen_at RETURNING started_at
"""
_LIVING = f"""
SELECT owner, facts, started_at, {_NOW} - seen_at FROM replicas WHERE seen_at >= {_NOW} - $1::float8
ORDER BY started_at, owner
"""
_LEAVE = "DELETE FROM replicas WHERE owner = $1"
_NOTE = f"INSERT INTO key_secrets (fingerprint, noted_at) VALUES ($1, {_NOW}) ON CONFLICT DO NOTHING"
_SECRETS = "SELECT fingerprint FROM key_secrets"


class PostgresReplicas:
    """Fits `kept.ReplicaStore`, over the connections of a PostgresStore."""

    def __init__(self, read: Reads, write: WorkspaceWrites) -> None:
        self._read = read
        self._write = write

    async def beat(self, owner: str, facts: str, *, forget_s: float) -> float:
        """Write that a process is there, and return since when; forget those that were not seen for so long."""
        values = bind_text(owner), bind_text(facts), forget_s

        async def work(connection: Connection) -> float:
            return await connection.fetchval(_BEAT, *values)

        return await self._write(work)

    async def living(self, within_s: float) -> list[ReplicaRow]:
        """Return the processes that were seen within so many seconds, longest there first."""
        rows = await self._read(lambda connection: connection.fetch(_LIVING, within_s))
        return [
            ReplicaRow(
                owner=read_text(owner) or "", facts=read_text(facts) or "", started_at=started_at, silent_s=silent_s
            )
            for owner, facts, started_at, silent_s in rows
        ]

    async def leave(self, owner: str) -> None:
        """Forget a process that ends."""
        await self._write(lambda connection: connection.execute(_LEAVE, bind_text(owner)))

    async def note_secret(self, fingerprint: str) -> None:
        """Keep that a key was made, or proved, under the secret with this fingerprint."""

        async def work(connection: Connection) -> str:
            return await connection.execute(_NOTE, fingerprint)

        await self._write(work)

    async def secrets(self) -> frozenset[str]:
        """Return the fingerprints of the secrets under which keys were made or proved."""
        return frozenset(row[0] for row in await self._read(lambda connection: connection.fetch(_SECRETS)))
