"""The stream shapes that Responses upstreams send, as data: the counterparts of BUGS.md's 23, and further defects.

A shape is what comes over the wire of a Responses upstream and what it must amount to, whatever the client.
"""

import json
from typing import Any

from stream.answers import Answer
from stream.shapes import BROKEN, CET, PARIS, TIME, WEATHER, Shape
from treadle.core.usage import Usage

USAGE = {
    "input_tokens": 11,
    "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 2},
    "output_tokens": 7,
    "output_tokens_details": {"reasoning_tokens": 3},
    "total_tokens": 18,
}
USED = Usage(input_tokens=11, output_tokens=7, cached_tokens=4, cache_write_tokens=2, reasoning_tokens=3)
ROME = '{"city":"Rome"}'
SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "x"}}
MCP = {"type": "mcp_call", "id": "mcp_1", "server_label": "s", "name": "n", "arguments": "{}", "output": "ok"}

Event = dict[str, Any]


def ev(kind: str, **fields: Any) -> Event:
    """Return one event; what is None is left out."""
    return {"type": f"response.{kind}", **{name: value for name, value in fields.items() if value is not None}}


def response(status: str | None = "completed", output: Any = None, **fields: Any) -> dict[str, Any]:
    """Return a response object."""
    head = {"id": "resp_up", "object": "response", "created_at": 1, "model": "up", "status": status}
    return {**head, "output": [] if output is None else output, "usage": USAGE, **fields}


def completed(*output: Any) -> Event:
    """Return the good end of a stream."""
    return ev("completed", response=response(output=list(output)))


def message(text: str, id: str | None = "msg_1", kind: str = "output_text") -> dict[str, Any]:
    """Return a message as it is in the end."""
    part = {"type": "refusal", "refusal": text} if kind == "refusal" else {"type": kind, "text": text}
    return {"type": "message", "id": id, "status": "completed", "role": "assistant", "content": [part]}


def call(args: Any, id: str | None = "fc_a", call_id: str | None = "call_a", name: Any = "get_weather") -> Event:
    """Return a call as it is in the end; what is None is left out."""
    known = {"type": "function_call", "id": id, "call_id": call_id, "name": name, "arguments": args}
    return {key: value for key, value in known.items() if value is not None}


def added(item: dict[str, Any], index: int | None = 0) -> Event:
    """Return the beginning of an item: without its content."""
    empty: dict[str, Any] = {"content": [], "arguments": "", "input": "", "summary": []}
    begun = {key: empty.get(key, value) for key, value in item.items()}
    return ev("output_item.added", output_index=index, item=begun)


def done(item: dict[str, Any], index: int | None = 0) -> Event:
    """Return the end of an item."""
    return ev("output_item.done", output_index=index, item=item)


def text(delta: str, index: int | None = 0, id: str | None = "msg_1", part: int | None = 0) -> Event:
    """Return a piece of text."""
    return ev("output_text.delta", output_index=index, item_id=id, content_index=part, delta=delta)


def args(delta: Any, index: int | None = 0, id: str | None = "fc_a") -> Event:
    """Return a piece of arguments."""
    return ev("function_call_arguments.delta", output_index=index, item_id=id, delta=delta)


def said(full: str, index: int = 0, id: str = "msg_1") -> list[Event]:
    """Return a whole message as the official API streams it."""
    where = {"output_index": index, "item_id": id, "content_index": 0}
    part = {"type": "output_text", "text": full, "annotations": [], "logprobs": []}
    return [
        added(message(full, id), index),
        ev("content_part.added", **where, part={**part, "text": ""}),
        *[ev("output_text.delta", **where, delta=piece, logprobs=[]) for piece in _halves(full)],
        ev("output_text.done", **where, text=full, logprobs=[]),
        ev("content_part.done", **where, part=part),
        done(message(full, id), index),
    ]


