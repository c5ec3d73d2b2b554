"""A run is cut at every entry of its journal, gone on with in another process, and driven again as a proof."""

import asyncio
import logging
from collections import Counter

import msgspec
import pytest

from treadle.core.events import RunEnded
from treadle.core.items import CallItem
from treadle.core.journal_entries import Entry
from treadle.core.request import Request
from treadle.core.tool_definitions import ServerTool, ToolPolicy, ToolSpec
from treadle.journal.journal_interface import RunJournal, RunRow
from treadle.journal.sqlite.store import SqliteStore
from treadle.runs import Runs
from treadle.runs.active_run import LiveRun
from treadle.runs.recovery.recover_runs import RunRecovery
from treadle.runs.replay.event_replay import DamagedJournal
from treadle.runs.run_supervisor import HANDED_OVER
from unit.engine.fakes import FakeModel, FakeToolbox, ask_for, call, ok, say
from unit.runs.test_run_service import asking, events_of, running

READ = ServerTool(spec=ToolSpec(name="look"), policy=ToolPolicy(effect="read", parallel=True))
SAFE = ServerTool(spec=ToolSpec(name="put"), policy=ToolPolicy(effect="idempotent"))
WRITE = ServerTool(spec=ToolSpec(name="send"), policy=ToolPolicy(effect="write"))
TOOLS = (READ, SAFE, WRITE)
REPLIES = (
    ask_for(call("look", call_id="a"), call("look", call_id="b", arguments='{"n":1}')),
    ask_for(call("send", call_id="c"), call("put", call_id="d"), call("nope", call_id="e")),
    say("all done"),
)


def toolbox() -> FakeToolbox:
    """Return tools that always give the same."""
    return FakeToolbox(look=ok("seen"), put=ok("kept"), send=ok("sent"))


async def recorded() -> tuple[RunRow, list[Entry]]:
    """Run the story once and return its row as it was at the start, and all its entries."""
    async with running(FakeModel(*REPLIES), toolbox(), *TOOLS) as (runs, store):
        told = await events_of(runs, asking())
        row = await store.find_run(told[0].event.run_id)
        assert row is not None
        entries = await store.entries(row.id)
    started = msgspec.structs.replace(row, status="running", ended_at=None, stop=None, usage=None, rounds=0, calls=0)
    return started, entries


async def left_behind(store: SqliteStore, row: RunRow, entries: list[Entry]) -> None:
    """Put a run into the store as a process leaves it that died after these entries."""
    await store.start_run(row, entries, owner="dead", lease_s=1)
    await store.end_leases("dead")


def rest_of(entries: list[Entry]) -> FakeModel:
    """Return a model that has said what the journal has whole replies of, and says the rest."""
    heard = sum(entry.kind == "reply" for entry in entries)
    return FakeModel(*REPLIES[heard:], say("never"))


def results_of(entries: list[Entry]) -> Counter[str]:
    """Count the results of each call."""
    return Counter(entry.call_id or "" for entry in entries if entry.kind == "tool_result")


async def finished(runs: Runs, run_id: str) -> RunEnded:
    """Wait for the end of a run that goes on."""
    handle = runs.find_live(run_id)
    assert handle is not None
    return await handle.wait()


FIRST_CUT = 4
"""The row, the question, the frame and the first plan become durable together."""
TOGETHER = 12
"""The results of calls that ran side by side become durable together: between them nothing can be cut."""


@pytest.mark.parametrize("cut", [cut for cut in range(FIRST_CUT, 27) if cut != TOGETHER])
async def test_a_run_goes_on_wherever_it_was_cut(cut):
    """Nothing written is lost or written twice, every call has one result, and only harmless calls run again."""
    row, whole = await recorded()
    assert len(whole) == 27, [entry.kind for entry in whole]
    entries = whole[:cut]
    tools = toolbox()
    async with running(rest_of(entries), tools, *TOOLS) as (runs, store):
        await left_behind(store, row, entries)
        assert await runs.claim_abandoned() == [row.id]
        ended = await finished(runs, row.id)
        after = await store.entries(row.id)
        found = await store.find_run(row.id)
        assert found is not None
        proof = await runs.verify_replay(found)
    assert ended.status == "completed"
    assert after[:cut] == entries
    assert [entry.seq for entry in after] == list(range(1, len(after) + 1))
    calls = [entry.call_id for entry in after if entry.kind == "tool_call"]
    assert results_of(after) == Counter(calls)
    done = set(results_of(entries))
    assert not done & set(tools.ran), "a finished call ran again"
    started = {entry.call_id for entry in entries if entry.kind == "tool_start"} - done
    unknown = {entry.call_id for entry in after if entry.kind == "tool_result" and "outcome unknown" in entry.content}
    assert unknown == started & {"c"}
    assert proof.is_same, proof.problem


