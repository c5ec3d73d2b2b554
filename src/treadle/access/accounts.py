"""The accounts of keys: whether another run may begin, which ones go on, and what those that ended have used.

Runs and tokens are counted in this process; budgets are in the store, and so everybody's. The budget is looked at
before a run and charged when its end is durable: a process that dies between the two forgets to charge that run, and
no run is ever charged twice.
"""

import logging
from collections import Counter
from collections.abc import Callable

import msgspec

from treadle.access.budget import Ledger
from treadle.access.client import Client
from treadle.access.keyring import Clock
from treadle.access.rates import Hit, Rates
from treadle.canon.errors import Exhausted, TreadleError
from treadle.canon.usage import Usage
from treadle.store.keys.kept import KeyStore
from treadle.store.keys.kept import Rates as Limits

log = logging.getLogger("treadle.access")

MINUTE_S = 60.0
RUNS_RETRY_S = 1.0
"""When to come back for a place: nobody knows when a run ends."""

Cost = Callable[[str, Usage | None], float | None]
"""Says what a model's usage costs, if that is known."""


class Accounts:
    """Fits the runs room's `Tolls`. `limits` hold for keys that have none of their own, and for whoever has no key."""

    def __init__(self, keys: KeyStore, rates: Rates, clock: Clock, cost: Cost, limits: Limits) -> None:
        self._ledger = Ledger(keys)
        self._rates = rates
        self._clock = clock
        self._cost = cost
        self._limits = limits
        self._runs: Counter[str] = Counter()
        self._runs_max: dict[str, int] = {}

    @property
    def ledger(self) -> Ledger:
        """Return what keys have used."""
        return self._ledger

    def limits_of(self, client: Client) -> Limits:
        """Return the client's limits: its own where it has any."""
        own, others = client.grant.rates, self._limits
        return Limits(**{name: getattr(own, name) or getattr(others, name) for name in Limits.__struct_fields__})

    def tokens_left(self, client: Client) -> Hit | None:
        """Return how many tokens the client may still use; None where there is no bound."""
        limit = self.limits_of(client).tokens_per_min
        return self._rates.take(_tokens(client.key_id), limit, MINUTE_S, 0) if limit else None

    async def admit(self, client: Client) -> None:
        """Let a client begin a run.

        Raises: Exhausted, saying what is used up and when there is more; StoreError.
        """
        self._runs_max[client.key_id] = self.limits_of(client).runs_max
        self.check(client.key_id)
        tokens = self.tokens_left(client)
        if tokens is not None and not tokens.allowed:
            message = f"The limit of {tokens.limit} tokens per minute is reached."
            raise Exhausted(message, code="rate_limit_tokens", retry_after_s=tokens.reset_s)
        await self._ledger.check(client, self._clock.now())

    def check(self, key_id: str) -> None:
        """Let a run begin beside those that go on.

        Raises: Exhausted.
        """
        most = self._runs_max.get(key_id, 0)
        if most and self._runs[key_id] >= most:
            message = f"The limit of {most} runs at once is reached."
            raise Exhausted(message, code="rate_limit_runs", retry_after_s=RUNS_RETRY_S)

    def enter(self, key_id: str) -> None:
        """Count a run that goes on."""
        self._runs[key_id] += 1

    def leave(self, key_id: str) -> None:
        """Count it out."""
        self._runs[key_id] -= 1
        if not self._runs[key_id]:
            del self._runs[key_id]

    async def spend(self, key_id: str, model: str, usage: Usage | None) -> None:
        """Charge what a run used; where that cannot be written it is logged, for the run is over."""
        used = usage or Usage()
        self._rates.add(_tokens(key_id), MINUTE_S, used.input_tokens + used.output_tokens)
        if not key_id:
            return
        try:
            await self._ledger.spend(key_id, usage, self._cost(model, usage), self._clock.now())
        except TreadleError as error:
            fields = {"owner": key_id, "model": model, "code": error.info.code, **msgspec.structs.asdict(used)}
            log.warning("run not charged", extra=fields)


def _tokens(key_id: str) -> str:
    return f"tokens:{key_id}"
