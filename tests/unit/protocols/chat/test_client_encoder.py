import json
from typing import Any

import msgspec
import pytest

from treadle.core.errors import ErrorInfo
from treadle.core.events import (
    ArgumentsDelta,
    ItemAdded,
    ItemDone,
    KeptAlive,
    Noted,
    ReasoningDelta,
    RefusalDelta,
    RoundStarted,
    RunEnded,
    RunEvent,
    RunStarted,
    TextDelta,
    ToolFinished,
    ToolStarted,
)
from treadle.core.ids import CountingIds
from treadle.core.items import CallItem, MessageItem, ReasoningItem, RefusalPart, ResultItem, text_message, text_result
from treadle.core.request import Note, Request, Surface
from treadle.core.usage import Usage
from treadle.protocols.chat import Choices, Encoder
from treadle.protocols.error_envelopes import CUT_CALL, openai_error
from treadle.protocols.sse import SseReader

STARTED = RunStarted(run_id="run_1", response_id="chatcmpl_1", model="m", created_at=12.7)
HEAD = {"id": "chatcmpl_1", "object": "chat.completion.chunk", "created": 12, "model": "m"}
MESSAGE = MessageItem(id="msg_1", role="assistant")
CLIENT = CallItem(id="fc_1", call_id="call_1", name="f")
SERVER = CallItem(id="fc_2", call_id="call_2", name="get_weather", side="server")
USAGE = Usage(input_tokens=3, output_tokens=2, cached_tokens=1, reasoning_tokens=1)
WIRE_USAGE = {
    "prompt_tokens": 3,
    "completion_tokens": 2,
    "total_tokens": 5,
    "prompt_tokens_details": {"cached_tokens": 1},
    "completion_tokens_details": {"reasoning_tokens": 1},
}
ENDED = RunEnded(status="completed")


def _encoder(**surface: Any) -> Encoder:
    request = Request(protocol="chat", model="asked", surface=Surface(**{"stream": True, **surface}))
    return Encoder(request, CountingIds())


def _lines(encoder: Encoder, *events: RunEvent) -> list[Any]:
    sent = b"".join(frame for event in events for frame in encoder.feed(event))
    return [frame.data if frame.data == "[DONE]" else json.loads(frame.data) for frame in SseReader().feed(sent)]


def _deltas(encoder: Encoder, *events: RunEvent) -> list[Any]:
    lines = _lines(encoder, STARTED, *events)
    return [line["choices"][0]["delta"] for line in lines if line != "[DONE]" and line.get("choices")]


def _chunk(delta: Any, reason: str | None = None, **fields: Any) -> dict[str, Any]:
    return {**HEAD, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}], **fields}


def _call_delta(index: int, id: str, name: str) -> dict[str, Any]:
    function = {"name": name, "arguments": ""}
    return {"index": index, "id": id, "type": "function", "function": function}


def test_a_text_stream_byte_for_byte() -> None:
    """Role once, deltas, finish reason, usage last, [DONE]; usage is null before."""
    lines = _lines(
        _encoder(include_usage=True),
        STARTED,
        ItemAdded(index=0, item=MESSAGE),
        TextDelta(index=0, text="Hi"),
        TextDelta(index=0, text="!"),
        ItemDone(index=0, item=text_message("assistant", "Hi!", "msg_1")),
        RunEnded(status="completed", usage=USAGE),
    )
    assert lines == [
        _chunk({"role": "assistant", "content": "Hi"}, usage=None),
        _chunk({"content": "!"}, usage=None),
        _chunk({}, "stop", usage=None),
        {**HEAD, "choices": [], "usage": WIRE_USAGE},
        "[DONE]",
    ]


def test_without_include_usage_no_chunk_speaks_of_it() -> None:
    """Usage is opt-in, and unknown usage is not made up."""
    assert _lines(_encoder(), STARTED, RunEnded(status="completed", usage=USAGE)) == [
        _chunk({"role": "assistant"}, "stop"),
        "[DONE]",
    ]
    assert _lines(_encoder(include_usage=True), STARTED, ENDED) == [
        _chunk({"role": "assistant"}, "stop", usage=None),
        "[DONE]",
    ]


