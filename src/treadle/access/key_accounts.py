"""Enforces the limits and budgets of keys: admits runs, reserves and charges their budget, and counts active runs.

Concurrent runs are counted in this process, or in a shared counter where each run holds a slot that expires soon after
its process dies. Budgets are in the store and shared by all processes: a run reserves its expected usage before it
starts, and its charge replaces the reservation in one step. The end of a run records that it must be charged. The
process that wrote the end charges it at once if its key is bounded, else in a batch; any process charges runs that were
missed. So no run is charged twice, and none is lost.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any

import msgspec

from treadle.access.budgets import BudgetLedger, expected_tokens, held_back, used_by
from treadle.access.client_identity import Client
from treadle.access.rate_limiter import RateLimiter
from treadle.access.sliding_window import Hit
from treadle.core.errors import Exhausted, TreadleError
from treadle.core.journal_entries import Entry
from treadle.core.memoized import Memo
from treadle.core.shared_ports import Clock
from treadle.core.usage import Usage
from treadle.journal.journal_interface import RunRow
from treadle.journal.keys_interface import KeyBudget, KeyStore, ReservationResult, Spent
from treadle.journal.keys_interface import KeyRates as Limits

log = logging.getLogger("treadle.access")

MINUTE_S = 60.0
UNBOUNDED = KeyBudget()
NO_LIMITS = Limits()
LIMITS_MAX = 1_024
"""How many keys have their effective limits cached."""

LATE_S = 30.0
"""How long after a run's end any process may charge it, if its own has not."""

COLLECT_S = 0.25
"""How long runs of unbounded keys wait to be charged in a batch."""

RESERVE_WAIT_S = 20.0
"""How long a run waits for other runs of its key that have reserved the rest of the budget."""

RESERVE_POLL_S = 0.05
"""How often it checks during that wait whether one of them has ended."""

RUNS_RETRY_S = 1.0
"""When to retry for a slot: the end of a run cannot be predicted."""

_ADMITTED: ContextVar[Client | None] = ContextVar("treadle_admitted", default=None)
"""The client that was last admitted in the current task."""

Cost = Callable[[str, Usage | None], float | None]
"""Returns the cost of a model's usage, if known."""


