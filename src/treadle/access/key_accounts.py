"""The accounts of keys: whether another run may begin, which ones go on, and what those that ended have used.

Runs that go on at once are counted in this process, or with others where they share a counter: there a run holds a
place that is free again soon after its process died. Budgets are in the store, and so everybody's: a run reserves what
it is expected to use before it begins, and its charge takes the place of that in one step. That a run is to be charged
is written with its end. Who told its end charges it right after if its key is bounded, else together with others in a
moment, and whoever finds that this was not done does it later: no run is charged twice, and none is forgotten.
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
from treadle.access.rate_limiter import Limiter
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
"""Of how many keys is remembered what their limits and those of all come to."""

LATE_S = 30.0
"""How long after a run's end somebody else than who told it looks whether it was charged."""

COLLECT_S = 0.25
"""How long runs wait to be charged together, where nobody looks at what their key has used before it uses more."""

RESERVE_WAIT_S = 20.0
"""How long a run waits for others of its key, where what is left of the budget is reserved by them."""

RESERVE_POLL_S = 0.05
"""How often it asks meanwhile whether one of them has ended, in whatever process."""

RUNS_RETRY_S = 1.0
"""When to come back for a place: nobody knows when a run ends."""

_ADMITTED: ContextVar[Client | None] = ContextVar("treadle_admitted", default=None)
"""Who was admitted last in the task that now begins a run."""

Cost = Callable[[str, Usage | None], float | None]
"""Says what a model's usage costs, if that is known."""