async def test_a_read_that_had_begun_when_its_process_died_is_not_said_to_have_never_run():
    """Its mark is durable with its call: the result says that it began, and what it gave is not used."""
    row, whole = await recorded()
    entries = whole[: FIRST_CUT + 2]
    assert [entry.kind for entry in entries][-2:] == ["tool_call", "tool_early"]
    async with running(FakeModel(*REPLIES), toolbox(), *TOOLS) as (runs, store):
        await left_behind(store, row, entries)
        await runs.claim_abandoned()
        assert (await finished(runs, row.id)).status == "completed"
        after = await store.entries(row.id)
        found = await store.find_run(row.id)
        assert found is not None
        proof = await runs.verify_replay(found)
    assert proof.is_same, proof.problem
    first = next(entry for entry in after if entry.kind == "tool_result")
    assert (first.call_id, "Begun early, and its result is not used" in first.content) == ("a", True)


async def test_a_call_that_runs_again_is_marked_again_with_the_same_key():
    """The second start is in the journal before the tool runs."""
    row, whole = await recorded()
    start = next(n for n, entry in enumerate(whole) if entry.kind == "tool_start")
    async with running(rest_of(whole[: start + 2]), toolbox(), *TOOLS) as (runs, store):
        await left_behind(store, row, whole[: start + 2])
        await runs.claim_abandoned()
        await finished(runs, row.id)
        after = await store.entries(row.id)
    starts = [
        (entry.call_id, msgspec.json.decode(entry.data)["attempt"])
        for entry in after
        if entry.kind == "tool_start" and entry.call_id in ("a", "b")
    ]
    assert starts == [("a", 1), ("b", 1), ("a", 2), ("b", 2)]


async def test_rounds_that_are_driven_again_are_counted_by_nobody_and_known_to_the_log(
    caplog: pytest.LogCaptureFixture,
):
    """They were counted when they happened; a tool that runs now is logged in the round that it is of."""
    row, whole = await recorded()
    cut = 1 + max(n for n, entry in enumerate(whole) if entry.kind == "tool_call")
    caplog.set_level(logging.INFO, "treadle.runs")
    async with running(rest_of(whole[: cut + 1]), toolbox(), *TOOLS) as (runs, store):
        await left_behind(store, row, whole[: cut + 1])
        await runs.claim_abandoned()
        await finished(runs, row.id)
        metrics = runs._deps.metrics
    told = [vars(record) for record in caplog.records if hasattr(record, "iteration")]
    assert [(each["tool_call_id"], each["iteration"]) for each in told] == [("c", 2), ("d", 2), ("e", 2)]
    assert metrics.rounds.counts[()] == 1


async def test_what_a_cut_model_call_had_said_is_taken_back_and_the_call_made_again():
    """The same plan is asked; the item that was durable is told, answered and void."""
    row, whole = await recorded()
    entries = whole[: FIRST_CUT + 1]
    assert [entry.kind for entry in entries][-2:] == ["plan", "tool_call"]
    model = FakeModel(*REPLIES)
    async with running(model, toolbox(), *TOOLS) as (runs, store):
        await left_behind(store, row, entries)
        await runs.claim_abandoned()
        assert (await finished(runs, row.id)).rounds == 3
        after = await store.entries(row.id)
    kinds = [entry.kind for entry in after][FIRST_CUT : FIRST_CUT + 5]
    assert kinds == ["tool_call", "reply", "tool_result", "void", "plan"]
    plans = [msgspec.json.decode(entry.data)["fingerprint"] for entry in after if entry.kind == "plan"]
    assert plans[0] == plans[1]
    first = model.plans[0].items
    assert not any(isinstance(item, CallItem) for item in first)


