import asyncio
import time
from collections.abc import AsyncGenerator

import msgspec
import pytest

from treadle.core.errors import ErrorInfo, StoreError, UpstreamTimeout
from treadle.core.events import (
    ArgumentsDelta,
    Failed,
    Finished,
    ItemAdded,
    ItemDone,
    LiveBatches,
    ModelEvent,
    RunEnded,
    TextDelta,
    ToolFinished,
    ToolStarted,
)
from treadle.core.items import CallItem, ImagePart, MessageItem, ResultItem, TextPart, text_of
from treadle.core.plan import Plan
from treadle.core.tool_definitions import NONE, Outcome, ToolChoice
from treadle.core.usage import Usage
from treadle.engine.limits import Limits
from treadle.engine.ports import ApprovalVerdict
from unit.engine.fakes import Bench, FakeJournal, FakeModel, FakeToolbox, Reply, ask_for, call, client, ok, say, server


async def test_an_answer_ends_the_run():
    """Text without calls is one round, told in order, durable before its done and its end."""
    bench = Bench(FakeModel(say("hello", usage=Usage(input_tokens=3, output_tokens=1))))
    ended = await bench.run()
    assert ended == RunEnded(
        status="completed", usage=Usage(input_tokens=3, output_tokens=1), rounds=1, ended_at=1000.0
    )
    assert bench.types() == ["item.added", "text.delta", "item.done", "run.ended"]
    assert [numbered.seq for numbered in bench.events] == [0, 0, 1, 3]
    assert bench.journal.kinds() == ["assistant", "reply", "status"]
    assert bench.journal.commits == 1


async def test_a_server_call_runs_and_the_model_is_asked_again():
    """Call, result, next round with all of it, answer; usage is summed over the rounds."""
    model = FakeModel(
        ask_for(call("add", arguments='{"a":1}'), usage=Usage(input_tokens=5, output_tokens=2)),
        say("It is 2.", usage=Usage(input_tokens=9, output_tokens=3)),
    )
    bench = Bench(model, FakeToolbox(add=ok("2")), server("add"))
    ended = await bench.run()
    assert (ended.status, ended.rounds, ended.calls) == ("completed", 2, 1)
    assert ended.usage == Usage(input_tokens=14, output_tokens=5)
    assert bench.types() == [
        "item.added",
        "arguments.delta",
        "item.done",
        "tool.started",
        "tool.finished",
        "round.started",
        "item.added",
        "text.delta",
        "item.done",
        "run.ended",
    ]
    assert bench.journal.kinds() == [
        "tool_call",
        "tool_early",
        "reply",
        "tool_start",
        "tool_result",
        "plan",
        "assistant",
        "reply",
        "status",
    ]
    sent = bench.model.plans[1].items
    assert [type(item).__name__ for item in sent] == ["MessageItem", "CallItem", "ResultItem"]
    assert isinstance(sent[2], ResultItem)
    assert text_of(sent[2].output) == "2"


async def test_results_come_in_call_order_for_every_call():
    """Parallel calls are all answered, in the order the model made them."""
    calls = [call("add", call_id="c1"), call("nope", call_id="c2"), call("add", call_id="c3", arguments="[1]")]
    bench = Bench(FakeModel(ask_for(*calls), say("done")), FakeToolbox(add=ok()), server("add"))
    await bench.run()
    assert [(event.call.call_id, event.result.rc) for event in bench.of(ToolFinished)] == [
        ("c1", "ok"),
        ("c2", "unknown_tool"),
        ("c3", "ok"),
    ]


async def test_a_client_call_is_handed_back():
    """A client's own tool ends the run with its call open, and nothing runs here."""
    bench = Bench(FakeModel(ask_for(call("theirs"))), FakeToolbox(), client("theirs"))
    ended = await bench.run()
    assert (ended.status, ended.stop, bench.toolbox.ran) == ("requires_action", "calls", [])
    assert [event.item.side for event in bench.of(ItemDone)] == ["client"]


