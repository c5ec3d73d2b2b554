"""The public view of a key: its permissions, limits and usage, never the key itself."""

import msgspec

from treadle.access.budgets import BudgetLedger
from treadle.journal.keys_interface import KeyBudget, KeyRates, KeyRow, Period, Role, Spent

PERIODS: tuple[Period, ...] = ("day", "month", "total")


class KeyView(msgspec.Struct, frozen=True, kw_only=True):
    """A key; `used` is what it used today, this month and in all."""

    id: str
    name: str
    state: str
    created_at: float
    expires_at: float | None
    revoked_at: float | None
    apis: tuple[str, ...]
    models: tuple[str, ...]
    tools: tuple[str, ...]
    role: Role
    rates: KeyRates
    budget: KeyBudget
    used: dict[str, Spent]


class MadeKey(KeyView, frozen=True, kw_only=True):
    """A key that was made just now, with the text that its owner must keep: nobody can show it again."""

    key: str


async def view_of(row: KeyRow, ledger: BudgetLedger, now: float) -> KeyView:
    """Return the view of a key. Raises: StoreError."""
    grant = row.grant
    return KeyView(
        id=row.id,
        name=row.name,
        state=state_of(row, now),
        created_at=row.created_at,
        expires_at=row.expires_at,
        revoked_at=row.revoked_at,
        apis=grant.apis,
        models=grant.models,
        tools=grant.tools,
        role=grant.role,
        rates=grant.rates,
        budget=grant.budget,
        used={period: await ledger.spent(row.id, period, now) for period in PERIODS},
    )


def state_of(row: KeyRow, now: float) -> str:
    """Return the state of a key: `active`, `expired` or `revoked`."""
    if row.revoked_at is not None:
        return "revoked"
    return "expired" if row.expires_at is not None and row.expires_at <= now else "active"
