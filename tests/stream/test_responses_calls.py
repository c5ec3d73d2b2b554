"""Calls as Responses streams: whose they are, how they are spelled, judged by the real openai SDK."""

import json
from typing import Any

import msgspec
import pytest

from stream.responses_oracle import COMPLETED, STARTED, judge, request
from stream.responses_runs import (
    CALL,
    SERVER,
    START,
    TEXT,
    call,
    called,
    function_call,
    message,
    message_item,
    round_started,
    server_call,
    tool_finished,
    tool_started,
)
from treadle.core.events import (
    ArgumentsDelta,
    ItemAdded,
    ItemDone,
    RoundBroken,
    RunEnded,
    RunEvent,
    ToolFinished,
)
from treadle.core.ids import CountingIds
from treadle.core.items import (
    ImagePart,
    ResultItem,
    TextPart,
)
from treadle.protocols.responses import Encoder


def test_text_then_call_are_two_items() -> None:
    """Text before a call closes before the call opens, and does not end the stream."""
    seen = judge([*message(0, "Let me see."), *called(1, call('{"a":1}'), '{"a"', ":1}"), COMPLETED])
    assert seen.types == [*START, *TEXT, *CALL[:2], *CALL[1:], "completed"]
    assert seen.final["output"] == [message_item("Let me see."), function_call('{"a":1}')]


def test_interleaved_parallel_calls_are_written_one_after_the_other() -> None:
    """The deltas of a second call wait until the first call is done."""
    one, two = call('{"a":1}', 1), call('{"b":2}', 2)
    events: list[RunEvent] = [
        ItemAdded(index=4, item=call("", 1)),
        ItemAdded(index=9, item=call("", 2)),
        ArgumentsDelta(index=9, text='{"b"'),
        ArgumentsDelta(index=4, text='{"a"'),
        ArgumentsDelta(index=9, text=":2}"),
        ItemDone(index=9, item=two),
        ArgumentsDelta(index=4, text=":1}"),
        ItemDone(index=4, item=one),
    ]
    seen = judge([*events, RunEnded(status="requires_action", stop="calls")])
    twice = [*CALL[:2], *CALL[1:]]
    assert seen.types == [*START, *twice, *twice, "completed"]
    assert [(event["output_index"], event["delta"]) for event in seen.of("function_call_arguments.delta")] == [
        (0, '{"a"'),
        (0, ":1}"),
        (1, '{"b"'),
        (1, ":2}"),
    ]
    assert seen.final["output"] == [function_call('{"a":1}', 1), function_call('{"b":2}', 2)]


def test_server_call_then_text_over_two_rounds_is_one_lifecycle() -> None:
    """A server call shows as an mcp_call, its own item events stay silent, and the next round goes on in the stream."""
    item = call('{"q":1}', name="g", side="server")
    events = [
        round_started(1),
        *called(0, item, '{"q":1}'),
        tool_started(0, item),
        tool_finished(0, item, "42"),
        round_started(2),
        *message(1, "It is 42."),
    ]
    seen = judge([*events, COMPLETED])
    assert seen.types == [*START, *SERVER, *TEXT, "completed"]
    assert seen.of("output_item.added")[0]["item"] == server_call(status="in_progress", arguments="", output=None)
    assert seen.final["output"] == [server_call(arguments='{"q":1}', output="42"), message_item("It is 42.")]


def test_mixed_turn_shows_the_client_call_and_the_server_run() -> None:
    """Of a turn with both kinds of calls the client gets its own to run and the server's as done, in their order."""
    mine, theirs = call("{}", 1, "g", side="server"), call('{"x":1}', 2)
    events = [
        *called(0, mine, "{}"),
        *called(1, theirs, '{"x":1}'),
        tool_started(0, mine),
        tool_finished(0, mine),
    ]
    seen = judge([*events, RunEnded(status="requires_action", stop="calls")])
    assert seen.types == [*START, *SERVER, *CALL, "completed"]
    assert seen.final["output"] == [server_call(1), function_call('{"x":1}', 2)]


