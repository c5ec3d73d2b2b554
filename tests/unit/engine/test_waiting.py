"""A run that waits for a person: what is durable before, what runs after, and whose time it is."""

import asyncio
from collections.abc import AsyncGenerator

import msgspec
import pytest

from treadle.core.events import ApprovalDecided, ApprovalRequested, ModelEvent, ToolFinished
from treadle.core.items import CallItem, text_of
from treadle.core.journal_entries import Entry
from treadle.core.plan import Plan
from treadle.core.tool_definitions import CallContext, Outcome
from treadle.engine.approval_reasons import DecisionRecord, RequestRecord, decision_step, request_step
from treadle.engine.limits import Limits
from treadle.engine.ports import ApprovalVerdict, PendingApproval, PermissionRequest
from treadle.engine.recorded_run import RecordedRun
from unit.engine.fakes import Bench, FakeModel, FakeToolbox, ask_for, call, ok, say, server

WIPE = server("wipe", effect="destructive")
YES = ApprovalVerdict(approved=True, by="ann")


class Counter:
    """Hands out a ticket for each call; `takes_s` passes until somebody answers."""

    def __init__(self, bench: Bench, *verdicts: ApprovalVerdict, takes_s: float = 0.0) -> None:
        self.bench = bench
        self.verdicts = list(verdicts)
        self.takes_s = takes_s
        self.requests: list[PermissionRequest] = []
        self.durable: list[list[str]] = []

    async def ask(self, request: PermissionRequest, context: CallContext) -> PendingApproval | ApprovalVerdict:
        self.requests.append(request)
        return PendingApproval(approval_id=f"apr_{len(self.requests)}", digest="d", expires_at=1_300.0)

    async def wait(self, approval_id: str, context: CallContext) -> ApprovalVerdict:
        self.durable.append(self.bench.journal.kinds())
        self.bench.clock.time += self.takes_s
        return self.verdicts.pop(0)


def asking_bench(model: FakeModel, toolbox: FakeToolbox, *offers: object, verdicts: object, **fields: object):
    """A bench whose approver is a counter."""
    bench = Bench(model, toolbox, *offers, **{k: v for k, v in fields.items() if k != "takes_s"})
    counter = Counter(bench, *verdicts, takes_s=fields.get("takes_s", 0.0))
    bench.loop._ports = msgspec.structs.replace(bench.loop._ports, approver=counter)
    return bench, counter


async def test_the_question_is_durable_before_anybody_waits() -> None:
    """Question, decision, start and result stand in this order in the journal and in the events."""
    model = FakeModel(ask_for(call("wipe")), say("ok"))
    bench, counter = asking_bench(model, FakeToolbox(wipe=ok()), WIPE, verdicts=[YES])
    await bench.run()
    assert counter.durable == [["tool_call", "reply", "approval_request"]]
    assert bench.journal.kinds()[2:6] == ["approval_request", "approval_decision", "tool_start", "tool_result"]
    [asked], [decided] = bench.of(ApprovalRequested), bench.of(ApprovalDecided)
    assert (asked.approval_id, asked.reasons, asked.expires_at) == ("apr_1", ("wipe is destructive",), 1_300.0)
    assert (decided.approval_id, decided.status, decided.by) == ("apr_1", "approved", "ann")
    assert bench.toolbox.ran == ["call_1"]


@pytest.mark.parametrize("code", ["denied", "expired"])
async def test_a_call_that_is_not_approved_does_not_run(code: str) -> None:
    """Its siblings do, and the model reads which of the two it was."""
    model = FakeModel(ask_for(call("wipe"), call("look", call_id="call_2")), say("ok"))
    tools = FakeToolbox(wipe=ok(), look=ok())
    bench, _ = asking_bench(model, tools, WIPE, server("look"), verdicts=[ApprovalVerdict(approved=False, code=code)])
    ended = await bench.run()
    assert [event.result.rc for event in bench.of(ToolFinished)] == [code, "ok"]
    assert (tools.ran, ended.status) == (["call_2"], "completed")


