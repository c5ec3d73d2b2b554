"""Who drives a run in the background: two processes of one store, as two rooms of runs over it."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from treadle.core.events import ModelEvent, RunEnded
from treadle.core.items import text_message
from treadle.core.plan import Plan
from treadle.core.request import Request
from treadle.journal.journal_interface import SessionRow
from treadle.journal.sqlite.store import SqliteStore
from treadle.runs import RunDependencies, Runs, RunsOptions
from treadle.runs.active_run import RunHandle
from treadle.runs.runners.runner_interface import PlacementFailed, RunDriver, RunHost, ShuttingDown
from treadle.runs.runners.store_runners import LocalRunner, SharedStoreRunner
from treadle.runtime import RandomIds
from treadle.telemetry import Metrics
from unit.engine.fakes import FakeModel, FakeToolbox, Reply, say
from unit.runs.test_run_service import QuietClock, Table

WAIT_S = 20.0


class Held(FakeModel):
    """Says nothing until it is let go; `asked` tells that it was asked."""

    def __init__(self, *replies: Reply) -> None:
        super().__init__(*replies)
        self.asked = asyncio.Event()
        self.go = asyncio.Event()

    async def stream(self, plan: Plan, run_id: str) -> AsyncGenerator[list[ModelEvent], None]:
        self.asked.set()
        await self.go.wait()
        async for batch in super().stream(plan, run_id):
            yield batch


class Placed:
    """A runner that notes what it was asked to place, and may refuse."""

    places_runs = True
    poll_s: float | None = None

    def __init__(self, problem: str = "") -> None:
        self.problem = problem
        self.placed: list[str] = []
        self.has_placed = asyncio.Event()
        self.host: RunHost | None = None
        self.closed = 0

    def capacity(self, driven: int) -> int | None:
        return None

    async def open(self, host: RunHost) -> None:
        self.host = host

    async def place(self, run_id: str) -> None:
        if self.problem:
            raise PlacementFailed(self.problem)
        self.placed.append(run_id)
        self.has_placed.set()

    async def close(self) -> None:
        self.closed += 1


@pytest.fixture
async def store() -> AsyncIterator[SqliteStore]:
    """One store for all processes of a test."""
    opened = SqliteStore(":memory:", clock=QuietClock().now)
    await opened.open()
    yield opened
    await opened.close()


@asynccontextmanager
async def process(store: SqliteStore, model: FakeModel, runner: RunDriver, owner: str = "one") -> AsyncIterator[Runs]:
    """Open the runs of one process."""
    table = Table(model, ())
    rooms = RunDependencies(
        store=store,
        models=table,
        tools=table,
        toolbox=FakeToolbox(),
        clock=QuietClock(),
        ids=RandomIds(),
        metrics=Metrics(),
        runner=runner,
    )
    runs = Runs(rooms, RunsOptions(owner=owner))
    await runs.open()
    try:
        yield runs
    finally:
        await runs.close()


def asked(*, background: bool = True) -> Request:
    """Return a request."""
    return Request(protocol="responses", model="m", items=(text_message("user", "hi"),), background=background)


async def ended(handle: RunHandle) -> RunEnded:
    """Wait for a run's end, with a bound."""
    async with asyncio.timeout(WAIT_S):
        return await handle.wait()


async def test_a_process_without_a_bound_drives_what_it_takes_in(store: SqliteStore) -> None:
    """With either runner of our own: no detour over the store."""
    for runner in (LocalRunner(), SharedStoreRunner()):
        async with process(store, FakeModel(say("hello")), runner) as runs:
            handle = await runs.start(asked())
            assert runs.find_live(handle.run_id) is not None
            assert (await ended(handle)).status == "completed"