class KeyAccounts:
    """Fits `Quotas` of the runs. `limits` apply to keys without their own, and to clients without a key."""

    def __init__(self, keys: KeyStore, limiter: RateLimiter, clock: Clock, cost: Cost, limits: Limits) -> None:
        self._ledger = BudgetLedger(keys)
        self._limiter = limiter
        self._clock = clock
        self._cost = cost
        self._limits = limits
        self._bounds_all = bool(limits.runs_max or limits.tokens_per_min)
        self._runs: dict[str, int] = {}
        self._merged = Memo(self._merge, LIMITS_MAX)
        self._admitted: dict[str, Limits] = {}
        self._bounded: set[str] = set()
        self._owed: dict[str, _Debt] = {}
        self._due: dict[str, tuple[Spent, float]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._places: dict[str, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._budgeted: dict[str, Client] = {}
        self._largest: dict[str, Spent] = {}
        self._reserved: set[str] = set()
        self._queues: dict[str, _BudgetQueue] = {}

    @property
    def ledger(self) -> BudgetLedger:
        """Return the ledger of usage."""
        return self._ledger

    def limits_of(self, client: Client) -> Limits:
        """Return the client's limits: its own, with defaults for those it does not set."""
        own = client.grant.rates
        return self._limits if own == NO_LIMITS else self._merged.of(own)

    def _merge(self, own: Limits) -> Limits:
        others = self._limits
        return Limits(**{name: getattr(own, name) or getattr(others, name) for name in Limits.__struct_fields__})

    def bounds(self, client: Client) -> bool:
        """Return whether a client must be admitted, because something bounds its runs."""
        return bool(client.key_id) or self._bounds_all

    async def tokens_left(self, client: Client) -> Hit | None:
        """Return how many tokens the client may still use; None if unbounded."""
        limit = self.limits_of(client).tokens_per_min
        return await self._limiter.left(_tokens(client.key_id), limit, MINUTE_S) if limit else None

    async def admit(self, client: Client) -> None:
        """Check that a client may start a run.

        Raises: Exhausted, naming the limit and when it resets; StoreError.
        """
        limits = self.limits_of(client)
        self._admitted[client.key_id] = limits
        _ADMITTED.set(client)
        if limits.runs_max and not self._limiter.is_shared and self._runs.get(client.key_id, 0) >= limits.runs_max:
            raise _too_many(limits.runs_max)
        if not limits.tokens_per_min and client.grant.budget == UNBOUNDED:
            self._bounded.discard(client.key_id)
            return
        self._bounded.add(client.key_id)
        await self._settled(client.key_id)
        tokens = await self.tokens_left(client)
        if tokens is not None and not tokens.allowed:
            message = f"The limit of {tokens.limit} tokens per minute is reached."
            raise Exhausted(message, code="rate_limit_tokens", retry_after_s=tokens.reset_s)
        if client.grant.budget != UNBOUNDED:
            self._budgeted[client.key_id] = client
            await self._ledger.check(client, self._clock.now())

    async def take(self, row: RunRow, entries: Sequence[Entry], output_tokens_max: int | None) -> None:
        """Take a slot for a run, and reserve its expected usage from the budget.

        Raises: Exhausted, StoreError.
        """
        admitted = _ADMITTED.get()
        # An operator may act for a key that was not admitted by this request; its last admitted client is used then.
        client = admitted if admitted is not None and admitted.key_id == row.key_id else self._budgeted.get(row.key_id)
        limits = self._admitted.get(row.key_id)
        most = 0 if limits is None else limits.runs_max
        try:
            if client is not None and client.grant.budget != UNBOUNDED:
                await self._reserve(client, row, entries, output_tokens_max)
            if most and not await self._limiter.enter(_runs(row.key_id), row.id, most, self._runs.get(row.key_id, 0)):
                raise _too_many(most)
        except BaseException:
            self.release(row)  # also when the client has disconnected
            raise

    def release(self, row: RunRow) -> None:
        """Release the reservation of a run that was not started; for a started one its charge does."""
        if row.id in self._reserved:
            self._reserved.discard(row.id)
            self._start_task(self._release(row.id))

    async def _reserve(
        self, client: Client, row: RunRow, entries: Sequence[Entry], output_tokens_max: int | None
    ) -> None:
        """Reserve the expected usage of a run; if other runs have reserved the rest of the budget, wait for them.

        Raises: Exhausted, StoreError.
        """
        asked = expected_tokens(sum(_size(entry) for entry in entries), output_tokens_max)
        expected = _at_least(used_by(asked, self._cost(row.model, asked)), self._largest.get(row.key_id))
        standing = None
        self._reserved.add(row.id)  # before the call: a cancelled reservation may still be made
        with self._queue(row.key_id) as queue:
            try:
                # One at a time and in order of arrival within this process.
                async with asyncio.timeout(RESERVE_WAIT_S), queue.turn:
                    while True:
                        standing = await self._ledger.reserve(client, row.id, expected, self._clock.now())
                        if standing.is_reserved:
                            return
                        await queue.wait(RESERVE_POLL_S)
            except TimeoutError:
                raise held_back(client, standing or ReservationResult()) from None

    @contextmanager
    def _queue(self, key_id: str) -> Generator["_BudgetQueue", None, None]:
        queue = self._queues.setdefault(key_id, _BudgetQueue())
        queue.waiting += 1
        try:
            yield queue
        finally:
            queue.waiting -= 1
            if not queue.waiting:
                self._queues.pop(key_id, None)

    async def _release(self, run_id: str) -> None:
        try:
            await self._ledger.release(run_id)
        except TreadleError as error:
            # The reservation expires by itself.
            log.warning("reservation not given back", extra={"run_id": run_id, "code": error.info.code})

    def _runs_max(self, key_id: str) -> int:
        """Return how many concurrent runs a key may have, as of its last admission; 0 is unbounded."""
        return self._admitted.get(key_id, NO_LIMITS).runs_max

    def enter(self, row: RunRow) -> None:
        """Count an active run."""
        self._runs[row.key_id] = self._runs.get(row.key_id, 0) + 1
        if self._limiter.is_shared:
            self._places[row.id] = row.key_id

    def record_usage(self, row: RunRow, usage: Usage | None) -> None:
        """Record the usage of a run before its end is published, so that the key's next request counts it.

        Without a key nothing is recorded, unless there is a bound on all such clients together.
        """
        if not row.key_id and not self._limits.tokens_per_min:
            return
        used = used_by(usage, self._cost(row.model, usage))
        if row.key_id in self._budgeted:
            self._largest[row.key_id] = _at_least(used, self._largest.get(row.key_id))
        self._owed[row.id] = _Debt(row.key_id, used)

    async def settle(self, row: RunRow) -> None:
        """Charge the recorded usage of a run, at once if its key is bounded."""
        debt = self._owed.get(row.id)
        if debt is None:
            return
        known = self._admitted.get(debt.key_id)
        if known is None or known.tokens_per_min:
            await self._limiter.add(_tokens(debt.key_id), MINUTE_S, debt.used.tokens)
        if not debt.key_id:
            self._forget(row.id)
            return
        debt.is_due = True
        self._due[row.id] = (debt.used, self._clock.now())
        if debt.key_id in self._bounded:
            await self.collect()
        elif self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(COLLECT_S, lambda: self._start_task(self.collect()))

    async def collect(self) -> None:
        """Charge all runs that are due; a failure is logged, since the runs have ended."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due, self._due = self._due, {}
        try:
            if due:
                await self._ledger.settle(due)
        except TreadleError as error:
            for run_id, (used, _) in due.items():
                spent = msgspec.structs.asdict(used)
                log.warning("run not charged", extra={"run_id": run_id, "code": error.info.code, **spent})
        finally:
            for run_id in due:
                self._forget(run_id)
            for queue in self._queues.values():
                queue.changed.set()

    async def close(self) -> None:
        """Charge what is due, and wait for running tasks."""
        await self.collect()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def maintain(self) -> None:
        """Renew the slots of active runs, and charge runs that other processes missed; called every few seconds."""
        held: dict[str, list[str]] = {}
        for run_id, key_id in self._places.items():
            if self._runs_max(key_id):
                held.setdefault(_runs(key_id), []).append(run_id)
        await self._limiter.keep(held)
        try:
            await self._charge_late()
        except TreadleError as error:
            log.warning("runs that ended are not charged yet", extra={"code": error.info.code})

    async def _charge_late(self) -> None:
        """Charge the runs whose process died after their end. Raises: StoreError."""
        late = {
            debt.run_id: (used_by(debt.usage, self._cost(debt.model, debt.usage)), debt.ended_at)
            for debt in await self._ledger.debts(self._clock.now() - LATE_S)
            if debt.run_id not in self._owed
        }
        for run_id in await self._ledger.settle(late) if late else ():
            log.warning("run charged late", extra={"run_id": run_id, **msgspec.structs.asdict(late[run_id][0])})

    def leave(self, row: RunRow) -> None:
        """Stop counting the run."""
        debt = self._owed.get(row.id)
        if debt is not None and not debt.is_due:
            self._forget(row.id)
        if self._reserved:
            self.release(row)
        if self._places and self._places.pop(row.id, None) is not None and self._runs_max(row.key_id):
            self._start_task(self._limiter.leave(_runs(row.key_id), row.id))
        left = self._runs.pop(row.key_id) - 1
        if left:
            self._runs[row.key_id] = left

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _forget(self, run_id: str) -> None:
        # The charge replaced the reservation; if it could not be written, the reservation counts until it is.
        self._reserved.discard(run_id)
        debt = self._owed.pop(run_id, None)
        if debt is not None and debt.settled is not None:
            debt.settled.set()

    async def _settled(self, key_id: str) -> None:
        """Wait until all recorded usage of a key is charged, which takes as long as a commit."""
        if self._due:
            await self.collect()
        waits: list[asyncio.Event] = []
        for debt in self._owed.values():
            if debt.key_id == key_id:
                # Collected before the first wait: one that is settled during a wait is removed from the dict.
                debt.settled = debt.settled or asyncio.Event()
                waits.append(debt.settled)
        for settled in waits:
            await settled.wait()


class _Debt:
    """The usage of a run that is not charged yet; `is_due` when it will be soon, `settled` exists if a task waits."""

    __slots__ = ("is_due", "key_id", "settled", "used")

    def __init__(self, key_id: str, used: Spent) -> None:
        self.key_id = key_id
        self.used = used
        self.is_due = False
        self.settled: asyncio.Event | None = None


class _BudgetQueue:
    """The runs of one key in this process that wait for its budget; one checks at a time."""

    __slots__ = ("changed", "turn", "waiting")

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.changed = asyncio.Event()
        self.waiting = 0

    async def wait(self, seconds: float) -> None:
        """Wait until a run of this process was charged, or for the timeout, as runs of other processes also end."""
        self.changed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.changed.wait()


def _size(entry: Entry) -> int:
    return len(entry.content or "") + (0 if entry.data is None else len(bytes(entry.data))) if entry.is_input else 0


def _at_least(used: Spent, other: Spent | None) -> Spent:
    """Return the larger of both, in each respect."""
    if other is None:
        return used
    names = ("input_tokens", "output_tokens", "usd")
    return Spent(runs=1, **{name: max(getattr(used, name), getattr(other, name)) for name in names})


def _tokens(key_id: str) -> str:
    return f"tokens:{key_id}"


def _runs(key_id: str) -> str:
    return f"runs:{key_id}"


def _too_many(most: int) -> Exhausted:
    message = f"The limit of {most} runs at once is reached."
    return Exhausted(message, code="rate_limit_runs", retry_after_s=RUNS_RETRY_S)
