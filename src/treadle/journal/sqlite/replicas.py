# ruff: noqa: D102 - the methods are documented in replicas_interface
"""Stores the processes that share a database on SQLite: all run on one machine, so by one clock."""

from collections.abc import Callable
from functools import partial

from treadle.journal.replicas_interface import ReplicaRow
from treadle.journal.sql_steps import Access, RunSteps, Steps, Tables, single

_FORGET = "DELETE FROM replicas WHERE seen_at < $1 AND owner <> $2"
_BEAT = """
INSERT INTO replicas (owner, facts, started_at, seen_at) VALUES ($1, $2, $3, $3)
ON CONFLICT (owner) DO UPDATE SET facts = excluded.facts, seen_at = excluded.seen_at RETURNING started_at
"""
_LIVING = "SELECT owner, facts, started_at, seen_at FROM replicas WHERE seen_at >= $1 ORDER BY started_at, owner"
_LEAVE = "DELETE FROM replicas WHERE owner = $1"
_NOTE = "INSERT INTO key_secrets (fingerprint, noted_at) VALUES ($1, $2) ON CONFLICT DO NOTHING"
_SECRETS = "SELECT fingerprint FROM key_secrets"


class SqliteReplicas(Tables):
    """Fits `replicas_interface.ReplicaStore`; `write_lazily` writes without waiting for the disk."""

    def __init__(self, access: Access, write_lazily: RunSteps, clock: Callable[[], float]) -> None:
        super().__init__(access)
        self._write_lazily = write_lazily
        self._clock = clock

    async def beat(self, owner: str, facts: str, *, forget_s: float) -> float:
        now, name, text = self._clock(), self._dialect.bind_text(owner), self._dialect.bind_text(facts)

        def steps() -> Steps[float]:
            yield _FORGET, now - forget_s, name
            return (yield _BEAT, name, text, now)[0][0]

        return await self._write_lazily(steps)

    async def living(self, within_s: float) -> list[ReplicaRow]:
        now, text = self._clock(), self._dialect.text
        return [
            ReplicaRow(owner=text(owner), facts=text(facts), started_at=started_at, silent_s=now - seen_at)
            for owner, facts, started_at, seen_at in await self.fetch(_LIVING, now - within_s)
        ]

    async def leave(self, owner: str) -> None:
        await self._write_lazily(partial(single, _LEAVE, self._dialect.bind_text(owner)))

    async def note_secret(self, fingerprint: str) -> None:
        await self.execute(_NOTE, fingerprint, self._clock())

    async def secrets(self) -> frozenset[str]:
        return frozenset(row[0] for row in await self.fetch(_SECRETS))