def test_nothing_is_sent_before_there_is_something_to_say() -> None:
    """A run that fails at once can still be answered with a status."""
    encoder = _encoder()
    note = Noted(note=Note(code="c", action="kept", message="m"))
    started = RoundStarted(round=1, fingerprint="x")
    assert [encoder.feed(event) for event in (STARTED, started, ItemAdded(index=0, item=MESSAGE), note)] == [[]] * 4


def test_client_calls_get_dense_indexes_and_say_everything_once() -> None:
    """Id, type and name in the first delta of a call only, however the items are numbered and interleaved."""
    other = CallItem(id="fc_3", call_id="call_3", name="g")
    deltas = _deltas(
        _encoder(),
        ItemAdded(index=4, item=CLIENT),
        ItemAdded(index=9, item=other),
        ArgumentsDelta(index=9, text='{"b"'),
        ArgumentsDelta(index=4, text='{"a":1}'),
        ArgumentsDelta(index=9, text=":2}"),
        ItemDone(index=4, item=msgspec.structs.replace(CLIENT, arguments='{"a":1}')),
        ItemDone(index=9, item=msgspec.structs.replace(other, arguments='{"b":2}')),
        RunEnded(status="requires_action", stop="calls"),
    )
    assert deltas == [
        {"role": "assistant", "tool_calls": [_call_delta(0, "call_1", "f")]},
        {"tool_calls": [_call_delta(1, "call_3", "g")]},
        {"tool_calls": [{"index": 1, "function": {"arguments": '{"b"'}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"a":1}'}}]},
        {"tool_calls": [{"index": 1, "function": {"arguments": ":2}"}}]},
        {},
    ]


def test_server_calls_are_invisible_also_in_mixed_turns() -> None:
    """The client sees only its own calls, numbered from zero."""
    result = text_result(SERVER, "sunny")
    deltas = _deltas(
        _encoder(),
        ItemAdded(index=0, item=SERVER),
        ArgumentsDelta(index=0, text="{}"),
        ItemDone(index=0, item=SERVER),
        ItemAdded(index=1, item=CLIENT),
        ToolStarted(index=0, call=SERVER),
        ToolFinished(index=0, call=SERVER, result=result),
        ItemDone(index=1, item=CLIENT),
        ItemDone(index=2, item=result),
        RunEnded(status="requires_action", stop="calls"),
    )
    assert deltas == [{"role": "assistant", "tool_calls": [_call_delta(0, "call_1", "f")]}, {}]


@pytest.mark.parametrize(
    ("item", "streamed", "rest"),
    [
        (text_message("assistant", "Hello", "msg_1"), [TextDelta(index=0, text="Hel")], {"content": "lo"}),
        (
            MessageItem(id="msg_1", role="assistant", content=(RefusalPart(text="never"),)),
            [RefusalDelta(index=0, text="ne")],
            {"refusal": "ver"},
        ),
        (
            ReasoningItem(id="rs_1", summary=("a",), text=("bc",)),
            [ReasoningDelta(index=0, text="a", is_summary=True), ReasoningDelta(index=0, text="b")],
            {"reasoning_content": "c"},
        ),
        (
            CallItem(id="fc_1", call_id="call_1", name="f", arguments='{"a":1}'),
            [ArgumentsDelta(index=0, text='{"a"')],
            {"tool_calls": [{"index": 0, "function": {"arguments": ":1}"}}]},
        ),
        (
            CallItem(id="fc_1", call_id="call_1", name="f", arguments="{}"),
            [],
            {"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]},
        ),
    ],
)
def test_what_was_not_streamed_is_sent_when_the_item_is_done(item: Any, streamed: list[Any], rest: Any) -> None:
    """The tail is flushed, and only the tail."""
    empty = {MessageItem: MESSAGE, ReasoningItem: ReasoningItem(id="rs_1"), CallItem: CLIENT}[type(item)]
    encoder = _encoder()
    _deltas(encoder, ItemAdded(index=0, item=empty), *streamed)
    assert [line["choices"][0]["delta"] for line in _lines(encoder, ItemDone(index=0, item=item))][-1:] == [
        rest if streamed or isinstance(item, CallItem) else {"role": "assistant", **rest}
    ]
    assert _lines(encoder, ItemDone(index=0, item=item)) == []


def test_an_item_that_is_only_done_is_sent_whole() -> None:
    """Replays may skip the deltas."""
    assert _deltas(_encoder(), ItemDone(index=0, item=text_message("assistant", "Hi"))) == [
        {"role": "assistant", "content": "Hi"}
    ]


def test_texts_of_several_rounds_are_paragraphs() -> None:
    """They are one content in Chat, and must not run together."""
    events: list[RunEvent] = []
    for index, text in enumerate(["One.", "", "Two."]):
        events += [ItemAdded(index=index, item=MESSAGE), TextDelta(index=index, text=text)]
        events += [ItemDone(index=index, item=text_message("assistant", text))]
        events += [ItemAdded(index=index + 10, item=ReasoningItem()), ReasoningDelta(index=index + 10, text=text)]
        events += [ItemDone(index=index + 10, item=ReasoningItem(text=(text,)))]
    encoder = _encoder(stream=False)
    _deltas(encoder, *events, ENDED)
    message = json.loads(encoder.body())["choices"][0]["message"]
    assert (message["content"], message["reasoning_content"]) == ("One.\n\nTwo.", "One.\n\nTwo.")


@pytest.mark.parametrize("streamed", [0, 1, 3, 4])
def test_parts_of_one_thought_are_paragraphs(streamed: int) -> None:
    """Summaries of a Responses upstream come in parts with headings, which must not run together."""
    deltas = [
        ReasoningDelta(index=0, text="**One**", is_summary=True),
        ReasoningDelta(index=0, text=" first", is_summary=True),
        ReasoningDelta(index=0, text="**Two**", part=2, is_summary=True),
        ReasoningDelta(index=0, text="raw"),
    ]
    item = ReasoningItem(id="rs_1", summary=("**One** first", "", "**Two**"), text=("raw",))
    events = [ItemAdded(index=0, item=ReasoningItem(id="rs_1")), *deltas[:streamed], ItemDone(index=0, item=item)]
    sent = _deltas(_encoder(), *events)
    assert "".join(each["reasoning_content"] for each in sent) == "**One** first\n\n**Two**\n\nraw"


def test_status_text_is_off_by_default_and_exact_when_on() -> None:
    """S1's words, as assistant content of their own."""
    events = (
        ToolStarted(index=0, call=SERVER),
        ToolStarted(index=1, call=SERVER),
        ItemAdded(index=2, item=MESSAGE),
        TextDelta(index=2, text="Sunny."),
    )
    assert _deltas(_encoder(), *events) == [{"role": "assistant", "content": "Sunny."}]
    assert _deltas(_encoder(tool_status=True), *events) == [
        {"role": "assistant", "content": "Calling get_weather…"},
        {"content": "\n\nCalling get_weather…"},
        {"content": "\n\nSunny."},
    ]


def test_a_sign_of_life_is_an_empty_delta() -> None:
    """Comments do not keep every client alive; a real chunk does."""
    assert _deltas(_encoder(), KeptAlive(), KeptAlive()) == [{"role": "assistant"}, {}]


@pytest.mark.parametrize(
    ("ended", "has_call", "reason"),
    [
        (RunEnded(status="completed"), False, "stop"),
        (RunEnded(status="completed", stop="stop_sequence"), False, "stop"),
        (RunEnded(status="completed", stop="calls"), False, "stop"),
        (RunEnded(status="requires_action", stop="calls"), True, "tool_calls"),
        (RunEnded(status="completed", stop="done"), True, "tool_calls"),
        (RunEnded(status="incomplete", stop="length"), False, "length"),
        (RunEnded(status="incomplete", stop="length"), True, "length"),
        (RunEnded(status="incomplete", stop="filtered"), True, "content_filter"),
    ],
)
def test_finish_reasons(ended: RunEnded, has_call: bool, reason: str) -> None:
    """DESIGN 4b: calls make it tool_calls, unless the model was cut."""
    calls = [ItemAdded(index=0, item=CLIENT), ItemDone(index=0, item=CLIENT)] if has_call else []
    lines = _lines(_encoder(), STARTED, *calls, ended)
    assert lines[-2]["choices"][0]["finish_reason"] == reason
    waiting = _encoder(stream=False)
    assert _lines(waiting, STARTED, *calls, ended) == []
    assert json.loads(waiting.body())["choices"][0]["finish_reason"] == reason


def test_a_failure_is_an_error_chunk_and_done() -> None:
    """No finish reason and no usage: nobody may take it for a success."""
    error = ErrorInfo(code="upstream_timeout", message="It fell silent.", status=504, hint="Try again.")
    ended = RunEnded(status="failed", error=error, usage=USAGE)
    envelope = {
        "error": {
            "message": "It fell silent. Try again.",
            "type": "server_error",
            "param": None,
            "code": "upstream_timeout",
        }
    }
    encoder = _encoder(include_usage=True)
    assert _lines(encoder, STARTED, ended) == [envelope, "[DONE]"]
    assert json.loads(encoder.body()) == envelope
    assert _lines(_encoder(), STARTED, RunEnded(status="failed"))[0]["error"]["code"] == "upstream_error"


def test_a_cancelled_stream_ends_in_an_error() -> None:
    """A cut text is no answer: without the error a client would take it for one."""
    encoder = _encoder()
    opened = (STARTED, ItemAdded(index=0, item=MESSAGE), TextDelta(index=0, text="Hi"))
    lines = _lines(encoder, *opened, RunEnded(status="cancelled"))
    error = {
        "error": {
            "message": "The run was cancelled before its answer was complete.",
            "type": "invalid_request_error",
            "param": None,
            "code": "cancelled",
        }
    }
    assert lines == [_chunk({"role": "assistant", "content": "Hi"}), error, "[DONE]"]
    assert json.loads(encoder.body()) == error


def test_nothing_follows_the_end() -> None:
    """One terminal, whatever is fed afterwards."""
    encoder = _encoder()
    _lines(encoder, STARTED, ENDED)
    assert encoder.feed(KeptAlive()) == []
    assert encoder.feed(ENDED) == []


def test_a_reached_limit_is_named_in_an_extra_field() -> None:
    """A normal stop on the wire; unknown fields break no client."""
    ended = RunEnded(status="completed", limit="max_iterations")
    extra = {"run_id": "run_1", "limit": "max_iterations"}
    encoder = _encoder()
    assert _lines(encoder, STARTED, ended)[0] == _chunk({"role": "assistant"}, "stop", treadle=extra)
    assert json.loads(encoder.body())["treadle"] == extra


def test_legacy_functions_are_answered_the_legacy_way() -> None:
    """One function_call without an id, and its own finish reason."""
    encoder = _encoder(legacy_functions=True)
    lines = _lines(
        encoder,
        STARTED,
        ItemAdded(index=0, item=CLIENT),
        ArgumentsDelta(index=0, text="{}"),
        ItemAdded(index=1, item=CallItem(call_id="call_9", name="g")),
        ArgumentsDelta(index=1, text="{}"),
        ItemDone(index=0, item=msgspec.structs.replace(CLIENT, arguments="{}")),
        ItemDone(index=1, item=CallItem(call_id="call_9", name="g", arguments="{}")),
        RunEnded(status="requires_action", stop="calls"),
    )
    assert lines == [
        _chunk({"role": "assistant", "function_call": {"name": "f", "arguments": ""}}),
        _chunk({"function_call": {"arguments": "{}"}}),
        _chunk({}, "function_call"),
        "[DONE]",
    ]
    assert json.loads(encoder.body())["choices"][0]["message"]["function_call"] == {"name": "f", "arguments": "{}"}


def test_a_call_that_never_ended_is_no_part_of_the_message() -> None:
    """A client that waits is given the others alone; one that saw its beginning is told not to run it."""
    cut = CallItem(call_id="call_9", name="g")
    begun = [
        ItemAdded(index=0, item=CLIENT),
        ItemDone(index=0, item=CLIENT),
        ItemAdded(index=1, item=cut),
        ArgumentsDelta(index=1, text='{"ci'),
    ]
    for ended, reason in (
        (RunEnded(status="incomplete", stop="length"), "length"),
        (RunEnded(status="requires_action", stop="calls"), "tool_calls"),
    ):
        waiting = _encoder(stream=False)
        assert _lines(waiting, STARTED, *begun, ended) == []
        choice = json.loads(waiting.body())["choices"][0]
        assert [call["id"] for call in choice["message"]["tool_calls"]] == ["call_1"]
        assert choice["finish_reason"] == reason
    lines = _lines(_encoder(), STARTED, *begun, RunEnded(status="requires_action", stop="calls"))
    assert lines[-2:] == [{"error": openai_error(CUT_CALL)}, "[DONE]"]
    assert not any(choice["finish_reason"] for line in lines[:-2] for choice in line["choices"])


def test_custom_calls_are_shown_as_custom() -> None:
    """With `input` instead of arguments."""
    call = CallItem(call_id="call_1", name="p", kind="custom")
    assert _deltas(_encoder(), ItemAdded(index=0, item=call), ArgumentsDelta(index=0, text="x")) == [
        {
            "role": "assistant",
            "tool_calls": [{"index": 0, "id": "call_1", "type": "custom", "custom": {"name": "p", "input": ""}}],
        },
        {"tool_calls": [{"index": 0, "custom": {"input": "x"}}]},
    ]


def test_the_whole_body() -> None:
    """The completion of a client that waits."""
    encoder = _encoder(stream=False)
    done = CallItem(id="fc_1", call_id="call_1", name="f", arguments="{}")
    events = (STARTED, ItemAdded(index=0, item=CLIENT), ItemDone(index=0, item=done))
    assert _lines(encoder, *events, RunEnded(status="requires_action", stop="calls", usage=USAGE)) == []
    assert json.loads(encoder.body()) == {
        **HEAD,
        "object": "chat.completion",
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": None,
                    "refusal": None,
                    "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
                },
                "logprobs": None,
                "finish_reason": "tool_calls",
            }
        ],
        "usage": WIRE_USAGE,
    }


