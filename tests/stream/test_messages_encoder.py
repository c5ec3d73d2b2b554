"""Runs as Messages streams, judged by the SDK: order of blocks, server calls, thoughts, citations, endings."""

import json
from typing import Any

import anthropic
import msgspec
import pytest

from stream.messages_oracle import COMPLETED, STARTED, Verdict, client, encode, judge, request
from stream.responses_runs import call, called, message, round_started, said, tool_finished, tool_started
from treadle.core.errors import ErrorInfo
from treadle.core.events import (
    ArgumentsDelta,
    ItemAdded,
    ItemDone,
    KeptAlive,
    Noted,
    ReasoningDelta,
    RefusalDelta,
    RoundBroken,
    RunEnded,
    RunEvent,
    TextDelta,
    ToolFinished,
)
from treadle.core.ids import CountingIds
from treadle.core.items import (
    Blob,
    CallItem,
    Extra,
    ImagePart,
    MessageItem,
    OpaqueItem,
    ReasoningItem,
    RefusalPart,
    ResultItem,
    TextPart,
)
from treadle.core.request import Note, Options, Request, Surface
from treadle.core.usage import Usage
from treadle.protocols.error_envelopes import CUT_CALL, write_error
from treadle.protocols.messages import read_request
from treadle.protocols.protocol_registry import PROTOCOLS

CALLED = RunEnded(status="requires_action", stop="calls")
SERVER = call("{}", 2, "g", side="server")
START, STOP = "content_block_start", "content_block_stop"


def _use(text: str, n: int = 1, name: str = "f") -> dict[str, Any]:
    return {"type": "tool_use", "id": f"call_{n}", "name": name, "input": json.loads(text)}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _server(n: int = 2, text: str = "ok", *, is_error: bool = False) -> list[dict[str, Any]]:
    return [
        {"type": "mcp_tool_use", "id": f"mcp_{n}", "name": "g", "input": {}, "server_name": "python"},
        {
            "type": "mcp_tool_result",
            "tool_use_id": f"mcp_{n}",
            "is_error": is_error,
            "content": [{"type": "text", "text": text}],
        },
    ]


def _replayed(verdict: Verdict) -> list[Any]:
    """Return what our own reader makes of the message when the client sends it back."""
    body = {"model": "m", "messages": [{"role": "assistant", "content": verdict.content}]}
    return list(read_request(json.dumps(body).encode()).items)


def test_a_text_answer_has_every_event_once() -> None:
    """Start, one block, delta, stop, in the order every client accepts."""
    verdict = judge([*message(0, "Hel", "lo"), RunEnded(status="completed", usage=Usage(input_tokens=3))])
    delta = "content_block_delta"
    assert verdict.types == ["message_start", START, delta, delta, STOP, "message_delta", "message_stop"]
    assert verdict.events[0]["message"] == {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {
            "input_tokens": 0,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": 0,
        },
    }
    assert verdict.final["content"] == [_text("Hello")]
    assert verdict.final["usage"]["input_tokens"] == 3


def test_interleaved_calls_go_out_block_after_block() -> None:
    """What belongs to the second call waits until the first is done."""
    first, second = call('{"a":1}', 1), call('{"b":2}', 2)
    events: list[RunEvent] = [
        ItemAdded(index=0, item=call("", 1)),
        ItemAdded(index=1, item=call("", 2)),
        ArgumentsDelta(index=1, text='{"b"'),
        ArgumentsDelta(index=0, text='{"a":'),
        ArgumentsDelta(index=1, text=":2}"),
        ArgumentsDelta(index=0, text="1}"),
        ItemDone(index=1, item=second),
        ItemDone(index=0, item=first),
        CALLED,
    ]
    verdict = judge(events)
    assert verdict.content == [_use('{"a":1}', 1), _use('{"b":2}', 2)]
    assert verdict.final["stop_reason"] == "tool_use"
    pieces = [delta["partial_json"] for delta in verdict.deltas("input_json_delta")]
    assert pieces == ['{"a":', "1", "}", '{"b"', ":2", "}"]


