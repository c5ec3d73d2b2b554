"""The stream shapes that upstreams send, as data: BUGS.md's 23, and those that other quirks add.

A shape is what comes over the wire of a Chat Completions upstream and what it must amount to, whatever the client.
"""

import json
from typing import Any

import msgspec

from stream.answers import Answer
from treadle.core.usage import Usage

DONE = "[DONE]"
WEATHER = ("call", "get_weather", '{"city":"Paris"}')
TIME = ("call", "get_time", '{"zone":"CET"}')
USAGE = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
CITATION = {"url": "https://a.test", "title": "A", "start_index": 0, "end_index": 2}
USED = Usage(input_tokens=11, output_tokens=7)


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """One stream: `number` is its place in BUGS.md, 0 for the others."""

    name: str
    body: bytes
    expected: Answer
    number: int = 0


def frame(value: Any) -> bytes:
    """Return one frame of a Chat stream."""
    text = value if isinstance(value, str) else json.dumps(value)
    return b"data: " + text.encode() + b"\n\n"


def chunk(delta: Any = None, finish: str | None = None, **fields: Any) -> dict[str, Any]:
    """Return one chunk."""
    choice = {"index": 0, "delta": {} if delta is None else delta, "finish_reason": finish}
    head = {"id": "chatcmpl-up", "object": "chat.completion.chunk", "created": 1, "model": "up"}
    return {**head, "choices": [choice], **fields}


def call(index: int | None = None, id: str | None = None, name: str | None = None, args: Any = None) -> dict[str, Any]:
    """Return one piece of a call; what is None is left out."""
    function = {key: value for key, value in (("name", name), ("arguments", args)) if value is not None}
    piece: dict[str, Any] = {"function": function}
    if index is not None:
        piece["index"] = index
    if id is not None:
        piece |= {"id": id, "type": "function"}
    return piece


def calls(*pieces: dict[str, Any]) -> dict[str, Any]:
    """Return a chunk of pieces of calls."""
    return chunk({"tool_calls": list(pieces)})


def chunk_with_logprobs(text: str, tokens: list[Any]) -> dict[str, Any]:
    """Return a chunk of text with the logprobs of its tokens."""
    whole = chunk({"content": text})
    whole["choices"][0]["logprobs"] = {"content": tokens, "refusal": None}
    return whole


def _detail(**fields: Any) -> dict[str, Any]:
    return {"type": "reasoning.text", "format": "anthropic-claude-v1", "index": 0, **fields}


def text(value: str) -> dict[str, Any]:
    """Return a chunk of text."""
    return chunk({"content": value})


def finish(reason: str | None) -> dict[str, Any]:
    """Return the chunk with the finish reason."""
    return chunk({}, reason)


def stream(*values: Any) -> bytes:
    """Return a whole stream: the role first, then these chunks."""
    return b"".join(frame(value) for value in (chunk({"role": "assistant", "content": ""}), *values))


def _usage_tail() -> dict[str, Any]:
    return {**chunk(), "choices": [], "usage": USAGE}


def _shape(number: int, name: str, values: tuple[Any, ...], expected: Answer) -> Shape:
    return Shape(number=number, name=name, body=stream(*values), expected=expected)


BROKEN = "upstream_broken_stream"
PARIS = '{"city":"Paris"}'
CET = '{"zone":"CET"}'

