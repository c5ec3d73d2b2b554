"""Plans side by side, and those of a run that is still going on."""

import asyncio

import msgspec
import pytest

from treadle.core.errors import NotFound
from treadle.core.items import text_message
from treadle.core.plan import Plan
from treadle.core.request import Options
from treadle.core.tool_definitions import NONE, ToolSpec
from treadle.runs.views.plan_history import PlanDifference, difference, list_plans, read_plan
from unit.engine.fakes import FakeModel, FakeToolbox, ask_for, call, ok, say
from unit.runs.test_run_service import OURS, asking, running

ONE, TWO, THREE = (text_message("user", text, f"msg_{text}") for text in ("one", "two", "three"))
PLAN = Plan(items=(ONE, TWO), model="m", tools=(ToolSpec(name="a"), ToolSpec(name="b")))


def test_equal_plans_do_not_differ() -> None:
    """The ids of items are Treadle's own and never sent."""
    again = msgspec.structs.replace(PLAN, items=(text_message("user", "one", "other"), TWO))
    assert difference(PLAN, again) == PlanDifference()


def test_a_difference_says_what_came_and_what_went() -> None:
    """Items from where they part, tools by name, options by value."""
    after = Plan(
        items=(ONE, THREE),
        model="n",
        options=Options(temperature=0.5),
        tool_choice=NONE,
        tools=(ToolSpec(name="b", description="changed"), ToolSpec(name="c")),
    )
    found = difference(PLAN, after)
    assert (found.items_removed, found.items_added) == ((TWO,), (THREE,))
    assert (found.tools_added, found.tools_removed, found.tools_changed) == (("c",), ("a",), ("b",))
    changes = [(each.name, bytes(each.before or b""), bytes(each.after or b"")) for each in found.options]
    assert changes == [
        ("model", b'"m"', b'"n"'),
        ("tool_choice", b"{}", b'{"mode":"none"}'),
        ("temperature", b"null", b"0.5"),
    ]


async def test_the_plans_of_a_run_that_goes_on_can_be_read() -> None:
    """As far as it has come."""
    held = asyncio.Event()
    model = FakeModel(ask_for(call("ours")), say("done"))
    async with running(model, FakeToolbox(ours=held), OURS) as (runs, store):
        handle = await runs.start(asking())
        async for batch in handle.events():
            if any(type(numbered.event).__name__ == "ToolStarted" for numbered in batch):
                break
        row = await store.find_run(handle.run_id)
        assert row is not None
        assert row.ended_at is None
        [line] = await list_plans(store, row)
        _, plan, diff = await read_plan(store, row, 1)
        assert (plan.fingerprint, diff) == (line.fingerprint, None)
        held.set()
        await handle.wait()
        assert [each.fingerprint for each in await list_plans(store, row)] == [each.fingerprint for each in model.plans]
        with pytest.raises(NotFound) as caught:
            await read_plan(store, row, 3)
        assert caught.value.param == "round"


async def test_a_plan_that_was_asked_again_counts_once() -> None:
    """A call that was cut off with its process is void."""
    async with running(FakeModel(say("one")), FakeToolbox(ours=ok("42")), OURS) as (runs, store):
        handle = await runs.start(asking())
        await handle.wait()
        row = await store.find_run(handle.run_id)
        assert row is not None
        entries = await store.entries(row.id)
        plan = next(each for each in entries if each.kind == "plan")
        void = msgspec.structs.replace(plan, kind="void", data=msgspec.Raw(b"{}"))
        at = entries.index(plan)

        class Cut:
            async def entries(self, _: str) -> list[object]:
                return [*entries[: at + 1], void, *entries[at:]]

        [line] = await list_plans(Cut(), row)
        assert line.round == 1
