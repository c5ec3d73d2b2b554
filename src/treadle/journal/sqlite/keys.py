# ruff: noqa: D102 - the methods are documented in keys_interface
"""Charges keys and reserves their budget on SQLite, where writers take turns."""

from collections.abc import Mapping, Sequence

import msgspec

from treadle.journal.keys_interface import (
    Charge,
    KeyBudget,
    Reservation,
    ReservationResult,
    Spent,
    add_up,
    has_room,
)
from treadle.journal.keys_store import SPENT, StoredKeys, read_spent
from treadle.journal.sql_steps import Access, RunSteps, Steps
from treadle.journal.sqlite.row_mapping import bind_text

_SPEND = """
INSERT INTO key_usage (key_id, period, runs, input_tokens, output_tokens, usd) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (key_id, period) DO UPDATE SET
  runs = runs + excluded.runs,
  input_tokens = input_tokens + excluded.input_tokens,
  output_tokens = output_tokens + excluded.output_tokens,
  usd = usd + excluded.usd
"""
_PAY = "DELETE FROM debts WHERE run_id = $1 RETURNING key_id"
_IS_GONE = """
NOT EXISTS (SELECT 1 FROM debts d WHERE d.run_id = reservations.run_id)
AND NOT EXISTS (SELECT 1 FROM runs r JOIN leases l ON l.run = r.n WHERE r.id = reservations.run_id)
"""
_FORGET_DEAD = f"DELETE FROM reservations WHERE key_id = $1 AND until <= $2 AND {_IS_GONE}"
_RESERVED = """
SELECT count(*), coalesce(sum(tokens), 0), coalesce(sum(usd), 0.0) FROM reservations WHERE key_id = $1 AND run_id <> $2
"""
_RESERVE = """
INSERT INTO reservations (run_id, key_id, tokens, usd, until) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (run_id) DO UPDATE SET until = excluded.until
"""
_RELEASE = f"DELETE FROM reservations WHERE run_id = $1 AND {_IS_GONE}"
_FREE = "DELETE FROM reservations WHERE run_id = $1"


class SqliteKeys(StoredKeys):
    """Fits `keys_interface.KeyStore`; `write_lazily` writes without waiting for the disk."""

    def __init__(self, access: Access, write_lazily: RunSteps) -> None:
        super().__init__(access)
        self._write_lazily = write_lazily

    async def settle(self, charges: Sequence[Charge]) -> set[str]:
        def steps() -> Steps[set[str]]:
            paid: list[tuple[str, Charge]] = []
            for each in charges:
                key_id = yield from pay(each.run_id)
                if key_id is not None:
                    paid.append((key_id, each))
            yield from charge(add_up(paid), [each.run_id for _, each in paid])
            return {each.run_id for _, each in paid}

        # A charge that is lost with the machine leaves the debt, which was on disk with the run's end.
        return await self._write_lazily(steps)

    async def reserve(self, wanted: Reservation, budget: KeyBudget, period: str, now: float) -> ReservationResult:
        run_id, key_id = bind_text(wanted.run_id), bind_text(wanted.key_id)

        def steps() -> Steps[ReservationResult]:
            yield _FORGET_DEAD, key_id, now
            [(runs, tokens, usd)] = yield _RESERVED, key_id, run_id
            reserved = Spent(runs=runs, output_tokens=tokens, usd=usd)
            spent = read_spent((yield SPENT, key_id, period))
            is_reserved = has_room(budget, spent.plus(reserved))
            if is_reserved:
                yield _RESERVE, run_id, key_id, wanted.tokens, wanted.usd, wanted.until
            return ReservationResult(spent=spent, reserved=reserved, is_reserved=is_reserved)

        # What is lost with the machine is lost with the run that it was for.
        return await self._write_lazily(steps)

    async def release(self, run_id: str) -> None:
        def steps() -> Steps[None]:
            yield _RELEASE, bind_text(run_id)

        await self._write_lazily(steps)


def pay(run_id: str) -> Steps[str | None]:
    """Forget the debt of a run; return the key that had it, if any."""
    found = yield _PAY, bind_text(run_id)
    return found[0][0] if found else None


def charge(sums: Mapping[tuple[str, str], Spent], run_ids: Sequence[str]) -> Steps[None]:
    """Add to what keys used, by key and period, and forget what was reserved for the runs that are charged."""
    for (key_id, period), spent in sums.items():
        yield _SPEND, bind_text(key_id), period, *msgspec.structs.astuple(spent)
    for run_id in run_ids:
        yield _FREE, bind_text(run_id)
