"""The processes of a store on SQLite: all of one machine, so of one clock."""

from collections.abc import Callable

import apsw

from treadle.journal.replicas_interface import ReplicaRow
from treadle.journal.sqlite.connection import select
from treadle.journal.sqlite.row_mapping import bind_text, read_text
from treadle.journal.sqlite.workspaces import WorkspaceRuns

_FORGET = "DELETE FROM replicas WHERE seen_at < ? AND owner <> ?"
_BEAT = """
INSERT INTO replicas (owner, facts, started_at, seen_at) VALUES (?1, ?2, ?3, ?3)
ON CONFLICT (owner) DO UPDATE SET facts = excluded.facts, seen_at = excluded.seen_at RETURNING started_at
"""
_LIVING = "SELECT owner, facts, started_at, seen_at FROM replicas WHERE seen_at >= ? ORDER BY started_at, owner"
_LEAVE = "DELETE FROM replicas WHERE owner = ?"
_NOTE = "INSERT INTO key_secrets (fingerprint, noted_at) VALUES (?, ?) ON CONFLICT DO NOTHING"
_SECRETS = "SELECT fingerprint FROM key_secrets"


class SqliteReplicas:
    """Fits `kept.ReplicaStore`, over the connections of a SqliteStore; `jot` writes what the machine may lose."""

    def __init__(
        self, read: WorkspaceRuns, write: WorkspaceRuns, jot: WorkspaceRuns, clock: Callable[[], float]
    ) -> None:
        self._read = read
        self._write = write
        self._jot = jot
        self._clock = clock

    async def beat(self, owner: str, facts: str, *, forget_s: float) -> float:
        """Write that a process is there, and return since when; forget those that were not seen for so long."""
        now, name, text = self._clock(), bind_text(owner), bind_text(facts)

        def work(connection: apsw.Connection) -> float:
            select(connection, _FORGET, now - forget_s, name)
            return select(connection, _BEAT, name, text, now)[0][0]

        return await self._jot(work)

    async def living(self, within_s: float) -> list[ReplicaRow]:
        """Return the processes that were seen within so many seconds, longest there first."""
        now = self._clock()
        found = await self._read(lambda connection: select(connection, _LIVING, now - within_s))
        return [
            ReplicaRow(
                owner=read_text(owner) or "",
                facts=read_text(facts) or "",
                started_at=started_at,
                silent_s=now - seen_at,
            )
            for owner, facts, started_at, seen_at in found
        ]

    async def leave(self, owner: str) -> None:
        """Forget a process that ends."""
        name = bind_text(owner)
        await self._jot(lambda connection: select(connection, _LEAVE, name))

    async def note_secret(self, fingerprint: str) -> None:
        """Keep that a key was made, or proved, under the secret with this fingerprint."""
        now = self._clock()
        await self._write(lambda connection: select(connection, _NOTE, fingerprint, now))

    async def secrets(self) -> frozenset[str]:
        """Return the fingerprints of the secrets under which keys were made or proved."""
        return frozenset(name for (name,) in await self._read(lambda connection: select(connection, _SECRETS)))
