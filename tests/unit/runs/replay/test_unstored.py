"""What is not to be stored when its process dies: whoever goes on with the run, or gives it up, forgets it too."""

import msgspec
import pytest

from treadle.core.events import RunEnded
from treadle.core.items import CallItem, text_message, text_result
from treadle.core.tool_definitions import ToolSpec
from treadle.runs.recovery.run_record import ATTEMPTS_MAX
from unit.engine.fakes import FakeModel, FakeToolbox, ask_for, call, ok, say
from unit.runs.recovery.test_run_record import REPLIES, TOOLS, finished, left_behind, recorded, rest_of, toolbox
from unit.runs.test_run_service import OURS, asking, events_of, running

OPEN = RunEnded(status="requires_action", stop="calls", ended_at=2.0, rounds=1, calls=1)


@pytest.mark.parametrize("cut", [4, 8, 20, 26])
async def test_a_run_that_is_gone_on_with_is_forgotten_with_its_end(cut: int) -> None:
    """As by the process that began it."""
    row, whole = await recorded()
    entries = whole[:cut]
    async with running(rest_of(entries), toolbox(), *TOOLS) as (runs, store):
        await left_behind(store, msgspec.structs.replace(row, store=False), entries)
        assert await runs.claim_abandoned() == [row.id]
        assert (await finished(runs, row.id)).status == "completed"
        assert await store.entries(row.id, for_next=True) == []
        found = await store.find_run(row.id)
    assert found is not None
    assert (found.status, found.request, found.rounds > 0) == ("completed", None, True)


async def test_a_run_that_is_given_up_is_forgotten_with_its_end() -> None:
    """Nobody can go on with it, so nobody needs it."""
    row, whole = await recorded()
    async with running(FakeModel(*REPLIES), toolbox(), *TOOLS) as (runs, store):
        await left_behind(store, msgspec.structs.replace(row, store=False), whole[:8])
        for number in range(ATTEMPTS_MAX):
            assert await store.claim_abandoned(f"dead_{number}", 1, 5)
            await store.end_leases(f"dead_{number}")
        await runs.claim_abandoned()
        assert await store.entries(row.id, for_next=True) == []
        found = await store.find_run(row.id)
    assert found is not None
    assert (found.status, found.error and found.error.code) == ("failed", "interrupted")


@pytest.mark.parametrize("fails", [False, True])
async def test_an_open_turn_is_forgotten_by_whoever_ends_the_run_that_took_it_up(fails: bool) -> None:
    """Its id stands in the frame of that run; where the run fails the turn waits for the client to ask again."""
    tools = (ToolSpec(name="theirs"),)
    replies = (ask_for(call("ours", call_id="s1"), call("theirs", call_id="c1")), say("done"))
    theirs = CallItem(call_id="c1", name="theirs", arguments="{}")
    items = (text_message("user", "go"), theirs, text_result(theirs, "seven"))
    async with running(FakeModel(*replies), FakeToolbox(ours=ok("42")), OURS) as (runs, store):
        first = (await events_of(runs, asking(tools=tools, store=False)))[0].event.run_id
        memory = await store.find_run(first), await store.entries(first, for_next=True)
        second = (await events_of(runs, asking(tools=tools, items=items)))[0].event.run_id
        row, whole = await store.find_run(second), await store.entries(second)
        assert await store.entries(first, for_next=True) == []
    kept, entries = memory
    assert kept is not None
    assert row is not None
    fresh = {"status": "running", "ended_at": None, "stop": None, "usage": None, "rounds": 0, "calls": 0}
    plan = next(place for place, entry in enumerate(whole, 1) if entry.kind == "plan")
    model = FakeModel() if fails else FakeModel(say("done"))
    async with running(model, FakeToolbox(ours=ok("42")), OURS) as (runs, store):
        journal = await store.start_run(msgspec.structs.replace(kept, **fresh), entries, owner="dead", lease_s=1)
        await journal.finish([], OPEN)
        await left_behind(store, msgspec.structs.replace(row, **fresh), whole[:plan])
        await runs.claim_abandoned()
        assert (await finished(runs, second)).status == ("failed" if fails else "completed")
        assert bool(await store.entries(first, for_next=True)) == fails
