"""A run that waited for a person is cut at every entry, gone on with in another process, and proved."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import msgspec
import pytest

from treadle.core.errors import Conflict
from treadle.core.events import ApprovalDecided, ApprovalRequested, Numbered, RunEnded
from treadle.core.ids import CountingIds
from treadle.core.items import CallItem
from treadle.core.journal_entries import Entry
from treadle.core.tool_definitions import CallContext, Outcome, ServerTool, ToolPolicy, ToolSpec
from treadle.engine.limits import Limits
from treadle.journal.approvals_interface import ApprovalRow
from treadle.journal.approvals_store import StoredApprovals
from treadle.journal.journal_interface import RunRow
from treadle.journal.sqlite.store import SqliteStore
from treadle.runs import RunDependencies, Runs, RunsOptions
from treadle.runs.active_run import RunHandle
from treadle.runs.approvals.decisions import Answer, Approvals
from treadle.runs.approvals.durable_approver import ApproverRules, DurableApprover
from treadle.telemetry import Metrics
from unit.engine.fakes import FakeClock, FakeModel, FakeToolbox, ask_for, call, ok, say
from unit.runs.test_run_service import QuietClock, Table, asking

TOOLS = (
    ServerTool(spec=ToolSpec(name="look"), policy=ToolPolicy(effect="read", parallel=True)),
    ServerTool(spec=ToolSpec(name="wipe"), policy=ToolPolicy(effect="destructive")),
)
REPLIES = (
    ask_for(
        call("look", call_id="a"),
        call("wipe", call_id="b", arguments='{"path":"/"}'),
        call("wipe", call_id="c", arguments='{"path":"/etc"}'),
    ),
    say("all done"),
)
ANSWERS = {"b": Answer(approve=True, by="ann", arguments='{"path":"/tmp"}'), "c": Answer(approve=False, by="bob")}
WAIT_S = 20.0
FIRST_CUT = 4


class Hands(FakeToolbox):
    """Remembers the arguments that each call ran with."""

    def __init__(self) -> None:
        super().__init__(look=ok("seen"), wipe=ok("wiped"))
        self.arguments: dict[str, str] = {}

    async def run(self, call: CallItem, context: CallContext) -> Outcome:
        self.arguments[call.call_id] = call.arguments
        return await super().run(call, context)


class Process:
    """Runs with a desk, and somebody at it."""

    def __init__(self, runs: Runs, store: SqliteStore, service: Approvals) -> None:
        self.runs = runs
        self.store = store
        self.service = service

    async def attend(self, handle: RunHandle) -> list[Numbered]:
        """Follow a run to its end, answering each question unless it has its answer."""
        told: list[Numbered] = []
        async for batch in handle.events():
            told += batch
            for event in [each.event for each in batch if isinstance(each.event, ApprovalRequested)]:
                with suppress(Conflict):
                    await self.service.decide(event.approval_id, ANSWERS[event.call.call_id])
        await handle.wait()
        return told


@asynccontextmanager
async def process(
    model: FakeModel, toolbox: FakeToolbox, rules: ApproverRules | None = None, namespace: str = ""
) -> AsyncIterator[Process]:
    """A process on a private store."""
    clock, ids = QuietClock(), CountingIds(namespace=namespace)
    pause = FakeClock()
    store = SqliteStore(":memory:", clock=clock.now)
    await store.open()
    table = Table(model, TOOLS)
    rooms = RunDependencies(
        store=store,
        models=table,
        tools=table,
        toolbox=toolbox,
        clock=clock,
        ids=ids,
        metrics=Metrics(),
        approver=DurableApprover(store, pause, ids, rules),
    )
    runs = Runs(rooms, RunsOptions(defers_approvals=False))
    await runs.open()
    try:
        yield Process(runs, store, Approvals(store, pause, ids))
    finally:
        await runs.close()
        await store.close()


async def proved(at: Process, run_id: str) -> None:
    """The journal alone gives the same run again."""
    row = await at.store.find_run(run_id)
    assert row is not None
    proof = await at.runs.verify_replay(row)
    assert proof.is_same, proof.problem


async def recorded() -> tuple[RunRow, list[Entry], list[ApprovalRow]]:
    """Run the story once; return its row as it was at the start, its entries and its approvals."""
    hands = Hands()
    async with process(FakeModel(*REPLIES), hands) as at:
        told = await asyncio.wait_for(at.attend(await at.runs.start(asking())), WAIT_S)
        run_id = told[0].event.run_id
        row = await at.store.find_run(run_id)
        assert row is not None
        entries, approvals = await at.store.entries(run_id), await at.store.approvals.page(run_id=run_id)
        assert await at.runs.replay(run_id) == told
        await proved(at, run_id)
    assert hands.arguments == {"a": "{}", "b": '{"path":"/tmp"}'}
    started = msgspec.structs.replace(row, status="running", ended_at=None, stop=None, usage=None, rounds=0, calls=0)
    return started, entries, approvals


KINDS = [
    *("tool_call", "tool_early", "tool_call", "tool_call", "reply", "approval_request", "approval_request"),
    *("tool_start", "tool_result", "approval_decision", "tool_start", "tool_result", "approval_decision"),
    *("tool_result", "plan", "assistant", "reply", "status"),
]
CALLS_WHOLE = FIRST_CUT + KINDS.index("reply") + 1


async def test_a_run_with_decisions_is_told_again_and_proved() -> None:
    """Events, journal and proof agree; the tool ran with the person's arguments, and not at all where one said no."""
    _, entries, approvals = await recorded()
    assert [entry.kind for entry in entries[FIRST_CUT:]] == KINDS
    assert {row.call_id: row.status for row in approvals} == {"b": "approved", "c": "denied"}


