"""Accounts: whether another run may begin, and what those that ended are charged."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from treadle.access import key_accounts as access_accounts
from treadle.access.budgets import OUTPUT_TOKENS
from treadle.access.client_identity import Client
from treadle.access.key_accounts import KeyAccounts
from treadle.access.rate_limiter import RateLimiter
from treadle.access.sliding_window import SlidingWindow
from treadle.core.errors import Exhausted, StoreError
from treadle.core.events import RunEnded
from treadle.core.journal_entries import Entry
from treadle.core.usage import Usage
from treadle.journal.journal_interface import RunRow, Store
from treadle.journal.keys_interface import Charge, KeyBudget, KeyGrant, Reservation, ReservationResult, Spent
from treadle.journal.keys_interface import KeyRates as Limits
from treadle.journal.open_store import open_store
from treadle.runtime import SystemClock


class Clock(SystemClock):
    """A clock that the test turns."""

    at = 1_000_000.0

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at


def cost(model: str, usage: Usage | None) -> float | None:
    """A dollar a token, of the model that has a price."""
    return float(usage.total_tokens) if model == "dear" and usage is not None else None


@pytest.fixture
async def store(tmp_path: Path):
    """A store of the test's own."""
    opened = open_store(str(tmp_path / "t.db"), clock=lambda: 0.0)
    await opened.open()
    yield opened
    await opened.close()


def accounts(store: Store, clock: Clock, **limits: int) -> KeyAccounts:
    """Accounts with these limits for all."""
    return KeyAccounts(
        store.keys, RateLimiter(SlidingWindow(clock.monotonic), clock.monotonic), clock, cost, Limits(**limits)
    )


def client(**grant: object) -> Client:
    """The holder of a key."""
    return Client(key_id="key_a", name="a", grant=KeyGrant(**grant))  # type: ignore[arg-type]


def row(model: str = "cheap", key_id: str = "key_a", run_id: str = "run_1") -> RunRow:
    """A run of that key."""
    return RunRow(
        id=run_id,
        response_id=f"resp_{run_id}",
        conversation_id="conv",
        protocol="chat",
        model=model,
        created_at=0.0,
        key_id=key_id,
    )


async def end(store: Store, ended: RunRow, usage: Usage) -> None:
    """Let a run begin and end in the store."""
    journal = await store.start_run(ended, [], owner="test", lease_s=60.0)
    await journal.finish([], RunEnded(status="completed", usage=usage, ended_at=Clock.at))


async def pay(store: Store, found: KeyAccounts, ended: RunRow, usage: Usage) -> None:
    """Let a run begin, end and be charged."""
    found.enter(ended)
    await end(store, ended, usage)
    found.record_usage(ended, usage)
    await found.settle(ended)
    found.leave(ended)


async def test_runs_at_once_are_counted_for_each_key(store: Store) -> None:
    """A place is free again when a run has ended; what the settings say holds for keys that say nothing."""
    found = accounts(store, Clock(), runs_max=1)
    for holder, most in ((client(), 1), (client(rates=Limits(runs_max=2)), 2)):
        for _ in range(most):
            await found.admit(holder)
            await found.take(row(), [], None)
            found.enter(row())
        with pytest.raises(Exhausted, match=f"{most} runs at once") as caught:
            await found.admit(holder)
        assert (caught.value.info.code, caught.value.retry_after) == ("rate_limit_runs", 1.0)
        with pytest.raises(Exhausted):
            await found.take(row(), [], None)
        for _ in range(most):
            found.leave(row())
    await found.admit(Client(key_id="key_b"))


async def test_tokens_of_a_minute_are_charged_at_the_end(store: Store) -> None:
    """The next run waits until the minute is over; another key does not."""
    clock = Clock()
    found = accounts(store, clock, tokens_per_min=10)
    await found.admit(client())
    await pay(store, found, row(), Usage(input_tokens=8, output_tokens=3))
    with pytest.raises(Exhausted, match="10 tokens per minute"):
        await found.admit(client())
    await found.admit(Client(key_id="key_b"))
    clock.at += 120.0
    await found.admit(client())