def called(item: dict[str, Any], index: int = 0) -> list[Event]:
    """Return a whole call as the official API streams it."""
    where = {"output_index": index, "item_id": item["id"]}
    return [
        added(item, index),
        *[ev("function_call_arguments.delta", **where, delta=piece) for piece in _halves(item["arguments"])],
        ev("function_call_arguments.done", **where, arguments=item["arguments"]),
        done(item, index),
    ]


def _halves(full: str) -> list[str]:
    middle = len(full) // 2
    return [piece for piece in (full[:middle], full[middle:]) if piece]


CREATED = [ev("created", response=response("in_progress")), ev("in_progress", response=response("in_progress"))]


def frames(*events: Any) -> bytes:
    """Return a stream of just these events."""
    written: list[bytes] = []
    for number, event in enumerate(events):
        if isinstance(event, str):
            written.append(b"data: " + event.encode() + b"\n\n")
        else:
            data = json.dumps({**event, "sequence_number": number}).encode()
            written.append(b"event: " + event["type"].encode() + b"\ndata: " + data + b"\n\n")
    return b"".join(written)


def _shape(number: int, name: str, events: list[Any], expected: Answer) -> Shape:
    return Shape(number=number, name=name, body=frames(*CREATED, *events), expected=expected)


def _opaque(item: dict[str, Any]) -> tuple[str, str, str]:
    return ("opaque", json.dumps(item), "")


A, B = call(PARIS), call(CET, "fc_b", "call_b", "get_time")
ROMAN = call(ROME, "fc_b", "call_b")

