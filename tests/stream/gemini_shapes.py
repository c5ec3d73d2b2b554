"""The stream shapes of BUGS.md as a Gemini upstream sends them, as data, and those that its own quirks add.

Where a shape has no counterpart in Gemini's API, what comes closest stands under its number.
"""

import json
from typing import Any

from stream.answers import Answer
from stream.shapes import BROKEN, CET, PARIS, TIME, USED, WEATHER, Shape
from treadle.core.usage import Usage

DONE = "[DONE]"
USAGE = {"promptTokenCount": 11, "candidatesTokenCount": 7, "totalTokenCount": 18}
SIGNATURE = "c2lnbmF0dXJl"


def frame(value: Any) -> bytes:
    """Return one frame of a Gemini stream."""
    text = value if isinstance(value, str) else json.dumps(value)
    return b"data: " + text.encode() + b"\r\n\r\n"


def stream(*values: Any) -> bytes:
    """Return a whole stream."""
    return b"".join(frame(value) for value in values)


def chunk(*parts: dict[str, Any], finish: str | None = None, **fields: Any) -> dict[str, Any]:
    """Return one response object; `fields` stand beside its candidates."""
    candidate: dict[str, Any] = {"content": {"parts": list(parts), "role": "model"}, "index": 0}
    if finish is not None:
        candidate["finishReason"] = finish
    return {"candidates": [candidate], **fields, "modelVersion": "up", "responseId": "resp-up"}


def text(value: str, finish: str | None = None, **fields: Any) -> dict[str, Any]:
    """Return a chunk of text."""
    return chunk({"text": value}, finish=finish, **fields)


def thought(value: str, **fields: Any) -> dict[str, Any]:
    """Return a part of thought."""
    return {"text": value, "thought": True, **fields}


def call(name: str | None = None, args: Any = None, id: str | None = None, **fields: Any) -> dict[str, Any]:
    """Return the part of a call; what is None is left out."""
    known = (("id", id), ("name", name), ("args", args))
    return {"functionCall": {**{key: value for key, value in known if value is not None}, **fields}}


def streamed(path: str, value: str, *, more: bool = False, **fields: Any) -> dict[str, Any]:
    """Return a piece of a call whose arguments are streamed."""
    piece: dict[str, Any] = {"jsonPath": path, "stringValue": value}
    if more:
        piece["willContinue"] = True
    return call(partialArgs=[piece], willContinue=True, **fields)


def end(finish: str = "STOP", **fields: Any) -> dict[str, Any]:
    """Return the last chunk as Gemini sends it."""
    return text("", finish, **fields)


def _shape(number: int, name: str, values: tuple[Any, ...], expected: Answer) -> Shape:
    return Shape(number=number, name=name, body=stream(*values), expected=expected)


_WEATHER = call("get_weather", {"city": "Paris"}, "call_a")
_TIME = call("get_time", {"zone": "CET"}, "call_b")
_ROME = ("call", "get_weather", '{"city":"Rome"}')