SHAPES: tuple[Shape, ...] = (
    _shape(
        1,
        "text",
        (text("Hel"), text("lo."), finish("stop"), _usage_tail(), DONE),
        Answer(items=(("text", "Hello."),), stop="done", usage=USED),
    ),
    _shape(
        2,
        "one_call_split_arguments",
        (
            calls(call(0, "call_a", "get_weather", "")),
            calls(call(0, args='{"ci')),
            calls(call(0, args='ty":"Par')),
            calls(call(0, args='is"}')),
            finish("tool_calls"),
            _usage_tail(),
            DONE,
        ),
        Answer(items=(WEATHER,), stop="calls", usage=USED),
    ),
    _shape(
        3,
        "two_calls_interleaved",
        (
            calls(call(0, "call_a", "get_weather", "")),
            calls(call(1, "call_b", "get_time", "")),
            calls(call(0, args='{"city":')),
            calls(call(1, args='{"zone":')),
            calls(call(0, args='"Paris"}')),
            calls(call(1, args='"CET"}')),
            finish("tool_calls"),
            DONE,
        ),
        Answer(items=(WEATHER, TIME), stop="calls"),
    ),
    _shape(
        4,
        "text_then_call",
        (text("Let me look."), calls(call(0, "call_a", "get_weather", PARIS)), finish("tool_calls"), DONE),
        Answer(items=(("text", "Let me look."), WEATHER), stop="calls"),
    ),
    _shape(
        5,
        "zero_arguments_empty_string",
        (calls(call(0, "call_a", "ping", "")), finish("tool_calls"), DONE),
        Answer(items=(("call", "ping", "{}"),), stop="calls"),
    ),
    _shape(
        6,
        "arguments_before_name",
        (
            calls(call(0, args='{"city":')),
            calls(call(0, "call_a", "get_weather")),
            calls(call(0, args='"Paris"}')),
            finish("tool_calls"),
            DONE,
        ),
        Answer(items=(WEATHER,), stop="calls", notes=("arguments_before_name",)),
    ),
    _shape(
        7,
        "two_calls_both_index_0",
        (
            calls(call(0, "call_a", "get_weather", PARIS)),
            calls(call(0, "call_b", "get_weather", '{"city":"Rome"}')),
            finish("tool_calls"),
            DONE,
        ),
        Answer(items=(WEATHER, ("call", "get_weather", '{"city":"Rome"}')), stop="calls", notes=("index_shared",)),
    ),
    _shape(
        8,
        "call_without_id",
        (
            calls(call(0, name="get_weather", args='{"city":')),
            calls(call(0, args='"Paris"}')),
            finish("tool_calls"),
            DONE,
        ),
        Answer(items=(WEATHER,), stop="calls", notes=("call_without_id",)),
    ),
    _shape(
        9,
        "two_calls_in_one_delta",
        (
            calls(call(0, "call_a", "get_weather", PARIS), call(1, "call_b", "get_time", CET)),
            finish("tool_calls"),
            DONE,
        ),
        Answer(items=(WEATHER, TIME), stop="calls"),
    ),
    _shape(
        10,
        "id_and_name_repeated",
        (
            calls(call(0, "call_a", "get_weather", "")),
            calls(call(0, "call_a", "get_weather", '{"city":')),
            calls(call(0, "call_a", "get_weather", '"Paris"}')),
            calls(call(0, "call_a", "get_weather", "")),
            finish("tool_calls"),
            DONE,
        ),
        Answer(items=(WEATHER,), stop="calls", notes=("name_resent",)),
    ),
    _shape(
        11,
        "finish_stop_with_calls",
        (calls(call(0, "call_a", "get_weather", PARIS)), finish("stop"), DONE),
        Answer(items=(WEATHER,), stop="calls"),
    ),
    _shape(12, "cut_without_finish", (text("Hel"),), Answer(error=BROKEN)),
    _shape(
        13,
        "length_inside_arguments",
        (calls(call(0, "call_a", "get_weather", '{"city":"Pa')), finish("length"), DONE),
        Answer(stop="length", notes=("call_cut",)),
    ),
    _shape(
        14,
        "error_mid_stream",
        (text("Hel"), {"error": {"message": "boom", "type": "server_error", "code": "overloaded"}}, DONE),
        Answer(error="overloaded"),
    ),
    _shape(
        15,
        "reasoning_then_call",
        (
            chunk({"reasoning_content": "I should "}),
            chunk({"reasoning_content": "look."}),
            calls(call(0, "call_a", "get_weather", PARIS)),
            finish("tool_calls"),
            DONE,
        ),
        Answer(items=(("reasoning", "I should look."), WEATHER), stop="calls"),
    ),
    _shape(
        16,
        "call_then_text",
        (calls(call(0, "call_a", "get_weather", PARIS)), text("Wait."), finish("tool_calls"), DONE),
        Answer(items=(WEATHER, ("text", "Wait.")), stop="calls"),
    ),
    _shape(
        17,
        "refusal",
        (chunk({"refusal": "I can"}), chunk({"refusal": "not."}), finish("stop"), DONE),
        Answer(items=(("refusal", "I cannot."),), stop="done"),
    ),
    _shape(
        18,
        "duplicate_call_id",
        (
            calls(call(0, "call_a", "get_weather", PARIS)),
            calls(call(1, "call_a", "get_time", CET)),
            finish("tool_calls"),
            DONE,
        ),
        Answer(items=(WEATHER, TIME), stop="calls", notes=("duplicate_call_id",)),
    ),
    _shape(
        19,
        "content_filter",
        (text("Well"), finish("content_filter"), DONE),
        Answer(items=(("text", "Well"),), stop="filtered"),
    ),
    _shape(
        20,
        "legacy_function_call",
        (
            chunk({"function_call": {"name": "get_weather", "arguments": ""}}),
            chunk({"function_call": {"arguments": '{"city":'}}),
            chunk({"function_call": {"arguments": '"Paris"}'}}),
            finish("function_call"),
            DONE,
        ),
        Answer(items=(WEATHER,), stop="calls", notes=("legacy_call", "call_without_id")),
    ),
    _shape(
        21,
        "done_without_finish_reason",
        (calls(call(0, "call_a", "get_weather", PARIS)), DONE),
        Answer(items=(WEATHER,), stop="calls"),
    ),
    _shape(
        22,
        "sparse_indexes",
        (
            calls(call(2, "call_a", "get_weather", "")),
            calls(call(5, "call_b", "get_time", "")),
            calls(call(2, args=PARIS)),
            calls(call(5, args=CET)),
            finish("tool_calls"),
            DONE,
        ),
        Answer(items=(WEATHER, TIME), stop="calls", notes=("index_sparse",)),
    ),
    _shape(
        23,
        "emoji_text",
        (text("héllo 👩‍👩‍👧 "), text("🌦️ ok"), finish("stop"), DONE),
        Answer(items=(("text", "héllo 👩‍👩‍👧 🌦️ ok"),), stop="done"),
    ),
)