async def test_only_who_is_bounded_has_to_be_admitted(store: Store) -> None:
    """A key may have limits or a budget; who has none has those of the settings."""
    for limits, keyless in (({}, False), ({"runs_max": 1}, True), ({"tokens_per_min": 1}, True)):
        found = accounts(store, Clock(), **limits)
        assert (found.bounds(client()), found.bounds(Client())) == (True, keyless)


async def test_tokens_are_counted_where_anything_bounds_them(store: Store) -> None:
    """By the key or by the settings; and of a run that began elsewhere, for nobody here knows."""
    clock = Clock()
    counted: list[str] = []

    class Listener(RateLimiter):
        async def add(self, name: str, window_s: float, cost: int) -> None:
            counted.append(name)

    def of(**limits: int) -> KeyAccounts:
        return KeyAccounts(
            store.keys, Listener(SlidingWindow(clock.monotonic), clock.monotonic), clock, cost, Limits(**limits)
        )

    bounded, used = client(rates=Limits(tokens_per_min=9)), Usage(input_tokens=1)
    for number, (found, holder) in enumerate(((of(), client()), (of(), Client()), (of(), bounded), (of(), None))):
        if holder is not None:
            await found.admit(holder)
        await pay(store, found, row(key_id="" if holder == Client() else "key_a", run_id=f"run_{number}"), used)
    assert counted == ["tokens:key_a"] * 2
    await pay(store, of(tokens_per_min=9), row(key_id="", run_id="run_9"), used)
    assert counted[2:] == ["tokens:"]


async def test_budgets_are_charged_in_tokens_and_money(store: Store) -> None:
    """By the price of the model, if any; the next run waits until that is written. Without a key nothing is paid."""
    found = accounts(store, Clock())
    holder = client(budget=KeyBudget(usd=5.0, period="day"))
    await found.admit(holder)
    await pay(store, found, row(), Usage(input_tokens=9))
    await found.admit(holder)
    dear = row(model="dear", run_id="run_2")
    found.enter(dear)
    await end(store, dear, Usage(input_tokens=5, output_tokens=1))
    found.record_usage(dear, Usage(input_tokens=5, output_tokens=1))
    early = asyncio.create_task(found.admit(holder))
    await asyncio.sleep(0)
    assert not early.done()
    await found.settle(dear)
    found.leave(dear)
    with pytest.raises(Exhausted, match=r"\$6.00 of \$5.00") as caught:
        await early
    assert not caught.value.is_retryable
    spent = await found.ledger.spent("key_a", "total", Clock.at)
    assert spent == Spent(runs=2, input_tokens=14, output_tokens=1, usd=6.0)
    await pay(store, found, row(key_id="", run_id="run_3"), Usage(input_tokens=5))
    assert await found.ledger.spent("", "total", Clock.at) == Spent()