async def left_behind(at: Process, row: RunRow, entries: list[Entry], approvals: list[ApprovalRow]) -> None:
    """Put a run into the store as a process leaves it that died after these entries."""
    journal = await at.store.start_run(row, entries, owner="dead", lease_s=1)
    asked = {entry.call_id for entry in entries if entry.kind == "approval_request"}
    decided = {entry.call_id for entry in entries if entry.kind == "approval_decision"}
    for approval in approvals:
        if approval.call_id in asked:
            await at.store.approvals.file(msgspec.structs.replace(approval, status="pending", decision=None))
        if approval.call_id in decided and approval.decision is not None:
            await at.store.approvals.decide(approval.id, approval.decision)
    await journal.release()


@pytest.mark.parametrize("cut", range(CALLS_WHOLE, FIRST_CUT + len(KINDS)))
async def test_a_run_goes_on_wherever_it_was_cut(cut: int) -> None:
    """No question is put twice, no decision is forgotten, and what was denied never runs."""
    row, whole, approvals = await recorded()
    entries = whole[:cut]
    hands = Hands()
    heard = sum(entry.kind == "reply" for entry in entries)
    model = FakeModel(*REPLIES[heard:], say("never"))
    async with process(model, hands, namespace="b") as at:
        await left_behind(at, row, entries, approvals)
        assert await at.runs.claim_abandoned() == [row.id]
        handle = at.runs.find_live(row.id)
        assert handle is not None
        told = await asyncio.wait_for(at.attend(handle), WAIT_S)
        after = await at.store.entries(row.id)
        kept = await at.store.approvals.page(run_id=row.id)
        await proved(at, row.id)
    assert isinstance(told[-1].event, RunEnded)
    assert told[-1].event.status == "completed"
    assert after[:cut] == entries
    counted = Counter((entry.kind, entry.call_id) for entry in after if entry.kind.startswith("approval_"))
    assert counted == Counter((kind, each) for kind in ("approval_request", "approval_decision") for each in ("b", "c"))
    assert {each.call_id: each.status for each in kept} == {"b": "approved", "c": "denied"}
    assert "c" not in hands.ran
    assert hands.arguments.get("b") in (None, '{"path":"/tmp"}')
    results = {entry.call_id: entry for entry in after if entry.kind == "tool_result"}
    was_cut_in_b = entries[-1].kind == "tool_start" and entries[-1].call_id == "b"
    assert ("outcome unknown" in results["b"].content) is was_cut_in_b
    assert ("arguments_changed" in results["b"].content) is not was_cut_in_b


async def test_a_question_filed_but_not_yet_journalled_is_the_same_question() -> None:
    """The process died between its row and its entry: the row is found again and not asked anew."""
    row, whole, approvals = await recorded()
    async with process(FakeModel(REPLIES[1]), Hands(), namespace="b") as at:
        journal = await at.store.start_run(row, whole[:CALLS_WHOLE], owner="dead", lease_s=1)
        for approval in approvals:
            await at.store.approvals.file(msgspec.structs.replace(approval, status="pending", decision=None))
        await journal.release()
        await at.runs.claim_abandoned()
        handle = at.runs.find_live(row.id)
        assert handle is not None
        told = await asyncio.wait_for(at.attend(handle), WAIT_S)
        asked = {each.event.approval_id for each in told if isinstance(each.event, ApprovalRequested)}
        assert asked == {approval.id for approval in approvals}
        await proved(at, row.id)