SHAPES: tuple[Shape, ...] = (
    _shape(
        1,
        "text",
        (text("Hel"), text("lo.", "STOP", usageMetadata=USAGE)),
        Answer(items=(("text", "Hello."),), stop="done", usage=USED),
    ),
    _shape(
        2,
        "one_call_split_arguments",
        (
            chunk(call("get_weather", id="call_a", willContinue=True)),
            chunk(streamed("$.city", "Par", more=True)),
            chunk(streamed("$.city", "is", more=True)),
            chunk(streamed("$.city", "")),
            chunk(call()),
            end(usageMetadata=USAGE),
        ),
        Answer(items=(WEATHER,), stop="calls", usage=USED),
    ),
    _shape(
        3,
        "two_calls_interleaved",
        (
            chunk(call("get_weather", id="call_a", willContinue=True)),
            chunk(call("get_time", id="call_b", willContinue=True)),
            chunk(streamed("$.city", "Par", more=True, id="call_a")),
            chunk(streamed("$.zone", "CET", id="call_b")),
            chunk(streamed("$.city", "is", id="call_a")),
            chunk(call(id="call_b")),
            chunk(call(id="call_a")),
            end(),
        ),
        Answer(items=(WEATHER, TIME), stop="calls"),
    ),
    _shape(
        4,
        "text_then_call",
        (text("Let me look."), chunk(_WEATHER), end()),
        Answer(items=(("text", "Let me look."), WEATHER), stop="calls"),
    ),
    _shape(
        5,
        "zero_arguments",
        (chunk(call("ping")), chunk(call("pong", {})), end()),
        Answer(items=(("call", "ping", "{}"), ("call", "pong", "{}")), stop="calls"),
    ),
    _shape(
        6,
        "arguments_before_name",
        (chunk(streamed("$.city", "Paris")), chunk(call("get_weather", id="call_a")), end()),
        Answer(items=(WEATHER,), stop="calls"),
    ),
    _shape(
        7,
        "same_name_in_two_chunks",
        (chunk(call("get_weather", {"city": "Paris"})), chunk(call("get_weather", {"city": "Rome"})), end()),
        Answer(items=(WEATHER, _ROME), stop="calls"),
    ),
    _shape(
        8,
        "call_without_id",
        (chunk(call("get_weather", {"city": "Paris"})), end()),
        Answer(items=(WEATHER,), stop="calls"),
    ),
    _shape(
        9,
        "two_calls_in_one_chunk",
        (chunk(_WEATHER, _TIME, finish="STOP"),),
        Answer(items=(WEATHER, TIME), stop="calls"),
    ),
    _shape(
        10,
        "id_and_name_repeated",
        (
            chunk(call("get_weather", id="call_a", willContinue=True)),
            chunk(streamed("$.city", "Par", more=True, name="get_weather", id="call_a")),
            chunk(streamed("$.city", "is", name="get_weather")),
            chunk(call("get_weather", id="call_a")),
            end(),
        ),
        Answer(items=(WEATHER,), stop="calls"),
    ),
    _shape(11, "stop_with_calls", (chunk(_WEATHER, finish="STOP"),), Answer(items=(WEATHER,), stop="calls")),
    _shape(12, "cut_without_finish", (text("Hel"),), Answer(error=BROKEN)),
    _shape(
        13,
        "length_inside_arguments",
        (
            chunk(call("get_weather", id="call_a", willContinue=True)),
            chunk(streamed("$.city", "Pa", more=True)),
            end("MAX_TOKENS"),
        ),
        Answer(stop="length", notes=("call_cut",)),
    ),
    _shape(
        14,
        "error_mid_stream",
        (text("Hel"), {"error": {"code": 503, "message": "boom", "status": "UNAVAILABLE"}}),
        Answer(error="unavailable"),
    ),
    _shape(
        15,
        "thoughts_then_call",
        (
            chunk(thought("I should ")),
            chunk(thought("look.")),
            chunk({**_WEATHER, "thoughtSignature": SIGNATURE}),
            end(),
        ),
        Answer(items=(("reasoning", "I should look."), WEATHER), stop="calls"),
    ),
    _shape(
        16,
        "call_then_text",
        (chunk(_WEATHER), text("Wait."), end()),
        Answer(items=(WEATHER, ("text", "Wait.")), stop="calls"),
    ),
    _shape(
        17,
        "prompt_blocked",
        ({"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": USAGE},),
        Answer(stop="filtered", usage=USED, notes=("prompt_blocked",)),
    ),
    _shape(
        18,
        "duplicate_call_id",
        (chunk(_WEATHER), chunk(call("get_time", {"zone": "CET"}, "call_a")), end()),
        Answer(items=(WEATHER, TIME), stop="calls", notes=("duplicate_call_id",)),
    ),
    _shape(
        19,
        "content_filter",
        (text("Well"), {"candidates": [{"finishReason": "SAFETY", "index": 0}]}),
        Answer(items=(("text", "Well"),), stop="filtered"),
    ),
    _shape(
        20,
        "snake_case",
        (
            {
                "candidates": [
                    {"content": {"parts": [{"function_call": {"name": "get_weather", "args": {"city": "Paris"}}}]}}
                ]
            },
            {
                "candidates": [{"finish_reason": "STOP"}],
                "usage_metadata": {"prompt_token_count": 11, "candidates_token_count": 7},
            },
        ),
        Answer(items=(WEATHER,), stop="calls", usage=USED),
    ),
    _shape(21, "done_without_finish_reason", (chunk(_WEATHER), DONE), Answer(items=(WEATHER,), stop="calls")),
    _shape(
        22,
        "sparse_candidates",
        (
            text("Hi"),
            {"candidates": [{"index": 5, "content": {"parts": [{"text": "Ho"}]}, "finishReason": "SAFETY"}]},
            end(),
        ),
        Answer(error=BROKEN),
    ),
    _shape(
        23,
        "emoji_text",
        (text("héllo 👩‍👩‍👧 "), text("🌦️ ok", "STOP")),
        Answer(items=(("text", "héllo 👩‍👩‍👧 🌦️ ok"),), stop="done"),
    ),
)