async def test_only_the_end_of_a_run_in_the_background_makes_room(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that answers many requests does not ask the store after each of them what is left to do."""
    looked, claim = list[str](), store.claim_abandoned
    again = asyncio.Event()

    async def counted(owner: str, *args: Any, **only: Any) -> Any:
        looked.append(owner)
        again.set()
        return await claim(owner, *args, **only)

    runner = SharedStoreRunner(1)
    runner.poll_s = WAIT_S * 2
    async with process(store, FakeModel(*[say("hello")] * 4), runner) as runs:
        monkeypatch.setattr(store, "claim_abandoned", counted)
        for _ in range(3):
            await ended(await runs.start(asked(background=False)))
        await asyncio.sleep(0)
        assert looked == []
        await ended(await runs.start(asked()))
        async with asyncio.timeout(WAIT_S):
            await again.wait()


async def test_a_full_process_leaves_a_run_to_one_that_has_room(store: SqliteStore) -> None:
    """It is durable and readable at once, nobody's until the other looks, and counts as no failed attempt."""
    full, free = Held(say("busy")), FakeModel(say("from the other"))
    async with process(store, full, SharedStoreRunner(1)) as first:
        busy = await first.start(asked())
        handle = await first.start(asked())
        assert (handle.is_attached, first.find_live(handle.run_id)) == (False, None)
        row = await store.find_run(handle.run_id)
        assert row is not None
        assert row.status == "running"
        async with process(store, free, SharedStoreRunner(1), "two"):
            assert (await ended(handle)).status == "completed"
        assert len(free.plans) == 1
        full.go.set()
        assert (await ended(busy)).status == "completed"


async def test_a_run_that_waits_is_taken_as_soon_as_there_is_room(store: SqliteStore) -> None:
    """The same process takes it when the run before it ends."""
    model = Held(say("one"))
    async with process(store, model, SharedStoreRunner(1)) as runs:
        first, second, third = [await runs.start(asked()) for _ in range(3)]
        model.go.set()
        assert {(await ended(each)).status for each in (first, second, third)} == {"completed"}


async def test_the_bound_is_for_the_background_alone(store: SqliteStore) -> None:
    """A client that waits for its answer never waits for room."""
    model = Held(say("one"))
    async with process(store, model, SharedStoreRunner(1)) as runs:
        await runs.start(asked())
        handle = await runs.start(asked(background=False))
        assert runs.find_live(handle.run_id) is not None
        model.go.set()
        await ended(handle)


async def test_a_run_that_waits_can_be_cancelled(store: SqliteStore) -> None:
    """Whoever is asked takes it for that alone, room or not."""
    model = Held(say("one"))
    async with process(store, model, SharedStoreRunner(1)) as runs:
        await runs.start(asked())
        handle = await runs.start(asked())
        assert await runs.cancel(handle.run_id)
        assert (await ended(handle)).status == "cancelled"


async def test_a_run_that_waits_holds_its_session(store: SqliteStore) -> None:
    """Its seat in the process is free again, its lease is not."""
    await store.create_session(SessionRow(id="s1", name="s", created_at=1.0, updated_at=1.0))
    model = Held(say("one"))
    async with process(store, model, SharedStoreRunner(1)) as runs:
        await runs.start(asked())
        handle = await runs.start(asked(), session_id="s1")
        with pytest.raises(Exception, match="still going on"):
            await runs.start(asked(background=False), session_id="s1")
        model.go.set()
        assert (await ended(handle)).status == "completed"
        again = await runs.start(asked(background=False), session_id="s1")
        assert (await ended(again)).status == "completed"


async def test_what_is_placed_from_outside_is_driven_by_whoever_is_told(store: SqliteStore) -> None:
    """The process that took it in does not; nobody claims it by himself; a client's own run stays where it is."""
    first, second = Placed(), Placed()
    model = FakeModel(say("driven"))
    async with process(store, model, first) as one, process(store, model, second, "two") as two:
        handle = await one.start(asked())
        assert first.placed == [handle.run_id]
        await one.claim_abandoned()
        assert await two.claim_abandoned() == []
        assert second.host is not None
        assert await second.host.drive_to_end(handle.run_id) == "completed"
        assert (await ended(handle)).status == "completed"
        own = await one.start(asked(background=False))
        assert own.run_id not in first.placed
        assert (await ended(own)).status == "completed"
    assert (first.closed, second.closed) == (1, 1)


async def test_whoever_is_told_twice_waits_for_the_one_who_drives(store: SqliteStore) -> None:
    """Two processes that were given the same run: one drives it, both hear its end."""
    first, second = Placed(), Placed()
    model = Held(say("once"))
    async with process(store, model, first) as one, process(store, model, second, "two") as two:
        handle = await one.start(asked())
        both = [asyncio.create_task(runs.drive_to_end(handle.run_id)) for runs in (one, two)]
        await model.asked.wait()
        model.go.set()
        async with asyncio.timeout(WAIT_S):
            assert await asyncio.gather(*both) == ["completed", "completed"]
        assert len(model.plans) == 1


async def test_what_cannot_be_placed_is_driven_here(store: SqliteStore) -> None:
    """A runner that is away delays nothing and loses nothing."""
    async with process(store, FakeModel(say("here")), Placed("away")) as runs:
        handle = await runs.start(asked())
        assert (await ended(handle)).status == "completed"


async def test_a_run_that_is_not_there_is_seen_to_at_once(store: SqliteStore) -> None:
    """It was deleted meanwhile: there is nothing to do."""
    async with process(store, FakeModel(say("-")), Placed()) as runs:
        assert await runs.drive_to_end("run_none") is None


async def test_runs_that_nobody_placed_are_found(store: SqliteStore) -> None:
    """They were begun before another runner was chosen."""
    async with process(store, Held(say("one")), LocalRunner()) as runs:
        handle = await runs.start(asked())
    runner = Placed()
    async with process(store, FakeModel(say("one")), runner, "two"):
        async with asyncio.timeout(WAIT_S):
            await runner.has_placed.wait()
    assert runner.placed == [handle.run_id]


async def test_a_process_that_leaves_hands_over_and_takes_nothing_any_more(store: SqliteStore) -> None:
    """Its own run waits for somebody else; what it sees to for others it gives back."""
    model = Held(say("late"))
    async with process(store, model, Placed()) as runs:
        handle = await runs.start(asked())
        seeing = asyncio.create_task(runs.drive_to_end(handle.run_id))
        await model.asked.wait()
        await runs.close()
        with pytest.raises(ShuttingDown):
            await seeing
        assert await runs.claim_abandoned() == []
    async with process(store, FakeModel(say("later")), LocalRunner(), "two") as other:
        assert (await ended(other.attach(await _row(store, handle.run_id)))).status == "completed"


async def test_the_runs_of_a_process_known_to_be_dead_go_on_at_once(store: SqliteStore) -> None:
    """Nobody waits for its leases; those of the living stay."""
    model = Held(say("gone"))
    async with (
        process(store, model, LocalRunner()) as dead,
        process(store, FakeModel(say("on")), LocalRunner(), "two") as other,
    ):
        handle = await dead.start(asked(background=False))
        await model.asked.wait()
        await other.recover_owner("nobody")
        assert other.find_live(handle.run_id) is None
        await other.recover_owner("one")
        assert (await ended(other.attach(await _row(store, handle.run_id)))).status == "completed"


async def _row(store: SqliteStore, run_id: str):
    found = await store.find_run(run_id)
    assert found is not None
    return found