async def test_a_run_that_is_given_up_withdraws_its_questions() -> None:
    """Nobody is asked about a call that can never run, and who answers late hears that it was withdrawn."""
    row, whole, approvals = await recorded()
    lost = msgspec.structs.replace(row, model="missing")
    async with process(FakeModel(REPLIES[1]), Hands(), namespace="b") as at:
        await left_behind(at, lost, whole[: FIRST_CUT + KINDS.index("tool_start")], approvals)
        assert await at.runs.claim_abandoned() == [row.id]
        found = await at.store.find_run(row.id)
        assert found is not None
        assert found.status == "failed"
        assert [each.status for each in await at.service.page(run_id=row.id)] == ["cancelled", "cancelled"]
        with pytest.raises(Conflict, match="cancelled"):
            await at.service.decide(approvals[0].id, Answer(approve=True))


async def test_a_run_whose_question_expired_is_proved() -> None:
    """Nobody came: the model reads that, and the record says expired."""
    hands = Hands()
    async with process(FakeModel(*REPLIES), hands, ApproverRules(wait_s=0.0, stored_s=0.0)) as at:
        handle = await at.runs.start(asking())
        told = [each async for batch in handle.events() for each in batch]
        assert [each.event.status for each in told if isinstance(each.event, ApprovalDecided)] == ["expired"] * 2
        assert hands.ran == ["a"]
        await proved(at, told[0].event.run_id)


async def test_a_run_cancelled_at_the_desk_withdraws_its_questions_and_is_proved() -> None:
    """Nobody can approve afterwards, and nothing ran."""
    hands = Hands()
    async with process(FakeModel(*REPLIES), hands) as at:
        handle = await at.runs.start(asking())
        run_id, asked = "", 0
        async for batch in handle.events():
            run_id = run_id or batch[0].event.run_id
            asked += sum(isinstance(each.event, ApprovalRequested) for each in batch)
            if asked == 2:
                break
        await at.runs.cancel(run_id)
        assert (await handle.wait()).status == "cancelled"
        rows = await at.service.page(run_id=run_id)
        assert [row.status for row in rows] == ["cancelled", "cancelled"]
        with pytest.raises(Conflict, match="cancelled"):
            await at.service.decide(rows[0].id, Answer(approve=True))
        assert "b" not in hands.ran
        await proved(at, run_id)


async def test_a_run_cancelled_while_it_asks_withdraws_what_it_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The question is in the store before anybody was told of it: it does not stay there for a run that has ended."""
    hands, gate, entered, file = Hands(), asyncio.Event(), asyncio.Event(), StoredApprovals.file

    async def slow(approvals: StoredApprovals, row: ApprovalRow) -> ApprovalRow:
        filed = await file(approvals, row)
        entered.set()
        await gate.wait()
        return filed

    monkeypatch.setattr(StoredApprovals, "file", slow)
    async with process(FakeModel(*REPLIES), hands) as at:
        handle = await at.runs.start(asking())
        await asyncio.wait_for(entered.wait(), WAIT_S)
        cancelling = asyncio.create_task(handle.cancel())
        await asyncio.sleep(0)
        gate.set()
        await asyncio.wait_for(cancelling, WAIT_S)
        assert (await handle.wait()).status == "cancelled"
        assert [row.status for row in await at.service.page(run_id=handle.run_id)] == ["cancelled"]
        await proved(at, handle.run_id)
    assert "b" not in hands.ran


async def test_a_run_that_defers_is_proved() -> None:
    """It ends with its questions open, and they stay open for the run that comes after."""
    hands = Hands()
    async with process(FakeModel(*REPLIES), hands) as at:
        handle = await at.runs.start(asking(), limits=Limits(approvals="defer"))
        told = [each async for batch in handle.events() for each in batch]
        ended = await handle.wait()
        assert (ended.status, hands.ran) == ("requires_action", ["a"])
        rows = await at.service.page(status="pending")
        assert sorted(row.call_id for row in rows) == ["b", "c"]
        assert await at.runs.replay(told[0].event.run_id) == told
        await proved(at, told[0].event.run_id)