@pytest.mark.parametrize("arguments", ["{}", "", "{ }"])
def test_a_call_without_arguments_has_no_deltas(arguments: str) -> None:
    """The input is an empty object, and nothing is streamed of it."""
    verdict = judge([*called(0, call(arguments), *([arguments] if arguments else [])), CALLED])
    assert verdict.content == [_use("{}")]
    assert verdict.deltas("input_json_delta") == []


def test_arguments_that_are_no_json_at_all_are_wrapped() -> None:
    """Nothing was streamed before, so the whole can still be said in a form that every client can read."""
    verdict = judge([*called(0, call("not json"), "not", " json"), CALLED])
    assert [delta["partial_json"] for delta in verdict.deltas("input_json_delta")] == ['{"INVALID_JSON":"not json"}']
    assert verdict.content[0]["input"] == {"INVALID_JSON": "not json"}


def test_arguments_that_turn_bad_stay_unfinished() -> None:
    """Neither garbage nor a second object reaches a reader of partial JSON, and its block is never ended."""
    events = [STARTED, *called(0, call('{"a":1}{"b":2}'), '{"a":1}', '{"b":2}'), CALLED]
    streamed = PROTOCOLS["messages"].codec.encoder(
        Request(protocol="messages", model="m", surface=Surface(stream=True)), CountingIds()
    )
    sent = b"".join(frame for event in events for frame in streamed.feed(event))
    assert b"content_block_stop" not in sent
    assert CUT_CALL.message.encode() in sent
    whole = PROTOCOLS["messages"].codec.encoder(Request(protocol="messages", model="m"), CountingIds())
    for event in events:
        whole.feed(event)
    assert json.loads(whole.body())["content"][0]["input"] == {"INVALID_JSON": '{"a":1}{"b":2}'}


def test_the_free_text_of_a_custom_tool_is_wrapped() -> None:
    """Here a tool has an object as its input."""
    item = call("print(1)", kind="custom")
    verdict = judge([*called(0, item, "print", "(1)"), CALLED])
    assert verdict.content[0]["input"] == {"input": "print(1)"}


def test_a_server_call_is_one_of_an_mcp_server() -> None:
    """Its use and its result are blocks of the answer; the source names the server."""
    started = ItemAdded(index=0, item=SERVER)
    verdict = judge(
        [
            round_started(1),
            started,
            ItemDone(index=0, item=SERVER),
            tool_started(0, SERVER),
            KeptAlive(),
            tool_finished(0, SERVER),
            round_started(2),
            *message(1, "Done."),
            COMPLETED,
        ]
    )
    assert verdict.content == [*_server(), _text("Done.")]
    assert verdict.final["stop_reason"] == "end_turn"
    assert _replayed(verdict)[:2] == [
        CallItem(call_id="mcp_2", name="g", arguments="{}", side="server"),
        ResultItem(call_id="mcp_2", name="g", output=(TextPart(text="ok"),)),
    ]


def test_parallel_server_calls_stand_beside_their_results() -> None:
    """The second is shown once the first has its result; failures and images are said."""
    other = call('{"x":[1]}', 3, "g", side="server")
    picture = ResultItem(call_id="call_3", output=(TextPart(text="see"), ImagePart(url="data:x")))
    verdict = judge(
        [
            tool_started(0, SERVER),
            tool_started(1, other),
            ToolFinished(index=1, call=other, result=picture, source="mcp:files"),
            tool_finished(0, SERVER, "boom", is_error=True),
            COMPLETED,
        ]
    )
    assert verdict.content == [
        *_server(text="boom", is_error=True),
        {"type": "mcp_tool_use", "id": "mcp_3", "name": "g", "input": {"x": [1]}, "server_name": "python"},
        {
            "type": "mcp_tool_result",
            "tool_use_id": "mcp_3",
            "is_error": False,
            "content": [{"type": "text", "text": "see"}, {"type": "text", "text": "[image]"}],
        },
    ]


def test_a_mixed_turn_shows_both_kinds_of_calls() -> None:
    """The client's call stops the message; the server's is shown beside it."""
    events: list[RunEvent] = [
        *called(0, call('{"a":1}', 1), '{"a":1}'),
        ItemAdded(index=1, item=SERVER),
        ItemDone(index=1, item=SERVER),
        tool_started(1, SERVER),
        tool_finished(1, SERVER),
        CALLED,
    ]
    verdict = judge(events)
    assert verdict.content == [_use('{"a":1}'), *_server()]
    assert verdict.final["stop_reason"] == "tool_use"


