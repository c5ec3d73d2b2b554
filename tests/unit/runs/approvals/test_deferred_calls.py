"""Calls that one run left to be decided are carried on by the next: once, whatever happens to its process."""

import asyncio
from collections import Counter

import msgspec
import pytest

from treadle.core.errors import Conflict, ProtocolError
from treadle.core.events import ApprovalDecided, ApprovalRequested, Numbered, RunEnded, ToolFinished, read_event
from treadle.core.items import CallItem, ResultItem, text_message, text_of
from treadle.core.journal_entries import Entry
from treadle.core.request import Assent, Request
from treadle.core.tool_definitions import ServerTool
from treadle.engine.limits import Limits
from treadle.journal.approvals_interface import ApprovalRow
from treadle.journal.approvals_store import StoredApprovals
from treadle.journal.journal_interface import RunRow
from treadle.runs.approvals.decisions import Answer
from unit.engine.fakes import FakeModel, say
from unit.runs.replay.test_approvals import REPLIES, WAIT_S, Hands, Process, process, proved
from unit.runs.test_run_service import asking

DEFER = Limits(approvals="defer")


async def follow(at: Process, request: Request) -> list[Numbered]:
    """Run a request to its end."""
    handle = await at.runs.start(request, limits=DEFER)
    told = [each async for batch in handle.events() for each in batch]
    await asyncio.wait_for(handle.wait(), WAIT_S)
    return told


def run_id(told: list[Numbered]) -> str:
    """Return the run of what was told."""
    return told[0].event.run_id


async def asked(at: Process) -> tuple[str, dict[str, str]]:
    """Let a run leave its questions; return its response id, and the approvals by call."""
    told = await follow(at, asking())
    rows = await at.service.page(run_id=run_id(told))
    return told[0].event.response_id, {row.call_id: row.id for row in rows}


def going_on(previous: str, *assents: tuple[str, bool], text: str = "") -> Request:
    """A request that answers questions, and perhaps says something."""
    answers = tuple(Assent(approval_id=each, approve=yes, field=f"at[{n}]") for n, (each, yes) in enumerate(assents))
    items = (text_message("user", text),) if text else ()
    return Request(protocol="responses", model="m", items=items, previous_response_id=previous, approvals=answers)


async def test_what_was_decided_is_carried_on_in_call_order() -> None:
    """The approved call runs, the denied one is answered, the sibling keeps its result; journal and events agree."""
    hands, model = Hands(), FakeModel(*REPLIES)
    async with process(model, hands) as at:
        previous, ids = await asked(at)
        told = await follow(at, going_on(previous, (ids["b"], True), (ids["c"], False)))
        assert [(each.event.call.call_id, each.event.status) for each in told if _is(each, ApprovalDecided)] == [
            ("b", "approved"),
            ("c", "denied"),
        ]
        assert [each.event.result.rc for each in told if _is(each, ToolFinished)] == ["ok", "denied"]
        read = [item.call_id for item in model.plans[-1].items if isinstance(item, CallItem | ResultItem)]
        assert read == ["a", "b", "c", "a", "b", "c"]
        assert hands.ran == ["a", "b"]
        assert await at.runs.replay(run_id(told)) == told
        await proved(at, run_id(told))
        used = {row.call_id: row.used_by for row in await at.service.page()}
        assert used == {"b": run_id(told), "c": run_id(told)}


async def test_what_is_left_open_ends_the_run_again() -> None:
    """No model is asked while the turn is half answered; the question stands under its id."""
    hands, model = Hands(), FakeModel(*REPLIES)
    async with process(model, hands) as at:
        previous, ids = await asked(at)
        told = await follow(at, going_on(previous, (ids["c"], True)))
        assert [each.event.approval_id for each in told if _is(each, ApprovalRequested)] == [ids["b"]]
        assert (told[-1].event.status, told[-1].event.rounds, len(model.plans)) == ("requires_action", 0, 1)
        assert hands.ran == ["a", "c"]
        await proved(at, run_id(told))
        last = await follow(at, going_on(told[0].event.response_id, (ids["b"], True)))
        assert (last[-1].event.status, hands.ran) == ("completed", ["a", "c", "b"])
        outputs = [text_of(item.output) for item in model.plans[-1].items if isinstance(item, ResultItem)]
        assert outputs == ["seen", "wiped", "wiped"]
        await proved(at, run_id(last))


async def test_the_conversation_may_go_on_without_an_answer() -> None:
    """What nobody decided is closed, and the approval with it; what somebody decided elsewhere is carried on."""
    hands, model = Hands(), FakeModel(*REPLIES)
    async with process(model, hands) as at:
        previous, ids = await asked(at)
        await at.service.decide(ids["b"], Answer(approve=True, by="ann", arguments='{"path":"/x"}'))
        told = await follow(at, going_on(previous, text="well?"))
        results = [each.event for each in told if _is(each, ToolFinished)]
        assert [(each.call.arguments, each.result.rc) for each in results] == [
            ('{"path":"/x"}', "ok"),
            ('{"path":"/etc"}', "expired"),
        ]
        assert (await at.service.find(ids["c"])).status == "cancelled"
        assert isinstance(model.plans[-1].items[-1], type(text_message("user", "")))
        await proved(at, run_id(told))
        with pytest.raises(Conflict, match="carried on already"):
            await follow(at, going_on(previous, (ids["b"], True)))


