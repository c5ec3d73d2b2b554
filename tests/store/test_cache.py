"""Answers given again, on every store: to equal plans of the same key, for a while, and never what was forgotten."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from store.sample import SetClock
from treadle.core.errors import UpstreamTimeout
from treadle.core.events import ItemDone, Noted, Numbered, RunEnded, TextDelta
from treadle.core.items import MessageItem, text_of
from treadle.core.tool_definitions import Effect, ServerTool, ToolPolicy, ToolSpec
from treadle.core.usage import Usage
from treadle.journal.journal_interface import RunRow, Store
from treadle.runs import RunDependencies, RunHandle, Runs, RunsOptions
from treadle.runs.response_cache import HIT, CacheRules
from treadle.runtime import RandomIds
from treadle.telemetry import Metrics
from unit.engine.fakes import FakeModel, FakeToolbox, ask_for, call, ok, say
from unit.runs.test_run_service import Table, asking

TTL_S = 100.0


class StandingClock:
    """The store's clock, as the runs want it; nothing ever falls due."""

    def __init__(self, clock: SetClock) -> None:
        self._clock = clock

    def now(self) -> float:
        return self._clock.now

    def monotonic(self) -> float:
        return self._clock.now

    async def sleep(self, seconds: float) -> None:
        await asyncio.Event().wait()


class Told:
    """A run that has ended, as its reader saw it."""

    def __init__(self, handle: RunHandle, events: list[Numbered], row: RunRow) -> None:
        self.cache = handle.cache
        self.run_id = handle.run_id
        self.events = events
        self.row = row

    @property
    def text(self) -> str:
        """Return what the last message says."""
        said = [each.event.item for each in self.events if isinstance(each.event, ItemDone)]
        return text_of([item for item in said if isinstance(item, MessageItem)][-1].content)

    @property
    def item_ids(self) -> list[str]:
        """Return the ids of what was said."""
        return [each.event.item.id for each in self.events if isinstance(each.event, ItemDone)]

    @property
    def deltas(self) -> list[str]:
        """Return the pieces of text."""
        return [each.event.text for each in self.events if isinstance(each.event, TextDelta)]

    @property
    def origin(self) -> str | None:
        """Return whose answer it is said to be."""
        notes = [each.event.note for each in self.events if isinstance(each.event, Noted)]
        return next((note.field for note in notes if note.code == HIT), None)


class House:
    """A runs room with a cache on a store, and a model that counts how often it is asked."""

    def __init__(self, store: Store, clock: SetClock, model: FakeModel, *tools: ServerTool, **rules: Any) -> None:
        self.model = model
        self.store = store
        table = Table(model, tools)
        self.metrics = Metrics()
        rooms = RunDependencies(
            store=store,
            models=table,
            tools=table,
            toolbox=FakeToolbox(ours=ok("42")),
            clock=StandingClock(clock),
            ids=RandomIds(),
            metrics=self.metrics,
        )
        self.runs = Runs(rooms, RunsOptions(cache=CacheRules(**{"ttl_s": TTL_S, **rules})))

    async def ask(self, text: str = "go", *, key_id: str = "", **fields: Any) -> Told:
        """Run a request to its end."""
        handle = await self.runs.start(asking(text, **fields), key_id=key_id)
        events = [numbered async for batch in handle.events() for numbered in batch]
        await handle.wait()
        row = await self.store.find_run(handle.run_id)
        assert row is not None
        return Told(handle, events, row)

    def counted(self, outcome: str) -> float | None:
        """Return how many lookups ended so."""
        return self.metrics.registry.value("treadle_cached_answers_total", {"outcome": outcome})


Build = Callable[..., House]


@pytest.fixture
async def build(store: Store, clock: SetClock) -> AsyncIterator[Build]:
    """A maker of houses on the store."""
    houses: list[House] = []

    def make(model: FakeModel, *tools: ServerTool, **rules: Any) -> House:
        houses.append(House(store, clock, model, *tools, **rules))
        return houses[-1]

    yield make
    for house in houses:
        await house.runs.close()


async def test_an_equal_plan_gets_the_answer_again(build: Build) -> None:
    """In the same pieces, under ids of its own, with a note that names where it comes from; and its record is whole."""
    house = build(FakeModel(say("one", usage=Usage(input_tokens=3, output_tokens=1)), say("two")))
    first, second = await house.ask(), await house.ask()
    assert (first.cache, second.cache) == ("miss", "hit")
    assert (first.text, second.text, first.deltas) == ("one", "one", second.deltas)
    assert second.run_id != first.run_id
    assert set(first.item_ids).isdisjoint(second.item_ids)
    assert (first.origin, second.origin) == (None, first.run_id)
    assert (first.row.usage, second.row.usage) == (Usage(input_tokens=3, output_tokens=1), Usage())
    assert len(house.model.plans) == 1
    assert (house.counted("miss"), house.counted("hit")) == (1.0, 1.0)
    assert (await house.runs.verify_replay(second.row)).problem is None
    assert await house.runs.replay(second.run_id) == second.events


async def test_another_plan_is_asked(build: Build) -> None:
    """One word more, other instructions: each is another plan."""
    house = build(FakeModel(say("one"), say("two"), say("three")))
    told = [await house.ask(), await house.ask("go on"), await house.ask(instructions="Be brief.")]
    assert [each.text for each in told] == ["one", "two", "three"]
    assert [each.cache for each in told] == ["miss"] * 3