def test_the_order_of_a_mixed_turn_is_the_models() -> None:
    """A server call that came first is shown first, though it runs only once the client's is whole."""
    mine = call('{"a":1}', 1)
    events: list[RunEvent] = [
        *called(0, SERVER, "{}"),
        *called(1, mine, '{"a":1}'),
        tool_started(0, SERVER),
        tool_finished(0, SERVER),
        CALLED,
    ]
    assert judge(events).content == [*_server(), _use('{"a":1}')]


def test_a_server_call_that_was_broken_off_keeps_no_place() -> None:
    """What comes in the next attempt does not wait for it."""
    events: list[RunEvent] = [
        ItemAdded(index=0, item=SERVER),
        RoundBroken(round=1, indexes=(0,)),
        *message(1, "Hi"),
        COMPLETED,
    ]
    raw, _ = encode([STARTED, *events[:-1]])
    assert b'"text":"Hi"' in raw
    assert judge(events).content == [_text("Hi")]


def test_a_server_call_without_a_result_or_an_id_is_shown_all_the_same() -> None:
    """Ids outside the alphabet of the API are encoded, and malformed arguments wrapped."""
    odd = CallItem(call_id="functions.g:0", name="g", arguments="oops", side="server")
    verdict = judge([tool_started(0, odd), COMPLETED])
    assert verdict.content[0]["input"] == {"INVALID_JSON": "oops"}
    assert _replayed(verdict)[0].call_id == "functions.g:0"


def test_ids_outside_the_alphabet_come_back_as_they_were() -> None:
    """The client sees only letters, digits, `_` and `-`; reading undoes it."""
    item = CallItem(call_id="functions.f:0", name="f", arguments="{}")
    verdict = judge([*called(0, item), CALLED])
    assert verdict.content[0]["id"].replace("_", "").replace("-", "").isalnum()
    assert _replayed(verdict) == [item]


@pytest.mark.parametrize(
    ("item", "block"),
    [
        (ReasoningItem(text=("hm",)), {"type": "thinking", "thinking": "hm", "signature": ""}),
        (
            ReasoningItem(text=("hm",), blobs=(Blob(provider="anthropic", kind="signature", data="sig"),)),
            {"type": "thinking", "thinking": "hm", "signature": "sig"},
        ),
        (
            ReasoningItem(blobs=(Blob(provider="anthropic", kind="signature", data="sig"),)),
            {"type": "thinking", "thinking": "", "signature": "sig"},
        ),
        (
            ReasoningItem(blobs=(Blob(provider="anthropic", kind="redacted", data="xyz"),)),
            {"type": "redacted_thinking", "data": "xyz"},
        ),
    ],
)
def test_reasoning_is_a_thinking_block(item: ReasoningItem, block: dict[str, Any]) -> None:
    """Whether it streams or comes whole, and it comes back as it was."""
    streamed: list[RunEvent] = [ItemAdded(index=0, item=ReasoningItem(id="rs_1"))]
    streamed += [ReasoningDelta(index=0, text=text) for text in item.text]
    whole: list[RunEvent] = [ItemDone(index=0, item=item), COMPLETED]
    for events in ([*streamed, *whole], whole):
        verdict = judge(events)
        assert verdict.content == [block]
        assert _replayed(verdict) == [item]


@pytest.mark.parametrize(
    "item",
    [
        ReasoningItem(summary=("a",), blobs=(Blob(provider="openai", kind="encrypted_content", data="gA", model="o"),)),
        ReasoningItem(blobs=(Blob(provider="openai", kind="encrypted_content", data="gA"),)),
        ReasoningItem(text=("t",), blobs=(Blob(provider="mini", kind="signature", data="s", model="m1"),)),
        ReasoningItem(blobs=(Blob(provider="mini", kind="redacted", data="s"),)),
    ],
)
def test_the_secrets_of_other_providers_travel_sealed(item: ReasoningItem) -> None:
    """A client sends them back unchanged, and they are still their owner's."""
    verdict = judge([ItemDone(index=0, item=item), COMPLETED])
    assert _replayed(verdict) == [item]