async def test_a_conversation_goes_on_without_what_was_taken_back():
    """The next request reads the second telling only."""
    row, whole = await recorded()
    model = FakeModel(*REPLIES, say("again"))
    async with running(model, toolbox(), *TOOLS) as (runs, store):
        await left_behind(store, row, whole[: FIRST_CUT + 1])
        await runs.claim_abandoned()
        await finished(runs, row.id)
        await events_of(runs, asking("next", previous_response_id=row.response_id))
    calls = [item for item in model.plans[-1].items if isinstance(item, CallItem)]
    assert len(calls) == 5, "the voided call is not among them"


async def test_a_run_is_given_up_after_five_processes():
    """A run that kills its process each time must not do so for ever."""
    row, whole = await recorded()
    async with running(rest_of(whole[:FIRST_CUT]), toolbox(), *TOOLS) as (runs, store):
        await left_behind(store, row, whole[:FIRST_CUT])
        for owner in range(4):
            assert await store.claim_abandoned(f"dead{owner}", 1, 1)
            await store.end_leases(f"dead{owner}")
        await runs.claim_abandoned()
        found = await store.find_run(row.id)
        assert found is not None
        assert (found.status, found.error.code if found.error else None) == ("failed", "interrupted")


async def test_a_run_whose_result_cannot_be_read_is_ended_with_one_result_for_each_call():
    """What stands there as a result is one, whatever is left of it: with a second, refused, the run would never end."""
    row, whole = await recorded()
    at = next(n for n, entry in enumerate(whole) if entry.kind == "tool_result")
    damaged = [*whole[:at], msgspec.structs.replace(whole[at], data=None), *whole[at + 1 : TOGETHER + 1]]
    async with running(FakeModel(say("never")), toolbox(), *TOOLS) as (runs, store):
        await left_behind(store, row, damaged)
        assert await runs.claim_abandoned() == [row.id]
        found = await store.find_run(row.id)
        after = await store.entries(row.id)
        with pytest.raises(DamagedJournal, match=f"Entry {at + 1} of the run's journal cannot be read"):
            await runs.replay(row.id)
    assert found is not None
    assert found.status == "failed"
    assert results_of(after) == Counter(entry.call_id for entry in after if entry.kind == "tool_call")


async def test_a_run_whose_conversation_cannot_be_read_is_ended():
    """The damage is in a run before it, and not only for now: nobody comes back to it for ever."""
    row, whole = await recorded()
    first = msgspec.structs.replace(row, id="run_first", response_id="resp_first")
    damaged = [msgspec.structs.replace(entry, data=msgspec.Raw(b"[1]")) for entry in whole if entry.is_input]
    async with running(FakeModel(say("never")), toolbox(), *TOOLS) as (runs, store):
        await (await store.start_run(first, damaged, owner="dead", lease_s=1)).finish([], RunEnded(status="completed"))
        await left_behind(store, msgspec.structs.replace(row, previous_id=first.id), whole[:FIRST_CUT])
        assert await runs.claim_abandoned() == [row.id]
        found = await store.find_run(row.id)
        with pytest.raises(DamagedJournal, match="run_first"):
            await runs.start(asking(previous_response_id=first.response_id))
    assert found is not None
    assert found.status == "failed"


async def test_a_bug_with_one_run_does_not_keep_the_others_from_going_on(monkeypatch: pytest.MonkeyPatch):
    """Nor the process from starting; the run is claimed again when its lease has ended."""
    row, whole = await recorded()
    other = msgspec.structs.replace(row, id="run_other", response_id="resp_other")
    revive = RunRecovery.recover

    async def broken(reviver: RunRecovery, claimed: RunRow, journal: RunJournal) -> LiveRun | None:
        if claimed.id == row.id:
            raise LookupError("a bug")
        return await revive(reviver, claimed, journal)

    monkeypatch.setattr(RunRecovery, "recover", broken)
    async with running(rest_of(whole[:FIRST_CUT]), toolbox(), *TOOLS) as (runs, store):
        await left_behind(store, row, whole[:FIRST_CUT])
        await left_behind(store, other, whole[:FIRST_CUT])
        assert sorted(await runs.claim_abandoned()) == sorted([row.id, other.id])
        assert (await finished(runs, other.id)).status == "completed"


