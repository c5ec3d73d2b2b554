"""The stream shapes of a Messages upstream, as data: the counterparts of BUGS.md's 23, and those that quirks add.

A shape is what comes over the wire and what it must amount to, whatever the client.
"""

import json
from typing import Any

import msgspec

from stream.answers import Answer
from treadle.core.usage import Usage

WEATHER = ("call", "get_weather", '{"city":"Paris"}')
TIME = ("call", "get_time", '{"zone":"CET"}')
PARIS = '{"city":"Paris"}'
CET = '{"zone":"CET"}'
BROKEN = "upstream_broken_stream"
USED = Usage(input_tokens=11, output_tokens=7)
DONE = "data: [DONE]\n\n"


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """One stream: `number` is its place in BUGS.md, 0 for the others."""

    name: str
    body: bytes
    expected: Answer
    number: int = 0


def frame(value: dict[str, Any] | str) -> bytes:
    """Return one frame of a Messages stream; a string is sent as it is."""
    if isinstance(value, str):
        return value.encode()
    return f"event: {value['type']}\ndata: {json.dumps(value)}\n\n".encode()


def begin(**usage: Any) -> dict[str, Any]:
    """Return the start of the message."""
    counts = {"input_tokens": 11, "output_tokens": 1, **usage}
    message = {"id": "msg_up", "type": "message", "role": "assistant", "model": "up", "content": [], "usage": counts}
    return {"type": "message_start", "message": {**message, "stop_reason": None, "stop_sequence": None}}


def start(index: Any, kind: str = "text", **fields: Any) -> dict[str, Any]:
    """Return the start of a block."""
    empty: dict[str, Any] = {"text": {"text": ""}, "thinking": {"thinking": "", "signature": ""}}.get(kind, {})
    return {"type": "content_block_start", "index": index, "content_block": {"type": kind, **empty, **fields}}


def use(index: Any, call_id: str | None, name: str | None, given: Any = None) -> dict[str, Any]:
    """Return the start of a call."""
    named = {key: value for key, value in (("id", call_id), ("name", name)) if value is not None}
    return start(index, "tool_use", **named, input={} if given is None else given)


def delta(index: Any, kind: str, **fields: Any) -> dict[str, Any]:
    """Return a piece of a block."""
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}


def text(index: Any, value: str) -> dict[str, Any]:
    """Return a piece of text."""
    return delta(index, "text_delta", text=value)


def args(index: Any, value: str) -> dict[str, Any]:
    """Return a piece of arguments."""
    return delta(index, "input_json_delta", partial_json=value)


def stop(index: Any) -> dict[str, Any]:
    """Return the end of a block."""
    return {"type": "content_block_stop", "index": index}