async def test_a_mixed_turn_runs_the_servers_half_and_hands_back_the_rest():
    """Server calls are answered and remembered, then the client's calls are left to it."""
    calls = [call("ours", call_id="c1"), call("theirs", call_id="c2")]
    bench = Bench(FakeModel(ask_for(*calls)), FakeToolbox(ours=ok()), server("ours"), client("theirs"))
    ended = await bench.run()
    assert (ended.status, bench.toolbox.ran, len(bench.model.plans)) == ("requires_action", ["c1"], 1)
    assert bench.journal.kinds() == [
        "tool_call",
        "tool_early",
        "tool_call",
        "reply",
        "tool_start",
        "tool_result",
        "status",
    ]


async def test_an_endless_caller_is_stopped_with_an_answer():
    """At max_iterations the last result says so and the model is asked once more without tools, not counted."""
    replies = [ask_for(call("add", call_id=f"c{n}", arguments=f"[{n}]")) for n in range(3)]
    bench = Bench(
        FakeModel(*replies, say("I had to stop.")),
        FakeToolbox(add=ok("2")),
        server("add"),
        limits=Limits(max_iterations=3),
    )
    ended = await bench.run()
    assert (ended.status, ended.limit, ended.rounds, ended.calls) == ("completed", "max_iterations", 3, 3)
    assert [plan.tool_choice for plan in bench.model.plans][-1] == NONE
    assert [len(plan.tools) for plan in bench.model.plans] == [1, 1, 1, 1]
    texts = [text_of(event.result.output) for event in bench.of(ToolFinished)]
    assert texts == ["2", "2", "2\n\n[limit_reached] Tool call limit reached (3). Stopping tool loop."]


async def test_calls_past_the_total_in_one_batch_all_get_results():
    """The first calls run, the rest read that a limit kept them from running."""
    calls = [call("add", call_id=f"c{n}", arguments=f"[{n}]") for n in range(4)]
    bench = Bench(
        FakeModel(ask_for(*calls), say("ok")),
        FakeToolbox(add=ok()),
        server("add"),
        limits=Limits(max_total_tool_calls=2),
    )
    ended = await bench.run()
    assert [event.result.rc for event in bench.of(ToolFinished)] == ["ok", "ok", "limit_reached", "limit_reached"]
    assert (ended.limit, bench.toolbox.ran) == ("max_total_tool_calls", ["c0", "c1"])
    assert bench.journal.kinds().count("tool_start") == 2


async def test_a_model_that_calls_on_past_the_limit_is_not_obeyed():
    """In the last round even a client's tool is answered here, and the run ends."""
    replies = [ask_for(call("theirs", call_id="c1"), call("add", call_id="c2")), ask_for(call("theirs", call_id="c3"))]
    bench = Bench(FakeModel(*replies), FakeToolbox(add=ok()), server("add"), limits=Limits(max_iterations=1))
    ended = await bench.run()
    assert (ended.status, ended.limit) == ("completed", "max_iterations")
    assert [event.result.rc for event in bench.of(ToolFinished)] == ["unknown_tool", "ok", "limit_reached"]


async def test_a_forced_choice_holds_for_the_first_round_only():
    """`required` would else go on until a limit."""
    bench = Bench(
        FakeModel(ask_for(call("add")), say("ok")),
        FakeToolbox(add=ok()),
        server("add"),
        choice=ToolChoice(mode="required"),
    )
    await bench.run()
    assert [plan.tool_choice.mode for plan in bench.model.plans] == ["required", "auto"]


@pytest.mark.parametrize("stop", ["length", "filtered"])
async def test_no_tool_runs_after_a_reply_that_was_cut(stop):
    """A call of a truncated or filtered reply is answered as not run, and the run is incomplete."""
    bench = Bench(FakeModel(ask_for(call("add"), stop=stop)), FakeToolbox(add=ok()), server("add"))
    ended = await bench.run()
    assert (ended.status, ended.stop, bench.toolbox.ran) == ("incomplete", stop, [])
    assert [event.result.rc for event in bench.of(ToolFinished)] == ["cancelled"]