def test_a_body_before_the_end_is_a_bug_of_the_caller() -> None:
    """There is no half completion."""
    with pytest.raises(AssertionError):
        _encoder().body()


def test_a_run_of_another_protocol_gets_a_completion_id() -> None:
    """Ids of Responses runs do not look like completions."""
    started = RunStarted(run_id="run_1", response_id="resp_1", model="m", created_at=0.0)
    assert _lines(_encoder(), started, KeptAlive())[0]["id"] == "chatcmpl_0001"


def test_items_that_chat_cannot_show_are_skipped() -> None:
    """Results are the server's own business."""
    result = ResultItem(call_id="call_2")
    assert _deltas(_encoder(), ItemAdded(index=0, item=result), TextDelta(index=0, text="x")) == []


def _choices(count: int, **surface: Any) -> Choices:
    request = Request(protocol="chat", model="asked", surface=Surface(**{"stream": True, **surface}))
    return Choices(request, CountingIds(), count)


def _merged(choices: Choices, *events: tuple[int, RunEvent]) -> list[Any]:
    sent = b"".join(frame for choice, event in events for frame in choices.feed(choice, event))
    return [frame.data if frame.data == "[DONE]" else json.loads(frame.data) for frame in SseReader().feed(sent)]


def _entry(index: int, delta: Any, reason: str | None = None) -> dict[str, Any]:
    return {**HEAD, "choices": [{"index": index, "delta": delta, "finish_reason": reason}]}


