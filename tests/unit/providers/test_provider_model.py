"""From bytes to events: what `decode` guarantees whatever the network does."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.core.errors import BrokenStream, UpstreamError, UpstreamTimeout
from treadle.core.events import Failed, Finished, ItemDone, ModelEvent, Noted, TextDelta
from treadle.core.ids import CountingIds
from treadle.core.items import AnyItem, Blob, CallItem, text_message, text_result
from treadle.core.plan import Plan, Planner
from treadle.core.request import Note, Options
from treadle.core.tool_definitions import AUTO, ToolSpec
from treadle.protocols.decoding.answer_meter import AnswerBounds
from treadle.providers.error_mapping import clean_failure
from treadle.providers.provider_endpoint import Endpoint
from treadle.providers.provider_model import AnswerRules, StartedCall, Unguarded, decode, open_call
from treadle.providers.quirk_table import profile_of
from unit.core import strategies

NOTE = Note(code="dropped_field", action="dropped", message="a field", field="x")
HELLO = b'data: {"choices":[{"index":0,"delta":{"content":"Hello"},"finish_reason":null}]}\n\n'
STOP = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
DONE = b"data: [DONE]\n\n"
PLAN = Plan(items=(text_message("user", "hi"),), model="m")


class Wire:
    """Chunks as a network gives them: it may fail at the end, and it remembers how far it was read."""

    def __init__(self, *chunks: bytes, error: UpstreamError | None = None) -> None:
        self.chunks = chunks
        self.error = error
        self.read = 0
        self.is_closed = False

    async def __call__(self) -> AsyncGenerator[bytes, None]:
        """Yield the chunks, then fail if told to."""
        try:
            for chunk in self.chunks:
                self.read += 1
                yield chunk
            if self.error is not None:
                raise self.error
        finally:
            self.is_closed = True


async def batches(wire: Wire, *notes: Note) -> list[list[ModelEvent]]:
    """Decode what the wire gives as a Chat stream."""
    decoder = open_call("chat", PLAN, CountingIds(), "up").decoder
    return [batch async for batch in decode(wire(), decoder, notes)]


@pytest.mark.parametrize(
    ("answer_bytes_max", "arguments_bytes_max", "message", "hint"),
    [
        (4, 1024, "the answer is over 4 bytes", "raise upstreams.answer_bytes_max, if such answers are wanted"),
        (
            1024,
            4,
            "the arguments of a call are over 4 bytes",
            "raise upstreams.arguments_bytes_max, if such calls are wanted",
        ),
    ],
)
async def test_an_answer_over_a_bound_names_the_setting_that_raises_it(
    answer_bytes_max: int, arguments_bytes_max: int, message: str, hint: str
):
    """Both bounds are the endpoint's; asking again would give the same."""
    where = Endpoint(
        name="a",
        base_url="http://127.0.0.1/v1",
        answer_bytes_max=answer_bytes_max,
        arguments_bytes_max=arguments_bytes_max,
    )
    decoder = open_call("chat", PLAN, CountingIds(), "up", rules=AnswerRules(bounds=where.bounds)).decoder
    call = b'{"index":0,"id":"a","function":{"name":"f","arguments":"{\\"a\\":1}"}}'
    body = b'data: {"choices":[{"index":0,"delta":{"tool_calls":[' + call + b"]}}]}\n\n"
    failed = [event for event in decoder.feed(body) if isinstance(event, Failed)]
    error = clean_failure(where, failed[0].error)
    assert (error.code, error.retryable, error.hint) == ("upstream_too_large", False, hint)
    assert error.message == f"The upstream sent too much: {message}."


def test_a_whole_answer_may_be_as_long_as_its_bound_allows():
    """A document is held until it ends, however long it is, as long as the answer in it may be."""
    bounds = AnswerBounds(text_bytes_max=40_000_000, arguments_bytes_max=4)
    decoder = open_call("chat", PLAN, CountingIds(), "up", rules=AnswerRules(bounds=bounds)).decoder
    body = b'{"choices":[{"index":0,"message":{"content":"' + b"x" * 20_000_000 + b'"},"finish_reason":"stop"}]}'
    assert decoder.feed(body) == []
    assert isinstance(decoder.finish()[-1], Finished)