async def test_another_branch_of_the_conversation_is_not_bound_by_an_answer() -> None:
    """Who goes back behind an answered question and says something else gets an answer; the call does not run again."""
    hands = Hands()
    async with process(FakeModel(*REPLIES), hands) as at:
        previous, ids = await asked(at)
        await follow(at, going_on(previous, (ids["b"], True), (ids["c"], True)))
        told = await follow(at, going_on(previous, text="let us talk of something else"))
        assert [each.event.result.rc for each in told if _is(each, ToolFinished)] == ["expired", "expired"]
        assert hands.ran == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("assents", "error", "field"),
    [
        ([("apr_none", True)], ProtocolError, "at[0]"),
        ([("b", True), ("b", False)], ProtocolError, "at[1]"),
    ],
)
async def test_an_answer_to_no_question_is_refused(
    assents: list[tuple[str, bool]], error: type[ProtocolError], field: str
) -> None:
    """Before anything is decided, naming the field."""
    async with process(FakeModel(*REPLIES), Hands()) as at:
        previous, ids = await asked(at)
        with pytest.raises(error) as caught:
            await follow(at, going_on(previous, *((ids.get(each, each), yes) for each, yes in assents)))
        assert caught.value.info.param == field
        assert {row.status for row in await at.service.page()} == {"pending"}


