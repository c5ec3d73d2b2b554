"""What a key may use in a day, a month or altogether, and what it has used. The calendar is that of UTC."""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache

from treadle.access.client import Client
from treadle.canon.errors import Exhausted
from treadle.canon.usage import Usage
from treadle.store.keys.kept import Charge, Debt, KeyStore, Period, Spent

TOTAL = "total"
DAY_S = 86_400
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


class Ledger:
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
        if budget.tokens and spent.tokens >= budget.tokens:
            raise _over(client, f"{spent.tokens} of {budget.tokens} tokens", budget.period)
        if budget.usd and spent.usd >= budget.usd:
            raise _over(client, f"${spent.usd:.2f} of ${budget.usd:.2f}", budget.period)

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


def _over(client: Client, used: str, period: Period) -> Exhausted:
    when = {"day": " today", "month": " this month", "total": ""}[period]
    return Exhausted(f"The budget of the key {client.name!r} is used up{when}: {used}.", code="budget_exceeded")