async def test_changed_arguments_run_and_the_call_stays_as_it_was_made() -> None:
    """The tool gets the person's arguments; the model's item is not rewritten, and its result says so."""
    seen: list[str] = []

    def wipe(made: CallItem) -> Outcome:
        seen.append(made.arguments)
        return Outcome(text='{"n":1}')

    model = FakeModel(ask_for(call("wipe", arguments='{"path":"/"}')), say("ok"))
    changed = msgspec.structs.replace(YES, arguments='{"path":"/tmp"}')
    bench, _ = asking_bench(model, FakeToolbox(wipe=wipe), WIPE, verdicts=[changed])
    await bench.run()
    assert seen == ['{"path":"/tmp"}']
    [made] = [item for item in model.plans[1].items if isinstance(item, CallItem)]
    assert made.arguments == '{"path":"/"}'
    [finished] = bench.of(ToolFinished)
    assert msgspec.json.decode(text_of(finished.result.output)) == {"n": 1, "arguments_changed": {"path": "/tmp"}}


async def test_waiting_for_a_person_is_not_the_time_of_the_run() -> None:
    """An hour at the desk does not end a run of ten seconds."""
    model = FakeModel(ask_for(call("wipe")), say("ok"))
    limits = Limits(wall_s=10.0)
    bench, _ = asking_bench(model, FakeToolbox(wipe=ok()), WIPE, verdicts=[YES], limits=limits, takes_s=3_600.0)
    ended = await bench.run()
    assert (ended.status, ended.limit, bench.toolbox.ran) == ("completed", None, ["call_1"])


async def test_all_questions_of_a_turn_are_put_before_the_first_wait() -> None:
    """A person sees them together."""
    model = FakeModel(ask_for(call("wipe"), call("wipe", call_id="call_2", arguments='{"n":2}')), say("ok"))
    no = ApprovalVerdict(approved=False)
    bench, counter = asking_bench(model, FakeToolbox(wipe=ok()), WIPE, verdicts=[no, YES])
    await bench.run()
    assert counter.durable[0].count("approval_request") == 2
    assert bench.toolbox.ran == ["call_2"]


async def test_a_deferred_call_is_left_and_its_siblings_run() -> None:
    """The run ends with the question open and without a result for it."""
    model = FakeModel(ask_for(call("wipe"), call("look", call_id="call_2")), say("never"))
    limits = Limits(approvals="defer")
    tools = FakeToolbox(wipe=ok(), look=ok())
    bench, counter = asking_bench(model, tools, WIPE, server("look"), verdicts=[], limits=limits)
    ended = await bench.run()
    assert (ended.status, tools.ran, len(model.plans)) == ("requires_action", ["call_2"], 1)
    assert [event.is_deferred for event in bench.of(ApprovalRequested)] == [True]
    assert [event.call.call_id for event in bench.of(ToolFinished)] == ["call_2"]
    assert counter.requests[0].is_deferred


@pytest.mark.parametrize(("taint", "asked"), [("ask", 1), ("off", 0)])
async def test_after_untrusted_output_a_write_is_asked_about(taint: str, asked: int) -> None:
    """The question names the tool whose output was read; reads go on unasked."""
    model = FakeModel(ask_for(call("fetch")), ask_for(call("look", call_id="c2"), call("put", call_id="c3")), say("ok"))
    offers = (server("fetch", untrusted=True), server("look"), server("put", effect="write"))
    tools = FakeToolbox(fetch=ok(), look=ok(), put=ok())
    limits = Limits(taint=taint)  # type: ignore[arg-type]
    bench, counter = asking_bench(model, tools, *offers, verdicts=[YES], limits=limits)
    await bench.run()
    assert tools.ran == ["call_1", "c2", "c3"]
    assert [request.reasons for request in counter.requests] == [("untrusted output of fetch was read before",)] * asked
    assert all(request.is_tainted for request in counter.requests)