def test_parts_of_reasoning_are_paragraphs() -> None:
    """Summaries and raw thoughts share the one block."""
    item = ReasoningItem(summary=("one", "two"), text=("three",))
    events: list[RunEvent] = [
        ItemAdded(index=0, item=ReasoningItem(id="rs_1")),
        ReasoningDelta(index=0, text="o", is_summary=True),
        ReasoningDelta(index=0, text="ne", is_summary=True),
        ReasoningDelta(index=0, text="two", part=1, is_summary=True),
        ItemDone(index=0, item=item),
        COMPLETED,
    ]
    assert judge(events).content == [{"type": "thinking", "thinking": "one\n\ntwo\n\nthree", "signature": ""}]


def test_reasoning_without_anything_is_not_shown() -> None:
    """An empty block would say nothing."""
    assert judge([ItemDone(index=0, item=ReasoningItem()), COMPLETED]).content == []


@pytest.mark.parametrize("indent", [None, 1], ids=["in one line", "in several lines"])
def test_each_part_of_a_message_is_a_block_and_citations_stay_with_it(indent: int | None) -> None:
    """Also when they stream, when only the finished item has them, and however the upstream wrote them."""
    cited = {
        "type": "char_location",
        "cited_text": "x",
        "document_index": 0,
        "document_title": None,
        "start_char_index": 0,
        "end_char_index": 1,
    }
    raw = msgspec.Raw(json.dumps([cited], indent=indent).encode())
    extra = Extra(protocol="messages", fields={"citations": raw})
    whole = MessageItem(
        id="msg_1", role="assistant", content=(TextPart(text="a", extra=extra), TextPart(text="b", extra=extra))
    )
    streamed: list[RunEvent] = [
        ItemAdded(index=0, item=said("")),
        TextDelta(index=0, text="a"),
        TextDelta(index=0, text="", extra=extra),
        TextDelta(index=0, text="b", part=1),
        ItemDone(index=0, item=whole),
        COMPLETED,
    ]
    expected = [{**_text("a"), "citations": [cited]}, {**_text("b"), "citations": [cited]}]
    assert judge(streamed).content == expected
    assert judge([ItemDone(index=0, item=whole), COMPLETED]).content == expected


def test_a_refusal_is_text_and_the_reason() -> None:
    """Chat and Responses have a part for it; here the stop reason says it."""
    item = MessageItem(id="msg_1", role="assistant", content=(RefusalPart(text="I cannot."),))
    streamed: list[RunEvent] = [
        ItemAdded(index=0, item=said("")),
        RefusalDelta(index=0, text="I can"),
        ItemDone(index=0, item=item),
        COMPLETED,
    ]
    for events in (streamed, [ItemDone(index=0, item=item), COMPLETED]):
        verdict = judge(events)
        assert verdict.content == [_text("I cannot.")]
        assert verdict.final["stop_reason"] == "refusal"


def test_an_opaque_block_is_shown_as_its_upstream_wrote_it() -> None:
    """If it is of this protocol; others are left out."""
    block = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
    mine = OpaqueItem(protocol="messages", raw=msgspec.Raw(json.dumps(block).encode()))
    other = OpaqueItem(protocol="responses", raw=msgspec.Raw(b'{"type":"shell_call"}'))
    events: list[RunEvent] = [
        ItemAdded(index=0, item=mine),
        ItemDone(index=0, item=mine),
        ItemAdded(index=1, item=other),
        ItemDone(index=1, item=other),
        COMPLETED,
    ]
    assert judge(events).content == [block]


@pytest.mark.parametrize(
    ("ended", "reason"),
    [
        (COMPLETED, "end_turn"),
        (RunEnded(status="completed", stop="stop_sequence"), "stop_sequence"),
        (RunEnded(status="incomplete", stop="length"), "max_tokens"),
        (RunEnded(status="incomplete", stop="filtered"), "refusal"),
    ],
)
def test_the_stop_reason_says_how_it_ended(ended: RunEnded, reason: str) -> None:
    """In the API's own words."""
    verdict = judge([*message(0, "Hi"), ended], request(options=Options(stop=("END",))))
    assert verdict.final["stop_reason"] == reason
    assert verdict.final["stop_sequence"] == ("END" if reason == "stop_sequence" else None)


