"""The budget of a key for a day, a month or in total, and its usage so far. Periods are in UTC."""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache

from treadle.access.client_identity import Client
from treadle.core.errors import Exhausted
from treadle.core.usage import Usage
from treadle.journal.keys_interface import (
    Charge,
    Debt,
    KeyBudget,
    KeyStore,
    Period,
    Reservation,
    ReservationResult,
    Spent,
)

TOTAL = "total"
DAY_S = 86_400
OUTPUT_TOKENS = 4_096
"""The expected output of a run that sets no bound."""

INPUT_BYTES_PER_TOKEN = 3
"""Most text has four; a run should rather reserve too much."""

HELD_RETRY_S = 1.0
"""When to retry if the rest of a budget is reserved: the end of a run cannot be predicted."""

HOLD_S = 60.0
"""How long a reservation without a run counts: its process may have died before the run was stored."""

TOKENS_MAX = 2**40
"""More than any run can use; keeps the sum of eight million runs within 64 bits, whatever a provider reports."""


def periods_at(now: float) -> Mapping[Period, str]:
    """Return the names of the current periods."""
    return _periods_of(int(now // DAY_S))


@lru_cache(maxsize=8)
def _periods_of(day: int) -> Mapping[Period, str]:
    """Return the period names of a day, counted from 1970."""
    date = datetime.fromtimestamp(day * DAY_S, UTC)
    return {"day": f"{date:%Y-%m-%d}", "month": f"{date:%Y-%m}", "total": TOTAL}


def used_by(usage: Usage | None, usd: float | None) -> Spent:
    """Return the usage of one run."""
    used = usage or Usage()
    input_tokens, output_tokens = min(used.input_tokens, TOKENS_MAX), min(used.output_tokens, TOKENS_MAX)
    return Spent(runs=1, input_tokens=input_tokens, output_tokens=output_tokens, usd=usd or 0.0)


class BudgetLedger:
    """Adds up the usage of keys, and checks it against their budgets."""

    def __init__(self, keys: KeyStore) -> None:
        self._keys = keys

    async def check(self, client: Client, now: float) -> None:
        """Check that a client's budget is not used up. The last run may exceed it.

        Raises: Exhausted, naming the budget; StoreError.
        """
        budget = client.grant.budget
        if not client.key_id or not (budget.tokens or budget.usd):
            return
        spent = await self.spent(client.key_id, budget.period, now)
        _check(client, spent)

    async def reserve(self, client: Client, run_id: str, expected: Spent, now: float) -> ReservationResult:
        """Reserve the expected usage of a run, if the budget has room beside the reservations of active runs.

        Raises: Exhausted, if the budget is used up and waiting for other runs does not help; StoreError.
        """
        budget = client.grant.budget
        wanted = Reservation(
            run_id=run_id, key_id=client.key_id, tokens=expected.tokens, usd=expected.usd, until=now + HOLD_S
        )
        standing = await self._keys.reserve(wanted, budget, periods_at(now)[budget.period], now)
        if not standing.is_reserved:
            _check(client, standing.spent)
        return standing

    async def release(self, run_id: str) -> None:
        """Release the reservation of a run that was not started. Raises: StoreError."""
        await self._keys.release(run_id)

    async def settle(self, ended: Mapping[str, tuple[Spent, float]]) -> set[str]:
        """Charge runs to their keys, each once, in the periods in which they ended; return those charged now.

        Raises: StoreError.
        """
        charges = [Charge(run_id, tuple(periods_at(at).values()), used) for run_id, (used, at) in ended.items()]
        return await self._keys.settle(charges)

    async def debts(self, before: float) -> list[Debt]:
        """Return the runs that ended before that time and were not charged. Raises: StoreError."""
        return await self._keys.debts(before)

    async def spent(self, key_id: str, period: Period, now: float) -> Spent:
        """Return the usage of a key in the current period. Raises: StoreError."""
        return await self._keys.spent(key_id, periods_at(now)[period])


def expected_tokens(input_bytes: int, output_tokens_max: int | None) -> Usage:
    """Return the expected usage of a run, from the size of its input and its output bound."""
    input_tokens = min(input_bytes // INPUT_BYTES_PER_TOKEN, TOKENS_MAX)
    output_tokens = OUTPUT_TOKENS if output_tokens_max is None else min(max(output_tokens_max, 0), TOKENS_MAX)
    return Usage(input_tokens=input_tokens, output_tokens=output_tokens)


def held_back(client: Client, standing: ReservationResult) -> Exhausted:
    """Return the error for a budget whose rest is reserved by active runs, so that a retry helps."""
    message = (
        f"What is left of the budget of the key {client.name!r} is reserved by {standing.reserved.runs} of its runs."
    )
    return Exhausted(message, code="budget_exceeded", retry_after_s=HELD_RETRY_S)


def _check(client: Client, spent: Spent) -> None:
    """Check that something of the budget is left. Raises: Exhausted."""
    budget: KeyBudget = client.grant.budget
    if budget.tokens and spent.tokens >= budget.tokens:
        raise _over(client, f"{spent.tokens} of {budget.tokens} tokens", budget.period)
    if budget.usd and spent.usd >= budget.usd:
        raise _over(client, f"${spent.usd:.2f} of ${budget.usd:.2f}", budget.period)


def _over(client: Client, used: str, period: Period) -> Exhausted:
    when = {"day": " today", "month": " this month", "total": ""}[period]
    return Exhausted(f"The budget of the key {client.name!r} is used up{when}: {used}.", code="budget_exceeded")
