"""What is stored of a client's key: how to find and check it, its permissions and its usage. Never the key itself."""

from collections.abc import Iterable, Sequence
from typing import Literal, Protocol

import msgspec

from treadle.core.errors import Conflict
from treadle.core.usage import Usage

Role = Literal["none", "viewer", "operator", "admin"]
Period = Literal["day", "month", "total"]
TAKEN = "key_taken"


class KeyRates(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How much a key may do at a time; 0 sets no bound."""

    requests_per_min: int = 0
    tokens_per_min: int = 0
    runs_max: int = 0


class KeyBudget(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How much a key may use in a period, of the calendar in UTC; 0 sets no bound."""

    tokens: int = 0
    usd: float = 0.0
    period: Period = "total"


class KeyGrant(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a key may do. `apis`, `models` and `tools` are patterns, of which one must fit."""

    apis: tuple[str, ...] = ("*",)
    models: tuple[str, ...] = ("*",)
    tools: tuple[str, ...] = ("*",)
    role: Role = "none"
    rates: KeyRates = KeyRates()
    budget: KeyBudget = KeyBudget()


class KeyRow(msgspec.Struct, frozen=True, kw_only=True):
    """A key: `lookup` is the part by which it is found, `mac` proves the rest."""

    id: str
    name: str
    lookup: str
    mac: bytes
    created_at: float
    grant: KeyGrant = KeyGrant()
    expires_at: float | None = None
    revoked_at: float | None = None


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """What a key used in a period. `usd` counts only what had a price."""

    runs: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    usd: float = 0.0

    @property
    def tokens(self) -> int:
        """Return all tokens."""
        return self.input_tokens + self.output_tokens

    def plus(self, other: "Spent") -> "Spent":
        """Return the sum of both."""
        return Spent(
            runs=self.runs + other.runs,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            usd=self.usd + other.usd,
        )


class Debt(msgspec.Struct, frozen=True, kw_only=True):
    """A run that ended and is not charged yet. It is written with the run's end."""

    run_id: str
    key_id: str
    model: str
    ended_at: float
    usage: Usage | None = None


class Charge(msgspec.Struct, frozen=True):
    """What a run used, and the periods in which its key is charged for it."""

    run_id: str
    periods: tuple[str, ...]
    spent: Spent


class Reservation(msgspec.Struct, frozen=True, kw_only=True):
    """What a run may use of its key's budget before it is charged; it counts at least until `until`."""

    run_id: str
    key_id: str
    tokens: int
    usd: float
    until: float


class ReservationResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a budget stands: what was used, what other runs have reserved, and whether this reservation was made."""

    spent: Spent = Spent()
    reserved: Spent = Spent()
    is_reserved: bool = False


class KeyStore(Protocol):
    """Where keys are stored."""

    async def add(self, row: KeyRow) -> None:
        """Store a key.

        Raises: Conflict (code `key_taken`): its id, its name or its lookup is there already.
        """
        ...

    async def find(self, lookup: str) -> KeyRow | None:
        """Return the key with this lookup, also one that is expired or revoked."""
        ...

    async def page(self, limit: int = 200, *, before: str | None = None) -> list[KeyRow]:
        """Return keys, newest first; `before` is the id of the last one of the page before."""
        ...

    async def revoke(self, id_or_name: str, at: float) -> KeyRow | None:
        """Revoke a key for ever, once: a second time changes nothing. Return it, if it is there."""
        ...

    async def revoked(self, key_ids: Iterable[str]) -> frozenset[str]:
        """Return those of the keys that are revoked."""
        ...

    async def settle(self, charges: Sequence[Charge]) -> set[str]:
        """Charge runs that ended to their keys and forget their debts, all in one step; return which it were.

        A run that is not among them has no debt: it was charged before, is being charged now, or has no key.
        """
        ...

    async def debts(self, before: float, limit: int = 200) -> list[Debt]:
        """Return the runs of keys that ended before that time and are not charged yet, longest ended first."""
        ...

    async def spent(self, key_id: str, period: str) -> Spent:
        """Return what a key used in a period."""
        ...

    async def reserve(self, wanted: Reservation, budget: KeyBudget, period: str, now: float) -> ReservationResult:
        """Reserve what a run may use, if the budget of its key has room beside what was used and is reserved.

        Of any number of processes that ask at the same time each sees what the others were given. A reservation goes
        with the charge of its run, in one step; one that has expired goes where no lease and no debt of its run
        is left.
        """
        ...

    async def release(self, run_id: str) -> None:
        """Give back what was reserved for a run that never started; without effect for one that did."""
        ...


def has_room(budget: KeyBudget, used: Spent) -> bool:
    """Return whether another run may start when so much of a budget is used: the last one may go over it."""
    return (not budget.tokens or used.tokens < budget.tokens) and (not budget.usd or used.usd < budget.usd)


def add_up(charges: Iterable[tuple[str, Charge]]) -> dict[tuple[str, str], Spent]:
    """Return what each key is charged in each period for all of these runs."""
    sums: dict[tuple[str, str], Spent] = {}
    for key_id, charge in charges:
        for period in charge.periods:
            before = sums.get((key_id, period))
            sums[key_id, period] = charge.spent if before is None else before.plus(charge.spent)
    return sums


def taken(row: KeyRow) -> Conflict:
    """Return the error of a key that is there already."""
    return Conflict(f"There is a key {row.name!r} already.", code=TAKEN, param="name")