_CALLED = 'Malformed function call: print(default_api.get_weather(city="Paris"))'
_WHOLE = chunk(thought("Hm."), {"text": "Let me look."}, _WEATHER, finish="STOP", usageMetadata=USAGE)
_WHOLE_ANSWER = Answer(items=(("reasoning", "Hm."), ("text", "Let me look."), WEATHER), stop="calls", usage=USED)


def _finished(word: str, **fields: Any) -> dict[str, Any]:
    return {"candidates": [{"finishReason": word, **fields}]}


MORE_SHAPES: tuple[Shape, ...] = (
    Shape(name="whole_object", body=json.dumps(_WHOLE, indent=1).encode(), expected=_WHOLE_ANSWER),
    Shape(
        name="list_of_objects",
        body=b"[" + b",\r\n".join(json.dumps(each).encode() for each in (text("Hel"), text("lo."), end())) + b"]",
        expected=Answer(items=(("text", "Hello."),), stop="done"),
    ),
    Shape(
        name="list_that_is_cut", body=b"[" + json.dumps(text("Hel")).encode() + b",\r\n", expected=Answer(error=BROKEN)
    ),
    Shape(
        name="error_in_a_list",
        body=b'[{"error":{"code":429,"message":"slow","status":"RESOURCE_EXHAUSTED"}}]',
        expected=Answer(error="resource_exhausted"),
    ),
    Shape(
        name="no_newline_at_the_end",
        body=stream(text("Hi", "STOP"))[:-4],
        expected=Answer(items=(("text", "Hi"),), stop="done"),
    ),
    _shape(0, "nothing", (), Answer(error=BROKEN)),
    _shape(0, "done_alone_after_text", (text("Hel"), DONE), Answer(error=BROKEN)),
    _shape(
        0,
        "done_while_a_call_is_streamed",
        (chunk(streamed("$.city", "Pa", name="get_weather")), DONE),
        Answer(error=BROKEN),
    ),
    _shape(
        0,
        "empty_parts_and_missing_content",
        (chunk(), {}, {"candidates": []}, chunk({}), _finished("STOP")),
        Answer(stop="done"),
    ),
    _shape(
        0,
        "usage_is_cumulative_and_last",
        (
            text("Hi", usageMetadata={"promptTokenCount": 11, "candidatesTokenCount": 1}),
            text("!", usageMetadata={"promptTokenCount": -1, "candidatesTokenCount": "x"}),
            end(
                usageMetadata={
                    **USAGE,
                    "thoughtsTokenCount": 5,
                    "cachedContentTokenCount": 3,
                    "toolUsePromptTokenCount": 2,
                }
            ),
        ),
        Answer(
            items=(("text", "Hi!"),),
            stop="done",
            usage=Usage(input_tokens=13, output_tokens=12, cached_tokens=3, reasoning_tokens=5),
        ),
    ),
    _shape(
        0,
        "usage_behind_the_finish",
        (text("Hi", "STOP"), {"usageMetadata": USAGE}),
        Answer(items=(("text", "Hi"),), stop="done", usage=USED),
    ),
    _shape(
        0,
        "usage_as_a_sum",
        (text("Hi", "STOP", usageMetadata={"promptTokenCount": 11, "totalTokenCount": 18}),),
        Answer(items=(("text", "Hi"),), stop="done", usage=USED),
    ),
    _shape(
        0,
        "length_then_stop",
        (text("Hi", "MAX_TOKENS"), end("STOP")),
        Answer(items=(("text", "Hi"),), stop="length"),
    ),
    _shape(0, "unspecified_finish_is_none", (text("Hi", "FINISH_REASON_UNSPECIFIED"),), Answer(error=BROKEN)),
    _shape(
        0,
        "unknown_finish",
        (text("Hi", "TEA_TIME"),),
        Answer(items=(("text", "Hi"),), stop="done", notes=("unknown_finish",)),
    ),
    _shape(0, "malformed_response", (text("Hi"), _finished("MALFORMED_RESPONSE")), Answer(items=(), error=BROKEN)),
    _shape(
        0,
        "malformed_call",
        (_finished("MALFORMED_FUNCTION_CALL", finishMessage=_CALLED),),
        Answer(items=(("call", "get_weather", _CALLED),), stop="calls", notes=("malformed_call",)),
    ),
    _shape(
        0,
        "malformed_call_of_nobody",
        (_finished("UNEXPECTED_TOOL_CALL"),),
        Answer(items=(("call", "unnamed", "UNEXPECTED_TOOL_CALL"),), stop="calls", notes=("malformed_call",)),
    ),
    _shape(
        0,
        "arguments_as_text",
        (chunk(call("get_weather", PARIS), call("get_time", json.dumps(CET))), end()),
        Answer(items=(WEATHER, TIME), stop="calls", notes=("quoted_arguments",)),
    ),
    _shape(
        0,
        "streamed_arguments_of_every_kind",
        (
            chunk(call("f", id="call_a", willContinue=True)),
            chunk(
                call(
                    partialArgs=[
                        {"jsonPath": "$.a.b[1].c", "numberValue": 5.0},
                        {"jsonPath": "$.a.b[0]", "nullValue": "NULL_VALUE"},
                        {"jsonPath": "$['x y']", "boolValue": True},
                        {"json_path": "n", "number_value": 0.5},
                        {"jsonPath": "$.a.b.c", "stringValue": "fits nowhere"},
                        {"jsonPath": "$..", "stringValue": "is no path"},
                    ]
                )
            ),
            end(),
        ),
        Answer(items=(("call", "f", '{"a":{"b":[null,{"c":5}]},"x y":true,"n":0.5}'),), stop="calls"),
    ),
    _shape(
        0,
        "stop_while_a_call_is_streamed",
        (chunk(streamed("$.city", "Paris", name="get_weather")), end()),
        Answer(error=BROKEN),
    ),
    _shape(
        0,
        "call_that_is_never_named",
        (chunk(call(args={"city": "Paris"})), end()),
        Answer(error=BROKEN),
    ),
    _shape(
        0,
        "whole_call_behind_a_streamed_one",
        (
            chunk(call("get_weather", willContinue=True)),
            chunk(_TIME),
            chunk(streamed("$.city", "Paris")),
            chunk(call()),
            end(),
        ),
        Answer(items=(WEATHER, TIME), stop="calls"),
    ),
    _shape(
        0,
        "halves_in_separate_chunks",
        (text("a\ud83d"), text("\ude00b", "STOP")),
        Answer(items=(("text", "a😀b"),), stop="done"),
    ),
    _shape(
        0,
        "lone_halves",
        (text("a\ud83d"), chunk(call("say\ud83d", {"t": "\ud83d"})), end()),
        Answer(items=(("text", "a\ufffd"), ("call", "say\ufffd", '{"t":"\\ufffd"}')), stop="calls"),
    ),
    _shape(
        0,
        "line_that_is_not_json",
        (text("Hi"), "keepalive", end()),
        Answer(error=BROKEN),
    ),
    _shape(
        0,
        "error_as_text",
        (text("Hel"), {"error": "out of memory"}),
        Answer(error="upstream_error"),
    ),
    _shape(
        0,
        "leaves_of_the_wrong_kind",
        (
            {"candidates": [{"content": None, "index": 0}], "usageMetadata": [], "promptFeedback": "x"},
            text("Hi", "STOP"),
        ),
        Answer(items=(("text", "Hi"),), stop="done"),
    ),
    *(
        _shape(0, f"damaged_{name}", (text("Hi"), value, end()), Answer(error=BROKEN))
        for name, value in {
            "text": chunk({"text": 5}),
            "part": {"candidates": [{"content": {"parts": [7]}}]},
            "parts": {"candidates": [{"content": {"parts": "x"}}]},
            "content": {"candidates": [{"content": "x"}]},
            "candidate": {"candidates": ["x"]},
            "candidates": {"candidates": "x"},
            "call": chunk({"functionCall": "x"}),
            "arguments": chunk(call("get_weather", [PARIS])),
            "data": chunk({"inlineData": 3}),
            "nothing_known": {"surprise": 1},
            "list": [text("Ho")],
        }.items()
    ),
    _shape(
        0,
        "call_that_came_twice",
        (chunk(_WEATHER), chunk(_WEATHER), end()),
        Answer(items=(WEATHER,), stop="calls", notes=("call_repeated",)),
    ),
    _shape(
        0,
        "grounding",
        (text("Hi"), {"candidates": [{"groundingMetadata": {"webSearchQueries": ["a"]}, "finishReason": "STOP"}]}),
        Answer(items=(("text", "Hi"),), stop="done"),
    ),
    _shape(
        0,
        "grounding_alone",
        ({"candidates": [{"groundingMetadata": {"webSearchQueries": ["a"]}, "finishReason": "STOP"}]},),
        Answer(stop="done", notes=("field_dropped",)),
    ),
)

ALL_SHAPES = SHAPES + MORE_SHAPES
