"""The contract of idempotency keys, J14: one run for each, within an API key."""

import asyncio

import pytest

from store.sample import COMPLETED, LEASE_S, OTHER, OWNER, SetClock, run_row, said
from treadle.core.errors import Conflict, NotFound, ProtocolError
from treadle.journal.journal_interface import IDEMPOTENCY_KEY_TAKEN, RunJournal, Store


async def start(store: Store, name: str, key: str | None = "once", **fields: object) -> RunJournal:
    """Begin a run under an idempotency key."""
    row = run_row(name, idempotency_key=key, request_sha256="5e1f", **fields)
    return await store.start_run(row, [said(name, is_input=True)], owner=OWNER, lease_s=LEASE_S)


async def code_of(store: Store, name: str, **fields: object) -> str:
    """Return how a start under the same key is refused."""
    with pytest.raises(Conflict) as caught:
        await start(store, name, **fields)
    return caught.value.info.code


async def test_a_run_is_found_by_its_idempotency_key(store: Store) -> None:
    """With the hash of what was asked, live and ended."""
    journal = await start(store, "1", key_id="key_1")
    row = run_row("1", key_id="key_1", idempotency_key="once", request_sha256="5e1f")
    assert await store.find_idempotent("once", key_id="key_1") == row
    await journal.finish([], COMPLETED)
    ended = await store.find_idempotent("once", key_id="key_1")
    assert ended is not None
    assert (ended.id, ended.status) == ("run_1", "completed")


@pytest.mark.parametrize(("key", "key_id"), [("twice", "key_1"), ("once", "key_2"), ("once", ""), ("\udc80", "key_1")])
async def test_another_key_finds_nothing(store: Store, key: str, key_id: str) -> None:
    """Neither another idempotency key nor another API key, whatever they are made of."""
    await start(store, "1", key_id="key_1")
    assert await store.find_idempotent(key, key_id=key_id) is None


async def test_a_second_run_under_the_same_key_is_refused(store: Store) -> None:
    """With a code of its own, and nothing of it is there; also after the first one has ended."""
    journal = await start(store, "1")
    assert await code_of(store, "2") == IDEMPOTENCY_KEY_TAKEN
    await journal.finish([], COMPLETED)
    assert await code_of(store, "2") == IDEMPOTENCY_KEY_TAKEN
    assert [row.id for row in await store.list_runs()] == ["run_1"]
    with pytest.raises(NotFound):
        await store.entries("run_2")


async def test_a_taken_key_is_told_before_anything_else(store: Store) -> None:
    """A retry hears of its first try even if what that one continued is gone by now."""
    await start(store, "1")
    assert await code_of(store, "2", previous_id="run_0") == IDEMPOTENCY_KEY_TAKEN


async def test_a_taken_id_is_not_mistaken_for_a_taken_key(store: Store) -> None:
    """A conflict of ids keeps its own code."""
    await start(store, "1")
    with pytest.raises(Conflict) as caught:
        await start(store, "1", "another")
    assert caught.value.info.code != IDEMPOTENCY_KEY_TAKEN


async def test_api_keys_do_not_share_idempotency_keys(store: Store) -> None:
    """Two clients may choose the same one; a run without one is never in the way."""
    await start(store, "1", key_id="key_1")
    await start(store, "2", key_id="key_2")
    await start(store, "0", key_id="key_0")
    await start(store, "3", None)
    await start(store, "4", None)
    found = await store.find_idempotent("once", key_id="key_2")
    assert found is not None
    assert found.id == "run_2"


async def test_of_a_hundred_starts_exactly_one_wins(store: Store) -> None:
    """The same request delivered a hundred times at once is one run."""
    starts = [start(store, str(n)) for n in range(100)]
    outcomes = await asyncio.gather(*starts, return_exceptions=True)
    [winner] = [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
    refused = [outcome.info.code for outcome in outcomes if isinstance(outcome, Conflict)]
    assert refused == [IDEMPOTENCY_KEY_TAKEN] * 99
    assert [row.id for row in await store.list_runs()] == [winner.run_id]
    found = await store.find_idempotent("once", key_id="")
    assert found is not None
    assert found.id == winner.run_id


async def test_a_key_lives_as_long_as_its_run_has_a_row(store: Store) -> None:
    """A purge keeps it, a deletion or an expiry sets it free."""
    journal = await start(store, "1", expires_at=1_500.0)
    await journal.finish([], COMPLETED)
    await store.purge_run("run_1")
    assert await code_of(store, "2") == IDEMPOTENCY_KEY_TAKEN
    assert await store.expire(2_000.0) == 1
    await start(store, "2")
    await store.delete_run("run_2")
    assert await store.find_idempotent("once", key_id="") is None
    await start(store, "3")


async def test_a_key_outlives_the_owner_of_its_run(store: Store, clock: SetClock) -> None:
    """After a take-over the retry still finds the run."""
    await start(store, "1")
    clock.now += LEASE_S
    [(row, _)] = await store.claim_abandoned(OTHER, LEASE_S, 1)
    assert (row.idempotency_key, row.request_sha256) == ("once", "5e1f")
    assert await code_of(store, "2") == IDEMPOTENCY_KEY_TAKEN


@pytest.mark.parametrize("key", ["", "a\x00b", "ключ 🜁", "x" * 10_000, "'; DROP TABLE runs; --", "%_\\"])
async def test_a_key_may_be_any_text(store: Store, key: str) -> None:
    """It is compared exactly, NUL included."""
    await start(store, "1", key)
    await start(store, "2", key + "x")
    found = await store.find_idempotent(key, key_id="")
    assert found is not None
    assert (found.id, found.idempotency_key) == ("run_1", key)


async def test_a_key_that_is_not_unicode_is_refused_by_its_field(store: Store) -> None:
    """A lone surrogate gives an error naming the column, and nothing is written."""
    with pytest.raises(ProtocolError, match=r"runs\.idempotency_key"):
        await start(store, "1", "\ud800")
    assert await store.list_runs() == []
