"""Several runs as the choices of one completion, in any interleaving, judged by the real SDK."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from stream.answers import as_run, decode
from stream.shapes import ALL_SHAPES, Shape
from treadle.core.events import RunEvent
from treadle.core.ids import CountingIds
from treadle.core.request import Request, Surface
from treadle.protocols.chat import Choices, Decoder
from treadle.protocols.sse import SseReader

GOOD = [shape for shape in ALL_SHAPES if shape.expected.error is None and shape.name != "custom_call"]
"""The SDK's type of a chunk knows no custom calls."""


def _run(shape: Shape, choice: int) -> list[RunEvent]:
    return as_run(decode(Decoder(CountingIds(namespace=str(choice))), shape.body), f"chatcmpl_{choice}")


def _interleaved(runs: list[list[RunEvent]], order: list[int]) -> list[tuple[int, RunEvent]]:
    """Return the events of all runs, each in its own order, the first event of the first run first."""
    rest = [list(run) for run in runs]
    events = [(0, rest[0].pop(0))]
    for choice in order:
        if rest[choice % len(rest)]:
            events.append((choice % len(rest), rest[choice % len(rest)].pop(0)))
    return events + [(choice, event) for choice, run in enumerate(rest) for event in run]


def _seen(choices: Choices, events: list[tuple[int, RunEvent]]) -> ChatCompletion:
    sent = b"".join(frame for choice, event in events for frame in choices.feed(choice, event))
    state: ChatCompletionStreamState[None] = ChatCompletionStreamState()
    lines = [frame.data for frame in SseReader().feed(sent)]
    assert lines[-1] == "[DONE]"
    for line in lines[:-1]:
        state.handle_chunk(ChatCompletionChunk.model_validate_json(line))
    return state.current_completion_snapshot


def _content(choice: Any) -> tuple[Any, ...]:
    message = choice.message
    calls = [(call.function.name, call.function.arguments) for call in message.tool_calls or ()]
    if choice.finish_reason == "length":
        # The SDK keeps the beginning of a call that never ended.
        calls = [call for call in calls if call[1].endswith("}")]
    return message.content or None, message.refusal, calls, choice.finish_reason


@settings(max_examples=2 * settings.default.max_examples)
@given(st.lists(st.sampled_from(GOOD), min_size=2, max_size=4), st.lists(st.integers(0, 7), max_size=40))
def test_no_choice_sees_anything_of_another(shapes: list[Shape], order: list[int]) -> None:
    """B15: each choice is what its run alone would be, streamed and whole; indexes are all there."""
    runs = [_run(shape, choice) for choice, shape in enumerate(shapes)]
    events = _interleaved(runs, order)
    surface = Surface(stream=True, include_usage=True)
    seen = _seen(Choices(Request(protocol="chat", model="m", surface=surface), CountingIds(), len(shapes)), events)
    waiting = Choices(Request(protocol="chat", model="m"), CountingIds(), len(shapes))
    for choice, event in events:
        assert waiting.feed(choice, event) == []
    whole = ChatCompletion.model_validate_json(waiting.body())
    assert (
        [choice.index for choice in seen.choices]
        == [choice.index for choice in whole.choices]
        == list(range(len(shapes)))
    )
    for choice, run in enumerate(runs):
        alone = _seen(
            Choices(Request(protocol="chat", model="m", surface=surface), CountingIds(), 1),
            [(0, event) for event in run],
        )
        assert _content(seen.choices[choice]) == _content(alone.choices[0]) == _content(whole.choices[choice])
    used = [shape.expected.usage.total_tokens for shape in shapes if shape.expected.usage is not None]
    assert (seen.usage.total_tokens if seen.usage else None) == (sum(used) if used else None)
    assert (seen.id, whole.id) == ("chatcmpl_0", "chatcmpl_0")