class Accounts:
    """Fits the runs room's `Tolls`. `limits` hold for keys that have none of their own, and for whoever has no key."""

    def __init__(self, keys: KeyStore, limiter: Limiter, clock: Clock, cost: Cost, limits: Limits) -> None:
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
        """Return what keys have used."""
        return self._ledger

    def limits_of(self, client: Client) -> Limits:
        """Return the client's limits: its own where it has any."""
        own = client.grant.rates
        return self._limits if own == NO_LIMITS else self._merged.of(own)

    def _merge(self, own: Limits) -> Limits:
        others = self._limits
        return Limits(**{name: getattr(own, name) or getattr(others, name) for name in Limits.__struct_fields__})

    def bounds(self, client: Client) -> bool:
        """Return whether anything bounds the runs of a client: then they are to be admitted."""
        return bool(client.key_id) or self._bounds_all

    async def tokens_left(self, client: Client) -> Hit | None:
        """Return how many tokens the client may still use; None where there is no bound."""
        limit = self.limits_of(client).tokens_per_min
        return await self._limiter.left(_tokens(client.key_id), limit, MINUTE_S) if limit else None

    async def admit(self, client: Client) -> None:
        """Let a client begin a run.

        Raises: Exhausted, saying what is used up and when there is more; StoreError.
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
        """Take a place for a run beside those that go on, and reserve what it is expected to use of its budget.

        Raises: Exhausted, StoreError.
        """
        admitted = _ADMITTED.get()
        # An operator may act for a key whose budget is not asked then; the key itself is known by its last request.
        client = admitted if admitted is not None and admitted.key_id == row.key_id else self._budgeted.get(row.key_id)
        limits = self._admitted.get(row.key_id)
        most = 0 if limits is None else limits.runs_max
        try:
            if client is not None and client.grant.budget != UNBOUNDED:
                await self._reserve(client, row, entries, output_tokens_max)
            if most and not await self._limiter.enter(_runs(row.key_id), row.id, most, self._runs.get(row.key_id, 0)):
                raise _too_many(most)
        except BaseException:
            self.release(row)  # also when the client left meanwhile
            raise

    def release(self, row: RunRow) -> None:
        """Give back what was reserved for a run, unless it has begun: then its end does."""
        if row.id in self._reserved:
            self._reserved.discard(row.id)
            self._begin(self._release(row.id))

    async def _reserve(
        self, client: Client, row: RunRow, entries: Sequence[Entry], output_tokens_max: int | None
    ) -> None:
        """Reserve what a run is expected to use; where others have reserved what is left, wait for them.

        Raises: Exhausted, StoreError.
        """
        asked = expected_tokens(sum(_size(entry) for entry in entries), output_tokens_max)
        expected = _at_least(used_by(asked, self._cost(row.model, asked)), self._largest.get(row.key_id))
        standing = None
        self._reserved.add(row.id)  # before it is: a reservation that nobody waits for any more is made all the same
        with self._queue(row.key_id) as queue:
            try:
                # Those of one process ask one after the other, in the order in which they came.
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
            # It does not count any more after a while.
            log.warning("reservation not given back", extra={"run_id": run_id, "code": error.info.code})

    def _runs_max(self, key_id: str) -> int:
        """Return how many runs of a key may go on at once, as was known when it last began one; 0 sets no bound."""
        return self._admitted.get(key_id, NO_LIMITS).runs_max

    def enter(self, row: RunRow) -> None:
        """Count a run that goes on."""
        self._runs[row.key_id] = self._runs.get(row.key_id, 0) + 1
        if self._limiter.is_shared:
            self._places[row.id] = row.key_id

    def record_usage(self, row: RunRow, usage: Usage | None) -> None:
        """Note what a run used at once, before anybody hears of its end and asks for more.

        Who has no key owes nothing, unless there is a bound on what those may use together.
        """
        if not row.key_id and not self._limits.tokens_per_min:
            return
        used = used_by(usage, self._cost(row.model, usage))
        if row.key_id in self._budgeted:
            self._largest[row.key_id] = _at_least(used, self._largest.get(row.key_id))
        self._owed[row.id] = _Debt(row.key_id, used)

    async def settle(self, row: RunRow) -> None:
        """Charge what a run owes, at once if its key is bounded."""
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
            self._timer = loop.call_later(COLLECT_S, lambda: self._begin(self.collect()))

    async def collect(self) -> None:
        """Charge all runs that are to be; where that cannot be written it is logged, for they are over."""
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
        """Charge what is left, and wait for what has begun."""
        await self.collect()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def maintain(self) -> None:
        """Keep the places of the runs that go on, and charge what others left: to be done every few seconds."""
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
        """Count it out."""
        debt = self._owed.get(row.id)
        if debt is not None and not debt.is_due:
            self._forget(row.id)
        if self._reserved:
            self.release(row)
        if self._places and self._places.pop(row.id, None) is not None and self._runs_max(row.key_id):
            self._begin(self._limiter.leave(_runs(row.key_id), row.id))
        left = self._runs.pop(row.key_id) - 1
        if left:
            self._runs[row.key_id] = left

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _forget(self, run_id: str) -> None:
        # What was reserved went with the charge; where that could not be written it counts until it is.
        self._reserved.discard(run_id)
        debt = self._owed.pop(run_id, None)
        if debt is not None and debt.settled is not None:
            debt.settled.set()

    async def _settled(self, key_id: str) -> None:
        """Wait until all is written down that a key is known to owe: that takes as long as a commit."""
        if self._due:
            await self.collect()
        waits: list[asyncio.Event] = []
        for debt in self._owed.values():
            if debt.key_id == key_id:
                # All are there before the first is waited for: of one that is settled meanwhile nobody hears later.
                debt.settled = debt.settled or asyncio.Event()
                waits.append(debt.settled)
        for settled in waits:
            await settled.wait()


class _Debt:
    """What a run used and is not written down yet, what `is_due` soon is; `settled` is there once somebody waits."""

    __slots__ = ("is_due", "key_id", "settled", "used")

    def __init__(self, key_id: str, used: Spent) -> None:
        self.key_id = key_id
        self.used = used
        self.is_due = False
        self.settled: asyncio.Event | None = None


class _BudgetQueue:
    """The runs of one key that wait for room in its budget, here: one asks at a time."""

    __slots__ = ("changed", "turn", "waiting")

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.changed = asyncio.Event()
        self.waiting = 0

    async def wait(self, seconds: float) -> None:
        """Wait until a run of this process was charged, or so long: others end elsewhere."""
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
