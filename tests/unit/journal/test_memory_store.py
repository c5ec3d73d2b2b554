"""The store that keeps nothing: a run is a list until somebody else asks, and then as in any other store."""

from collections.abc import AsyncIterator

import pytest

from treadle.core.errors import Conflict, NotFound, ProtocolError, StoreError
from treadle.core.events import RunEnded
from treadle.core.journal_entries import Entry
from treadle.journal.journal_interface import Chunk, RunJournal, RunRow, Store
from treadle.journal.keys_interface import Charge, Spent
from treadle.journal.memory_store import HeldRun, MemoryStore
from treadle.journal.open_store import open_store

ENDED = RunEnded(status="completed", stop="done", ended_at=9.0)


class Statements(MemoryStore):
    """Counts how often the database is asked for something."""

    count = 0

    def _open_writer(self):  # type: ignore[no-untyped-def]
        type(self).count += 1
        return super()._open_writer()


@pytest.fixture
async def store() -> AsyncIterator[MemoryStore]:
    """An open store whose statements are counted."""
    opened = Statements(clock=lambda: 100.0)
    await opened.open()
    Statements.count = 0
    yield opened
    await opened.close()


def row(name: str, **fields: object) -> RunRow:
    """A run called `name`."""
    ids = {"id": f"run_{name}", "response_id": f"resp_{name}", "conversation_id": f"conv_{name}"}
    return RunRow(**{"protocol": "chat", "model": "demo", "created_at": 1.0, **ids, **fields})  # type: ignore[arg-type]


def note(text: str) -> Entry:
    """An entry."""
    return Entry(kind="note", at=1.0, content=text)


async def start(store: Store, name: str, **fields: object) -> RunJournal:
    """Begin a run with one entry."""
    return await store.start_run(row(name, **fields), [note("go")], owner="me", lease_s=5.0)


def test_it_fits_the_interface_and_is_what_memory_opens() -> None:
    """The classes have the shape of the protocols."""
    store: Store = open_store(":memory:")
    assert type(store) is MemoryStore
    assert [name for name in dir(RunJournal) if not name.startswith("_") and not hasattr(HeldRun, name)] == []


async def test_a_run_that_only_its_owner_sees_never_comes_to_the_database(store: MemoryStore) -> None:
    """Begun, written, ended and forgotten without a statement; afterwards it is gone."""
    journal = await start(store, "1")
    assert await journal.append([note("a"), note("b")]) == 3
    await journal.renew()
    assert await journal.finish([note("c")], ENDED) == 4
    assert await store.delete_run("run_1") is True
    assert Statements.count == 0
    assert await store.find_run("run_1") is None
    assert await store.delete_run("run_1") is False


async def test_what_was_laid_down_does_not_draw_the_others_after_it(store: MemoryStore) -> None:
    """One look lays down what there is; the ends of those runs, and the looks for cancels, leave later ones alone."""
    first = await start(store, "1")
    assert await store.find_run("run_1") is not None
    second = await start(store, "2")
    Statements.count = 0
    assert await store.cancel_requests("me") == []
    await first.finish([note("done")], ENDED)
    assert await store.delete_run("run_1") is True
    assert isinstance(second, HeldRun)
    assert (second.written, Statements.count) == (None, 0)
    assert await store.delete_run("resp_2") is True
    assert second.written is not None, "who knows a run by its other name asks the database"


async def test_who_looks_for_earlier_turns_lays_down_ended_runs_only(store: MemoryStore) -> None:
    """A run that goes on has none; the look leaves it alone. One that ended is looked at."""
    going = await start(store, "1")
    assert await store.find_turns(["call_1"], ["q"]) == []
    assert isinstance(going, HeldRun)
    assert going.written is None
    await going.finish([note("done")], ENDED)
    assert await store.find_turns(["call_1"], ["q"]) == []
    assert going.written is not None


async def test_a_cancel_that_was_asked_for_is_heard(store: MemoryStore) -> None:
    """Whoever asks lays the run down, and its owner finds that."""
    await start(store, "1")
    await store.request_cancel("run_1")
    await start(store, "2")
    assert await store.cancel_requests("me") == ["run_1"]


async def test_whoever_asks_finds_all_runs_in_their_order(store: MemoryStore) -> None:
    """As if they had been in the database from the beginning, ended or not; and writing goes on there."""
    first, second = await start(store, "1"), await start(store, "2", key_id="key_1")
    await second.append([note("on")])
    await second.finish([], ENDED)
    assert [each.id for each in await store.list_runs()] == ["run_2", "run_1"]
    assert [(debt.run_id, debt.ended_at) for debt in await store.keys.debts(10.0)] == [("run_2", 9.0)]
    assert await first.append([note("later")]) == 2
    assert [entry.content for entry in await store.entries("run_1")] == ["go", "later"]
    for run_id in ("run_1", "run_2"):
        assert all(line.sha256 == line.expected for line in await store.audit(run_id))
    with pytest.raises(Conflict, match="has ended"):
        await second.append([note("late")])