SHAPES: tuple[Shape, ...] = (
    _shape(
        1,
        "text",
        [*said("Hello."), completed(message("Hello."))],
        Answer(items=(("text", "Hello."),), stop="done", usage=USED),
    ),
    _shape(
        2,
        "one_call_split_arguments",
        [added(A), args('{"ci'), args('ty":"Par'), args('is"}'), done(A), completed(A)],
        Answer(items=(WEATHER,), stop="calls", usage=USED),
    ),
    _shape(
        3,
        "two_calls_interleaved",
        [
            added(A),
            added(B, 1),
            args('{"city":'),
            args('{"zone":', 1, "fc_b"),
            args('"Paris"}'),
            args('"CET"}', 1, "fc_b"),
            done(B, 1),
            done(A),
            completed(A, B),
        ],
        Answer(items=(WEATHER, TIME), stop="calls", usage=USED),
    ),
    _shape(
        4,
        "text_then_call",
        [*said("Let me look."), *called(A, 1), completed(message("Let me look."), A)],
        Answer(items=(("text", "Let me look."), WEATHER), stop="calls", usage=USED),
    ),
    _shape(
        5,
        "zero_arguments_empty_string",
        [*called(call("", name="ping")), completed(call("", name="ping"))],
        Answer(items=(("call", "ping", "{}"),), stop="calls", usage=USED),
    ),
    _shape(
        6,
        "arguments_before_the_item",
        [args('{"city":'), added(A), args('"Paris"}'), done(A), completed(A)],
        Answer(items=(WEATHER,), stop="calls", usage=USED, notes=("arguments_before_name",)),
    ),
    _shape(
        7,
        "two_calls_both_output_index_0",
        [
            added(A),
            args('{"city":'),
            added(ROMAN),
            args('{"city":"Rome"}', 0, "fc_b"),
            args('"Paris"}'),
            done(A),
            done(ROMAN),
            completed(A, ROMAN),
        ],
        Answer(items=(WEATHER, ("call", "get_weather", ROME)), stop="calls", usage=USED),
    ),
    _shape(
        8,
        "call_without_call_id",
        [*called(call(PARIS, call_id=None)), completed(call(PARIS, call_id=None))],
        Answer(items=(WEATHER,), stop="calls", usage=USED, notes=("call_without_id", "arguments_before_name")),
    ),
    _shape(
        9,
        "two_calls_only_as_whole_items",
        [done(A), done(B, 1), completed(A, B)],
        Answer(items=(WEATHER, TIME), stop="calls", usage=USED),
    ),
    _shape(
        10,
        "announced_and_named_again",
        [
            added(A),
            added(A),
            args('{"city":'),
            args('"Paris"}'),
            ev("function_call_arguments.done", output_index=0, item_id="fc_a", name="get_weather", arguments=PARIS),
            done(A),
            done(A),
            completed(A),
        ],
        Answer(items=(WEATHER,), stop="calls", usage=USED),
    ),
    _shape(
        11,
        "completed_with_empty_output",
        [*called(A), completed()],
        Answer(items=(WEATHER,), stop="calls", usage=USED),
    ),
    _shape(12, "cut_without_terminal", said("Hel"), Answer(items=(("text", "Hel"),), error=BROKEN)),
    _shape(
        13,
        "length_inside_arguments",
        [
            added(A),
            args('{"city":"Pa'),
            ev("incomplete", response=response("incomplete", incomplete_details={"reason": "max_output_tokens"})),
        ],
        Answer(stop="length", usage=USED, notes=("call_cut",)),
    ),
    _shape(
        14,
        "flat_error_mid_stream",
        [added(message("")), text("Hel"), {"type": "error", "code": "server_error", "message": "boom", "param": None}],
        Answer(error="server_error"),
    ),
    _shape(
        15,
        "reasoning_then_call",
        [
            added({"type": "reasoning", "id": "rs_1", "summary": []}),
            ev("reasoning_text.delta", output_index=0, item_id="rs_1", content_index=0, delta="I should "),
            ev("reasoning_text.delta", output_index=0, item_id="rs_1", content_index=0, delta="look."),
            done({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "zzz"}),
            *called(A, 1),
            completed(),
        ],
        Answer(items=(("reasoning", "I should look."), WEATHER), stop="calls", usage=USED),
    ),
    _shape(
        16,
        "call_then_text",
        [*called(A), *said("Wait.", 1), completed(A, message("Wait."))],
        Answer(items=(WEATHER, ("text", "Wait.")), stop="calls", usage=USED),
    ),
    _shape(
        17,
        "refusal",
        [
            added(message("", kind="refusal")),
            ev("refusal.delta", output_index=0, item_id="msg_1", content_index=0, delta="I can"),
            ev("refusal.delta", output_index=0, item_id="msg_1", content_index=0, delta="not."),
            ev("refusal.done", output_index=0, item_id="msg_1", content_index=0, refusal="I cannot."),
            done(message("I cannot.", kind="refusal")),
            completed(message("I cannot.", kind="refusal")),
        ],
        Answer(items=(("refusal", "I cannot."),), stop="done", usage=USED),
    ),
    _shape(
        18,
        "duplicate_call_id",
        [*called(A), *called(call(CET, "fc_b", "call_a", "get_time"), 1), completed()],
        Answer(items=(WEATHER, TIME), stop="calls", usage=USED, notes=("duplicate_call_id",)),
    ),
    _shape(
        19,
        "content_filter",
        [
            *said("Well"),
            ev("incomplete", response=response("incomplete", incomplete_details={"reason": "content_filter"})),
        ],
        Answer(items=(("text", "Well"),), stop="filtered", usage=USED),
    ),
    _shape(
        20,
        "legacy_tool_call_events_alone",
        [
            ev("output_tool_call.begin", output_index=0, item_id="fc_a", call_id="call_a", name="get_weather"),
            ev("output_tool_call.delta", output_index=0, item_id="fc_a", delta='{"city":'),
            ev("output_tool_call.delta", output_index=0, item_id="fc_a", delta='"Paris"}'),
            ev("output_tool_call.end", output_index=0, item_id="fc_a", name="get_weather", arguments=PARIS),
            ev("done", response=response(None)),
            "[DONE]",
        ],
        Answer(items=(WEATHER,), stop="calls", usage=USED),
    ),
    _shape(21, "done_mark_without_terminal", [*called(A), "[DONE]"], Answer(items=(WEATHER,), stop="calls")),
    _shape(
        22,
        "sparse_output_indexes",
        [
            added(A, 2),
            added(B, 5),
            args(PARIS, 2),
            args(CET, 5, "fc_b"),
            done(A, 2),
            done(B, 5),
            completed(A, B),
        ],
        Answer(items=(WEATHER, TIME), stop="calls", usage=USED),
    ),
    _shape(
        23,
        "emoji_text",
        [*said("héllo 👩‍👩‍👧 🌦️ ok"), completed(message("héllo 👩‍👩‍👧 🌦️ ok"))],
        Answer(items=(("text", "héllo 👩‍👩‍👧 🌦️ ok"),), stop="done", usage=USED),
    ),
)