async def test_a_run_cancelled_at_the_desk_answers_its_call() -> None:
    """Nothing runs, and the call has a result."""
    model = FakeModel(ask_for(call("wipe")), say("never"))
    bench, counter = asking_bench(model, FakeToolbox(wipe=ok()), WIPE, verdicts=[])
    waiting = asyncio.Event()

    async def wait(approval_id: str, context: CallContext) -> ApprovalVerdict:
        waiting.set()
        return await asyncio.Event().wait()  # type: ignore[return-value]

    counter.wait = wait  # type: ignore[method-assign]
    task = asyncio.create_task(bench.run())
    await asyncio.wait_for(waiting.wait(), 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    ended = await bench.loop.abort()
    assert (ended.status, bench.toolbox.ran) == ("cancelled", [])
    assert [event.result.rc for event in bench.of(ToolFinished)] == ["cancelled"]


async def test_a_call_that_was_answered_unasked_is_not_asked_about_when_its_run_is_driven_again() -> None:
    """The time was over before anybody could be asked: the record says so, and nothing is done twice."""
    limits = Limits(wall_s=10.0)
    model = SlowModel(ask_for(call("wipe")), say("late"))
    model.bench, asked = asking_bench(model, FakeToolbox(wipe=ok()), WIPE, verdicts=[], limits=limits)
    first = model.bench
    await first.run()
    again, anew = asking_bench(FakeModel(say("never")), FakeToolbox(wipe=ok()), WIPE, verdicts=[YES], limits=limits)
    opened = [step[1] for step in first.opening if step[1] is not None]
    written = [msgspec.structs.replace(entry, seq=n) for n, entry in enumerate([*opened, *first.journal.entries], 1)]
    again.loop._recorded = RecordedRun(written)
    await again.run()
    assert (asked.requests, anew.requests, again.model.plans, again.toolbox.ran) == ([], [], [], [])
    assert again.journal.kinds() == first.journal.kinds()


class SlowModel(FakeModel):
    """Takes 20 seconds for its first reply."""

    bench: Bench | None = None

    async def stream(self, plan: Plan, run_id: str) -> AsyncGenerator[list[ModelEvent], None]:
        assert self.bench is not None
        self.bench.clock.time += 0.0 if self.plans else 20.0
        async for batch in super().stream(plan, run_id):
            yield batch


def entries(*steps: tuple[str, str, float]) -> list[Entry]:
    """Questions (`?`), deferred ones (`~`) and decisions (`!`) about calls, with their times."""
    made: list[Entry] = []
    for kind, call_id, at in steps:
        one = call("wipe", call_id=call_id)
        if kind == "!":
            made.append(decision_step(0, one, DecisionRecord(approval_id="a", status="approved"), at)[1])
        else:
            made.append(request_step(0, one, RequestRecord(approval_id="a", is_deferred=kind == "~"), at)[1])
    return made


@pytest.mark.parametrize(
    ("steps", "waited_s"),
    [
        ([], 0.0),
        ([("?", "a", 10.0), ("!", "a", 15.0)], 5.0),
        ([("?", "a", 10.0), ("?", "b", 11.0), ("!", "a", 15.0), ("!", "b", 17.0)], 7.0),
        ([("?", "a", 10.0), ("!", "a", 15.0), ("?", "b", 90.0)], 15.0),
        ([("!", "a", 15.0)], 0.0),
        ([("~", "a", 10.0)], 0.0),
    ],
)
def test_the_record_knows_how_long_was_waited(steps: list[tuple[str, str, float]], waited_s: float) -> None:
    """Open questions count together and up to now (100), decided ones up to their decision, deferred ones not."""
    past = RecordedRun(entries(*steps))
    assert past.waited_s(100.0) == waited_s


async def test_a_local_call_that_names_what_is_protected_waits_whatever_its_policy_says() -> None:
    """An exempted tool's other calls run at once."""
    write = server("file_write", effect="write", approval="never")
    offer = msgspec.structs.replace(write, source="local")
    named = call("file_write", arguments='{"path": "AGENTS.md", "protected": true}')
    plain = call("file_write", arguments='{"path": "a"}', call_id="call_2")
    bench, counter = asking_bench(
        FakeModel(ask_for(named, plain), say("ok")), FakeToolbox(file_write=ok()), offer, verdicts=[YES]
    )
    await bench.run()
    assert [request.call.call_id for request in counter.requests] == ["call_1"]
    assert counter.requests[0].reasons == ("it asks to write protected paths: AGENTS.md",)
    assert sorted(bench.toolbox.ran) == ["call_1", "call_2"]