async def test_no_key_meets_the_answer_of_another(build: Build) -> None:
    """Nor does the one without a name."""
    house = build(FakeModel(say("of ada"), say("of eve"), say("of nobody")))
    told = [await house.ask(key_id=key) for key in ("ada", "eve", "", "ada", "eve", "")]
    assert [each.text for each in told] == ["of ada", "of eve", "of nobody"] * 2
    assert [each.cache for each in told] == ["miss"] * 3 + ["hit"] * 3


async def test_an_answer_grows_too_old_however_often_it_is_given(build: Build, clock: SetClock) -> None:
    """Its time runs from when the model said it, not from when it was said again."""
    house = build(FakeModel(say("one"), say("two")))
    first = await house.ask()
    for _ in range(6):  # more often than runs are looked at
        clock.now += TTL_S / 8
        again = await house.ask()
        assert (again.text, again.origin) == ("one", first.run_id)
    clock.now += TTL_S / 2
    assert (await house.ask()).text == "two"


@pytest.mark.parametrize("is_purged", [True, False])
async def test_what_is_forgotten_is_not_given_again(build: Build, is_purged: bool) -> None:
    """Also when it had been given again before: the copies do not keep it alive."""
    house = build(FakeModel(say("one"), say("two")))
    first = await house.ask()
    assert (await house.ask()).cache == "hit"
    await (house.store.purge_run(first.run_id) if is_purged else house.store.delete_run(first.run_id))
    assert ((await house.ask()).text, len(house.model.plans)) == ("two", 2)


async def test_what_was_not_to_be_stored_is_not_given_again(build: Build) -> None:
    """A run that is not stored may get an answer, and never becomes one."""
    house = build(FakeModel(say("one"), say("two")))
    assert (await house.ask(store=False)).cache == "miss"
    stored = await house.ask()
    assert (stored.text, stored.cache) == ("two", "miss")
    assert ((await house.ask(store=False)).text, len(house.model.plans)) == ("two", 2)


async def test_only_whole_answers_of_completed_runs_are_given_again(build: Build) -> None:
    """Not one that was cut by the model, and not an error."""
    house = build(FakeModel(say("cut", stop="length"), UpstreamTimeout("silent"), say("whole")))
    assert (await house.ask()).row.status == "incomplete"
    assert (await house.ask()).row.status == "failed"
    assert [((await house.ask()).text, each) for each in ("miss", "hit")] == [("whole", "miss"), ("whole", "hit")]
    assert len(house.model.plans) == 3


async def test_an_answer_that_is_too_large_is_asked_for_anew(build: Build) -> None:
    """The bound is on one answer."""
    house = build(FakeModel(say("x" * 500), say("y" * 500)), bytes_max=400)
    await house.ask()
    assert (await house.ask()).text == "y" * 500


def tool_with(effect: Effect, **flags: Any) -> ServerTool:
    """Return the tool `ours`."""
    return ServerTool(spec=ToolSpec(name="ours"), policy=ToolPolicy(effect=effect, approval="never", **flags))


@pytest.mark.parametrize(
    "harmful",
    [tool_with("idempotent"), tool_with("write"), tool_with("destructive"), tool_with("read", exec=True)],
    ids=["idempotent", "write", "destructive", "exec"],
)
async def test_a_run_with_tools_that_have_effects_is_never_answered_so(build: Build, harmful: ServerTool) -> None:
    """Not even when no tool was called: the cache is not even looked at."""
    house = build(FakeModel(say("one"), say("two")), harmful)
    told = [await house.ask(), await house.ask()]
    assert [(each.text, each.cache) for each in told] == [("one", ""), ("two", "")]
    assert (house.counted("hit"), house.counted("miss")) == (None, None)


async def test_a_client_that_brings_its_own_tools_is_never_answered_so(build: Build) -> None:
    """Nobody here knows what those do."""
    house = build(FakeModel(say("one"), say("two")))
    tools = (ToolSpec(name="theirs"),)
    assert [(await house.ask(tools=tools)).text for _ in range(2)] == ["one", "two"]


async def test_who_wants_the_model_asked_gets_it_asked(build: Build) -> None:
    """And what it then says is the newest answer."""
    house = build(FakeModel(say("one"), say("two")))
    await house.ask()
    assert [((await house.ask(is_fresh=fresh)).text) for fresh in (True, False)] == ["two", "two"]


async def test_tools_that_only_read_run_again_and_both_model_calls_are_found(build: Build) -> None:
    """The tool is asked for what is true now; while it says the same, the rest is known as well."""
    house = build(FakeModel(ask_for(call("ours")), say("forty-two"), say("never said")), tool_with("read"))
    first, second = await house.ask(), await house.ask()
    assert [each.text for each in (first, second)] == ["forty-two"] * 2
    assert (second.row.rounds, second.row.calls, len(house.model.plans)) == (2, 1, 2)
    assert house.counted("hit") == 2.0
    ended = second.events[-1].event
    assert isinstance(ended, RunEnded)
    assert ended.status == "completed"
    assert (await house.runs.verify_replay(second.row)).problem is None
