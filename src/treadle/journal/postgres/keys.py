"""Keys on PostgreSQL."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from treadle.core.usage import Usage
from treadle.journal.keys_interface import (
    Charge,
    Debt,
    KeyBudget,
    KeyGrant,
    KeyRow,
    Reservation,
    ReservationResult,
    Spent,
    taken,
)
from treadle.journal.postgres.connection import Connection
from treadle.journal.postgres.queries import within
from treadle.journal.postgres.row_mapping import bind_plain, bind_text, read_text
from treadle.journal.postgres.workspaces import Reads, WorkspaceWrites

_FIELDS = "id, name, lookup, mac, created_at, expires_at, revoked_at, powers"
_ADD = f"INSERT INTO keys ({_FIELDS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING RETURNING n"
_FIND = f"SELECT {_FIELDS} FROM keys WHERE lookup = $1"
_PAGE = f"""
SELECT {_FIELDS} FROM keys
WHERE $1::text IS NULL OR n < (SELECT n FROM keys WHERE id = $1) ORDER BY n DESC LIMIT $2
"""
_REVOKE = f"""
UPDATE keys SET revoked_at = coalesce(revoked_at, $2)
WHERE n = (SELECT n FROM keys WHERE id = $1 OR name = $1 ORDER BY (id = $1) DESC LIMIT 1) RETURNING {_FIELDS}
"""
_REVOKED = "SELECT id FROM keys WHERE id = ANY($1::text[]) AND revoked_at IS NOT NULL"
_SETTLE = """
WITH owed AS (SELECT run_id FROM debts WHERE run_id = ANY($1::text[]) ORDER BY run_id FOR UPDATE SKIP LOCKED),
paid AS (DELETE FROM debts d USING owed WHERE d.run_id = owed.run_id RETURNING d.run_id, d.key_id),
charged AS (
  INSERT INTO key_usage AS old (key_id, period, runs, input_tokens, output_tokens, usd)
  SELECT paid.key_id, c.period,
    sum(c.runs)::bigint, sum(c.input_tokens)::bigint, sum(c.output_tokens)::bigint, sum(c.usd)
  FROM paid JOIN unnest($2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::float8[])
    AS c (run_id, period, runs, input_tokens, output_tokens, usd) ON c.run_id = paid.run_id
  GROUP BY paid.key_id, c.period ORDER BY paid.key_id, c.period
  ON CONFLICT (key_id, period) DO UPDATE SET
    runs = old.runs + excluded.runs,
    input_tokens = old.input_tokens + excluded.input_tokens,
    output_tokens = old.output_tokens + excluded.output_tokens,
    usd = old.usd + excluded.usd
), freed AS (
  DELETE FROM reservations r USING paid WHERE r.run_id = paid.run_id
)
SELECT run_id FROM paid
"""
# One process at a time asks for a key's budget: only a statement that begins after it has the lock sees what the one
# before was given.
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('treadle budget ' || $1, 0))"
_IS_GONE = """
NOT EXISTS (SELECT 1 FROM debts d WHERE d.run_id = o.run_id)
AND NOT EXISTS (SELECT 1 FROM runs r JOIN leases l ON l.run = r.n WHERE r.id = o.run_id)
"""
_RESERVE = f"""
WITH gone AS (
  DELETE FROM reservations o WHERE o.key_id = $2 AND o.until <= $6 AND {_IS_GONE} RETURNING o.run_id
), spent AS (
  SELECT coalesce(sum(runs), 0)::bigint AS runs, coalesce(sum(input_tokens), 0)::bigint AS input_tokens,
    coalesce(sum(output_tokens), 0)::bigint AS output_tokens, coalesce(sum(usd), 0)::float8 AS usd
  FROM key_usage WHERE key_id = $2 AND period = $7
), held AS (
  SELECT count(*) AS runs, coalesce(sum(o.tokens), 0)::bigint AS tokens, coalesce(sum(o.usd), 0)::float8 AS usd
  FROM reservations o
  WHERE o.key_id = $2 AND o.run_id <> $1 AND NOT EXISTS (SELECT 1 FROM gone WHERE gone.run_id = o.run_id)
), made AS (
  INSERT INTO reservations (run_id, key_id, tokens, usd, until)
  SELECT $1, $2, $3, $4, $5 FROM spent, held
  WHERE ($8::bigint = 0 OR spent.input_tokens + spent.output_tokens + held.tokens < $8::bigint)
    AND ($9::float8 = 0 OR spent.usd + held.usd < $9::float8)
  ON CONFLICT (run_id) DO UPDATE SET until = excluded.until RETURNING 1
)
SELECT spent.runs, spent.input_tokens, spent.output_tokens, spent.usd, held.runs, held.tokens, held.usd,
  EXISTS (SELECT 1 FROM made)
