# ruff: noqa: D102 - the methods are documented in keys_interface
"""Charges keys and reserves their budget on PostgreSQL, each in one statement."""

from collections.abc import Sequence

import msgspec

from treadle.journal.keys_interface import Charge, KeyBudget, Reservation, ReservationResult, Spent
from treadle.journal.keys_store import StoredKeys
from treadle.journal.postgres.row_mapping import bind_text
from treadle.journal.sql_steps import Steps

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


class PostgresKeys(StoredKeys):
    """Fits `keys_interface.KeyStore`."""

    async def settle(self, charges: Sequence[Charge]) -> set[str]:
        if not charges:
            return set()
        names = {bind_text(each.run_id): each.run_id for each in charges}
        rows = [
            (bind_text(each.run_id), period, *msgspec.structs.astuple(each.spent))
            for each in charges
            for period in each.periods
        ]
        columns = [list(column) for column in zip(*rows, strict=True)]
        return {names[row[0]] for row in await self.execute(_SETTLE, [*names], *columns)}

    async def reserve(self, wanted: Reservation, budget: KeyBudget, period: str, now: float) -> ReservationResult:
        run_id, key_id = bind_text(wanted.run_id), bind_text(wanted.key_id)
        values = (run_id, key_id, wanted.tokens, wanted.usd, wanted.until, now, period, budget.tokens, budget.usd)

        def steps() -> Steps[ReservationResult]:
            yield _LOCK, key_id
            [(runs, given, made, usd, *held, is_reserved)] = yield _RESERVE, *values
            return ReservationResult(
                spent=Spent(runs=runs, input_tokens=given, output_tokens=made, usd=usd),
                reserved=Spent(runs=held[0], output_tokens=held[1], usd=held[2]),
                is_reserved=is_reserved,
            )

        return await self._access.transact(steps)

    async def release(self, run_id: str) -> None:
        await self.execute(_RELEASE, bind_text(run_id))