@pytest.mark.parametrize("is_asked", [False, True])
async def test_rules_hold_before_and_after_somebody_asked(store: MemoryStore, is_asked: bool) -> None:
    """Ids are taken once, a call has one result, an end is an end, and what was deleted is gone."""
    journal = await start(store, "1")
    result = Entry(kind="tool_result", at=1.0, call_id="c1")
    await journal.append([result, as_input(result), Entry(kind="tool_call", at=1.0)])
    if is_asked:
        await store.find_run("run_1")
    for refused in (row("1"), row("2", response_id="resp_1"), row("1", response_id="resp_2")):
        with pytest.raises(Conflict):
            await store.start_run(refused, [], owner="me", lease_s=5.0)
    with pytest.raises(Conflict):
        await journal.append([note("with it"), result])
    other = Entry(kind="tool_result", at=1.0, call_id="c2")
    with pytest.raises(Conflict):
        await journal.append([other, other])
    assert await journal.append([other]) == 5
    await journal.finish([], ENDED)
    for write in (journal.append([note("late")]), journal.finish([], ENDED), journal.renew()):
        with pytest.raises(Conflict, match="has ended"):
            await write
    assert await store.delete_run("run_1")
    with pytest.raises(NotFound):
        await journal.append([note("nowhere")])
    await journal.release()
    with pytest.raises(NotFound):
        await journal.write_chunk(Chunk(first=1, count=1, data=b"[1]"), keep_from=1)


def as_input(entry: Entry) -> Entry:
    """Return the entry as if a client had sent it."""
    return Entry(kind=entry.kind, at=entry.at, call_id=entry.call_id, is_input=True)


async def test_a_run_that_refers_to_others_begins_in_the_database(store: MemoryStore) -> None:
    """One that continues another, one with an idempotency key; and one whose names are no text is refused."""
    await start(store, "1")
    await start(store, "2", previous_id="run_1", conversation_id="conv_1")
    with pytest.raises(NotFound):
        await start(store, "3", previous_id="run_9")
    await start(store, "4", idempotency_key="a")
    with pytest.raises(Conflict):
        await start(store, "5", idempotency_key="a")
    with pytest.raises(ProtocolError):
        await start(store, "6\ud800")
    assert [entry.content for entry in await store.entries("run_2")] == ["go"]
    assert (await store.find_run("run_2")) == row("2", previous_id="run_1", conversation_id="conv_1")


async def test_a_run_that_is_given_up_is_claimed(store: MemoryStore) -> None:
    """With all that it has written; its old owner writes no more."""
    journal = await start(store, "1")
    await journal.append([note("on")])
    await journal.release()
    [(found, taken)] = await store.claim_abandoned("other", 5.0, 10)
    assert (found, taken.epoch, taken.attempt) == (row("1"), 2, 1)
    with pytest.raises(StoreError) as caught:
        await journal.append([note("late")])
    assert caught.value.info.code == "lease_lost"
    assert await taken.append([note("mine")]) == 3


async def test_what_a_run_tells_can_be_read(store: MemoryStore) -> None:
    """Before it is written."""
    journal = await start(store, "1")
    await journal.write_chunk(Chunk(first=1, count=1, data=b"[1]"), keep_from=1)
    assert await store.chunks("run_1") == [Chunk(first=1, count=1, data=b"[1]")]


async def test_a_closed_store_takes_nothing(store: MemoryStore) -> None:
    """Neither runs nor entries."""
    journal = await start(store, "1")
    await store.close()
    for write in (journal.append([note("late")]), journal.finish([], ENDED), start(store, "2")):
        with pytest.raises(StoreError) as caught:
            await write
        assert caught.value.info.code == "store_closed"


async def test_a_run_is_charged_to_its_key_without_being_written(store: MemoryStore) -> None:
    """Once, and no more when it comes to the database after all; one that has not ended or has no key never is."""
    used = Spent(runs=1, input_tokens=3, output_tokens=4, usd=0.5)
    for name, key_id in (("a", "key_1"), ("b", "key_1"), ("c", "")):
        journal = await start(store, name, key_id=key_id)
        if name != "b":
            await journal.finish([note("end")], ENDED)
    charges = [Charge(f"run_{name}", ("day", "total"), used) for name in "abc"]
    assert await store.keys.settle(charges) == {"run_a"}
    assert await store.keys.settle(charges) == set()
    assert Statements.count == 0
    assert await store.keys.debts(1_000.0) == []
    assert [await store.keys.spent("key_1", period) for period in ("day", "total")] == [used, used]
    assert await store.keys.settle(charges) == set()


async def test_a_run_in_the_database_is_charged_there(store: MemoryStore) -> None:
    """Whoever asked for it meanwhile, it owes what it used until it is charged."""
    journal = await start(store, "a", key_id="key_1")
    assert await store.find_run("run_a") is not None
    await journal.finish([note("end")], ENDED)
    assert [debt.run_id for debt in await store.keys.debts(1_000.0)] == ["run_a"]
    assert await store.keys.settle([Charge("run_a", ("total",), Spent(runs=1))]) == {"run_a"}
    assert await store.keys.debts(1_000.0) == []


async def test_a_run_that_is_forgotten_before_it_is_charged_is_charged_all_the_same(store: MemoryStore) -> None:
    """Without a journal runs are forgotten at once, and charged in a moment, together."""
    journal = await start(store, "a", key_id="key_1")
    await journal.finish([note("end")], ENDED)
    assert await store.delete_run("run_a")
    owed = Charge("run_a", ("total",), Spent(runs=1))
    assert [await store.keys.settle([owed]) for _ in range(2)] == [{"run_a"}, set()]
    assert await store.keys.spent("key_1", "total") == Spent(runs=1)