async def test_each_read_that_says_something_is_one_batch():
    """Chunks without an event give no empty batch, chunks with several give them together."""
    got = await batches(Wire(b": ping\n\n", HELLO, HELLO[:10], HELLO[10:] + STOP + DONE))
    assert [[type(event) for event in batch if isinstance(event, TextDelta | Finished)] for batch in got] == [
        [TextDelta],
        [TextDelta, Finished],
    ]


async def test_notes_come_before_the_first_events():
    """What writing the request dropped is said first, once."""
    got = await batches(Wire(HELLO, STOP + DONE), NOTE)
    assert got[0][0] == Noted(note=NOTE)
    assert sum(event == Noted(note=NOTE) for batch in got for event in batch) == 1


async def test_notes_are_not_lost_when_nothing_else_comes():
    """Also a stream without any event tells its notes, before the failure."""
    ((first, *_, last),) = await batches(Wire(), NOTE)
    assert first == Noted(note=NOTE)
    assert isinstance(last, Failed)


@pytest.mark.parametrize("chunks", [(), (b": ping\n\n",), (b'data: {"choices":[]}\n\n',)])
async def test_a_failure_before_the_first_batch_is_raised(chunks):
    """As long as nothing was said, the error is the caller's to retry or to answer with a status."""
    with pytest.raises(UpstreamTimeout, match="silent"):
        await batches(Wire(*chunks, error=UpstreamTimeout("silent")), NOTE)


async def test_a_failure_after_it_is_the_last_event():
    """What the network did is told, not what the decoder guesses from a stream that just ended."""
    got = await batches(Wire(HELLO, error=UpstreamTimeout("silent")))
    assert got[-1][-1] == Failed(error=UpstreamTimeout("silent").info)
    assert sum(isinstance(event, Finished | Failed) for batch in got for event in batch) == 1


async def test_a_failure_after_the_finish_reason_is_no_failure():
    """The model had finished; only the farewell was lost."""
    got = await batches(Wire(HELLO, STOP, error=BrokenStream("cut")))
    assert isinstance(got[-1][-1], Finished)


async def test_an_end_without_finish_is_a_failure():
    """A stream that just stops is never a success."""
    got = await batches(Wire(HELLO))
    last = got[-1][-1]
    assert isinstance(last, Failed)
    assert last.error.code == "upstream_broken_stream"


async def test_after_the_terminal_event_the_rest_is_read_and_ignored():
    """The connection can only be used again once its body was read, and what follows [DONE] means nothing."""
    wire = Wire(HELLO + STOP + DONE, HELLO, HELLO, error=BrokenStream("cut"))
    got = await batches(wire)
    assert isinstance(got[-1][-1], Finished)
    assert (len(got), wire.read, wire.is_closed) == (1, 3, True)


async def test_a_reader_that_stops_at_the_terminal_event_still_drains():
    """The engine closes the stream as soon as it has the end; the body is read to its end all the same."""
    wire = Wire(HELLO + STOP + DONE, b": bye\n\n")
    decoder = open_call("chat", PLAN, CountingIds(), "up").decoder
    stream = decode(wire(), decoder)
    await anext(stream)
    await stream.aclose()
    assert (wire.read, wire.is_closed) == (2, True)


async def test_a_failed_stream_is_closed_and_not_drained():
    """After an error nobody waits for what else the provider has to say."""
    wire = Wire(b'data: {"error":{"message":"boom","code":"x"}}\n\n', HELLO)
    got = await batches(wire)
    assert isinstance(got[-1][-1], Failed)
    assert (wire.read, wire.is_closed) == (1, True)


async def test_a_body_that_does_not_end_is_left_after_a_moment():
    """A provider that keeps the connection open after [DONE] does not keep the run."""

    async def endless() -> AsyncGenerator[bytes, None]:
        yield HELLO + STOP + DONE
        await asyncio.Event().wait()

    decoder = open_call("chat", PLAN, CountingIds(), "up").decoder
    async with asyncio.timeout(10):
        got = [batch async for batch in decode(endless(), decoder)]
    assert isinstance(got[-1][-1], Finished)


