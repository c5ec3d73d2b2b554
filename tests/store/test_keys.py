"""Clients' keys as every store keeps them."""

import asyncio

import msgspec
import pytest

from store.sample import COMPLETED, LEASE_S, OWNER, SetClock, run_row
from treadle.core.errors import Conflict
from treadle.core.usage import Usage
from treadle.journal.journal_interface import Store
from treadle.journal.keys_interface import (
    TAKEN,
    Charge,
    Debt,
    KeyBudget,
    KeyGrant,
    KeyRates,
    KeyRow,
    Reservation,
    ReservationResult,
    Spent,
)

GRANT = KeyGrant(
    apis=("chat", "responses"),
    models=("gpt-*",),
    tools=("get_*",),
    role="viewer",
    rates=KeyRates(requests_per_min=60, runs_max=4),
    budget=KeyBudget(tokens=1_000, usd=2.5, period="month"),
)


def key(name: str = "ann", **fields: object) -> KeyRow:
    """A key."""
    row = KeyRow(
        id=f"key_{name}", name=name, lookup=f"lookup{name}", mac=bytes(range(32)), created_at=1_000.0, grant=GRANT
    )
    return msgspec.structs.replace(row, **fields)


async def test_a_key_is_found_by_its_lookup_as_it_was_kept(store: Store) -> None:
    """Every field survives, bytes included."""
    row = key(expires_at=2_000.0)
    await store.keys.add(row)
    assert await store.keys.find(row.lookup) == row
    assert await store.keys.find("other") is None
    assert await store.keys.find("") is None


@pytest.mark.parametrize("field", ["id", "name", "lookup"])
async def test_no_two_keys_share_what_names_them(store: Store, field: str) -> None:
    """The second is refused, and the first stands."""
    row, other = key(), key("bob")
    await store.keys.add(row)
    with pytest.raises(Conflict) as caught:
        await store.keys.add(msgspec.structs.replace(other, **{field: getattr(row, field)}))
    assert caught.value.info.code == TAKEN
    assert await store.keys.page() == [row]


async def test_keys_are_listed_newest_first_in_pages(store: Store) -> None:
    """Also the revoked ones."""
    rows = [key(name) for name in "abcde"]
    for row in rows:
        await store.keys.add(row)
    first = await store.keys.page(2)
    rest = await store.keys.page(10, before=first[-1].id)
    assert [row.name for row in (*first, *rest)] == ["e", "d", "c", "b", "a"]


async def test_a_key_is_revoked_once_and_for_ever(store: Store) -> None:
    """By its id or its name; the first time stands."""
    await store.keys.add(key())
    await store.keys.add(key("bob"))
    assert await store.keys.revoke("nobody", 5.0) is None
    by_name = await store.keys.revoke("ann", 5.0)
    by_id = await store.keys.revoke("key_ann", 9.0)
    assert by_name == by_id == key(revoked_at=5.0)
    assert await store.keys.find("lookupbob") == key("bob")


async def test_of_several_keys_those_that_are_revoked_are_known(store: Store) -> None:
    """By their ids, however odd; a name is none, and what is not there is not revoked."""
    for name in ("ann", "bob", "cid"):
        await store.keys.add(key(name))
    await store.keys.revoke("ann", 5.0)
    await store.keys.revoke("cid", 5.0)
    asked = ["key_ann", "key_bob", "bob", "key_none", "key_\udc80", "key_a\0b"]
    assert await store.keys.revoked(asked) == {"key_ann"}
    assert await store.keys.revoked(["key_cid", "key_ann"]) == {"key_ann", "key_cid"}
    assert await store.keys.revoked([]) == frozenset()


async def test_an_id_is_nobody_else_s_name(store: Store) -> None:
    """A key that is named like another's id does not stand in for it."""
    await store.keys.add(key())
    await store.keys.add(msgspec.structs.replace(key("bob"), name="key_ann"))
    revoked = await store.keys.revoke("key_ann", 5.0)
    assert revoked is not None
    assert revoked.id == "key_ann"


