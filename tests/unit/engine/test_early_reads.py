"""Reads that begin while the model still says later calls: what begins, when, and what becomes of it."""

import asyncio
import gc
from collections.abc import AsyncGenerator

import pytest

from treadle.core.errors import ErrorInfo
from treadle.core.events import Failed, Finished, ItemDone, ModelEvent, Stop, ToolFinished
from treadle.core.items import CallItem, text_of
from treadle.core.plan import Plan
from treadle.core.tool_definitions import CallContext, Offer, Outcome
from treadle.engine.early_reads import EarlyReads, mark_unused
from treadle.engine.limits import Limits
from treadle.engine.run_decisions import PlannedCall
from unit.engine.fakes import Bench, FakeClock, FakeModel, FakeToolbox, ask_for, call, client, ok, say, server

WAIT_S = 5.0
READS = 0.2


class PacedModel(FakeModel):
    """Says the last call of its first reply only when it is let."""

    def __init__(self, *replies: list[list[ModelEvent]]) -> None:
        super().__init__(*replies)
        self.gate = asyncio.Event()
        self.waiting = asyncio.Event()

    async def stream(self, plan: Plan, run_id: str) -> AsyncGenerator[list[ModelEvent], None]:
        self.plans.append(plan)
        is_first = len(self.plans) == 1
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        assert isinstance(reply, list)
        calls = [n for n, batch in enumerate(reply) if any(isinstance(event, ItemDone) for event in batch)]
        for number, batch in enumerate(reply):
            if is_first and number == calls[-1]:
                self.waiting.set()
                await asyncio.wait_for(self.gate.wait(), WAIT_S)
            yield batch


class TimedToolbox:
    """Reads that take 200 ms of a clock that only they move: side by side they end at the same time."""

    def __init__(self, bench_clock: list) -> None:
        self._clock = bench_clock
        self.began: dict[str, float] = {}
        self.begun = asyncio.Event()

    async def run(self, call: CallItem, context: CallContext) -> Outcome:
        clock = self._clock[0]
        self.began[call.call_id] = clock.monotonic()
        self.begun.set()
        until = clock.monotonic() + READS
        while clock.monotonic() < until:
            await asyncio.sleep(0)
            if len(self.began) == 2:
                clock.time = until
        return Outcome(text=call.call_id)


def two_reads() -> list[list[ModelEvent]]:
    """Return a reply that asks for the same read twice, with other arguments."""
    reply = ask_for(call("get", call_id="c1"), call("get", call_id="c2", arguments='{"a":1}'))
    assert isinstance(reply, list)
    return reply


async def test_a_read_runs_while_a_later_call_still_streams() -> None:
    """The first is under way before the second has been said, and two of 200 ms take 200 ms together."""
    model, clock = PacedModel(two_reads(), say("done")), []
    toolbox = TimedToolbox(clock)
    bench = Bench(model, toolbox, server("get", parallel=True))  # type: ignore[arg-type]
    clock.append(bench.clock)
    task = asyncio.create_task(bench.run())
    await asyncio.wait_for(model.waiting.wait(), WAIT_S)
    await asyncio.wait_for(toolbox.begun.wait(), WAIT_S)
    assert list(toolbox.began) == ["c1"]
    model.gate.set()
    ended = await asyncio.wait_for(task, WAIT_S)
    assert (ended.status, ended.calls) == ("completed", 2)
    assert bench.clock.time == pytest.approx(1000.0 + READS)
    finished = bench.of(ToolFinished)
    assert [text_of(event.result.output) for event in finished] == ["c1", "c2"]
    assert [event.duration_s for event in finished] == pytest.approx([READS, READS])