async def test_closing_early_closes_the_chunks():
    """Whoever stops reading stops the network too."""
    wire = Wire(HELLO, HELLO, STOP + DONE)
    decoder = open_call("chat", PLAN, CountingIds(), "up").decoder
    stream = decode(wire(), decoder)
    await anext(stream)
    await stream.aclose()
    assert (wire.read, wire.is_closed) == (1, True)


async def test_a_call_id_of_the_history_is_not_given_twice():
    """An upstream that reuses an id gets a new one, so that results can be told apart."""
    chunk = (
        b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_1","function":'
        b'{"name":"f","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}\n\n'
    )
    plan = Plan(items=(text_message("user", "hi"), CallItem(call_id="call_1", name="f")), model="m")
    decoder = open_call("chat", plan, CountingIds(), "up").decoder
    got = [event async for batch in decode(Wire(chunk + DONE)(), decoder) for event in batch]
    (call,) = [event.item for event in got if isinstance(event, ItemDone) and isinstance(event.item, CallItem)]
    assert call.call_id != "call_1"
    assert call.upstream_id == "call_1"


@pytest.mark.parametrize(("size", "ending"), [(1_000_000, Finished), (5_000_000, Failed)])
async def test_arguments_over_a_run_s_limit_still_become_a_call(size, ending):
    """Up to the bound on memory the tool runner can refuse them with a result; past it the stream fails."""
    text = b'{\\"x\\":\\"' + b"y" * size + b'\\"}'
    chunk = (
        b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"'
        + text
        + b'"}}]},"finish_reason":"tool_calls"}]}\n\n'
    )
    got = await batches(Wire(chunk + DONE))
    assert isinstance(got[-1][-1], ending)


async def test_a_call_is_written_for_the_upstream_and_read_for_the_run():
    """Names go out as the upstream takes them and come back as the plan has them; what that cost is noted."""
    plan = Plan(items=(text_message("user", "hi"),), model="m", tools=(ToolSpec(name="facts.propose"),))
    call = open_call("chat", plan, CountingIds(), "up")
    assert b'"name":"facts_propose"' in call.body
    assert call.path == "/chat/completions"
    assert [(note.code, note.action) for note in call.notes] == [("name_mapped", "emulated")]
    chunk = (
        b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c1","function":'
        b'{"name":"facts_propose","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}\n\n'
    )
    got = [event async for batch in decode(Wire(chunk + DONE)(), call.decoder, call.notes) for event in batch]
    assert got[0] == Noted(note=call.notes[0])
    (item,) = [event.item for event in got if isinstance(event, ItemDone)]
    assert isinstance(item, CallItem)
    assert item.name == "facts.propose"


def test_opaque_state_goes_back_to_the_provider_that_made_it():
    """The writer is told whose state it may send."""
    blob = Blob(provider="up", kind="extra_content", data='{"google":{"thought_signature":"sig"}}')
    item = CallItem(call_id="c1", name="f", arguments="{}", blobs=(blob,))
    plan = Plan(items=(text_message("user", "hi"), item, text_result(item, "r")), model="m")
    assert b"thought_signature" in open_call("chat", plan, CountingIds(), "up").body
    assert b"thought_signature" not in open_call("chat", plan, CountingIds(), "other").body


@pytest.mark.parametrize("model", ["gemini-3", "models/gemini-3"])
def test_only_gemini_s_path_names_the_model(model):
    """Quoted, and without the prefix that some clients put before it."""
    plan = Plan(items=(text_message("user", "hi"),), model=model)
    assert open_call("gemini", plan, CountingIds(), "up").path == "/models/gemini-3:streamGenerateContent?alt=sse"
    odd = Plan(items=(text_message("user", "hi"),), model="a/b{c}")
    assert open_call("gemini", odd, CountingIds(), "up").path.startswith("/models/a%2Fb%7Bc%7D:")


def test_ids_sent_under_another_name_are_taken_too():
    """Where an id had to be mapped, neither the old nor the new one is given to another call."""
    item = CallItem(call_id="call_PTLP8xhu3uwZk4l3nlnrrJha", name="f", arguments="{}")
    plan = Plan(items=(text_message("user", "hi"), item, text_result(item, "r")), model="m")
    call = open_call("chat", plan, CountingIds(), "up", profile_of("chat", "api.mistral.ai"))
    (sent,) = [item.call_id for item in call.adapted.plan.items if isinstance(item, CallItem)]
    chunk = (
        b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"%s","function":'
        b'{"name":"f","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}\n\n'
    ) % sent.encode()
    events = call.decoder.feed(chunk + DONE)
    (again,) = [event.item for event in events if isinstance(event, ItemDone)]
    assert isinstance(again, CallItem)
    assert again.call_id not in (sent, item.call_id)