OTHER = RunStarted(run_id="run_2", response_id="chatcmpl_2", model="m", created_at=99.0)
TEXT = (ItemAdded(index=0, item=MESSAGE), TextDelta(index=0, text="Hi"))


def test_choices_are_opened_in_order_whoever_speaks_first() -> None:
    """A choice before the one that speaks is opened with its role; all share the first run's id."""
    choices = _choices(3)
    spoken = [(2, event) for event in TEXT]
    later = [(0, event) for event in TEXT]
    assert _merged(choices, (0, STARTED), (1, OTHER), (2, OTHER), *spoken, *later) == [
        _entry(0, {"role": "assistant"}),
        _entry(1, {"role": "assistant"}),
        _entry(2, {"role": "assistant", "content": "Hi"}),
        _entry(0, {"content": "Hi"}),
    ]


def test_several_choices_end_once_with_the_sum_of_their_usage() -> None:
    """A finish reason for each, one usage, one [DONE]."""
    choices = _choices(2, include_usage=True)
    calls = RunEnded(status="requires_action", stop="calls", usage=USAGE)
    lines = _merged(
        choices,
        (0, STARTED),
        (1, OTHER),
        (1, ItemAdded(index=0, item=CLIENT)),
        (1, ItemDone(index=0, item=CLIENT)),
        (1, calls),
        (0, RunEnded(status="incomplete", stop="length", usage=USAGE)),
    )
    assert not isinstance(lines[-1], dict)
    reasons = [(entry["index"], entry["finish_reason"]) for line in lines[:-2] for entry in line["choices"]]
    assert reasons == [(0, None), (1, None), (1, "tool_calls"), (0, "length")]
    assert lines[-2]["choices"] == []
    assert (lines[-2]["usage"]["prompt_tokens"], lines[-2]["usage"]["completion_tokens"]) == (6, 4)
    assert choices.is_over
    body = json.loads(choices.body())
    assert [(entry["index"], entry["finish_reason"]) for entry in body["choices"]] == [(0, "length"), (1, "tool_calls")]
    assert body["usage"]["total_tokens"] == 10
    assert body["id"] == "chatcmpl_1"


