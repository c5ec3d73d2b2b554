"""Budgets: when a key has used enough."""

import msgspec
import pytest

from treadle.access.budgets import TOKENS_MAX, BudgetLedger, periods_at, used_by
from treadle.access.client_identity import LOCAL, Client
from treadle.core.errors import Exhausted
from treadle.core.events import RunEnded
from treadle.core.usage import Usage
from treadle.journal.journal_interface import RunRow, Store
from treadle.journal.keys_interface import KeyBudget, KeyGrant
from treadle.journal.open_store import open_store
from treadle.journal.store_url import MEMORY

NOV_30 = 1_796_083_199.0
"""One second before December 2026, in UTC."""


class Kept(BudgetLedger):
    """A ledger and the store of its runs."""

    def __init__(self, store: Store) -> None:
        super().__init__(store.keys)
        self._store = store

    async def spend(self, usage: Usage | None, usd: float | None) -> None:
        """Let a run of the key end and be charged."""
        row = RunRow(id="run_1", response_id="resp_1", conversation_id="c", protocol="chat", model="m", created_at=1.0)
        mine = msgspec.structs.replace(row, key_id="key_1")
        journal = await self._store.start_run(mine, [], owner="test", lease_s=60.0)
        await journal.finish([], RunEnded(status="completed", usage=usage, ended_at=NOV_30))
        assert await self.settle({"run_1": (used_by(usage, usd), NOV_30)}) == {"run_1"}


@pytest.fixture
async def ledger():
    """A ledger over a store of its own."""
    store = open_store(MEMORY)
    await store.open()
    yield Kept(store)
    await store.close()


def client(**fields: object) -> Client:
    """A key with a budget."""
    return Client(key_id="key_1", name="ann", grant=KeyGrant(budget=KeyBudget(**fields)))  # type: ignore[arg-type]


def test_the_calendar_is_that_of_utc():
    """Whatever the machine's time zone."""
    assert periods_at(NOV_30) == {"day": "2026-11-30", "month": "2026-11", "total": "total"}
    assert periods_at(NOV_30 + 1) == {"day": "2026-12-01", "month": "2026-12", "total": "total"}


async def test_a_key_is_refused_when_its_tokens_are_used_up(ledger):
    """The run that goes over is not cut; the next is refused."""
    ann = client(tokens=100)
    await ledger.check(ann, NOV_30)
    await ledger.spend(Usage(input_tokens=90, output_tokens=20), None)
    with pytest.raises(Exhausted, match="110 of 100 tokens"):
        await ledger.check(ann, NOV_30)


async def test_a_month_s_budget_is_whole_again_in_the_next(ledger):
    """And a budget for ever is not."""
    await ledger.spend(Usage(input_tokens=1), 3.0)
    with pytest.raises(Exhausted, match="this month"):
        await ledger.check(client(usd=2.5, period="month"), NOV_30)
    await ledger.check(client(usd=2.5, period="month"), NOV_30 + 1)
    with pytest.raises(Exhausted):
        await ledger.check(client(usd=2.5), NOV_30 + 1)


async def test_who_has_no_budget_is_never_refused(ledger):
    """Nor whoever needs no key."""
    await ledger.spend(Usage(input_tokens=10**12), 10.0**6)
    await ledger.check(client(), NOV_30)
    await ledger.check(LOCAL, NOV_30)


async def test_a_run_without_a_usage_counts_as_a_run(ledger):
    """What is unknown adds nothing."""
    await ledger.spend(None, None)
    spent = await ledger.spent("key_1", "total", NOV_30)
    assert (spent.runs, spent.tokens, spent.usd) == (1, 0, 0.0)


async def test_what_cannot_be_true_of_an_upstream_can_be_added_up(ledger):
    """Some say 2**64 - 1 where they mean that they do not know."""
    used = used_by(Usage(input_tokens=2**64 - 1, output_tokens=2**63), None)
    assert (used.input_tokens, used.output_tokens) == (TOKENS_MAX, TOKENS_MAX)
    assert 2**23 * used.input_tokens <= 2**63