async def test_a_broken_reply_fails_the_run_and_keeps_what_was_said():
    """An error in the stream is an error of the run; the half message is in the journal, marked as partial."""
    item = MessageItem(id="msg_1", role="assistant")
    error = ErrorInfo(code="upstream_broken_stream", message="cut", status=502)
    model = FakeModel([[ItemAdded(index=0, item=item), TextDelta(index=0, text="Hel")], [Failed(error=error)]])
    bench = Bench(model)
    ended = await bench.run()
    assert (ended.status, ended.error) == ("failed", error)
    assert bench.types() == ["item.added", "text.delta", "run.ended"]
    assert [(entry.kind, entry.content) for entry in bench.journal.entries] == [
        ("reply", "failed"),
        ("assistant", "Hel"),
        ("status", "failed"),
    ]


async def test_a_stream_that_just_ends_is_an_error():
    """End of stream is never success."""
    bench = Bench(FakeModel([[ItemAdded(index=0, item=MessageItem(role="assistant"))]]))
    ended = await bench.run()
    assert ended.status == "failed"
    assert ended.error is not None
    assert ended.error.code == "upstream_broken_stream"


async def test_an_upstream_that_refuses_fails_the_run():
    """What it said before the first byte is the run's error."""
    bench = Bench(FakeModel(UpstreamTimeout("silent")))
    ended = await bench.run()
    assert ended.error == ErrorInfo(code="upstream_timeout", message="silent", status=504, retryable=True)


async def test_an_unknown_tool_fails_a_strict_run():
    """With strict_unknown_tool the run fails, and the call still has its result."""
    bench = Bench(FakeModel(ask_for(call("nope"))), limits=Limits(strict_unknown_tool=True))
    ended = await bench.run()
    assert ended.status == "failed"
    assert ended.error is not None
    assert (ended.error.code, len(bench.of(ToolFinished))) == ("unknown_tool", 1)


async def test_a_tool_that_needs_approval_does_not_run_without():
    """A denied call is a result that says so."""
    offer = server("rm", effect="destructive")
    bench = Bench(FakeModel(ask_for(call("rm")), say("ok")), FakeToolbox(rm=ok()), offer)
    await bench.run()
    finished = bench.of(ToolFinished)[0]
    assert (finished.result.rc, bench.toolbox.ran, bench.approver.asked) == ("denied", [], ["call_1"])
    assert msgspec.json.decode(text_of(finished.result.output)) == {"error": {"code": "denied", "message": "nobody"}}


async def test_an_approved_tool_runs():
    """Agreement lets the call run as it is."""
    offer = server("rm", effect="destructive")
    bench = Bench(
        FakeModel(ask_for(call("rm")), say("ok")), FakeToolbox(rm=ok()), offer, verdict=ApprovalVerdict(approved=True)
    )
    await bench.run()
    assert bench.toolbox.ran == ["call_1"]


async def test_the_call_is_durable_before_its_tool_starts():
    """While the journal has not written, nothing runs and nobody is told of a done item."""
    bench = Bench(FakeModel(ask_for(call("add")), say("ok")), FakeToolbox(add=ok()), server("add"))
    bench.journal.gate = asyncio.Event()
    task = asyncio.create_task(bench.run())
    for _ in range(20):
        await asyncio.sleep(0)
    assert (bench.toolbox.ran, bench.types()) == ([], ["item.added", "arguments.delta"])
    bench.journal.gate.set()
    await task
    assert bench.toolbox.ran == ["call_1"]


