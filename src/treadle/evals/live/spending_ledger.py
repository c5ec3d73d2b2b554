"""The ledger of a live run: counts requests and money, and refuses model calls that could exceed the budget.

`Metered` wraps the model of each sample: it reserves cost in the ledger and records transport failures.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from treadle.core.errors import ErrorInfo, UpstreamError
from treadle.core.events import Failed, Finished, ModelEvent, Noted
from treadle.core.plan import Plan, plan_json
from treadle.core.request import Note
from treadle.core.usage import Usage, add_usage
from treadle.engine.ports import Model
from treadle.evals.live.prices import EvalPrice

BUDGET_REACHED = "budget_reached"
TOKEN_BYTES = 3
"""How few bytes of a request are taken for a token, so that an estimate is rather too high."""
_TRANSPORT_CODES = frozenset(
    {"upstream_timeout", "upstream_crowded", "upstream_broken_stream", "upstream_circuit_open"}
)


class SpendingLedger:
    """A live run's budget and use. Reserved is the most that the calls in progress may still cost."""

    def __init__(self, *, requests_max: int | None = None, budget_usd: float | None = None) -> None:
        self._requests_max = requests_max
        self._budget_usd = budget_usd
        self._reserved_usd = 0.0
        self.requests = 0
        self.spent_usd = 0.0
        self.is_exhausted = False

    def take(self, reserve_usd: float) -> bool:
        """Reserve the cost of one request; False when that would exceed the budget."""
        is_over = self._requests_max is not None and self.requests >= self._requests_max
        if self._budget_usd is not None:
            is_over |= self.spent_usd + self._reserved_usd + reserve_usd > self._budget_usd
        if is_over:
            self.is_exhausted = True
            return False
        self.requests += 1
        self._reserved_usd += reserve_usd
        return True

    def settle(self, reserve_usd: float, cost_usd: float | None) -> None:
        """Book what a request cost; one that never said so is booked with what was reserved."""
        self._reserved_usd -= reserve_usd
        self.spent_usd += reserve_usd if cost_usd is None else cost_usd


class Metered:
    """The model of one attempt at one sample."""

    def __init__(self, model: Model, ledger: SpendingLedger, price: EvalPrice | None, output_tokens_max: int) -> None:
        self._model = model
        self._ledger = ledger
        self._price = price
        self._output_tokens_max = output_tokens_max
        self.requests = 0
        self.usage: Usage | None = None
        self.cost_usd: float | None = None if price is None else 0.0
        self.failure: ErrorInfo | None = None
        self.notes: list[Note] = []

    async def stream(self, plan: Plan, run_id: str) -> AsyncGenerator[list[ModelEvent], None]:
        """Make one model call, if the ledger permits it.

        Raises: UpstreamError, before the first batch only.
        """
        reserve = self._reserve(plan)
        if not self._ledger.take(reserve):
            self.failure = ErrorInfo(code=BUDGET_REACHED, message="the budget is used up", status=402)
            raise UpstreamError("The budget of this evaluation is used up.", code=BUDGET_REACHED)
        self.requests += 1
        used: Usage | None = None
        try:
            async with aclosing(self._model.stream(plan, run_id)) as batches:
                async for batch in batches:
                    used = self._inspect(batch) or used
                    yield batch
        except UpstreamError as error:
            self.failure = error.info
            raise
        finally:
            cost = None if self._price is None else self._price.cost_of(used)
            self._ledger.settle(reserve, cost)
            self.usage = add_usage(self.usage, used)
            if self._price is not None:
                self.cost_usd = (self.cost_usd or 0.0) + (reserve if cost is None else cost)

    def _inspect(self, batch: list[ModelEvent]) -> Usage | None:
        """Record notes and failures; return the usage, if this batch has it."""
        used: Usage | None = None
        for event in batch:
            match event:
                case Noted():
                    self.notes.append(event.note)
                case Failed():
                    self.failure = event.error
                case Finished():
                    used = event.usage
                case _:
                    pass
        return used

    def _reserve(self, plan: Plan) -> float:
        if self._price is None:
            return 0.0
        return self._price.cost(len(plan_json(plan)) // TOKEN_BYTES, self._output_tokens_max)


def is_transport(error: ErrorInfo) -> bool:
    """Return whether a failure is the network's or the provider's and may be gone the next time."""
    return error.code in _TRANSPORT_CODES or error.status in (408, 429) or error.status >= 500
