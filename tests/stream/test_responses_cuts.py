"""The encoder against any cutting of deltas and any interleaving of items, judged by the real openai SDK."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from stream.responses_oracle import COMPLETED, judge
from stream.responses_runs import (
    call,
    called,
    function_call,
    message,
    message_item,
    server_call,
    tool_finished,
    tool_started,
)
from treadle.core.events import (
    ItemAdded,
    RunEvent,
    ToolStarted,
)


def cut(text: str, points: list[int]) -> list[str]:
    """Cut a text at these points, in any order and number."""
    marks = sorted({point % (len(text) + 1) for point in points} | {0, len(text)})
    return [text[a:b] for a, b in pairwise(marks)]


TEXT_SAID = "Answer: 42 👍 – done"
ARGUMENTS = '{"query":"Zürich 👍","n":[1,2]}'


@given(
    st.lists(st.integers(min_value=0, max_value=99), max_size=8),
    st.lists(st.integers(min_value=0, max_value=99), max_size=8),
)
def test_final_body_does_not_depend_on_how_deltas_are_cut(text_cuts: list[int], argument_cuts: list[int]) -> None:
    """However the upstream cuts its deltas, the response in the end is the same."""
    seen = judge(
        [
            *message(0, *cut(TEXT_SAID, text_cuts)),
            *called(1, call(ARGUMENTS), *cut(ARGUMENTS, argument_cuts)),
            COMPLETED,
        ]
    )
    assert seen.final["output"] == [message_item(TEXT_SAID), function_call(ARGUMENTS)]


def lanes_of_events() -> list[list[RunEvent]]:
    """Return three items that a run may interleave in any way that keeps the order within each."""
    server = call("{}", 3, "g", side="server")
    return [
        message(0, "He", "llo"),
        called(1, call('{"a":1}', 1), '{"a"', ":1}"),
        [tool_started(2, server), tool_finished(2, server)],
    ]


@given(st.lists(st.integers(min_value=0, max_value=2), max_size=30))
def test_any_interleaving_of_items_is_a_stream_the_sdk_accepts(order: list[int]) -> None:
    """Items that overlap in any way come out one by one, each whole, in the order in which they began."""
    lanes = lanes_of_events()
    events: list[RunEvent] = []
    for lane in [*order, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2]:
        if lanes[lane]:
            events.append(lanes[lane].pop(0))
    seen = judge([*events, COMPLETED])
    whole = {"msg_1": message_item("Hello"), "fc_1": function_call('{"a":1}'), "mcp_3": server_call(3)}
    assert {item["id"]: item for item in seen.final["output"]} == whole
    begun = [event.index for event in events if isinstance(event, ItemAdded | ToolStarted)]
    assert [item["id"] for item in seen.final["output"]] == [["msg_1", "fc_1", "mcp_3"][index] for index in begun]
