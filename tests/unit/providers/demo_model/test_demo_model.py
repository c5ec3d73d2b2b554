"""The demo model as the engine sees it: events from the real decoder, the same every time."""

import msgspec
import pytest

from treadle.core.events import Finished, ItemDone, ModelEvent, TextDelta
from treadle.core.ids import CountingIds
from treadle.core.items import AnyItem, CallItem, MessageItem, text_message, text_of, text_result
from treadle.core.plan import Plan
from treadle.core.request import Options
from treadle.core.tool_definitions import AUTO, NONE, ToolChoice, ToolSpec
from treadle.providers.demo_model import DemoModel

WEATHER = ToolSpec(
    name="get_weather",
    description="Get the current weather in a city.",
    parameters=msgspec.Raw(b'{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}'),
)
PROMPT = text_message("user", "What is the weather in Paris and Rome?")


def plan(*items: AnyItem, choice: ToolChoice = AUTO, options: Options | None = None) -> Plan:
    """Return a plan that offers the weather."""
    return Plan(items=items, model="demo", tools=(WEATHER,), tool_choice=choice, options=options or Options())


async def run(asked: Plan) -> list[ModelEvent]:
    """Return the events of one call."""
    return [event async for batch in DemoModel(CountingIds()).stream(asked, "run_1") for event in batch]


def calls(events: list[ModelEvent]) -> list[CallItem]:
    """Return the complete calls."""
    return [event.item for event in events if isinstance(event, ItemDone) and isinstance(event.item, CallItem)]


def said(events: list[ModelEvent]) -> str:
    """Return the text of all messages."""
    items = [event.item for event in events if isinstance(event, ItemDone)]
    return "".join(text_of(item.content) for item in items if isinstance(item, MessageItem))


async def test_a_prompt_becomes_calls_and_results_an_answer():
    """The two rounds of the demo: two calls in one turn, then one sentence for each result."""
    first = await run(plan(PROMPT))
    asked = calls(first)
    assert [(call.name, call.arguments) for call in asked] == [
        ("get_weather", '{"city":"Paris"}'),
        ("get_weather", '{"city":"Rome"}'),
    ]
    assert [call.call_id for call in asked] == ["call_demo_1", "call_demo_2"]
    assert isinstance(first[-1], Finished)
    assert first[-1].stop == "calls"
    outputs = ['{"temperature_c":18,"sky":"cloudy"}', '{"temperature_c":22,"sky":"sunny"}']
    results = [text_result(call, output) for call, output in zip(asked, outputs, strict=True)]
    second = await run(plan(PROMPT, *asked, *results))
    assert said(second) == "It is **18 °C** and cloudy in Paris.\n\nIt is **22 °C** and sunny in Rome."
    assert isinstance(second[-1], Finished)
    assert second[-1].stop == "done"


async def test_a_new_prompt_after_an_answer_starts_afresh():
    """Old results are history, and the ids of new calls go on counting."""
    old = [CallItem(call_id="call_demo_1", name="get_weather", arguments="{}")]
    history = (PROMPT, *old, text_result(old[0], "1"), text_message("assistant", "One."))
    (call,) = calls(await run(plan(*history, text_message("user", "And the weather in Oslo?"))))
    assert (call.call_id, call.arguments) == ("call_demo_2", '{"city":"Oslo"}')
    assert "demo model" in said(await run(plan(*history, text_message("user", "thank you"))))


async def test_without_parallel_calls_it_calls_one_after_another():
    """Each turn makes the next call, and the answer comes after the last."""
    options = Options(parallel_tool_calls=False)
    (paris,) = calls(await run(plan(PROMPT, options=options)))
    assert paris.arguments == '{"city":"Paris"}'
    items = (PROMPT, paris, text_result(paris, '{"temperature":1}'))
    (rome,) = calls(await run(plan(*items, options=options)))
    assert (rome.arguments, rome.call_id) == ('{"city":"Rome"}', "call_demo_2")
    events = await run(plan(*items, rome, text_result(rome, '{"temperature":2}'), options=options))
    assert said(events) == "It is **1 °C** in Paris.\n\nIt is **2 °C** in Rome."


async def test_the_last_call_of_a_limited_run_is_an_answer():
    """With tool_choice none it answers from what it has."""
    call = CallItem(call_id="c", name="get_weather", arguments="{}")
    events = await run(plan(PROMPT, call, text_result(call, "no", is_error=True), choice=NONE))
    assert said(events) == "**get_weather** failed: no"
    assert "I may not call a tool" in said(await run(plan(PROMPT, choice=NONE)))


@pytest.mark.parametrize("items", [(), (text_message("system", "You are terse."),), (text_message("assistant", "Hi"),)])
async def test_a_plan_without_a_prompt_gets_an_introduction(items):
    """Nothing to go by is no reason to fail."""
    assert "**demo model**" in said(await run(plan(*items)))


async def test_it_streams_word_by_word_and_paces_on_the_injected_clock():
    """Many batches, a pause between them, and the text put together is the answer."""
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    model = DemoModel(CountingIds(), delay_s=0.02, sleep=sleep)
    batches = [batch async for batch in model.stream(plan(text_message("user", "hello")), "run_1")]
    deltas = [event.text for batch in batches for event in batch if isinstance(event, TextDelta)]
    assert len(batches) > 20
    assert len(pauses) >= len(batches) - 1
    assert set(pauses) == {0.02}
    assert max(len(delta.split()) for delta in deltas) == 1


async def test_the_same_plan_gives_the_same_events():
    """Deterministic to the last id."""
    assert await run(plan(PROMPT)) == await run(plan(PROMPT))


async def test_usage_counts_words_in_and_out():
    """An estimate, but one that grows with the conversation."""
    last = (await run(plan(text_message("user", "one two three"), options=Options(max_output_tokens=4))))[-1]
    assert isinstance(last, Finished)
    assert last.usage is not None
    assert (last.usage.input_tokens, last.usage.output_tokens) == (3, 4)


async def test_the_bound_on_output_is_obeyed():
    """Too long an answer ends in `length`, after as many words as allowed."""
    events = await run(plan(text_message("user", "hello"), options=Options(max_output_tokens=4)))
    assert said(events) == "Hello! I am Treadle's"
    assert isinstance(events[-1], Finished)
    assert events[-1].stop == "length"