async def test_what_is_spent_adds_up_by_key_and_period(store: Store) -> None:
    """Also when many write at once."""
    once = Spent(runs=1, input_tokens=10, output_tokens=5, usd=0.25)
    for number in range(21):
        row = run_row(str(number), key_id="key_ann" if number < 20 else "key_bob")
        journal = await store.start_run(row, [], owner=OWNER, lease_s=LEASE_S)
        await journal.finish([], COMPLETED)
    await asyncio.gather(*(store.keys.settle([Charge(f"run_{each}", ("2026-11",), once)]) for each in range(1, 21)))
    await store.keys.settle([Charge("run_0", ("2026-11", "total"), once)])
    spent = await store.keys.spent("key_ann", "2026-11")
    assert spent == Spent(runs=20, input_tokens=200, output_tokens=100, usd=5.0)
    assert spent.tokens == 300
    assert await store.keys.spent("key_ann", "total") == await store.keys.spent("key_bob", "2026-11") == once
    assert await store.keys.spent("key_eve", "total") == Spent()


async def test_a_run_of_a_key_owes_from_its_end_until_it_is_charged(store: Store) -> None:
    """Once, in every period named, whoever does it and however many do; also after the run is deleted."""
    usage = Usage(input_tokens=3, output_tokens=4)
    journal = await store.start_run(run_row("1", key_id="key_ann"), [], owner=OWNER, lease_s=LEASE_S)
    assert await store.keys.debts(2_000.0) == []
    await journal.finish([], msgspec.structs.replace(COMPLETED, usage=usage))
    assert await store.keys.debts(1_009.0) == []
    owed = Debt(run_id="run_1", key_id="key_ann", model="demo", ended_at=1_010.0, usage=usage)
    assert await store.keys.debts(1_010.0) == [owed]
    await store.delete_run("run_1")
    once = Spent(runs=1, input_tokens=3, output_tokens=4, usd=0.5)
    charge = Charge("run_1", ("2026-11", "total"), once)
    settled = await asyncio.gather(*(store.keys.settle([charge]) for _ in range(5)))
    assert sorted(settled, key=len) == [set()] * 4 + [{"run_1"}]
    assert await store.keys.spent("key_ann", "2026-11") == once
    assert await store.keys.spent("key_ann", "total") == once
    assert await store.keys.debts(2_000.0) == []


async def test_runs_are_charged_together(store: Store) -> None:
    """What they used adds up by key and period; a run of nobody and one that is not there are no obstacle."""
    once = Spent(runs=1, input_tokens=3, output_tokens=4, usd=0.5)
    for name, key_id in (("1", "key_ann"), ("2", "key_bob"), ("3", "key_ann"), ("4", ""), ("ö\x00", "key_ann")):
        journal = await store.start_run(run_row(name, key_id=key_id), [], owner=OWNER, lease_s=LEASE_S)
        await journal.finish([], COMPLETED)
    asked = {"run_1": "2026-11", "run_2": "2026-11", "run_3": "2026-12", "run_4": "2026-11", "run_5": "2026-11"}
    charges = [Charge(run_id, (month, "total"), once) for run_id, month in asked.items()]
    assert await store.keys.settle(charges) == {"run_1", "run_2", "run_3"}
    assert await store.keys.settle(charges) == set()
    periods = [("key_ann", "2026-11"), ("key_ann", "2026-12"), ("key_ann", "total"), ("key_bob", "total")]
    spent = [await store.keys.spent(*each) for each in periods]
    assert spent == [once, once, once.plus(once), once]
    assert len(await store.keys.debts(2_000.0)) == 1


async def test_a_run_of_nobody_owes_nothing(store: Store) -> None:
    """And what nobody owes cannot be charged."""
    journal = await store.start_run(run_row("1"), [], owner=OWNER, lease_s=LEASE_S)
    await journal.finish([], COMPLETED)
    assert await store.keys.debts(2_000.0) == []
    assert await store.keys.settle([Charge("run_1", ("total",), Spent(runs=1))]) == set()
    assert await store.keys.settle([]) == set()
    assert await store.keys.spent("", "total") == Spent()


def wanted(name: str, tokens: int = 40, usd: float = 0.0, *, until: float = 1_060.0) -> Reservation:
    """What a run of ann's may use."""
    return Reservation(run_id=f"run_{name}", key_id="key_ann", tokens=tokens, usd=usd, until=until)