async def test_the_journal_is_as_if_nothing_had_begun_early() -> None:
    """Same entries in the same order but for one mark beside the call, with the early read done long before."""

    async def journal(*, is_paced: bool) -> tuple[list, list[str]]:
        whole = [event for batch in two_reads() for event in batch]
        model = PacedModel(two_reads(), say("done")) if is_paced else FakeModel([whole], say("done"))
        toolbox = FakeToolbox(get=ok())
        bench = Bench(model, toolbox, server("get", parallel=True))
        task = asyncio.create_task(bench.run())
        if isinstance(model, PacedModel):
            await asyncio.wait_for(toolbox.running.wait(), WAIT_S)
            model.gate.set()
        await asyncio.wait_for(task, WAIT_S)
        assert toolbox.ran == ["c1", "c2"]
        entries = bench.journal.entries
        marked = [(entries[n - 1].kind, entry.call_id) for n, entry in enumerate(entries) if entry.kind == "tool_early"]
        assert marked == ([("tool_call", "c1"), ("tool_call", "c2")] if is_paced else [])
        kept = [(each.kind, each.call_id, each.name, each.content) for each in entries if each.kind != "tool_early"]
        return kept, [kind for kind in bench.types() if kind.startswith(("tool", "run", "round"))]

    assert await journal(is_paced=True) == await journal(is_paced=False)


@pytest.mark.parametrize(
    "offer",
    [
        server("get", effect="idempotent"),
        server("get", effect="write", resources=("file:{path}",)),
        server("get", exec=True),
        server("get", approval="always"),
        client("get"),
    ],
    ids=["idempotent", "write", "exec", "approval", "client"],
)
async def test_nothing_else_begins_early(offer: Offer) -> None:
    """What has effects, runs a program, needs somebody's word or is the client's waits for the end of the reply."""
    bench = Bench(FakeModel(), FakeToolbox(get=ok()), offer)
    bench.turn.feed(ItemDone(index=0, item=call("get")))
    assert bench.turn.early() == []


async def test_a_read_behind_something_else_waits() -> None:
    """Only the first wave may begin: a read after a write, or beside one that is to be alone, is not in it."""
    bench = Bench(FakeModel(), None, server("get", parallel=True), server("put", effect="write"), server("alone"))
    for index, name in enumerate(("get", "get", "alone", "get")):
        bench.turn.feed(ItemDone(index=index, item=call(name, call_id=f"c{index}")))
    assert [planned.call.call_id for planned in bench.turn.early()] == ["c0", "c1"]
    other = Bench(FakeModel(), None, server("get", parallel=True), server("put", effect="write"))
    for index, name in enumerate(("put", "get")):
        other.turn.feed(ItemDone(index=index, item=call(name, call_id=f"c{index}")))
    assert other.turn.early() == []


async def test_a_call_from_text_or_past_a_limit_does_not_begin_early() -> None:
    """Looking ahead counts nothing: the limits are as they were."""
    recovered = CallItem(id="fc_1", call_id="c1", name="get", arguments="{}", origin="recovered")
    bench = Bench(FakeModel(), None, server("get", parallel=True), limits=Limits(max_total_tool_calls=1))
    bench.turn.feed(ItemDone(index=0, item=recovered))
    assert bench.turn.early() == []
    other = Bench(FakeModel(), None, server("get", parallel=True), limits=Limits(max_total_tool_calls=1))
    for index in range(2):
        other.turn.feed(ItemDone(index=index, item=call("get", call_id=f"c{index}", arguments=f"[{index}]")))
    assert [planned.call.call_id for planned in other.turn.early()] == ["c0"]
    assert [planned.call.call_id for planned in other.turn.early()] == ["c0"]
    assert (other.turn.budget.calls, other.turn.budget.limit) == (0, None)


@pytest.mark.parametrize("stop", ["length", "filtered"])
async def test_a_reply_that_ends_badly_stops_what_had_begun(stop: Stop) -> None:
    """The read is cancelled, its call is answered as unused, and the run ends as the model did."""
    reply = ask_for(call("slow", call_id="c1"), call("slow", call_id="c2", arguments="[1]"), stop=stop)
    assert isinstance(reply, list)
    await _ends_unused(reply, "incomplete")


async def test_a_reply_that_breaks_off_stops_what_had_begun() -> None:
    """So does an error of the upstream in the middle of the turn."""
    reply = two_reads()
    reply[-1] = [Failed(error=ErrorInfo(code="upstream_error", message="gone", status=502))]
    renamed = [
        [
            ItemDone(index=event.index, item=call("slow", call_id=event.item.call_id))
            if isinstance(event, ItemDone) and isinstance(event.item, CallItem)
            else event
            for event in batch
        ]
        for batch in reply
    ]
    await _ends_unused(renamed, "failed")