async def test_a_run_that_is_claimed_while_the_process_leaves_is_handed_over(monkeypatch: pytest.MonkeyPatch):
    """Nobody is left here to see it through: none of its tools is begun, and whoever claims it next goes on."""
    row, whole = await recorded()
    gate, entered, revive, tools = asyncio.Event(), asyncio.Event(), RunRecovery.recover, toolbox()
    revived: list[LiveRun] = []

    async def slow(reviver: RunRecovery, claimed: RunRow, journal: RunJournal) -> LiveRun | None:
        entered.set()
        await gate.wait()
        live = await revive(reviver, claimed, journal)
        assert live is not None
        revived.append(live)
        return live

    monkeypatch.setattr(RunRecovery, "recover", slow)
    async with running(rest_of(whole[:FIRST_CUT]), tools, *TOOLS) as (runs, store):
        await left_behind(store, row, whole[:FIRST_CUT])
        taking = asyncio.create_task(runs.claim_abandoned())
        await asyncio.wait_for(entered.wait(), 5)
        await asyncio.wait_for(runs.close(), 5)
        gate.set()
        await asyncio.wait_for(taking, 5)
        [live] = revived
        assert live.task is not None
        await asyncio.wait_for(live.task, 5)
        assert live.ended == HANDED_OVER
        assert [each.id for each, _ in await store.claim_abandoned("other", 15.0, 1)] == [row.id]
    assert tools.ran == []


async def test_a_run_that_would_take_another_way_is_ended_and_not_guessed_at():
    """The question was changed in the journal: the plan is not the one that was asked."""
    row, whole = await recorded()
    changed = [msgspec.structs.replace(e, content="other") if e.kind == "user" else e for e in whole[:6]]
    async with running(rest_of(changed), toolbox(), *TOOLS) as (runs, store):
        await left_behind(store, row, changed)
        await runs.claim_abandoned()
        found = await store.find_run(row.id)
        assert found is not None
        assert (found.status, found.error.code if found.error else None) == ("failed", "replay_diverged")
        after = await store.entries(row.id)
        assert results_of(after) == Counter(e.call_id for e in after if e.kind == "tool_call")


async def test_a_run_that_somebody_wanted_cancelled_ends_cancelled_when_it_is_taken_over():
    """Its calls get their results, and the model is not asked again."""
    row, whole = await recorded()
    start = next(n for n, entry in enumerate(whole) if entry.kind == "tool_start")
    model = rest_of(whole[: start + 2])
    async with running(model, toolbox(), *TOOLS) as (runs, store):
        await left_behind(store, row, whole[: start + 2])
        assert await runs.cancel(row.id)
        found = await store.find_run(row.id)
        assert found is not None
        assert found.status == "cancelled"
        after = await store.entries(row.id)
        assert results_of(after) == Counter({"a": 1, "b": 1})
        assert model.plans == []
        assert (await runs.verify_replay(found)).is_same


ENDINGS: dict[str, Request] = {"plain": asking(), "required": asking(instructions="x", max_tool_calls=1)}


@pytest.mark.parametrize("ending", ENDINGS)
async def test_an_ended_run_is_proved_from_its_journal(ending):
    """Nothing but the journal is needed, and no tool runs."""
    tools = toolbox()
    async with running(FakeModel(*REPLIES), tools, *TOOLS) as (runs, store):
        told = await events_of(runs, ENDINGS[ending])
        row = await store.find_run(told[0].event.run_id)
        assert row is not None
        ran = list(tools.ran)
        proof = await runs.verify_replay(row)
        assert proof.is_same, proof.problem
        assert proof.events == len(told)
        assert tools.ran == ran


async def test_a_run_that_was_cancelled_before_its_model_was_asked_is_proved():
    """Its plan is durable and nothing was heard: driven again, it stops at the same place."""
    model = FakeModel(say("never"))
    async with running(model, toolbox(), *TOOLS) as (runs, store):
        starting = asyncio.ensure_future(runs.start(asking()))
        await asyncio.sleep(0)
        [live] = runs._live.values()
        live.cancel()
        handle = await starting
        assert (await handle.wait()).status == "cancelled"
        assert model.plans == []
        found = await store.find_run(handle.run_id)
        assert found is not None
        proof = await runs.verify_replay(found)
    assert proof.is_same, proof.problem