async def made(store: Store, asked: Reservation, budget: KeyBudget, now: float = 1_000.0) -> ReservationResult:
    """Ask for a reservation."""
    return await store.keys.reserve(asked, budget, "total", now)


async def test_of_all_that_ask_at_once_as_many_get_room_as_there_is(store: Store) -> None:
    """Beside what was used; the last one may go over it, and another key has a budget of its own."""
    journal = await store.start_run(run_row("0", key_id="key_ann"), [], owner=OWNER, lease_s=LEASE_S)
    await journal.finish([], COMPLETED)
    await store.keys.settle([Charge("run_0", ("total",), Spent(runs=1, input_tokens=25, output_tokens=5, usd=0.5))])
    budget = KeyBudget(tokens=100)
    asked = await asyncio.gather(*(made(store, wanted(str(n)), budget) for n in range(1, 21)))
    assert sorted(each.is_reserved for each in asked) == [False] * 18 + [True] * 2
    refused = next(each for each in asked if not each.is_reserved)
    assert refused.spent == Spent(runs=1, input_tokens=25, output_tokens=5, usd=0.5)
    assert (refused.reserved.runs, refused.reserved.tokens) == (2, 80)
    other = Reservation(run_id="run_x", key_id="key_bob", tokens=40, usd=0.0, until=1_060.0)
    assert (await made(store, other, budget)).is_reserved


async def test_money_is_reserved_like_tokens(store: Store) -> None:
    """Whichever of the two is used up first."""
    budget = KeyBudget(tokens=1_000, usd=1.0)
    assert (await made(store, wanted("1", usd=0.75), budget)).is_reserved
    assert (await made(store, wanted("2", usd=0.75), budget)).is_reserved
    third = await made(store, wanted("3"), budget)
    assert (third.is_reserved, third.reserved.usd) == (False, 1.5)


async def test_a_run_asks_again_without_harm(store: Store) -> None:
    """An answer may be lost: its own reservation does not stand in its way."""
    for _ in range(3):
        standing = await made(store, wanted("1"), KeyBudget(tokens=40))
        assert (standing.is_reserved, standing.reserved.runs) == (True, 0)


async def test_a_charge_takes_the_place_of_a_reservation(store: Store) -> None:
    """In one step: there is never both, and never neither."""
    budget = KeyBudget(tokens=41)
    journal = await store.start_run(run_row("1", key_id="key_ann"), [], owner=OWNER, lease_s=LEASE_S)
    assert (await made(store, wanted("1"), budget)).is_reserved
    await journal.finish([], COMPLETED)
    assert (await made(store, wanted("2"), budget)).reserved.tokens == 40
    assert await store.keys.settle([Charge("run_1", ("total",), Spent(runs=1, input_tokens=10))]) == {"run_1"}
    third = await made(store, wanted("3", 1), budget)
    assert (third.spent.tokens, third.reserved.tokens, third.is_reserved) == (10, 40, False)


@pytest.mark.parametrize("has_run", [False, True])
async def test_what_a_dead_process_reserved_counts_as_long_as_its_run_may_go_on(
    store: Store, clock: SetClock, has_run: bool
) -> None:
    """Past its time only where nothing of the run is left: no lease, by which another process takes it, and no debt."""
    budget = KeyBudget(tokens=41)
    if has_run:
        await store.start_run(run_row("1", key_id="key_ann"), [], owner=OWNER, lease_s=LEASE_S)
    await made(store, wanted("1", 41), budget)
    assert not (await made(store, wanted("2"), budget, 1_059.0)).is_reserved
    await store.list_runs()
    if type(store).__name__ == "MemoryStore":
        return  # its processes die with it, so that what they reserved does too
    assert (await made(store, wanted("2"), budget, 1_061.0)).is_reserved is not has_run


async def test_what_was_reserved_for_nothing_is_given_back(store: Store) -> None:
    """But not by a run that goes on, whoever drives it now."""
    budget = KeyBudget(tokens=41)
    await made(store, wanted("1", 41), budget)
    await store.keys.release("run_1")
    await store.start_run(run_row("2", key_id="key_ann"), [], owner=OWNER, lease_s=LEASE_S)
    await store.list_runs()
    assert (await made(store, wanted("2", 41), budget)).is_reserved
    await store.keys.release("run_2")
    assert not (await made(store, wanted("3"), budget)).is_reserved