async def test_a_store_that_is_away_keeps_no_run_from_ending(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What could not be charged is in the log, with what it would have been."""

    async def away(*_: object) -> None:
        raise StoreError("away")

    found = accounts(store, Clock())
    monkeypatch.setattr(found.ledger, "settle", away)
    await pay(store, found, row(), Usage(input_tokens=5))
    await found.collect()
    assert [record.message for record in caplog.records] == ["run not charged"]
    assert vars(caplog.records[0])["input_tokens"] == 5


async def test_a_run_whose_process_died_after_its_end_is_charged_once_by_another(store: Store) -> None:
    """Not before its own process had time for it, by the day on which it ended, and by whoever comes first."""
    clock, budget = Clock(), client(budget=KeyBudget(usd=50.0, period="total"))
    one, two = accounts(store, clock), accounts(store, clock)
    await end(store, row(model="dear"), Usage(input_tokens=5, output_tokens=1))
    await one.maintain()
    assert await one.ledger.spent("key_a", "total", Clock.at) == Spent()
    clock.at = Clock.at + 86_400.0
    await asyncio.gather(one.maintain(), two.maintain())
    await one.maintain()
    charged = Spent(runs=1, input_tokens=5, output_tokens=1, usd=6.0)
    assert await two.ledger.spent("key_a", "total", clock.at) == charged
    assert await two.ledger.spent("key_a", "day", Clock.at) == charged
    assert await two.ledger.spent("key_a", "day", clock.at) == Spent()
    await two.admit(budget)


async def test_what_is_being_charged_is_left_to_who_does_it(store: Store) -> None:
    """A store that is slow makes nobody charge twice."""
    clock = Clock()
    found = accounts(store, clock)
    await end(store, row(), Usage(input_tokens=5))
    found.record_usage(row(), Usage(input_tokens=5))
    clock.at = Clock.at + 60.0
    await found.maintain()
    assert await found.ledger.spent("key_a", "total", clock.at) == Spent()
    await found.settle(row())
    await found.maintain()
    assert await found.ledger.spent("key_a", "total", clock.at) == Spent()
    await found.close()
    assert await found.ledger.spent("key_a", "total", clock.at) == Spent(runs=1, input_tokens=5)


async def test_runs_of_a_key_without_bounds_are_charged_together_in_a_moment(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one write, by themselves: a run that has left is not forgotten, and the next one does not wait for it."""
    found, writes = accounts(store, Clock()), list[int]()
    settle, is_done = store.keys.settle, asyncio.Event()

    async def counted(charges: Sequence[Charge]) -> set[str]:
        writes.append(len(charges))
        charged = await settle(charges)
        is_done.set()
        return charged

    monkeypatch.setattr(found.ledger._keys, "settle", counted)
    monkeypatch.setattr(access_accounts, "COLLECT_S", 0.05)
    for number in range(3):
        await found.admit(client())
        await pay(store, found, row(run_id=f"run_{number}"), Usage(input_tokens=5))
    assert (writes, len(found._owed)) == ([], 3)
    await asyncio.wait_for(is_done.wait(), 20)
    await found.close()
    assert (writes, found._owed, found._due) == ([3], {}, {})
    assert await found.ledger.spent("key_a", "total", Clock.at) == Spent(runs=3, input_tokens=15)


async def test_runs_of_a_bounded_key_are_charged_at_once_with_all_that_wait(store: Store) -> None:
    """Before the next one begins, also those that ended when the key was not bounded yet."""
    found, budget = accounts(store, Clock()), client(budget=KeyBudget(tokens=12, period="total"))
    await found.admit(client())
    await pay(store, found, row(run_id="run_1"), Usage(input_tokens=5))
    await found.admit(budget)
    assert await found.ledger.spent("key_a", "total", Clock.at) == Spent(runs=1, input_tokens=5)
    await pay(store, found, row(run_id="run_2"), Usage(input_tokens=8))
    assert await found.ledger.spent("key_a", "total", Clock.at) == Spent(runs=2, input_tokens=13)
    with pytest.raises(Exhausted, match="13 of 12 tokens"):
        await found.admit(budget)
    assert found._timer is None


async def test_a_store_that_is_away_stops_no_heartbeat(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is tried again with the next one."""

    async def away(*_: object) -> None:
        raise StoreError("away")

    found = accounts(store, Clock())
    monkeypatch.setattr(found.ledger, "debts", away)
    await found.maintain()
    assert [record.message for record in caplog.records] == ["runs that ended are not charged yet"]


async def test_runs_that_are_charged_together_let_the_next_one_begin(store: Store) -> None:
    """Who waits for the first must hear of the others, though they were charged before it came to them."""
    found = accounts(store, Clock())
    rows = [row(run_id=f"run_{number}") for number in range(3)]
    for each in rows:
        found.enter(each)
        await end(store, each, Usage(input_tokens=1))
        found.record_usage(each, Usage(input_tokens=1))
    async with asyncio.timeout(10.0):
        early = asyncio.create_task(found.admit(client(budget=KeyBudget(tokens=9))))
        await asyncio.sleep(0)
        for each in rows:
            found.leave(each)
        await early


async def test_a_run_waits_for_those_that_have_reserved_the_rest(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where they use less than they reserved it begins; where they use all it is refused, for good."""
    found = accounts(store, Clock())
    holder = client(budget=KeyBudget(tokens=100))
    for run_id, uses, passes in (("run_1", 60, True), ("run_3", 50, False)):
        first, second = row(run_id=run_id), row(run_id=f"{run_id}_next")
        await found.admit(holder)
        await found.take(first, [], 100)
        found.enter(first)
        waiting = asyncio.create_task(found.take(second, [], 100))
        await asyncio.sleep(0)
        await end(store, first, Usage(input_tokens=uses))
        found.record_usage(first, Usage(input_tokens=uses))
        assert not waiting.done()
        await found.settle(first)
        found.leave(first)
        if passes:
            await asyncio.wait_for(waiting, 10.0)
            found.release(second)
            await found.close()
            continue
        with pytest.raises(Exhausted, match="110 of 100 tokens") as caught:
            await asyncio.wait_for(waiting, 10.0)
        assert not caught.value.is_retryable


async def test_a_client_that_leaves_while_its_run_reserves_leaves_nothing_reserved(store: Store) -> None:
    """The reservation is made all the same, and then given back: the next run begins at once."""
    found = accounts(store, Clock())
    await found.admit(client(budget=KeyBudget(tokens=100)))
    taking = asyncio.create_task(found.take(row(), [], 100))
    await asyncio.sleep(0)
    taking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await taking
    await asyncio.wait_for(found.take(row(run_id="run_2"), [], 100), 10.0)
    found.release(row(run_id="run_2"))
    await found.close()


async def test_a_run_that_waits_too_long_may_ask_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The budget is not used up, only reserved: so it is told when to come back."""
    monkeypatch.setattr(access_accounts, "RESERVE_WAIT_S", 0.05)
    found = accounts(store, Clock())
    await found.admit(client(budget=KeyBudget(tokens=100)))
    await found.take(row(), [], None)
    with pytest.raises(Exhausted, match="is reserved by 1 of its runs") as caught:
        await found.take(row(run_id="run_2"), [], None)
    assert (caught.value.info.code, caught.value.retry_after) == ("budget_exceeded", 1.0)


async def test_a_run_reserves_what_it_says_and_what_others_have_used(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token for three bytes of input, the most that it may answer, and no less than the largest run of its key."""
    found = accounts(store, Clock())
    await found.admit(client(budget=KeyBudget(tokens=1_000_000)))
    asked = Entry(kind="user", at=0.0, content="x" * 299, data=msgspec.Raw(b"y"), is_input=True)
    reserved: list[int] = []
    reserve = found.ledger.reserve

    async def noted(holder: Client, run_id: str, expected: Spent, now: float) -> ReservationResult:
        reserved.append(expected.tokens)
        return await reserve(holder, run_id, expected, now)

    monkeypatch.setattr(found.ledger, "reserve", noted)
    await found.take(row(), [asked, Entry(kind="frame", at=0.0, content="not input")], 50)
    await pay(store, found, row(run_id="run_2"), Usage(input_tokens=700, output_tokens=7))
    await found.take(row(run_id="run_3"), [asked], None)
    await found.take(row(run_id="run_4"), [asked], 9_000)
    assert reserved == [150, 700 + OUTPUT_TOKENS, 9_700]


async def test_a_key_without_a_budget_reserves_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is its store asked."""
    found = accounts(store, Clock(), tokens_per_min=100)

    async def never(*_: object) -> ReservationResult:
        raise AssertionError("nothing is to be reserved")

    monkeypatch.setattr(found.ledger, "reserve", never)
    await found.admit(client())
    await found.take(row(), [], None)


async def test_who_acts_for_another_key_is_not_asked_for_its_budget(store: Store) -> None:
    """An operator goes on with a run of a key whose budget is used up, though the key itself may not."""
    found = accounts(store, Clock())
    holder = client(budget=KeyBudget(tokens=10))
    await found.admit(holder)
    await found.take(row(), [], 10)
    acting = Client(key_id="key_a", name="operator", grant=KeyGrant(role="operator"))
    await found.admit(acting)
    await found.take(row(run_id="run_2"), [], 10)
    budget = KeyBudget(tokens=1_000)
    wanted = Reservation(run_id="run_3", key_id="key_a", tokens=1, usd=0.0, until=Clock.at)
    assert (await store.keys.reserve(wanted, budget, "total", Clock.at)).reserved == Spent(runs=1, output_tokens=10)