def test_a_length_inside_a_call_is_max_tokens() -> None:
    """A call that was cut is not one to run."""
    ended = RunEnded(status="incomplete", stop="length")
    verdict = judge([*called(0, call('{"a":"b'), '{"a":"b')[:-1], ended])
    assert verdict.final["stop_reason"] == "max_tokens"


def test_a_paused_turn_is_said_to_be_one() -> None:
    """But only the last round counts."""
    note = Noted(note=Note(code="pause_turn", action="kept", message="paused"))
    assert judge([note, *message(0, "Hi"), COMPLETED]).final["stop_reason"] == "pause_turn"
    assert judge([note, round_started(2), *message(0, "Hi"), COMPLETED]).final["stop_reason"] == "end_turn"


@pytest.mark.parametrize(
    ("code", "ended", "reason"),
    [
        ("compaction", COMPLETED, "compaction"),
        (
            "model_context_window_exceeded",
            RunEnded(status="incomplete", stop="length"),
            "model_context_window_exceeded",
        ),
        ("model_context_window_exceeded", RunEnded(status="incomplete", stop="filtered"), "refusal"),
        ("model_context_window_exceeded", COMPLETED, "end_turn"),
        ("pause_turn", RunEnded(status="incomplete", stop="length"), "max_tokens"),
    ],
)
def test_reasons_that_only_this_api_has_are_kept(code: str, ended: RunEnded, reason: str) -> None:
    """Where the run really ended so."""
    note = Noted(note=Note(code=code, action="kept", message="m"))
    assert judge([note, *message(0, "Hi"), ended]).final["stop_reason"] == reason


def test_fields_of_a_call_that_only_this_api_has_are_kept() -> None:
    """Who called it from where, for clients that send it back."""
    extra = Extra(protocol="messages", fields={"caller": msgspec.Raw(b'{"type":"direct"}')})
    one = msgspec.structs.replace(call("{}"), extra=extra)
    (block,) = judge([*called(0, one, "{}"), COMPLETED]).content
    assert block["caller"] == {"type": "direct"}


def test_a_limit_is_named_beside_the_reason() -> None:
    """Unknown fields inside known events harm nobody."""
    verdict = judge([*message(0, "Hi"), RunEnded(status="completed", limit="max_iterations")])
    named = {"run_id": "run_1", "limit": "max_iterations"}
    assert verdict.events[-2]["treadle"] == named
    assert verdict.final["treadle"] == named


def test_usage_tells_the_cache_apart() -> None:
    """Our input tokens are all of them; this API counts the cached ones beside."""
    usage = Usage(input_tokens=131, output_tokens=7, cached_tokens=100, cache_write_tokens=20, reasoning_tokens=3)
    verdict = judge([*message(0, "Hi"), RunEnded(status="completed", usage=usage)])
    assert verdict.final["usage"] == {
        "input_tokens": 11,
        "cache_creation_input_tokens": 20,
        "cache_read_input_tokens": 100,
        "output_tokens": 7,
        "output_tokens_details": {"thinking_tokens": 3},
    }


def test_an_answer_of_nothing_is_a_message_without_content() -> None:
    """The lifecycle is whole all the same."""
    assert judge([COMPLETED]).types == ["message_start", "message_delta", "message_stop"]


def test_texts_that_never_ended_are_closed_at_the_end_and_calls_are_not() -> None:
    """Also those that waited behind another; a block that is not ended is no call that a client may run."""
    events: list[RunEvent] = [
        ItemAdded(index=0, item=call("")),
        ArgumentsDelta(index=0, text='{"a":'),
        *message(1, "Hi"),
        ItemAdded(index=2, item=ReasoningItem()),
        ReasoningDelta(index=2, text="hm"),
        RunEnded(status="incomplete", stop="length"),
    ]
    raw, _ = encode([STARTED, *events])
    frames = [json.loads(line[6:]) for line in raw.decode().splitlines() if line.startswith("data: ")]
    steps = [(f["type"], f["index"]) for f in frames if f["type"].startswith("content_block_st")]
    begun, ended = "content_block_start", "content_block_stop"
    assert steps == [(begun, 0), (begun, 1), (ended, 1), (begun, 2), (ended, 2)]
    _, waiting = encode([STARTED, *events], request(surface=Surface(stream=False)))
    assert [block["type"] for block in json.loads(waiting.body())["content"]] == ["text", "thinking"]


