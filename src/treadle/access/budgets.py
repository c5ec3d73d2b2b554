"""What a key may use in a day, a month or altogether, and what it has used. The calendar is that of UTC."""

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
"""What a run is taken to answer that sets no bound itself."""

INPUT_BYTES_PER_TOKEN = 3
"""Of most text there are four: a run shall reserve rather more than it will use."""

HELD_RETRY_S = 1.0
"""When to ask again where the rest of a budget is reserved: nobody knows when a run ends."""

HOLD_S = 60.0
"""How long a reservation counts of which no run and no debt is there: its process may have died before that."""

TOKENS_MAX = 2**40
"""More than any run can use: whatever an upstream says, eight million such runs still fit into a number of 64 bits."""


def periods_at(now: float) -> Mapping[Period, str]:
    """Return the names under which what is used now is added up."""
    return _periods_of(int(now // DAY_S))


@lru_cache(maxsize=8)
def _periods_of(day: int) -> Mapping[Period, str]:
    """Return the names of a day, counted from 1970: UTC, as computers count it, has days of one length."""
    date = datetime.fromtimestamp(day * DAY_S, UTC)
    return {"day": f"{date:%Y-%m-%d}", "month": f"{date:%Y-%m}", "total": TOTAL}


def used_by(usage: Usage | None, usd: float | None) -> Spent:
    """Return what one run used."""
    used = usage or Usage()
    taken, given = min(used.input_tokens, TOKENS_MAX), min(used.output_tokens, TOKENS_MAX)
    return Spent(runs=1, input_tokens=taken, output_tokens=given, usd=usd or 0.0)


class BudgetLedger:
    """Adds up what keys use, and says when it is too much."""

    def __init__(self, keys: KeyStore) -> None:
        self._keys = keys

    async def check(self, client: Client, now: float) -> None:
        """Let a client start a run as long as its budget lasts. The last one may go over it.

        Raises: Exhausted, saying which budget; StoreError.
        """
        budget = client.grant.budget
        if not client.key_id or not (budget.tokens or budget.usd):
            return
        spent = await self.spent(client.key_id, budget.period, now)
        _check(client, spent)

    async def reserve(self, client: Client, run_id: str, expected: Spent, now: float) -> ReservationResult:
        """Reserve what a run is expected to use, if the budget has room for another beside those that go on.

        Raises: Exhausted, where the budget is used up, and waiting for other runs is of no use; StoreError.
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
        """Give back what was reserved for a run that never began. Raises: StoreError."""
        await self._keys.release(run_id)

    async def settle(self, ended: Mapping[str, tuple[Spent, float]]) -> set[str]:
        """Charge runs to their keys, each once, in the periods in which they ended; return which were charged now.

        Raises: StoreError.
        """
        charges = [Charge(run_id, tuple(periods_at(at).values()), used) for run_id, (used, at) in ended.items()]
        return await self._keys.settle(charges)

    async def debts(self, before: float) -> list[Debt]:
        """Return the runs that ended before that time and were not charged. Raises: StoreError."""
        return await self._keys.debts(before)

    async def spent(self, key_id: str, period: Period, now: float) -> Spent:
        """Return what a key used in the period that is now. Raises: StoreError."""
        return await self._keys.spent(key_id, periods_at(now)[period])


def expected_tokens(input_bytes: int, output_tokens_max: int | None) -> Usage:
    """Return what a run is expected to use, as far as its request says."""
    given = min(input_bytes // INPUT_BYTES_PER_TOKEN, TOKENS_MAX)
    made = OUTPUT_TOKENS if output_tokens_max is None else min(max(output_tokens_max, 0), TOKENS_MAX)
    return Usage(input_tokens=given, output_tokens=made)


def held_back(client: Client, standing: ReservationResult) -> Exhausted:
    """Say that what is left of a budget is reserved by runs that go on, so that asking again helps."""
    message = (
        f"What is left of the budget of the key {client.name!r} is reserved by {standing.reserved.runs} of its runs."
    )
    return Exhausted(message, code="budget_exceeded", retry_after_s=HELD_RETRY_S)


def _check(client: Client, spent: Spent) -> None:
    """Let another run begin as long as something is left. Raises: Exhausted."""
    budget: KeyBudget = client.grant.budget
    if budget.tokens and spent.tokens >= budget.tokens:
        raise _over(client, f"{spent.tokens} of {budget.tokens} tokens", budget.period)
    if budget.usd and spent.usd >= budget.usd:
        raise _over(client, f"${spent.usd:.2f} of ${budget.usd:.2f}", budget.period)


def _over(client: Client, used: str, period: Period) -> Exhausted:
    when = {"day": " today", "month": " this month", "total": ""}[period]
    return Exhausted(f"The budget of the key {client.name!r} is used up{when}: {used}.", code="budget_exceeded")