@pytest.mark.parametrize("looks", range(1, 5))
async def test_an_answer_that_another_one_overtakes_is_refused(looks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever that happens between its looks at the questions: the calls run once, for whoever took them."""
    hands = Hands()
    async with process(FakeModel(*REPLIES), hands) as at:
        previous, ids = await asked(at)
        request = going_on(previous, (ids["b"], True), (ids["c"], True))
        kind = type(at.store.approvals)
        find, seen = kind.find, list[str]()

        async def overtaken(approvals: StoredApprovals, approval_id: str, **only: str | None) -> ApprovalRow | None:
            seen.append(approval_id)
            if len(seen) == looks:
                monkeypatch.setattr(kind, "find", find)
                await follow(at, request)
            return await find(approvals, approval_id, **only)

        monkeypatch.setattr(kind, "find", overtaken)
        with pytest.raises(Conflict, match="carried on already") as caught:
            await follow(at, request)
        assert caught.value.info.code == "approval_used"
        assert len(seen) == looks
        assert hands.ran == ["a", "b", "c"]


async def test_a_decision_stands_against_the_client() -> None:
    """Denied at the desk and approved by the client: a conflict that says what stands, and nothing runs."""
    hands = Hands()
    async with process(FakeModel(*REPLIES), hands) as at:
        previous, ids = await asked(at)
        await at.service.decide(ids["b"], Answer(approve=False))
        with pytest.raises(Conflict, match="denied already"):
            await follow(at, going_on(previous, (ids["b"], True), (ids["c"], True)))
        assert (await at.service.find(ids["c"])).status == "pending"
        assert hands.ran == ["a"]


@pytest.mark.parametrize(("source", "rc"), [(None, "unknown_tool"), ("mcp:other", "denied")])
async def test_a_tool_that_is_not_the_same_any_more_does_not_run(source: str | None, rc: str) -> None:
    """What was approved was the tool of that source."""
    hands = Hands()
    async with process(FakeModel(*REPLIES), hands) as at:
        previous, ids = await asked(at)
        tools = list(at.runs._deps.tools.tools())
        kept = [tool for tool in tools if tool.name != "wipe"]
        changed = [msgspec.structs.replace(tool, source=source) for tool in tools if tool.name == "wipe" and source]
        at.runs._deps = msgspec.structs.replace(at.runs._deps, tools=Shelf(*kept, *changed))
        told = await follow(at, going_on(previous, (ids["b"], True), (ids["c"], True)))
        assert [each.event.result.rc for each in told if _is(each, ToolFinished)] == [rc, rc]
        assert hands.ran == ["a"]


async def test_a_tool_that_changes_once_its_call_was_taken_up_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The calls were still found to be those that were approved: what is there when they run decides."""
    hands = Hands()
    async with process(FakeModel(*REPLIES), hands) as at:
        previous, ids = await asked(at)
        tools = at.runs._deps.tools.tools()
        shelf = Shelf(*tools)
        at.runs._deps = msgspec.structs.replace(at.runs._deps, tools=shelf)
        use = StoredApprovals.use

        async def swapped(approvals: StoredApprovals, approval_ids: tuple[str, ...], used_by: str) -> None:
            await use(approvals, approval_ids, used_by)
            shelf._tools = tuple(msgspec.structs.replace(tool, source="mcp:other") for tool in tools)

        monkeypatch.setattr(StoredApprovals, "use", swapped)
        told = await follow(at, going_on(previous, (ids["b"], True), (ids["c"], True)))
        assert [each.event.result.rc for each in told if _is(each, ToolFinished)] == ["denied", "denied"]
        assert hands.ran == ["a"]


class Shelf:
    """Tools."""

    def __init__(self, *tools: ServerTool) -> None:
        self._tools = tools

    def tools(self) -> tuple[ServerTool, ...]:
        """Return them."""
        return self._tools


async def recorded() -> tuple[list[tuple[RunRow, list[Entry]]], list[ApprovalRow]]:
    """Run the story once: the run that asks, and the one that carries on."""
    async with process(FakeModel(*REPLIES), Hands()) as at:
        previous, ids = await asked(at)
        told = await follow(at, going_on(previous, (ids["b"], True), (ids["c"], False)))
        approvals = list(await at.service.page())
        first = await at.store.find_run(previous)
        second = await at.store.find_run(run_id(told))
        assert first is not None
        assert second is not None
        runs = [(row, await at.store.entries(row.id)) for row in (first, second)]
    return runs, approvals


KINDS = ["status", "frame", "approval_decision", "approval_decision", "tool_start", "tool_result", "tool_result"]


@pytest.mark.parametrize("cut", range(KINDS.index("approval_decision") + 2, 11))
async def test_a_run_that_carries_on_goes_on_wherever_it_was_cut(cut: int) -> None:
    """What was approved runs once; one that was running is not run again; the record is the same from its start."""
    [(first, asked_before), (second, whole)], approvals = await recorded()
    assert [entry.kind for entry in whole][: len(KINDS)] == KINDS
    hands = Hands()
    async with process(FakeModel(say("all done")), hands, namespace="b") as at:
        end = read_event(bytes(asked_before[-1].data or b""))
        assert isinstance(end, RunEnded)
        journal = await at.store.start_run(_begun(first), asked_before[:-1], owner="dead", lease_s=1)
        await journal.finish(asked_before[-1:], end)
        for row in approvals:
            await at.store.approvals.file(msgspec.structs.replace(row, status="pending", decision=None, used_by=None))
            assert row.decision is not None
            await at.store.approvals.decide(row.id, row.decision)
        left = await at.store.start_run(_begun(second), whole[:cut], owner="dead", lease_s=1)
        await left.release()
        assert await at.runs.claim_abandoned() == [second.id]
        handle = at.runs.find_live(second.id)
        assert handle is not None
        told = [each async for batch in handle.events() for each in batch]
        assert (await asyncio.wait_for(handle.wait(), WAIT_S)).status == "completed"
        after = await at.store.entries(second.id)
        assert after[:cut] == whole[:cut]
        assert await at.runs.replay(second.id) == told
        await proved(at, second.id)
        assert {row.used_by for row in await at.service.page()} == {second.id}
    ran_before = whole[:cut][-1].kind == "tool_result" or any(entry.kind == "tool_result" for entry in whole[:cut])
    was_cut_in_b = whole[:cut][-1].kind == "tool_start"
    assert hands.ran == ([] if ran_before or was_cut_in_b else ["b"])
    assert Counter(entry.kind for entry in after)["tool_result"] == 2


async def test_a_revived_run_does_not_carry_on_what_another_one_has() -> None:
    """Its process died before it had taken the calls, and somebody else took them: it ends without running anything."""
    [(first, asked_before), (second, whole)], approvals = await recorded()
    hands = Hands()
    async with process(FakeModel(say("never")), hands, namespace="b") as at:
        end = read_event(bytes(asked_before[-1].data or b""))
        assert isinstance(end, RunEnded)
        journal = await at.store.start_run(_begun(first), asked_before[:-1], owner="dead", lease_s=1)
        await journal.finish(asked_before[-1:], end)
        for row in approvals:
            await at.store.approvals.file(msgspec.structs.replace(row, status="pending", decision=None, used_by=None))
            assert row.decision is not None
            await at.store.approvals.decide(row.id, row.decision)
        await at.store.approvals.use([row.id for row in approvals], first.id)
        left = await at.store.start_run(_begun(second), whole[:4], owner="dead", lease_s=1)
        await left.release()
        await at.runs.claim_abandoned()
        ended = await at.store.find_run(second.id)
        assert ended is not None
        assert (ended.status, hands.ran) == ("failed", [])


def _begun(row: RunRow) -> RunRow:
    return msgspec.structs.replace(row, status="running", ended_at=None, stop=None, usage=None, rounds=0, calls=0)


def _is(numbered: Numbered, kind: type) -> bool:
    return isinstance(numbered.event, kind)