async def _ends_unused(reply: list[list[ModelEvent]], status: str) -> None:
    model, held = PacedModel(reply), asyncio.Event()
    toolbox = FakeToolbox(slow=held)
    bench = Bench(model, toolbox, server("slow", parallel=True))
    task = asyncio.create_task(bench.run())
    await asyncio.wait_for(toolbox.running.wait(), WAIT_S)
    model.gate.set()
    ended = await asyncio.wait_for(task, WAIT_S)
    assert (ended.status, toolbox.ran[0], len(asyncio.all_tasks())) == (status, "c1", 1)
    words = {event.call.call_id: text_of(event.result.output) for event in bench.of(ToolFinished)}
    assert list(words) == ["c1", "c2"]
    assert "its result is not used" in words["c1"]
    assert bench.loop.has_run_tools
    assert not any(isinstance(each.event, Finished) for each in bench.events)
    assert "tool_start" not in bench.journal.kinds()


async def test_cancelling_the_run_stops_a_read_that_had_begun() -> None:
    """Nothing goes on behind a cancelled run."""
    model, toolbox = PacedModel(two_reads()), FakeToolbox(get=asyncio.Event())
    bench = Bench(model, toolbox, server("get", parallel=True))
    task = asyncio.create_task(bench.run())
    await asyncio.wait_for(toolbox.running.wait(), WAIT_S)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(asyncio.all_tasks()) == 1
    ended = await bench.loop.abort()
    assert ended.status == "cancelled"
    assert ["its result is not used" in text_of(each.result.output) for each in bench.of(ToolFinished)] == [True]


async def test_a_run_without_time_left_takes_back_what_had_begun() -> None:
    """At the end of its time the read is stopped with the model."""
    model, toolbox = PacedModel(two_reads()), FakeToolbox(get=asyncio.Event())
    bench = Bench(model, toolbox, server("get", parallel=True), limits=Limits(wall_s=0.05))
    ended = await asyncio.wait_for(bench.run(), WAIT_S)
    assert (ended.status, ended.limit, len(asyncio.all_tasks())) == ("incomplete", "wall_time", 1)


def _planned(call_id: str) -> PlannedCall:
    return PlannedCall(index=0, call=call("look", call_id=call_id), offer=server("look"))


async def test_what_was_dropped_neither_begins_nor_is_handed_over():
    """Calls that were noted and those under way are forgotten; those under way have stopped when it returns."""
    early, stopped = EarlyReads(FakeClock()), list[str]()

    async def run(planned: PlannedCall) -> Outcome:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(planned.call.call_id)
        return Outcome(text="")

    ready = [_planned("a"), _planned("b")]
    assert early.mark(ready, "a")
    early.begin(run)
    assert early.mark(ready, "b")
    assert not early.mark(ready, "c")
    await asyncio.sleep(0)
    await early.cancel_unused()
    assert stopped == ["a"]
    assert early.take("a") is None
    early.begin(run)
    await asyncio.sleep(0)
    assert early.take("b") is None
    assert ("a" in early, "b" in early) == (True, False)


async def test_a_failure_of_what_was_dropped_is_nobodys():
    """Though it fails while it is stopped, no word of it is left for the loop's log."""
    said: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(context))
    early = EarlyReads(FakeClock())

    async def run(planned: PlannedCall) -> Outcome:
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError(planned.call.call_id)

    assert early.mark([_planned("a")], "a")
    early.begin(run)
    await asyncio.sleep(0)
    await early.cancel_unused()
    gc.collect()
    assert said == []


def test_an_outcome_that_is_not_used_says_so_once():
    """Only the words at its start change: a reason may quote them."""
    outcome = Outcome(text="Not run: it said Not run: no", summary="Not run: it said Not run: no")
    words = "Begun early, and its result is not used: it said Not run: no"
    assert mark_unused(outcome) == Outcome(text=words, summary=words)
    assert mark_unused(Outcome(text="x")) == Outcome(text="x")