async def test_a_call_id_used_before_gets_a_new_one():
    """Ids are unique in the conversation; the upstream's own id is kept beside."""
    history = [call("add", call_id="call_1"), ResultItem(call_id="call_1")]
    bench = Bench(FakeModel(ask_for(call("add")), say("ok")), FakeToolbox(add=ok()), server("add"), history=history)
    await bench.run()
    made = bench.of(ToolStarted)[0].call
    assert (made.call_id != "call_1", made.upstream_id) == (True, "call_1")
    assert isinstance(bench.model.plans[1].items[-2], CallItem)


async def test_cancelling_a_running_tool_answers_its_call_and_ends_the_run():
    """Every open call gets one result, started or not, then comes one end."""
    toolbox = FakeToolbox(slow=asyncio.Event(), add=ok())
    calls = [call("slow", call_id="c1"), call("add", call_id="c2")]
    bench = Bench(FakeModel(ask_for(*calls)), toolbox, server("slow", effect="idempotent"), server("add"))
    task = asyncio.create_task(bench.run())
    await asyncio.wait_for(toolbox.running.wait(), 5)
    bench.clock.time += 2
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    ended = await bench.loop.abort()
    assert ended.status == "cancelled"
    assert [event.duration_s for event in bench.of(ToolFinished)] == [2.0, 0.0]
    results = {event.call.call_id: text_of(event.result.output) for event in bench.of(ToolFinished)}
    assert list(results) == ["c1", "c2"]
    assert "outcome of this call is not known" in results["c1"]
    assert "Not run" in results["c2"]
    assert bench.types().count("run.ended") == 1
    assert len(bench.journal.ended) == 1