@pytest.mark.parametrize(
    ("ended", "code"),
    [
        (
            RunEnded(status="failed", error=ErrorInfo(code="upstream_timeout", message="Silence.", status=504)),
            "upstream_timeout",
        ),
        (RunEnded(status="cancelled"), "cancelled"),
    ],
)
def test_one_bad_end_is_the_end_of_all(ended: RunEnded, code: str) -> None:
    """No finish reason makes a success of it, and nothing follows."""
    choices = _choices(2, include_usage=True)
    lines = _merged(choices, (0, STARTED), (1, OTHER), *[(0, event) for event in TEXT], (1, ended))
    assert lines[-1] == "[DONE]"
    assert choices.is_over
    assert not any(
        "finish_reason" in entry and entry["finish_reason"] for line in lines[:-1] for entry in line.get("choices", ())
    )
    assert choices.feed(0, RunEnded(status="completed")) == []
    assert json.loads(choices.body())["error"]["code"] == code


def test_a_choice_that_has_ended_says_nothing_more() -> None:
    """Even while others still speak."""
    choices = _choices(2)
    _merged(choices, (0, STARTED), (1, OTHER), (0, ENDED))
    assert choices.feed(0, KeptAlive()) == []
    assert not choices.is_over
    with pytest.raises(AssertionError):
        choices.body()


def test_choices_that_are_waited_for_are_one_body() -> None:
    """No frames, and each message its own."""
    choices = _choices(2, stream=False)
    events: list[tuple[int, RunEvent]] = [(0, STARTED), (1, OTHER)]
    for index, word in enumerate(["a", "b"]):
        events += [(index, ItemAdded(index=0, item=MESSAGE)), (index, TextDelta(index=0, text=word)), (index, ENDED)]
    assert _merged(choices, *events) == []
    entries = json.loads(choices.body())["choices"]
    assert [(entry["index"], entry["message"]["content"]) for entry in entries] == [(0, "a"), (1, "b")]


def test_of_several_choices_that_met_a_limit_the_first_is_told() -> None:
    """A whole body has one place for it."""
    choices = _choices(2, stream=False)
    for choice, started, limit in ((0, STARTED, "max_iterations"), (1, OTHER, "wall_time")):
        for event in (started, *TEXT, RunEnded(status="completed", limit=limit)):
            choices.feed(choice, event)
    assert json.loads(choices.body())["treadle"] == {"run_id": STARTED.run_id, "limit": "max_iterations"}