FROM spent, held
"""
_RELEASE = f"DELETE FROM reservations o WHERE o.run_id = $1 AND {_IS_GONE}"
_DEBTS = "SELECT run_id, key_id, model, ended_at, usage FROM debts WHERE ended_at <= $1 ORDER BY ended_at LIMIT $2"
_SPENT = "SELECT runs, input_tokens, output_tokens, usd FROM key_usage WHERE key_id = $1 AND period = $2"

_powers = msgspec.json.Decoder(KeyGrant)
_usage = msgspec.json.Decoder(Usage)


class PostgresKeys:
    """Fits `kept.KeyStore`, over the connections of a PostgresStore."""

    def __init__(self, read: Reads, write: WorkspaceWrites) -> None:
        self._read = read
        self._write = write

    async def add(self, row: KeyRow) -> None:
        """Keep a key.

        Raises: Conflict.
        """
        texts = (
            bind_plain("keys.id", row.id),
            bind_plain("keys.name", row.name),
            bind_plain("keys.lookup", row.lookup),
        )
        powers = msgspec.json.encode(row.grant).decode()
        values = (*texts, row.mac, row.created_at, row.expires_at, row.revoked_at, powers)
        if await self._write(lambda connection: connection.fetchrow(_ADD, *values)) is None:
            raise taken(row)

    async def find(self, lookup: str) -> KeyRow | None:
        """Return the key with this lookup."""
        found = await self._read(lambda connection: connection.fetchrow(_FIND, bind_text(lookup)))
        return None if found is None else _read_key(found)

    async def page(self, limit: int = 200, *, before: str | None = None) -> list[KeyRow]:
        """Return keys, newest first."""
        values = bind_text(before), within(limit)
        return [_read_key(row) for row in await self._read(lambda connection: connection.fetch(_PAGE, *values))]

    async def revoke(self, id_or_name: str, at: float) -> KeyRow | None:
        """Revoke a key for ever, and return it."""
        found = await self._write(lambda connection: connection.fetchrow(_REVOKE, bind_text(id_or_name), at))
        return None if found is None else _read_key(found)

    async def revoked(self, key_ids: Iterable[str]) -> frozenset[str]:
        """Return those of the keys that are revoked."""
        wanted = [bind_text(each) for each in key_ids]
        found = await self._read(lambda connection: connection.fetch(_REVOKED, wanted))
        return frozenset(read_text(row[0]) or "" for row in found)

    async def settle(self, charges: Sequence[Charge]) -> set[str]:
        """Charge runs that ended to their keys, and forget their debts."""
        if not charges:
            return set()
        names = {bind_text(each.run_id): each.run_id for each in charges}
        rows = [
            (bind_text(each.run_id), period, *msgspec.structs.astuple(each.spent))
            for each in charges
            for period in each.periods
        ]
        columns = [list(column) for column in zip(*rows, strict=True)]

        async def work(connection: Connection) -> set[str]:
            return {names[row["run_id"]] for row in await connection.fetch(_SETTLE, [*names], *columns)}

        return await self._write(work)

    async def debts(self, before: float, limit: int = 200) -> list[Debt]:
        """Return the runs of keys that ended before that time and are not charged yet."""
        found = await self._read(lambda connection: connection.fetch(_DEBTS, before, within(limit)))
        return [_read_debt(row) for row in found]

    async def spent(self, key_id: str, period: str) -> Spent:
        """Return what a key used in a period."""
        found = await self._read(lambda connection: connection.fetchrow(_SPENT, bind_text(key_id), period))
        return Spent() if found is None else Spent(**dict(found))

    async def reserve(self, wanted: Reservation, budget: KeyBudget, period: str, now: float) -> ReservationResult:
        """Reserve what a run may use, if the budget of its key has room beside what was used and is reserved."""
        run_id, key_id = bind_text(wanted.run_id), bind_text(wanted.key_id)
        values = (run_id, key_id, wanted.tokens, wanted.usd, wanted.until, now, period, budget.tokens, budget.usd)

        async def work(connection: Connection) -> Any:
            async with connection.transaction():
                await connection.execute(_LOCK, key_id)
                return await connection.fetchrow(_RESERVE, *values)

        runs, given, made, usd, *held, is_reserved = await self._write(work)
        return ReservationResult(
            spent=Spent(runs=runs, input_tokens=given, output_tokens=made, usd=usd),
            reserved=Spent(runs=held[0], output_tokens=held[1], usd=held[2]),
            is_reserved=is_reserved,
        )

    async def release(self, run_id: str) -> None:
        """Give back what was reserved for a run that never began."""
        await self._write(lambda connection: connection.execute(_RELEASE, bind_text(run_id)))


def _read_key(row: Any) -> KeyRow:
    values = dict(row)
    powers = values.pop("powers")
    return KeyRow(**values, grant=_powers.decode(powers))


def _read_debt(row: Any) -> Debt:
    run_id, key_id, model = (read_text(row[name]) or "" for name in ("run_id", "key_id", "model"))
    used = None if row["usage"] is None else _usage.decode(row["usage"])
    return Debt(run_id=run_id, key_id=key_id, model=model, ended_at=row["ended_at"], usage=used)