_NO_SPACE = b"data:" + json.dumps(text("Hi"), ensure_ascii=False).encode()

MORE_SHAPES: tuple[Shape, ...] = (
    _shape(0, "done_alone_after_text", (text("Hel"), DONE), Answer(error=BROKEN)),
    _shape(
        0,
        "done_after_unfinished_call",
        (calls(call(0, "call_a", "get_weather", '{"city":')), DONE),
        Answer(error=BROKEN),
    ),
    _shape(0, "nothing_but_done", (DONE,), Answer(error=BROKEN)),
    _shape(
        0,
        "finish_without_done",
        (text("Hi"), finish("stop"), _usage_tail()),
        Answer(items=(("text", "Hi"),), stop="done", usage=USED, notes=("done_missing",)),
    ),
    _shape(
        0,
        "text_after_done",
        (text("Hi"), finish("stop"), DONE, text(" more"), DONE),
        Answer(items=(("text", "Hi"),), stop="done"),
    ),
    _shape(
        0,
        "usage_null_then_cumulative",
        (
            chunk({"content": "Hi"}, usage=None),
            chunk({}, usage={"prompt_tokens": 11, "completion_tokens": 1}),
            chunk({}, "stop", usage=USAGE),
            chunk({}, usage={"prompt_tokens": -1, "completion_tokens": "x"}),
            DONE,
        ),
        Answer(items=(("text", "Hi"),), stop="done", usage=USED),
    ),
    _shape(
        0,
        "usage_zero_is_not_missing",
        (chunk({"content": "Hi"}, "stop", usage={"prompt_tokens": 0, "completion_tokens": 0}), DONE),
        Answer(items=(("text", "Hi"),), stop="done", usage=Usage()),
    ),
    _shape(
        0,
        "halves_in_separate_deltas",
        (chunk({"content": "a\ud83d"}), chunk({"content": "\ude00b"}), finish("stop"), DONE),
        Answer(items=(("text", "a😀b"),), stop="done"),
    ),
    _shape(
        0,
        "lone_half_at_the_end",
        (chunk({"content": "a\ud83d"}), finish("stop"), DONE),
        Answer(items=(("text", "a\ufffd"),), stop="done"),
    ),
    _shape(
        0,
        "halves_in_arguments",
        (
            calls(call(0, "call_a", "say", '{"t":"\ud83d')),
            calls(call(0, args='\ude00"}')),
            finish("tool_calls"),
            DONE,
        ),
        Answer(items=(("call", "say", '{"t":"😀"}'),), stop="calls"),
    ),
    _shape(
        0,
        "line_that_is_not_json",
        (text("Hi"), "keepalive", finish("stop"), DONE),
        Answer(error=BROKEN),
    ),
    _shape(
        0,
        "arguments_as_object",
        (calls(call(0, "call_a", "get_weather", {"city": "Paris"})), finish("tool_calls"), DONE),
        Answer(items=(WEATHER,), stop="calls", notes=("arguments_not_text",)),
    ),
    _shape(
        0,
        "calls_as_object",
        (
            {"choices": [{"index": 0, "delta": {"tool_calls": call(0, "call_a", "get_weather", PARIS)}}]},
            finish("tool_calls"),
            DONE,
        ),
        Answer(items=(WEATHER,), stop="calls", notes=("calls_not_listed",)),
    ),
    _shape(
        0,
        "arguments_null_text",
        (calls(call(0, "call_a", "ping", "null")), finish("tool_calls"), DONE),
        Answer(items=(("call", "ping", "{}"),), stop="calls"),
    ),
    _shape(
        0,
        "arguments_missing",
        (calls(call(0, "call_a", "ping")), finish("tool_calls"), DONE),
        Answer(items=(("call", "ping", "{}"),), stop="calls"),
    ),
    _shape(
        0,
        "announced_by_an_empty_object",
        (calls(call(0, "call_a", "get_weather", "{}")), calls(call(0, args=PARIS)), finish("tool_calls"), DONE),
        Answer(items=(WEATHER,), stop="calls"),
    ),
    _shape(
        0,
        "arguments_in_a_json_string",
        (calls(call(0, "call_a", "get_weather", json.dumps(PARIS))), finish("tool_calls"), DONE),
        Answer(items=(WEATHER,), stop="calls", notes=("quoted_arguments",)),
    ),
    _shape(
        0,
        "whole_call_sent_again",
        (
            calls(call(0, "call_a", "get_weather", '{"city":')),
            calls(call(0, args='"Paris"}')),
            calls(call(0, "call_a", "get_weather", PARIS)),
            finish("tool_calls"),
            DONE,
        ),
        Answer(items=(WEATHER,), stop="calls", notes=("name_resent", "repeated_arguments")),
    ),
    _shape(
        0,
        "two_calls_without_id_or_index",
        (
            calls(call(name="get_weather", args=PARIS)),
            calls(call(name="get_weather", args='{"city":')),
            calls(call(args='"Rome"}')),
            finish("tool_calls"),
            DONE,
        ),
        Answer(
            items=(WEATHER, ("call", "get_weather", '{"city":"Rome"}')),
            stop="calls",
            notes=("index_missing", "call_without_id", "call_without_id"),
        ),
    ),
    _shape(
        0,
        "a_new_id_for_every_chunk",
        (
            calls(call(0, "call_a", "get_weather", '{"city":')),
            calls(call(0, "call_b", args='"Paris"}')),
            finish("tool_calls"),
            DONE,
        ),
        Answer(items=(WEATHER,), stop="calls"),
    ),
    _shape(
        0,
        "negative_and_huge_indexes",
        (
            calls(call(-1, "call_a", "get_weather", PARIS)),
            calls(call(10**9, "call_b", "get_time", CET)),
            finish("tool_calls"),
            DONE,
        ),
        Answer(items=(WEATHER, TIME), stop="calls", notes=("index_sparse",)),
    ),
    _shape(
        0,
        "call_that_is_never_named",
        (calls(call(0, "call_a", args=PARIS)), finish("tool_calls"), DONE),
        Answer(error=BROKEN),
    ),
    _shape(
        0,
        "second_choice",
        (text("Hi"), {"choices": [{"index": 1, "delta": {"content": "Ho"}}]}, text("!"), finish("stop"), DONE),
        Answer(error=BROKEN, notes=("choice_counted",)),
    ),
    _shape(
        0,
        "error_as_text",
        (text("Hel"), {"error": "out of memory"}),
        Answer(error="upstream_error"),
    ),
    _shape(0, "finish_reason_error", (text("Hel"), finish("error"), DONE), Answer(error=BROKEN)),
    _shape(
        0,
        "unknown_finish_reason",
        (text("Hi"), finish("because"), DONE),
        Answer(items=(("text", "Hi"),), stop="done"),
    ),
    _shape(
        0,
        "length_then_stop",
        (text("Hi"), finish("length"), finish("stop"), DONE),
        Answer(items=(("text", "Hi"),), stop="length"),
    ),
    _shape(
        0,
        "stop_then_length",
        (text("Hi"), finish("stop"), finish("length"), DONE),
        Answer(items=(("text", "Hi"),), stop="length"),
    ),
    _shape(
        0,
        "siblings_without_id_or_index",
        (
            calls(call(name="get_weather", args='{"city":'), call(name="get_weather", args='{"city":')),
            calls(call(args='"Paris"}'), call(args='"Rome"}')),
            finish("tool_calls"),
            DONE,
        ),
        Answer(
            items=(WEATHER, ("call", "get_weather", '{"city":"Rome"}')),
            stop="calls",
            notes=("index_missing", "call_without_id", "call_without_id"),
        ),
    ),
    _shape(
        0,
        "tool_calls_without_calls",
        (text("Hi"), finish("tool_calls"), DONE),
        Answer(items=(("text", "Hi"),), stop="done"),
    ),
    _shape(
        0,
        "content_as_parts",
        (
            chunk({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]}),
            chunk({"content": [{"type": "text", "text": "Hi"}, {"type": "image_url", "image_url": "x"}]}),
            finish("stop"),
            DONE,
        ),
        Answer(items=(("reasoning", "hm"), ("text", "Hi")), stop="done"),
    ),
    _shape(
        0,
        "fields_of_the_wrong_type",
        (
            {
                "id": 5,
                "created": "x",
                "choices": [{"index": None, "delta": {"content": "Hi", "refusal": 0}}],
                "usage": 3,
            },
            {"choices": []},
            {"choices": None, "usage": {"prompt_tokens": "x", "completion_tokens": 7}},
            {"choices": [{"finish_reason": "stop", "logprobs": 1}]},
            DONE,
        ),
        Answer(items=(("text", "Hi"),), stop="done", usage=Usage(output_tokens=7)),
    ),
    Shape(
        name="no_space_cr_only_and_no_last_blank_line",
        body=_NO_SPACE + b"\r\r: comment\rdata:" + json.dumps(finish("stop")).encode(),
        expected=Answer(items=(("text", "Hi"),), stop="done", notes=("done_missing",)),
    ),
    Shape(
        name="crlf_bom_event_and_id_lines",
        body=b"\xef\xbb\xbf"
        + stream(text("Hi"), finish("stop"), DONE)
        .replace(b"\n", b"\r\n")
        .replace(b"data", b"event: message\r\nid: 1\r\nretry: 5\r\ndata", 1),
        expected=Answer(items=(("text", "Hi"),), stop="done"),
    ),
    Shape(
        name="whole_document",
        body=json.dumps(
            {
                "object": "chat.completion",
                "choices": [
                    {
                        "index": 0,
                        "message": {
                            "role": "assistant",
                            "content": "Let me look.",
                            "reasoning_content": "hm",
                            "tool_calls": [
                                call(None, "call_a", "get_weather", PARIS),
                                call(None, None, "get_time", CET),
                            ],
                        },
                        "finish_reason": "tool_calls",
                    }
                ],
                "usage": USAGE,
            },
            indent=1,
        ).encode(),
        expected=Answer(
            items=(("reasoning", "hm"), ("text", "Let me look."), WEATHER, TIME),
            stop="calls",
            usage=USED,
            notes=("call_without_id",),
        ),
    ),
    _shape(
        0,
        "logprobs",
        (
            chunk_with_logprobs("Hi", [{"token": "Hi", "logprob": -0.5, "bytes": [72, 105], "top_logprobs": []}]),
            chunk_with_logprobs("", [{"token": "<end>", "logprob": -0.1, "bytes": None, "top_logprobs": []}]),
            finish("stop"),
            DONE,
        ),
        Answer(items=(("text", "Hi"),), stop="done"),
    ),
    _shape(
        0,
        "sealed_reasoning",
        (
            chunk({"reasoning": "h", "reasoning_details": [_detail(text="h")]}),
            chunk({"reasoning": "m", "reasoning_details": [_detail(text="m")]}),
            chunk({"reasoning_details": [_detail(signature="sig")]}),
            text("Hi"),
            chunk({"reasoning_details": [{"type": "reasoning.encrypted", "data": "late", "index": 1}]}),
            text(" there"),
            calls(call(0, "call_a", "get_weather", WEATHER[2])),
            finish("tool_calls"),
            DONE,
        ),
        Answer(items=(("reasoning", "hm"), ("text", "Hi there"), WEATHER), stop="calls"),
    ),
    _shape(
        0,
        "images_audio_and_unknown_fields",
        (
            chunk({"content": "Hi", "audio": {"id": "audio_1", "transcript": "H"}}),
            chunk({"audio": {"transcript": "i", "data": "UklG"}}),
            chunk({"audio": {"data": "Rg==", "expires_at": 9}, "mood": "glad"}),
            chunk({"images": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]}),
            chunk({"annotations": [{"type": "url_citation", "url_citation": CITATION}]}),
            finish("stop"),
            DONE,
        ),
        Answer(items=(("text", "Hi"),), stop="done", notes=("field_kept", "field_kept")),
    ),
    _shape(
        0,
        "custom_call",
        (
            chunk({"tool_calls": [{"index": 0, "id": "c", "type": "custom", "custom": {"name": "p", "input": "a"}}]}),
            chunk({"tool_calls": [{"index": 0, "custom": {"input": "{b"}}]}),
            finish("tool_calls"),
            DONE,
        ),
        Answer(items=(("call", "p", "a{b"),), stop="calls"),
    ),
    Shape(
        name="error_document",
        body=b'{"error":{"message":"slow down","type":"rate_limit_error","code":"rate_limit_exceeded"}}',
        expected=Answer(error="rate_limit_exceeded"),
    ),
    Shape(
        name="error_in_a_list",
        body=b'[{"error":{"message":"no","code":400}}]',
        expected=Answer(error="upstream_status"),
    ),
    Shape(name="cut_document", body=b'{"choices":[{"message":{"content":"Hi"', expected=Answer(error=BROKEN)),
    Shape(name="html_page", body=b"\n<!DOCTYPE html><title>502</title>", expected=Answer(error=BROKEN)),
    Shape(name="plain_text", body=b"service unavailable", expected=Answer(error=BROKEN)),
    Shape(name="nothing", body=b"", expected=Answer(error=BROKEN)),
    Shape(
        name="named_error_event",
        body=b'event: error\ndata: {"message":"gone","code":"gone"}\n\n',
        expected=Answer(error="gone"),
    ),
    Shape(
        name="cut_inside_a_frame",
        body=stream(text("Hi")) + b'data: {"choices":[{"index":0,"delta":{},"finish_re',
        expected=Answer(error=BROKEN),
    ),
)

ALL_SHAPES = SHAPES + MORE_SHAPES