HI = Answer(items=(("text", "Hi"),), stop="done", usage=USED)
ONE = Answer(items=(WEATHER,), stop="calls", usage=USED)

MORE_SHAPES: tuple[Shape, ...] = (
    _shape(0, "done_mark_after_text", [*said("Hi"), "[DONE]"], Answer(items=(("text", "Hi"),), error=BROKEN)),
    _shape(0, "done_mark_after_unfinished_call", [added(A), args('{"city":'), "[DONE]"], Answer(error=BROKEN)),
    _shape(0, "nothing_but_created", [], Answer(error=BROKEN)),
    _shape(0, "text_after_the_terminal", [*said("Hi"), completed(), *said(" more", 1, "msg_2"), "[DONE]"], HI),
    _shape(0, "deltas_and_completed_alone", [text("H"), text("i"), completed(message("Hi"))], HI),
    _shape(0, "deltas_without_any_place", [text("H", None, None, None), text("i", None, None, None), completed()], HI),
    _shape(0, "output_only_in_completed", [completed(message("Hi"))], HI),
    _shape(
        0,
        "half_of_the_output_only_in_completed",
        [*said("Hi"), completed(message("Hi"), A, SEARCH)],
        Answer(items=(("text", "Hi"), WEATHER, _opaque(SEARCH)), stop="calls", usage=USED),
    ),
    _shape(
        0, "tail_only_in_text_done", [added(message("")), text("H"), ev("output_text.done", text="Hi"), completed()], HI
    ),
    _shape(
        0,
        "tail_only_in_part_done",
        [
            added(message("")),
            text("H"),
            ev("content_part.done", output_index=0, item_id="msg_1", part={"type": "output_text", "text": "Hi"}),
            completed(),
        ],
        HI,
    ),
    _shape(0, "tail_only_in_item_done", [added(message("")), text("H"), done(message("Hi")), completed()], HI),
    _shape(0, "tail_only_in_completed", [added(message("")), text("H"), completed(message("Hi"))], HI),
    _shape(
        0,
        "two_whole_texts_that_differ",
        [added(message("")), ev("output_text.done", output_index=0, text="H"), done(message("Hi")), completed()],
        Answer(error=BROKEN),
    ),
    _shape(
        0,
        "arguments_only_in_done",
        [
            added(A),
            ev("function_call_arguments.done", output_index=0, item_id="fc_a", arguments=PARIS),
            completed(),
        ],
        ONE,
    ),
    _shape(0, "arguments_only_in_item_done", [added(A), done(A), completed()], ONE),
    _shape(0, "arguments_only_in_completed", [added(A), completed(A)], ONE),
    _shape(
        0,
        "arguments_only_in_added",
        [ev("output_item.added", output_index=0, item=A), completed()],
        ONE,
    ),
    _shape(
        0,
        "arguments_in_added_and_again_in_deltas",
        [ev("output_item.added", output_index=0, item=A), args('{"city":'), args('"Paris"}'), done(A), completed(A)],
        ONE,
    ),
    _shape(0, "tail_of_arguments_in_item_done", [added(A), args('{"city":"Pa'), done(A), completed()], ONE),
    _shape(0, "empty_arguments_at_the_end", [added(A), args(PARIS), done(call("")), completed(call(""))], ONE),
    _shape(
        0,
        "name_only_in_arguments_done",
        [
            args('{"city":"Par'),
            ev("function_call_arguments.done", output_index=0, item_id="fc_a", name="get_weather", arguments=PARIS),
            completed(),
        ],
        Answer(items=(WEATHER,), stop="calls", usage=USED, notes=("call_without_id", "arguments_before_name")),
    ),
    _shape(
        0,
        "call_that_is_never_named",
        [args(PARIS), completed()],
        Answer(error=BROKEN),
    ),
    _shape(
        0,
        "arguments_as_object",
        [added(A), done(call({"city": "Paris"})), completed()],
        Answer(items=(WEATHER,), stop="calls", usage=USED),
    ),
    _shape(
        0,
        "arguments_null",
        [added(call(PARIS, name="ping")), done({**call("", name="ping"), "arguments": None}), completed()],
        Answer(items=(("call", "ping", "{}"),), stop="calls", usage=USED),
    ),
    _shape(
        0,
        "arguments_missing",
        [added(call(None, name="ping")), done(call(None, name="ping")), completed()],
        Answer(items=(("call", "ping", "{}"),), stop="calls", usage=USED),
    ),
    _shape(
        0,
        "arguments_in_a_json_string",
        [added(A), args(json.dumps(PARIS)), done(call(json.dumps(PARIS))), completed()],
        Answer(items=(WEATHER,), stop="calls", usage=USED, notes=("quoted_arguments",)),
    ),
    _shape(
        0,
        "arguments_end_otherwise_than_streamed",
        [added(A), args(PARIS), done(call(ROME)), completed(call(ROME))],
        Answer(error=BROKEN),
    ),
    _shape(
        0,
        "text_ends_otherwise_than_streamed",
        [added(message("")), text("Hi"), done(message("Ho")), completed(message("Ho"))],
        Answer(error=BROKEN),
    ),
    _shape(
        0,
        "a_new_id_for_every_event",
        [
            added(message("", "x1")),
            text("H", id="x2"),
            text("i", id="x3"),
            ev("output_text.done", output_index=0, item_id="x4", content_index=0, text="Hi"),
            done(message("Hi", "x5")),
            added(call(PARIS, "y1"), 1),
            args(PARIS, 1, "y2"),
            done(call(PARIS, "y3"), 1),
            completed(message("Hi", "x6"), call(PARIS, "y4")),
        ],
        Answer(items=(("text", "Hi"), WEATHER), stop="calls", usage=USED),
    ),
    _shape(
        0,
        "one_id_for_every_item",
        [
            *said("Hi", 0, "same"),
            *called(call(PARIS, "same"), 1),
            *called(call(CET, "same", "call_b", "get_time"), 2),
            *said("Ho", 3, "same"),
            completed(message("Hi", "same"), call(PARIS, "same"), call(CET, "same", "call_b", "get_time")),
        ],
        Answer(items=(("text", "Hi"), WEATHER, TIME, ("text", "Ho")), stop="calls", usage=USED),
    ),
    _shape(
        0,
        "no_ids_and_no_indexes",
        [
            added(call(PARIS, None), None),
            args('{"city":', None, None),
            args('"Paris"}', None, None),
            done(call(PARIS, None), None),
            added(call(CET, None, "call_b", "get_time"), None),
            args(CET, None, None),
            done(call(CET, None, "call_b", "get_time"), None),
            completed(call(PARIS, None), call(CET, None, "call_b", "get_time")),
        ],
        Answer(items=(WEATHER, TIME), stop="calls", usage=USED),
    ),
    _shape(
        0,
        "indexes_that_disagree_with_the_ids",
        [added(A, 1), added(B, 2), args(PARIS, 7), args(CET, 7, "fc_b"), done(A, 8), done(B, 9), completed(A, B)],
        Answer(items=(WEATHER, TIME), stop="calls", usage=USED),
    ),
    _shape(
        0,
        "two_texts_interleaved",
        [
            added(message("", "m1")),
            added(message("", "m2"), 1),
            text("H", 0, "m1"),
            text("H", 1, "m2"),
            text("i", 0, "m1"),
            text("o", 1, "m2"),
            done(message("Hi", "m1")),
            done(message("Ho", "m2"), 1),
            completed(),
        ],
        Answer(items=(("text", "Hi"), ("text", "Ho")), stop="done", usage=USED),
    ),
    _shape(
        0,
        "parts_interleaved",
        [
            added(message("")),
            text("a", part=0),
            text("x", part=1),
            text("b", part=0),
            text("y", part=1),
            completed(),
        ],
        Answer(items=(("text", "abxy"),), stop="done", usage=USED),
    ),
    _shape(
        0,
        "parts_numbered_otherwise_than_listed",
        [added(message("")), text("Hi", part=3), done(message("Hi")), completed(message("Hi"))],
        HI,
    ),
    _shape(
        0,
        "extended_events_beside_the_official_ones",
        [
            added(A),
            ev("output_tool_call.begin", output_index=0, item_id="fc_a", call_id="call_a", name="get_weather"),
            args('{"city":'),
            ev("output_tool_call.delta", output_index=0, item_id="fc_a", delta='{"city":'),
            args('"Paris"}'),
            ev("output_tool_call.delta", output_index=0, item_id="fc_a", delta='"Paris"}'),
            ev("function_call_arguments.done", output_index=0, item_id="fc_a", arguments=PARIS),
            ev("output_tool_call.end", output_index=0, item_id="fc_a", name="get_weather", arguments=PARIS),
            done(A),
            completed(A),
            ev("done", response=response()),
            "[DONE]",
        ],
        ONE,
    ),
    _shape(
        0,
        "extended_events_before_the_official_ones",
        [
            ev("output_tool_call.begin", output_index=0, item_id="fc_a", call_id="call_a", name="get_weather"),
            added(A),
            ev("output_tool_call.delta", output_index=0, item_id="fc_a", delta='{"city":'),
            args('{"city":'),
            ev("output_tool_call.delta", output_index=0, item_id="fc_a", delta='"Paris"}'),
            args('"Paris"}'),
            done(A),
            completed(A),
        ],
        ONE,
    ),
    _shape(
        0,
        "custom_call",
        [
            added({"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_a", "name": "exec", "input": ""}),
            ev("custom_tool_call_input.delta", output_index=0, item_id="ctc_1", delta="print("),
            ev("custom_tool_call_input.delta", output_index=0, item_id="ctc_1", delta="1)"),
            ev("custom_tool_call_input.done", output_index=0, item_id="ctc_1", input="print(1)\n"),
            completed(),
        ],
        Answer(items=(("call", "exec", "print(1)\n"),), stop="calls", usage=USED),
    ),
    _shape(
        0,
        "namespaced_call",
        [*called({**A, "namespace": "ns"}), completed()],
        Answer(items=(("call", "ns__get_weather", PARIS),), stop="calls", usage=USED),
    ),
    _shape(
        0,
        "summaries_of_reasoning",
        [
            added({"type": "reasoning", "id": "rs_1", "summary": []}),
            ev("reasoning_summary_part.added", output_index=0, item_id="rs_1", summary_index=0, part={}),
            ev("reasoning_summary_text.delta", output_index=0, item_id="rs_1", summary_index=0, delta="one"),
            ev("reasoning_summary_text.done", output_index=0, item_id="rs_1", summary_index=0, text="one "),
            ev("reasoning_summary_text.delta", output_index=0, item_id="rs_1", summary_index=1, delta="two"),
            ev(
                "reasoning_summary_part.done",
                output_index=0,
                item_id="rs_1",
                summary_index=1,
                part={"type": "summary_text", "text": "two."},
            ),
            done({"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "one "}]}),
            completed(),
        ],
        Answer(items=(("reasoning", "one two."),), stop="done", usage=USED),
    ),
    _shape(
        0,
        "open_responses_reasoning",
        [
            ev("reasoning.delta", output_index=0, item_id="rs_1", content_index=0, delta="hm"),
            ev("reasoning.done", output_index=0, item_id="rs_1", content_index=0, text="hmm"),
            completed(),
        ],
        Answer(items=(("reasoning", "hmm"),), stop="done", usage=USED),
    ),
    _shape(
        0,
        "items_that_the_upstream_ran",
        [
            added({**MCP, "output": None}),
            ev("mcp_call.in_progress", output_index=0, item_id="mcp_1"),
            ev("mcp_call_arguments.delta", output_index=0, item_id="mcp_1", delta="{}"),
            ev("mcp_call_arguments.done", output_index=0, item_id="mcp_1", arguments="{}"),
            ev("mcp_call.completed", output_index=0, item_id="mcp_1"),
            done(MCP),
            added(SEARCH, 1),
            ev("web_search_call.searching", output_index=1, item_id="ws_1"),
            ev("shell_call_command.delta", output_index=1, command_index=0, delta="ls"),
            done(SEARCH, 1),
            *said("Hi", 2),
            completed(MCP, SEARCH, message("Hi")),
        ],
        Answer(items=(_opaque(MCP), _opaque(SEARCH), ("text", "Hi")), stop="done", usage=USED),
    ),
    _shape(
        0,
        "unknown_events",
        [ev("surprise.delta", delta="x"), ev("surprise.delta", delta="y"), *said("Hi"), completed()],
        Answer(items=(("text", "Hi"),), stop="done", usage=USED, notes=("unknown_event",)),
    ),
    _shape(
        0,
        "items_that_are_none",
        [*said("Hi"), done({}, 1), completed()],
        Answer(items=(("text", "Hi"),), error=BROKEN),
    ),
    _shape(
        0,
        "output_that_holds_no_items",
        [*said("Hi"), completed(3, None)],
        Answer(items=(("text", "Hi"),), error=BROKEN),
    ),
    _shape(
        0,
        "text_of_an_item_that_was_done",
        [*said("Hi"), text("!"), completed()],
        Answer(items=(("text", "Hi"),), error=BROKEN),
    ),
    _shape(
        0,
        "line_that_is_not_json",
        [*said("Hi"), "keepalive", completed()],
        Answer(items=(("text", "Hi"),), error=BROKEN),
    ),
    _shape(
        0,
        "halves_in_separate_deltas",
        [text("a\ud83d"), text("\ude00b"), completed()],
        Answer(items=(("text", "a😀b"),), stop="done", usage=USED),
    ),
    _shape(
        0,
        "half_completed_by_the_whole_text",
        [text("a\ud83d"), done(message("a😀b")), completed()],
        Answer(items=(("text", "a😀b"),), stop="done", usage=USED),
    ),
    _shape(
        0,
        "lone_half_at_the_end",
        [text("a\ud83d"), completed()],
        Answer(items=(("text", "a\ufffd"),), stop="done", usage=USED),
    ),
    _shape(
        0,
        "failed",
        [
            *said("Hel"),
            ev("failed", response=response("failed", error={"code": "rate_limit_exceeded", "message": "s"})),
        ],
        Answer(items=(("text", "Hel"),), error="rate_limit_exceeded"),
    ),
    _shape(0, "failed_without_a_reason", [ev("failed")], Answer(error="upstream_error")),
    _shape(
        0,
        "nested_error",
        [{"type": "error", "error": {"type": "server_error", "code": "overloaded", "message": "boom"}}],
        Answer(error="overloaded"),
    ),
    _shape(
        0,
        "error_without_a_type",
        [text("Hel"), json.dumps({"error": {"message": "boom", "code": "overloaded"}})],
        Answer(error="overloaded"),
    ),
    _shape(
        0,
        "cancelled",
        [*said("Hel"), ev("cancelled", response=response("cancelled"))],
        Answer(items=(("text", "Hel"),), error="upstream_cancelled"),
    ),
    _shape(
        0,
        "incomplete_that_says_cancelled",
        [ev("incomplete", response=response("cancelled"))],
        Answer(error="upstream_cancelled"),
    ),
    _shape(
        0,
        "completed_that_says_incomplete",
        [*said("Hi"), ev("completed", response=response("incomplete"))],
        Answer(items=(("text", "Hi"),), stop="length", usage=USED),
    ),
    _shape(
        0,
        "incomplete_for_another_reason",
        [
            *called(A),
            ev("incomplete", response=response("incomplete", incomplete_details={"reason": "max_tool_calls"})),
        ],
        Answer(items=(WEATHER,), stop="length", usage=USED),
    ),
    _shape(
        0, "completed_without_a_response", [*said("Hi"), ev("completed")], Answer(items=(("text", "Hi"),), stop="done")
    ),
    _shape(
        0,
        "usage_that_cannot_be_true",
        [*said("Hi"), ev("completed", response=response(usage={"input_tokens": -1, "output_tokens": "x"}))],
        Answer(items=(("text", "Hi"),), stop="done"),
    ),
    _shape(
        0,
        "usage_zero_is_not_missing",
        [*said("Hi"), ev("completed", response=response(usage={"input_tokens": 0, "output_tokens": 0}))],
        Answer(items=(("text", "Hi"),), stop="done", usage=Usage()),
    ),
    Shape(
        name="no_type_but_event_lines",
        body=b'event: response.output_text.delta\ndata: {"delta":"Hi"}\n\n'
        b'event: response.completed\ndata: {"response":{"status":"completed"}}\n\n',
        expected=Answer(items=(("text", "Hi"),), stop="done"),
    ),
    Shape(
        name="no_event_lines_no_space_crlf_bom",
        body=b"\xef\xbb\xbf: hi\r\ndata:"
        + json.dumps(text("Hi")).encode()
        + b"\r\n\r\ndata:"
        + json.dumps(completed()).encode()
        + b"\r\n",
        expected=HI,
    ),
    Shape(
        name="fields_of_the_wrong_type",
        body=frames(
            ev("output_item.added", output_index="x", item={"type": "message", "id": {}, "content": 5, "phase": []}),
            ev("output_text.delta", output_index={}, item_id=[], content_index="a", delta="Hi", logprobs=7),
            ev("output_text.annotation.added", annotation=5),
            ev("completed", response={"status": 7, "usage": []}),
        ),
        expected=Answer(items=(("text", "Hi"),), stop="done"),
    ),
    Shape(
        name="whole_document",
        body=json.dumps(
            response(output=[{"type": "reasoning", "id": "rs_1", "summary": []}, message("Look."), A, SEARCH, B]),
        ).encode(),
        expected=Answer(
            items=(("reasoning", ""), ("text", "Look."), WEATHER, _opaque(SEARCH), TIME), stop="calls", usage=USED
        ),
    ),
    Shape(
        name="document_without_status",
        body=json.dumps(response(None, [{"role": "assistant", "content": "Hi"}])).encode(),
        expected=HI,
    ),
    Shape(
        name="incomplete_document",
        body=json.dumps(response("incomplete", [message("Hi")])).encode(),
        expected=Answer(items=(("text", "Hi"),), stop="length", usage=USED),
    ),
    Shape(name="queued_document", body=json.dumps(response("queued")).encode(), expected=Answer(error=BROKEN)),
    Shape(
        name="failed_document",
        body=json.dumps(response("failed", error={"code": "server_error", "message": "x"})).encode(),
        expected=Answer(error="server_error"),
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
    Shape(name="document_of_another_kind", body=b'{"choices":[]}', expected=Answer(error=BROKEN)),
    Shape(name="list_without_anything", body=b"[]", expected=Answer(error=BROKEN)),
    Shape(name="cut_document", body=b'{"status":"completed","output":[{"type":"mess', expected=Answer(error=BROKEN)),
    Shape(name="html_page", body=b"\n<!DOCTYPE html><title>502</title>", expected=Answer(error=BROKEN)),
    Shape(name="plain_text", body=b"service unavailable", expected=Answer(error=BROKEN)),
    Shape(name="nothing", body=b"", expected=Answer(error=BROKEN)),
    Shape(
        name="cut_inside_the_terminal",
        body=frames(*said("Hi")) + b'event: response.completed\ndata: {"type":"response.completed","respo',
        expected=Answer(items=(("text", "Hi"),), error=BROKEN),
    ),
)

ALL_SHAPES = SHAPES + MORE_SHAPES
