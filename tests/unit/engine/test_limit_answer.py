"""The answer at a limit where the model gives none."""

import asyncio
import time

import msgspec
import pytest

from treadle.core.events import Finished, ItemAdded, ItemDone, Noted, TextDelta
from treadle.core.items import CallItem, MessageItem, ResultItem, TextPart, text_of, text_result
from treadle.core.request import Options
from treadle.engine.limit_answer import limit_answer
from treadle.engine.limits import Limits
from unit.engine.fakes import Bench, FakeModel, FakeToolbox, ask_for, call, ok, say, server

ADDS = [ask_for(call("add", call_id=f"c{n}", arguments=f"[{n}]")) for n in range(3)]
ANSWER = """Tool call limit reached (2). The model gave no final answer. 2 tool calls were answered before that:
- add([0]): 2
- add([1]): 2 [limit_reached] Tool call limit reached (2). Stopping tool loop."""


@pytest.mark.parametrize(
    "last",
    [
        [[Finished(stop="done")]],
        say(" \n"),
        ask_for(call("add", call_id="c9")),
        ask_for(call("add", call_id="c9"), stop="length"),
    ],
    ids=["nothing", "blanks", "a call", "a call that was cut"],
)
async def test_a_model_without_a_last_word_has_treadle_say_how_the_run_ended(last):
    """The limit, the calls and what they gave are a message like any other, noted as Treadle's and journalled."""
    bench = Bench(FakeModel(*ADDS[:2], last), FakeToolbox(add=ok("2")), server("add"), limits=Limits(max_iterations=2))
    ended = await bench.run()
    assert ended.limit == "max_iterations"
    message = [event.item for event in bench.of(ItemDone) if type(event.item) is MessageItem][-1]
    assert text_of(message.content) == ANSWER
    assert [event.text for event in bench.of(TextDelta)][-1] == ANSWER
    assert [entry.content for entry in bench.journal.entries if entry.kind == "assistant"][-1] == ANSWER
    assert [(event.note.code, event.note.action) for event in bench.of(Noted)] == [("limit_answer", "emulated")]


async def test_a_model_that_answers_at_the_limit_is_not_interrupted():
    """Nothing is added to what it says."""
    bench = Bench(
        FakeModel(ADDS[0], say("Two.")), FakeToolbox(add=ok("2")), server("add"), limits=Limits(max_iterations=1)
    )
    await bench.run()
    assert [event.text for event in bench.of(TextDelta)] == ["Two."]
    assert bench.of(Noted) == []


async def test_time_that_is_up_before_the_first_word_is_said():
    """There is an answer also where the model was only thinking."""
    bench = Bench(FakeModel([[]], hold=asyncio.Event()), limits=Limits(wall_s=0.01))
    bench.clock.monotonic = time.monotonic
    ended = await bench.run()
    assert (ended.status, ended.stop, ended.limit) == ("incomplete", "length", "wall_time")
    assert [event.text for event in bench.of(TextDelta)] == [
        "The time for this run is used up. No tool had been called."
    ]


async def test_time_that_is_up_amid_a_call_is_said_behind_it():
    """The half call stays open, and the answer is an item of its own."""
    half = CallItem(id="fc_1", call_id="c1", name="add")
    bench = Bench(
        FakeModel([[ItemAdded(index=0, item=half)]], hold=asyncio.Event()),
        FakeToolbox(add=ok()),
        server("add"),
        limits=Limits(wall_s=0.01),
    )
    bench.clock.monotonic = time.monotonic
    await bench.run()
    assert [event.index for event in bench.of(ItemAdded)] == [0, 1]
    [done] = bench.of(ItemDone)
    assert (done.index, text_of(done.item.content)) == (
        1,
        "The time for this run is used up. No tool had been called.",
    )


FORMS = [
    Options(output_schema=msgspec.Raw(b'{"type":"json_object"}')),
    Options(extra={"response_format": msgspec.Raw(b'{"type":"grammar"}')}),
]


@pytest.mark.parametrize("options", FORMS, ids=["schema", "kind of its own"])
@pytest.mark.parametrize("last", [[[Finished(stop="done")]], ask_for(call("add", call_id="c9"), stop="length")])
async def test_where_the_answer_shall_be_json_a_limit_without_one_is_an_error(last, options):
    """No text is added that the client would parse: the error names the limit and how much was done."""
    tools = FakeToolbox(add=ok("2"))
    limits = Limits(max_iterations=2)
    bench = Bench(FakeModel(*ADDS[:2], last), tools, server("add"), limits=limits, options=options)
    ended = await bench.run()
    assert (ended.status, ended.limit) == ("failed", "max_iterations")
    assert (ended.error.code, ended.error.status, ended.error.retryable) == ("limit_reached", 422, False)
    assert ended.error.message == (
        "Tool call limit reached (2). The model gave no final answer in the form that was asked for."
        " Tool calls answered before that: 2."
    )
    assert (bench.of(TextDelta), bench.of(Noted)) == ([], [])


async def test_time_that_is_up_amid_json_adds_nothing_to_it():
    """What was said stays as it was, and the run ends in an error."""
    half = MessageItem(id="msg_1", role="assistant")
    said = [ItemAdded(index=0, item=half), TextDelta(index=0, text='{"a":')]
    bench = Bench(FakeModel([said], hold=asyncio.Event()), limits=Limits(wall_s=0.01), options=FORMS[0])
    bench.clock.monotonic = time.monotonic
    ended = await bench.run()
    assert (ended.status, ended.limit, ended.error.code) == ("failed", "wall_time", "limit_reached")
    assert [event.text for event in bench.of(TextDelta)] == ['{"a":']


def test_many_calls_and_long_results_are_shortened_and_counted():
    """The answer is for a person: the last calls, each on one line."""
    calls = [CallItem(call_id=f"c{n}", name="get", arguments='{"n":"' + "x" * 500 + '"}') for n in range(13)]
    results: list[ResultItem] = [text_result(each, "line\n" * 100_000, is_error=False) for each in calls[:-1]]
    results.append(ResultItem(call_id="c12", name="get", output=(TextPart(text="broken"),), is_error=True))
    lines = limit_answer("Enough.", [*calls, *results]).splitlines()
    assert lines[:2] == [
        "Enough. The model gave no final answer. 13 tool calls were answered before that:",
        "- 3 earlier, not shown here",
    ]
    assert len(lines) == 12
    assert lines[2].startswith('- get({"n":"xxx')
    assert lines[2].endswith("line…")
    assert lines[-1].endswith("): failed: broken")
    assert max(map(len, lines)) < 500