def test_a_stream_that_has_shown_a_call_that_never_ended_ends_in_an_error() -> None:
    """It cannot take the beginning back, and a client would run what it finds; one that waits never saw it."""
    events: list[RunEvent] = [
        ItemAdded(index=0, item=call("")),
        ArgumentsDelta(index=0, text='{"a":'),
        *message(1, "Hi"),
        COMPLETED,
    ]
    raw, _ = encode([STARTED, *events])
    assert raw.endswith(b"event: error\ndata: " + write_error("messages", CUT_CALL) + b"\n\n")
    assert b"message_stop" not in raw
    _, waiting = encode([STARTED, *events], request(surface=Surface(stream=False)))
    assert [block["type"] for block in json.loads(waiting.body())["content"]] == ["text"]


def test_a_keep_alive_is_a_ping_inside_the_message() -> None:
    """It never comes before the message begins."""
    raw, _ = encode([STARTED, KeptAlive(), KeptAlive()])
    kinds = [line.removeprefix("event: ") for line in raw.decode().splitlines() if line.startswith("event: ")]
    assert kinds == ["message_start", "ping", "ping"]


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, "invalid_request_error"), (429, "rate_limit_error"), (502, "api_error"), (503, "overloaded_error")],
)
def test_a_failure_is_an_error_event(status: int, kind: str) -> None:
    """The SDK raises; no terminal of a good message follows, and nothing at all after the end."""
    error = ErrorInfo(code="x", message="boom", status=status)
    events: list[RunEvent] = [STARTED, *message(0, "Hel"), RunEnded(status="failed", error=error)]
    raw, encoder = encode(events)
    assert raw.endswith(
        b'event: error\ndata: {"type":"error","error":{"type":"%b","message":"boom"}}\n\n' % kind.encode()
    )
    assert b"message_delta" not in raw
    assert encoder.feed(COMPLETED) == []
    with (
        client(raw) as sdk,
        pytest.raises(anthropic.APIStatusError, match="boom"),
        sdk.messages.stream(model="m", max_tokens=1, messages=[{"role": "user", "content": "hi"}]) as stream,
    ):
        stream.until_done()


def test_a_failure_before_anything_was_said_is_only_the_error() -> None:
    """The server may still answer it with a status."""
    raw, encoder = encode([STARTED, RunEnded(status="failed")])
    assert raw.startswith(b"event: error\n")
    assert json.loads(encoder.body()) == {"type": "error", "error": {"type": "api_error", "message": "The run failed."}}


def test_a_cancelled_run_ends_in_an_error() -> None:
    """In the stream as in the body: a cut text is no answer."""
    raw, encoder = encode([STARTED, *message(0, "Hi"), RunEnded(status="cancelled")])
    words = "The run was cancelled before its answer was complete."
    error = {"type": "error", "error": {"type": "invalid_request_error", "message": words}}
    head, data = raw.rstrip().split(b"\n\n")[-1].split(b"\ndata: ")
    assert (head, json.loads(data)) == (b"event: error", error)
    assert json.loads(encoder.body()) == error


def test_what_no_block_shows_is_left_out() -> None:
    """Results by themselves, and pieces of items that are not shown."""
    hidden = ResultItem(call_id="call_1", output=(TextPart(text="r"),))
    events: list[RunEvent] = [
        ItemDone(index=0, item=hidden),
        ArgumentsDelta(index=1, text="{}"),
        ItemAdded(index=1, item=SERVER),
        ArgumentsDelta(index=1, text="{}"),
        *message(2, "Hi"),
        TextDelta(index=2, text="late"),
        COMPLETED,
    ]
    assert judge(events).content == [_text("Hi")]