class Pushed:
    """Bytes that are pushed to whoever reads them, and whether they were taken; one that waits gets what is made."""

    def __init__(self) -> None:
        self._take: Callable[[bytes], Any] | None = None
        self._made: asyncio.Future[Any] | None = None

    def read_into(self, take: Callable[[bytes], Any]) -> "asyncio.Future[Any]":
        self._take, self._made = take, asyncio.get_running_loop().create_future()
        return self._made

    def push(self, data: bytes) -> bool:
        """Let bytes arrive; tell whether whoever waits still does."""
        assert self._take is not None
        assert self._made is not None
        made = self._take(data)
        if made is not None:
            self._made.set_result(made)
        return made is None

    def failure(self, error: OSError) -> UpstreamError:
        raise AssertionError("the network does not fail") from error

    async def end(self) -> None:
        """Have nothing to pass over."""

    async def close(self) -> None:
        """Have nothing to give back."""


async def test_what_is_heard_in_the_turn_of_its_bytes_is_not_yielded():
    """What is not taken is, in its place; the first batch, which may have notes before it, is offered to nobody."""
    source, heard = Pushed(), list[list[ModelEvent]]()

    async def begin() -> StartedCall:
        return StartedCall(source, open_call("chat", PLAN, CountingIds(), "up").decoder, (NOTE,))

    def on_batch(batch: list[ModelEvent]) -> bool:
        if any(isinstance(event, Finished) for event in batch):
            return False
        heard.append(batch)
        return True

    stream = Unguarded(begin)
    stream.on_batch = on_batch
    coming = asyncio.create_task(anext(stream))
    await asyncio.sleep(0)
    assert not source.push(HELLO)
    first = await coming
    assert (first[0], heard) == (Noted(note=NOTE), [])
    coming = asyncio.create_task(anext(stream))
    await asyncio.sleep(0)
    assert [source.push(each) for each in (HELLO, b": ping\n\n", HELLO, STOP)] == [True] * 4
    assert [[event.text for event in batch if isinstance(event, TextDelta)] for batch in heard] == [["Hello"]] * 2
    assert not source.push(DONE)
    assert isinstance((await coming)[-1], Finished)
    assert [batch async for batch in stream] == []


_TOLD = st.one_of(
    st.sampled_from(["user", "assistant", "system"]).flatmap(
        lambda role: strategies.texts.map(lambda text: (text_message(role, text),))
    ),
    st.builds(
        lambda call, text: (call, text_result(call, text)),
        st.builds(CallItem, call_id=strategies.words, name=st.sampled_from(["f", "g.h"]), arguments=st.just("{}")),
        strategies.texts,
    ),
    strategies.items.map(lambda item: (item,)),
)
"""What a history is made of: texts, calls with their results, and now and then anything else."""


@given(st.data(), st.lists(_TOLD, max_size=8), st.booleans())
@pytest.mark.parametrize("protocol", ["chat", "responses", "messages", "gemini"])
def test_a_history_that_grew_is_asked_about_like_one_that_is_new(protocol, data, told, has_odd_tool):
    """However it came to be what it is, body, notes and taken ids are those of the whole."""
    items: list[AnyItem] = [item for some in told for item in some]
    tools = (ToolSpec(name="f"), *([ToolSpec(name="g.h")] if has_odd_tool else []))
    planner, done = Planner("m", tools, Options()), 0
    while done < len(items):
        until = data.draw(st.integers(done + 1, len(items)))
        planner.add(items[done:until])
        plan, done = planner.plan(AUTO), until
        grown = open_call(protocol, plan, CountingIds(), "up")
        whole = open_call(protocol, Plan(items=plan.items, model="m", tools=tools), CountingIds(), "up")
        assert (grown.body, grown.notes, grown.headers) == (whole.body, whole.notes, whole.headers)
        assert grown.adapted.call_ids == whole.adapted.call_ids