async def test_cancelling_while_the_model_speaks_closes_its_stream():
    """The upstream's connection is given up at once."""
    bench = Bench(FakeModel([[ItemAdded(index=0, item=MessageItem(role="assistant"))]], hold=asyncio.Event()))
    task = asyncio.create_task(bench.run())
    await asyncio.wait_for(bench.model.spoke.wait(), 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert bench.model.closed == 1


async def test_a_cancellation_during_a_commit_loses_nothing():
    """What was being written is written and told before the cancellation goes on."""
    bench = Bench(FakeModel(ask_for(call("add"))), FakeToolbox(add=ok()), server("add"))
    bench.journal.gate = asyncio.Event()
    task = asyncio.create_task(bench.run())
    for _ in range(20):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    bench.journal.gate.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    bench.journal.gate = None
    await bench.loop.abort()
    assert bench.journal.kinds() == ["tool_call", "tool_early", "reply", "error", "tool_result", "status"]
    assert bench.types() == ["item.added", "arguments.delta", "item.done", "tool.started", "tool.finished", "run.ended"]


async def test_a_dead_journal_stops_the_run():
    """Without its journal a run goes no further: no tool starts."""
    bench = Bench(FakeModel(ask_for(call("add"))), FakeToolbox(add=ok()), server("add"))
    bench.journal.fail_at_commit = 1
    with pytest.raises(StoreError):
        await bench.run()
    assert bench.toolbox.ran == []


async def test_time_up_in_a_tool_ends_with_an_answer():
    """A call that was cut reads that its outcome is unknown, later ones never start, and the model still answers."""
    toolbox = FakeToolbox(slow=asyncio.Event())
    calls = [call("slow", call_id="c1"), call("slow", call_id="c2", arguments="[2]")]
    bench = Bench(FakeModel(ask_for(*calls), say("sorry")), toolbox, server("slow"), limits=Limits(wall_s=0.3))
    bench.clock.monotonic = time.monotonic
    ended = await bench.run()
    assert (ended.status, ended.limit, toolbox.ran) == ("completed", "wall_time", ["c1"])
    results = [(event.result.rc, text_of(event.result.output)) for event in bench.of(ToolFinished)]
    assert [rc for rc, _ in results] == ["interrupted", "limit_reached"]
    assert "outcome unknown" in results[0][1]
    assert "Not run" in results[1][1]
    assert bench.journal.kinds().count("tool_start") == 1


async def test_what_was_not_offered_never_reaches_the_toolbox():
    """A registered tool that this run does not offer is unknown to it: it cannot slip past a choice or an approval."""
    bench = Bench(FakeModel(ask_for(call("rm")), say("ok")), FakeToolbox(rm=ok()), server("remove"))
    await bench.run()
    [finished] = bench.of(ToolFinished)
    assert (finished.result.rc, bench.toolbox.ran, bench.journal.kinds().count("tool_start")) == ("unknown_tool", [], 0)
    assert msgspec.json.decode(text_of(finished.result.output)) == {
        "error": {"code": "unknown_tool", "message": "No tool named 'rm' is offered. Offered: remove."}
    }


async def test_a_finished_result_survives_the_cancellation_of_its_wave():
    """Of two reads side by side the one that has its answer keeps it."""
    toolbox = FakeToolbox(slow=asyncio.Event(), fast=ok("42"))
    calls = [call("fast", call_id="c1"), call("slow", call_id="c2")]
    offers = [server("fast", parallel=True), server("slow", parallel=True)]
    bench = Bench(FakeModel(ask_for(*calls)), toolbox, *offers)
    task = asyncio.create_task(bench.run())
    await asyncio.wait_for(toolbox.running.wait(), 5)
    for _ in range(5):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await bench.loop.abort()
    assert [event.result.rc for event in bench.of(ToolFinished)] == ["ok", "cancelled"]
    assert bench.types().count("tool.started") == 2


async def test_a_limit_is_named_in_a_result_of_parts_too():
    """Images do not hide it."""
    picture = Outcome(text="", parts=(ImagePart(url="https://example.org/a.png"),))
    bench = Bench(
        FakeModel(ask_for(call("draw")), say("ok")),
        FakeToolbox(draw=lambda _: picture),
        server("draw"),
        limits=Limits(max_iterations=1),
    )
    await bench.run()
    [finished] = bench.of(ToolFinished)
    assert finished.result.output[-1] == TextPart(
        text="[limit_reached] Tool call limit reached (1). Stopping tool loop."
    )


async def test_time_up_while_the_model_speaks_leaves_the_answer_incomplete():
    """What was said stands, words behind it say why there is no more, and the run names the limit."""
    item = MessageItem(id="msg_1", role="assistant")
    model = FakeModel([[ItemAdded(index=0, item=item), TextDelta(index=0, text="Once")]], hold=asyncio.Event())
    bench = Bench(model, limits=Limits(wall_s=0.01))
    ended = await bench.run()
    assert (ended.status, ended.stop, ended.limit) == ("incomplete", "length", "wall_time")
    assert [event.text for event in bench.of(TextDelta)] == ["Once", "\n\nThe time for this run is used up."]
    assert [(entry.kind, entry.content) for entry in bench.journal.entries] == [
        ("note", "the model gave no answer at the limit; this one is Treadle's"),
        ("reply", "expired"),
        ("assistant", "Once\n\nThe time for this run is used up."),
        ("status", "incomplete"),
    ]


async def test_readers_that_agree_overlap():
    """Two parallel reads of one turn are under way together; their results keep the call order."""
    both = asyncio.Event()
    under_way: list[str] = []

    class Overlapping(FakeToolbox):
        async def run(self, call, context):
            under_way.append(call.call_id)
            if len(under_way) == 2:
                both.set()
            await asyncio.wait_for(both.wait(), 5)
            return Outcome(text=call.call_id)

    calls = [call("read", call_id="c1"), call("read", call_id="c2", arguments="[2]")]
    bench = Bench(FakeModel(ask_for(*calls), say("ok")), Overlapping(), server("read", parallel=True))
    await bench.run()
    assert [text_of(event.result.output) for event in bench.of(ToolFinished)] == ["c1", "c2"]


async def test_item_indexes_never_repeat_over_the_rounds():
    """An index is one item's key for the whole run."""
    bench = Bench(FakeModel(ask_for(call("add")), say("ok")), FakeToolbox(add=ok()), server("add"))
    await bench.run()
    assert [event.index for event in bench.of(ItemAdded)] == [0, 1]


async def test_a_reply_with_nothing_at_all_is_an_empty_answer():
    """A finish without items completes the run."""
    bench = Bench(FakeModel([[Finished(stop="done")]]))
    assert (await bench.run()).status == "completed"


class WatchingModel(FakeModel):
    """Remembers what was durable each time it was asked."""

    def __init__(self, *replies: Reply) -> None:
        super().__init__(*replies)
        self.durable: list[list[str]] = []
        self.journal: FakeJournal | None = None

    async def stream(self, plan: Plan, run_id: str) -> AsyncGenerator[list[ModelEvent], None]:
        assert self.journal is not None
        self.durable.append(self.journal.kinds())
        async for batch in super().stream(plan, run_id):
            yield batch


async def test_a_result_is_durable_before_the_model_is_asked_again():
    """And so is the plan of that model call: a crash in it finds both."""
    model = WatchingModel(ask_for(call("f")), say("done"))
    bench = Bench(model, FakeToolbox(f=ok()), server("f"))
    model.journal = bench.journal
    await bench.run()
    assert len(model.durable) == 2
    assert [kind for kind in model.durable[1] if kind in ("tool_result", "plan")][-2:] == ["tool_result", "plan"]


class LiveStream(LiveBatches):
    """Offers each batch to whoever hears it, and yields what is left to be read."""

    def __init__(self, batches: list[list[ModelEvent]]) -> None:
        self._left = list(batches)
        self.heard: list[list[ModelEvent]] = []

    def __aiter__(self) -> "LiveStream":
        return self

    async def __anext__(self) -> list[ModelEvent]:
        while self._left:
            batch = self._left.pop(0)
            if self.on_batch is None or not self.on_batch(batch):
                return batch
            self.heard.append(batch)
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Have nothing to close."""


class LiveModel(FakeModel):
    """Says what it has to say in the turn in which it comes."""

    def __init__(self, *replies: Reply) -> None:
        super().__init__(*replies)
        self.streams: list[LiveStream] = []

    def stream(self, plan: Plan, run_id: str) -> LiveStream:
        reply = self.replies.pop(0)
        assert isinstance(reply, list)
        self.streams.append(LiveStream(reply))
        return self.streams[-1]


async def test_pieces_that_are_heard_at_once_are_told_and_written_as_all_others():
    """In both rounds: the same events, with the same numbers, and the same journal."""
    asked, said = ask_for(call("add", arguments="[1]")), say("words")
    assert isinstance(asked, list)
    assert isinstance(said, list)
    for reply in (asked, said):
        # As a network brings them: the pieces alone.
        first = reply.pop(0)
        reply[:0] = [[first[0]], [first[1]]]
    told = []
    for model in (FakeModel([*asked], [*said]), LiveModel([*asked], [*said])):
        bench = Bench(model, FakeToolbox(add=ok()), server("add"))
        assert (await bench.run()).status == "completed"
        told.append((bench.events, [msgspec.structs.replace(each, at=0.0) for each in bench.journal.entries]))
        if isinstance(model, LiveModel):
            heard = [event for stream in model.streams for batch in stream.heard for event in batch]
            assert [type(event) for event in heard] == [ArgumentsDelta, TextDelta]
    assert told[0] == told[1]


def test_a_model_call_is_left_behind_once_it_has_ended():
    """The next one begins with nothing of it; until then what it said stands, however often it is planned."""
    turn = Bench(FakeModel(say("never"))).turn
    turn.feed(TextDelta(index=0, text="half"))
    turn.ask()
    assert turn.events == [TextDelta(index=0, text="half")]
    turn.feed(Finished(stop="done"))
    turn.ask()
    assert (turn.events, turn.finish, turn.is_round_over) == ([], None, False)