def test_a_server_call_that_was_broken_off_keeps_no_place() -> None:
    """What comes in the next attempt does not wait for it."""
    mine = call("", 1, "g", side="server")
    events = [ItemAdded(index=0, item=mine), RoundBroken(round=1, indexes=(0,)), *message(1, "Hi"), COMPLETED]
    assert judge(events).types == [*START, *TEXT, "completed"]


def test_overlapping_server_calls_are_written_one_after_the_other() -> None:
    """Server calls that run at the same time, and finish in the other order, still follow each other."""
    one, two = call("{}", 1, "g", side="server"), call("{}", 2, "g", side="server")
    events = [tool_started(0, one), tool_started(1, two), tool_finished(1, two, "second"), tool_finished(0, one)]
    seen = judge([*events, COMPLETED])
    assert seen.types == [*START, *SERVER, *SERVER, "completed"]
    assert seen.final["output"] == [server_call(1), server_call(2, output="second")]


def test_failed_server_call_carries_its_error() -> None:
    """A tool that failed is an mcp_call with an error and no output; the response goes on."""
    item = call("{}", name="g", side="server")
    seen = judge(
        [tool_started(0, item), tool_finished(0, item, "boom", is_error=True), *message(1, "Sorry."), COMPLETED]
    )
    assert seen.types == [*START, *SERVER[:4], "mcp_call.failed", SERVER[5], *TEXT, "completed"]
    error = {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": "boom"}]}
    assert seen.final["output"][0] == server_call(status="failed", output=None, error=error)


def test_server_call_that_never_started_is_still_shown_whole() -> None:
    """A call that was refused before it ran has a result and no start; its item is complete all the same."""
    item = call("", name="g", side="server")
    seen = judge([tool_finished(0, item, "no such tool", is_error=True), COMPLETED])
    assert seen.types == [*START, *SERVER[:4], "mcp_call.failed", SERVER[5], "completed"]


def test_result_that_is_not_text_is_named_in_the_output() -> None:
    """An mcp_call has room for one text, so an image in the result is at least named."""
    item = call("{}", name="g", side="server")
    output = (TextPart(text="a plot"), ImagePart(url="data:image/png;base64,AA=="))
    result = ResultItem(call_id=item.call_id, name="g", output=output)
    seen = judge([ToolFinished(index=0, call=item, result=result, source="python"), COMPLETED])
    assert seen.final["output"] == [server_call(output="a plot\n[image]")]


@pytest.mark.parametrize("arguments", ["", "{}"])
def test_zero_argument_call_is_an_empty_object_once(arguments: str) -> None:
    """A call without arguments says `{}` in its one delta, in done and in the item."""
    seen = judge([*called(0, call(arguments)), RunEnded(status="requires_action", stop="calls")])
    assert seen.types == [*START, *CALL, "completed"]
    assert [event["delta"] for event in seen.of("function_call_arguments.delta")] == ["{}"]
    assert seen.final["output"] == [function_call("{}")]


def test_arguments_that_were_never_streamed_are_flushed_as_one_delta() -> None:
    """The tail that a decoder only says at the end reaches clients that read deltas alone."""
    seen = judge([*called(0, call('{"a":1}'), '{"a"'), COMPLETED])
    assert [event["delta"] for event in seen.of("function_call_arguments.delta")] == ['{"a"', ":1}"]


def test_unicode_survives_in_text_and_arguments() -> None:
    """Characters of any plane, and line separators that tear careless readers, arrive as they are."""
    text = "Grüße 👩‍👩‍👧 \u2028 日本 \x00 \r\n end"
    arguments = json.dumps({"q": text}, ensure_ascii=False)
    seen = judge([*message(0, *text), *called(1, call(arguments), *arguments), COMPLETED])
    assert seen.final["output"] == [message_item(text), function_call(arguments)]


def test_extended_events_stand_beside_their_official_twins() -> None:
    """S2's events follow the official ones, with numbers of their own, and the stream ends with [DONE]."""
    seen = judge([*called(0, call('{"a":1}'), '{"a"', ":1}"), COMPLETED], extended=True)
    assert seen.types == [
        *START,
        "output_item.added",
        "output_tool_call.begin",
        "function_call_arguments.delta",
        "output_tool_call.delta",
        "function_call_arguments.delta",
        "output_tool_call.delta",
        "function_call_arguments.done",
        "output_tool_call.end",
        "output_item.done",
        "completed",
        "done",
    ]
    place = {"item_id": "fc_1", "output_index": 0}
    assert [_payload(event) for event in seen.events if "output_tool_call" in event["type"]] == [
        {**place, "call_id": "call_1", "name": "f"},
        {**place, "delta": '{"a"'},
        {**place, "delta": ":1}"},
        {**place, "name": "f", "arguments": '{"a":1}'},
    ]
    assert [event["item_id"] for event in seen.events if "output_item" in event["type"]] == ["fc_1", "fc_1"]
    assert seen.of("done")[0]["response"] == seen.final
    assert seen.raw.endswith(b"data: [DONE]\n\n")


def _payload(event: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in event.items() if key not in ("type", "sequence_number")}


def test_extended_events_are_off_unless_asked_for() -> None:
    """Without the wish for them there is no event, field or terminator that the official API does not have."""
    seen = judge([*called(0, call("{}"), "{}"), COMPLETED])
    assert b"output_tool_call" not in seen.raw
    assert b"[DONE]" not in seen.raw
    assert all("item_id" not in event for event in seen.of("output_item.added"))


def test_extended_events_follow_the_surface_of_the_request() -> None:
    """A request that was marked by the server is encoded as if the argument had been given."""
    asked = request()
    marked = msgspec.structs.replace(asked, surface=msgspec.structs.replace(asked.surface, extended_events=True))
    encoder = Encoder(marked, CountingIds())
    frames = [frame for event in (STARTED, COMPLETED) for frame in encoder.feed(event)]
    assert frames[-1] == b"data: [DONE]\n\n"


def test_custom_call_streams_its_input() -> None:
    """A custom call has input events in place of argument events, and may be empty."""
    asked = request(tools=[{"type": "custom", "name": "f"}])
    seen = judge([*called(0, call("print(1)", kind="custom"), "print", "(1)"), COMPLETED], asked)
    custom = ["custom_tool_call_input.delta", "custom_tool_call_input.delta", "custom_tool_call_input.done"]
    assert seen.types == [*START, "output_item.added", *custom, "output_item.done", "completed"]
    assert seen.final["output"] == [
        {
            "type": "custom_tool_call",
            "id": "fc_1",
            "status": "completed",
            "call_id": "call_1",
            "name": "f",
            "input": "print(1)",
        }
    ]


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [('{"input":"say \\"hi\\"\\n"}', 'say "hi"\n'), ("plain", "plain"), ('{"other":1}', '{"other":1}'), ("", "")],
)
def test_custom_tool_offered_as_a_function_is_unwrapped(arguments: str, shown: str) -> None:
    """What an upstream without custom tools wrapped into a function reaches the client as its own free text."""
    tools = [
        {"type": "namespace", "name": "functions", "description": "", "tools": [{"type": "custom", "name": "exec"}]}
    ]
    item = call(arguments, name="exec")
    seen = judge([*called(0, item, *arguments), COMPLETED], request(tools=tools))
    output = seen.final["output"][0]
    assert (output["type"], output["name"], output["namespace"], output["input"]) == (
        "custom_tool_call",
        "exec",
        "functions",
        shown,
    )
    assert [event["delta"] for event in seen.of("custom_tool_call_input.delta")] == ([shown] if shown else [])


def test_namespace_is_restored_from_the_flat_name() -> None:
    """The client gets back the namespace and the bare name that it declared."""
    tools = [
        {"type": "namespace", "name": "agents", "description": "", "tools": [{"type": "function", "name": "spawn"}]}
    ]
    seen = judge([*called(0, call("{}", name="agents__spawn"), "{}"), COMPLETED], request(tools=tools))
    assert seen.final["output"] == [function_call("{}", name="spawn", namespace="agents")]