def end(reason: str | None = "end_turn", **usage: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the end of the message."""
    counts = {"output_tokens": 7, **usage}
    return {
        "type": "message_delta",
        "delta": {"stop_reason": reason, "stop_sequence": None},
        "usage": counts,
    }, {"type": "message_stop"}


def said(index: int, *pieces: str) -> tuple[dict[str, Any], ...]:
    """Return a whole text block."""
    return (start(index), *(text(index, piece) for piece in pieces), stop(index))


def called(index: int, call_id: str | None, name: str | None, *pieces: str) -> tuple[dict[str, Any], ...]:
    """Return a whole call."""
    return (use(index, call_id, name), *(args(index, piece) for piece in pieces), stop(index))


def stream(*values: Any) -> bytes:
    """Return a whole stream of these events."""
    return b"".join(frame(value) for value in values)


def _shape(number: int, name: str, values: tuple[Any, ...], expected: Answer) -> Shape:
    return Shape(number=number, name=name, body=stream(begin(), *values), expected=expected)


def _calls(*items: tuple[str, ...], notes: tuple[str, ...] = ()) -> Answer:
    return Answer(items=items, stop="calls", usage=USED, notes=notes)


def _text(value: str, stop: str = "done", notes: tuple[str, ...] = ()) -> Answer:
    return Answer(items=(("text", value),), stop=stop, usage=USED, notes=notes)


SHAPES: tuple[Shape, ...] = (
    _shape(1, "text", (*said(0, "Hel", "lo."), *end()), _text("Hello.")),
    _shape(
        2,
        "one_call_split_arguments",
        (*called(0, "toolu_a", "get_weather", "", '{"ci', 'ty":"Par', 'is"}'), *end("tool_use")),
        _calls(WEATHER),
    ),
    _shape(
        3,
        "two_calls_interleaved",
        (
            use(0, "toolu_a", "get_weather"),
            use(1, "toolu_b", "get_time"),
            args(0, '{"city":'),
            args(1, '{"zone":'),
            args(0, '"Paris"}'),
            args(1, '"CET"}'),
            stop(1),
            stop(0),
            *end("tool_use"),
        ),
        _calls(WEATHER, TIME),
    ),
    _shape(
        4,
        "text_then_call",
        (*said(0, "Let me look."), *called(1, "toolu_a", "get_weather", PARIS), *end("tool_use")),
        _calls(("text", "Let me look."), WEATHER),
    ),
    _shape(
        5,
        "zero_arguments_empty_string",
        (*called(0, "toolu_a", "ping", ""), *end("tool_use")),
        _calls(("call", "ping", "{}")),
    ),
    _shape(
        6,
        "arguments_before_their_block",
        (args(0, '{"lost":'), *called(0, "toolu_a", "get_weather", PARIS), *end("tool_use")),
        Answer(error=BROKEN),
    ),
    _shape(
        7,
        "two_calls_both_index_0",
        (
            *called(0, "toolu_a", "get_weather", PARIS),
            *called(0, "toolu_b", "get_weather", '{"city":"Rome"}'),
            *end("tool_use"),
        ),
        _calls(WEATHER, ("call", "get_weather", '{"city":"Rome"}')),
    ),
    _shape(
        8,
        "call_without_id",
        (*called(0, None, "get_weather", '{"city":', '"Paris"}'), *end("tool_use")),
        _calls(WEATHER, notes=("call_without_id",)),
    ),
    _shape(
        9,
        "two_calls_one_behind_the_other",
        (*called(0, "toolu_a", "get_weather", PARIS), *called(1, "toolu_b", "get_time", CET), *end("tool_use")),
        _calls(WEATHER, TIME),
    ),
    _shape(
        10,
        "block_start_repeated",
        (
            use(0, "toolu_a", "get_weather"),
            args(0, '{"city":'),
            use(0, "toolu_a", "get_weather"),
            args(0, '"Paris"}'),
            stop(0),
            *end("tool_use"),
        ),
        _calls(WEATHER, notes=("block_repeated",)),
    ),
    _shape(
        11,
        "end_turn_with_calls",
        (*called(0, "toolu_a", "get_weather", PARIS), *end("end_turn")),
        _calls(WEATHER),
    ),
    _shape(12, "cut_without_stop_reason", (*said(0, "Hel"),), Answer(error=BROKEN)),
    _shape(
        13,
        "length_inside_arguments",
        (use(0, "toolu_a", "get_weather"), args(0, '{"city":"Pa'), stop(0), *end("max_tokens")),
        Answer(stop="length", usage=USED, notes=("call_cut",)),
    ),
    _shape(
        14,
        "error_mid_stream",
        (
            start(0),
            text(0, "Hel"),
            {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
        ),
        Answer(error="overloaded_error"),
    ),
    _shape(
        15,
        "thinking_then_call",
        (
            start(0, "thinking"),
            delta(0, "thinking_delta", thinking="I should "),
            delta(0, "thinking_delta", thinking="look."),
            delta(0, "signature_delta", signature="c2ln"),
            stop(0),
            *called(1, "toolu_a", "get_weather", PARIS),
            *end("tool_use"),
        ),
        _calls(("reasoning", "I should look."), WEATHER),
    ),
    _shape(
        16,
        "call_then_text",
        (*called(0, "toolu_a", "get_weather", PARIS), *said(1, "Wait."), *end("tool_use")),
        _calls(WEATHER, ("text", "Wait.")),
    ),
    _shape(
        17,
        "refusal",
        (*said(0, "I can", "not."), *end("refusal")),
        _text("I cannot.", "filtered"),
    ),
    _shape(
        18,
        "duplicate_call_id",
        (*called(0, "toolu_a", "get_weather", PARIS), *called(1, "toolu_a", "get_time", CET), *end("tool_use")),
        _calls(WEATHER, TIME, notes=("duplicate_call_id",)),
    ),
    _shape(
        19,
        "context_window_exceeded",
        (*said(0, "Well"), *end("model_context_window_exceeded")),
        _text("Well", "length", notes=("model_context_window_exceeded",)),
    ),
    _shape(
        20,
        "input_given_with_the_block",
        (use(0, "toolu_a", "get_weather", {"city": "Paris"}), stop(0), *end("tool_use")),
        _calls(WEATHER),
    ),
    _shape(
        21,
        "message_stop_without_stop_reason",
        (*called(0, "toolu_a", "get_weather", PARIS), {"type": "message_stop"}),
        Answer(items=(WEATHER,), stop="calls", usage=Usage(input_tokens=11, output_tokens=1)),
    ),
    _shape(
        22,
        "sparse_indexes",
        (*called(2, "toolu_a", "get_weather", PARIS), *called(5, "toolu_b", "get_time", CET), *end("tool_use")),
        _calls(WEATHER, TIME, notes=("block_gap",)),
    ),
    _shape(
        23,
        "emoji_text",
        (*said(0, "héllo 👩‍👩‍👧 ", "🌦️ ok"), *end()),
        _text("héllo 👩‍👩‍👧 🌦️ ok"),
    ),
)

_SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
_FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


MORE_SHAPES: tuple[Shape, ...] = (
    _shape(0, "message_stop_after_text", (*said(0, "Hel"), {"type": "message_stop"}), Answer(error=BROKEN)),
    _shape(
        0,
        "message_stop_after_unfinished_call",
        (use(0, "toolu_a", "get_weather"), args(0, '{"city":'), {"type": "message_stop"}),
        Answer(error=BROKEN),
    ),
    _shape(0, "stop_reason_without_message_stop", (*said(0, "Hi"), end()[0]), _text("Hi")),
    _shape(0, "done_instead_of_message_stop", (*said(0, "Hi"), end()[0], DONE), _text("Hi")),
    _shape(0, "text_after_message_stop", (*said(0, "Hi"), *end(), *said(1, " more"), *end()), _text("Hi")),
    _shape(0, "pings_anywhere", ({"type": "ping"}, *said(0, "Hi"), {"type": "ping"}, *end()), _text("Hi")),
    _shape(
        0,
        "unknown_event",
        ({"type": "message_mood", "mood": "good"}, *said(0, "Hi"), *end()),
        _text("Hi", notes=("unknown_event",)),
    ),
    _shape(
        0,
        "missing_content_block_stop",
        (start(0), text(0, "Hi"), use(1, "toolu_a", "get_weather"), args(1, PARIS), *end("tool_use")),
        Answer(error=BROKEN),
    ),
    _shape(
        0,
        "delta_for_unknown_index",
        (text(4, "Hi"), args(7, "{}"), *end()),
        Answer(error=BROKEN),
    ),
    _shape(
        0,
        "no_index_at_all",
        tuple(
            {key: value for key, value in event.items() if key != "index"}
            for event in (*said(0, "Hi"), *called(1, "toolu_a", "get_weather", PARIS), *end("tool_use"))
        ),
        _calls(("text", "Hi"), WEATHER),
    ),
    _shape(
        0,
        "texts_are_parts_of_one_message",
        (*said(0, "The sky "), *said(1, "is blue"), *said(2, "."), *end()),
        _text("The sky is blue."),
    ),
    _shape(
        0,
        "empty_text_blocks",
        (*said(0), *said(1, "Hi"), *said(2), *end()),
        _text("Hi"),
    ),
    _shape(
        0,
        "text_given_with_the_block",
        (start(0, text="Hel"), text(0, "lo"), stop(0), *end()),
        _text("Hello"),
    ),
    _shape(
        0,
        "redacted_thinking",
        (start(0, "redacted_thinking", data="c2VjcmV0"), stop(0), *said(1, "Hi"), *end()),
        Answer(items=(("reasoning", ""), ("text", "Hi")), stop="done", usage=USED),
    ),
    _shape(
        0,
        "thinking_without_text",
        (start(0, "thinking"), delta(0, "signature_delta", signature="c2ln"), stop(0), *said(1, "Hi"), *end()),
        Answer(items=(("reasoning", ""), ("text", "Hi")), stop="done", usage=USED),
    ),
    _shape(
        0,
        "blocks_that_nobody_knows",
        (
            {"type": "content_block_start", "index": 0, "content_block": {**_SEARCH, "input": {}}},
            args(0, '{"query":'),
            args(0, '"x"}'),
            stop(0),
            {"type": "content_block_start", "index": 1, "content_block": _FOUND},
            stop(1),
            *said(2, "Found."),
            *end(),
        ),
        Answer(
            items=(("opaque", _compact(_SEARCH), ""), ("opaque", json.dumps(_FOUND), ""), ("text", "Found.")),
            stop="done",
            usage=USED,
        ),
    ),
    _shape(
        0,
        "paused",
        (*said(0, "Hold on"), *end("pause_turn")),
        _text("Hold on", notes=("pause_turn",)),
    ),
    _shape(0, "stop_sequence", (*said(0, "Hi"), *end("stop_sequence")), _text("Hi", "stop_sequence")),
    _shape(0, "tool_use_without_calls", (*said(0, "Hi"), *end("tool_use")), _text("Hi")),
    _shape(0, "reason_of_another_api", (*said(0, "Hi"), *end("stop")), _text("Hi")),
    _shape(
        0,
        "a_cut_stays_a_cut",
        (*said(0, "Hi"), end("max_tokens")[0], *end("end_turn")),
        _text("Hi", "length"),
    ),
    _shape(
        0,
        "usage_null_then_cumulative",
        (*said(0, "Hi"), *end(input_tokens=None, output_tokens=7, cache_read_input_tokens="x")),
        _text("Hi"),
    ),
    Shape(
        name="usage_with_a_cache",
        body=stream(
            begin(cache_read_input_tokens=100, cache_creation_input_tokens=20),
            *said(0, "Hi"),
            *end(output_tokens_details={"thinking_tokens": 3}),
        ),
        expected=Answer(
            items=(("text", "Hi"),),
            stop="done",
            usage=Usage(
                input_tokens=131, output_tokens=7, cached_tokens=100, cache_write_tokens=20, reasoning_tokens=3
            ),
        ),
    ),
    Shape(
        name="no_message_start",
        body=stream(*said(0, "Hi"), *end(input_tokens=11)),
        expected=_text("Hi"),
    ),
    Shape(
        name="no_event_lines",
        body=stream(begin(), *said(0, "Hi"), *end()).replace(b"event: ", b": "),
        expected=_text("Hi"),
    ),
    Shape(
        name="crlf_and_comments",
        body=b": hello\r\n\r\n" + stream(begin(), *said(0, "Hi"), *end()).replace(b"\n", b"\r\n"),
        expected=_text("Hi"),
    ),
    Shape(
        name="nothing_at_all",
        body=b"",
        expected=Answer(error=BROKEN),
    ),
    Shape(name="a_page_of_html", body=b"<html>Bad gateway</html>", expected=Answer(error=BROKEN)),
    _shape(
        0,
        "line_that_is_not_json",
        (*said(0, "Hi"), "data: keepalive\n\n", *end()),
        Answer(error=BROKEN),
    ),
    _shape(0, "halves_in_separate_deltas", (*said(0, "a\ud83d", "\ude00b"), *end()), _text("a😀b")),
    _shape(0, "lone_half_at_the_end", (*said(0, "a\ud83d"), *end()), _text("a\ufffd")),
    _shape(
        0,
        "halves_in_arguments",
        (*called(0, "toolu_a", "say", '{"t":"\ud83d', '\ude00"}'), *end("tool_use")),
        _calls(("call", "say", '{"t":"😀"}')),
    ),
    _shape(
        0,
        "halves_in_a_block",
        (use(0, "toolu_a", "say", {"t": "\ud83d"}), stop(0), *end("tool_use")),
        _calls(("call", "say", '{"t":"\\ufffd"}')),
    ),
    _shape(
        0,
        "arguments_null",
        (*called(0, "toolu_a", "ping", "null"), *end("tool_use")),
        _calls(("call", "ping", "{}")),
    ),
    _shape(
        0,
        "input_given_as_a_text",
        (use(0, "toolu_a", "get_weather", PARIS), stop(0), *end("tool_use")),
        _calls(WEATHER),
    ),
    _shape(
        0,
        "input_given_and_streamed",
        (use(0, "toolu_a", "get_weather", {"city": "?"}), args(0, PARIS), stop(0), *end("tool_use")),
        _calls(WEATHER),
    ),
    _shape(
        0,
        "arguments_twice",
        (*called(0, "toolu_a", "get_weather", PARIS, PARIS), *end("tool_use")),
        _calls(WEATHER, notes=("repeated_arguments",)),
    ),
    _shape(
        0,
        "arguments_in_a_json_string",
        (*called(0, "toolu_a", "get_weather", json.dumps(PARIS)), *end("tool_use")),
        _calls(WEATHER, notes=("quoted_arguments",)),
    ),
    _shape(
        0,
        "malformed_arguments",
        (*called(0, "toolu_a", "get_weather", '{"city": Par', "is}"), *end("tool_use")),
        _calls(("call", "get_weather", '{"city": Paris}')),
    ),
    _shape(
        0,
        "two_objects_in_one_call",
        (*called(0, "toolu_a", "get_weather", PARIS, '{"city":"Rome"}'), *end("tool_use")),
        _calls(("call", "get_weather", PARIS + '{"city":"Rome"}')),
    ),
    _shape(
        0,
        "call_without_name",
        (*called(0, "toolu_a", None, "{}"), *end("tool_use")),
        Answer(error=BROKEN),
    ),
    _shape(
        0,
        "odd_call_id",
        (*called(0, "call one/2", "ping", "{}"), *end("tool_use")),
        _calls(("call", "ping", "{}"), notes=("odd_call_id",)),
    ),
    _shape(
        0,
        "call_id_outside_the_alphabet",
        (*called(0, "functions.ping:0", "ping", "{}"), *end("tool_use")),
        _calls(("call", "ping", "{}")),
    ),
    _shape(
        0,
        "broken_leaves",
        (start(0, text=5), text(0, "Hi"), stop(0), *end(output_tokens=-4)),
        Answer(items=(("text", "Hi"),), stop="done", usage=Usage(input_tokens=11, output_tokens=1)),
    ),
    _shape(
        0,
        "block_that_is_not_one",
        ({"type": "content_block_start", "index": 0}, *said(1, "Hi"), *end()),
        Answer(error=BROKEN),
    ),
    _shape(
        0,
        "piece_of_text_that_is_none",
        (start(0), text(0, "Hi"), delta(0, "text_delta", text=7), stop(0), *end()),
        Answer(error=BROKEN),
    ),
    _shape(
        0,
        "piece_of_nothing",
        (start(0), {"type": "content_block_delta", "index": 0}, stop(0), *end()),
        Answer(error=BROKEN),
    ),
    _shape(
        0,
        "piece_of_an_unknown_kind",
        (start(0), text(0, "Hi"), delta(0, "mood_delta", mood="good"), stop(0), *end()),
        _text("Hi", notes=("delta_dropped",)),
    ),
    _shape(
        0,
        "end_of_a_block_that_never_began",
        (*said(0, "Hi"), stop(1), *end()),
        _text("Hi", notes=("block_stop_stray",)),
    ),
    _shape(
        0,
        "block_that_begins_in_another",
        (use(0, "toolu_a", "get_weather"), args(0, PARIS), use(0, "toolu_b", "get_time"), stop(0), *end("tool_use")),
        Answer(error=BROKEN),
    ),
    Shape(
        name="whole_message",
        body=json.dumps(
            {
                "id": "msg_up",
                "type": "message",
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
                    {"type": "text", "text": "Look \ud83d."},
                    {"type": "tool_use", "id": "toolu_a", "name": "get_weather", "input": {"city": "Paris"}},
                ],
                "stop_reason": "tool_use",
                "usage": {"input_tokens": 11, "output_tokens": 7},
            },
            indent=1,
        ).encode(),
        expected=_calls(("reasoning", "hm"), ("text", "Look \ufffd."), WEATHER),
    ),
    Shape(
        name="whole_message_without_reason",
        body=json.dumps({"type": "message", "content": [{"type": "text", "text": "Hi"}], "usage": {}}).encode(),
        expected=Answer(error=BROKEN, items=()),
    ),
    Shape(
        name="whole_error",
        body=b'{"type":"error","error":{"type":"not_found_error","message":"model: x"},"request_id":"req_1"}',
        expected=Answer(error="not_found_error"),
    ),
    Shape(name="error_of_another_api", body=b'{"error":"no"}', expected=Answer(error="upstream_error")),
    Shape(name="document_that_is_no_message", body=b'{"content":5}', expected=Answer(error=BROKEN)),
)

ALL_SHAPES = SHAPES + MORE_SHAPES
