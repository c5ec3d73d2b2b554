"""How a Responses stream ends, whatever happened, judged by the real openai SDK."""

from typing import Any

import pytest

from stream.responses_oracle import COMPLETED, STARTED, judge, request
from stream.responses_runs import (
    CALL,
    SERVER,
    START,
    TEXT,
    call,
    function_call,
    message,
    message_item,
    round_started,
    said,
    server_call,
    tool_started,
)
from treadle.core.errors import ErrorInfo
from treadle.core.events import (
    ArgumentsDelta,
    ItemAdded,
    ItemDone,
    KeptAlive,
    Noted,
    RunEnded,
    RunEvent,
    TextDelta,
)
from treadle.core.ids import CountingIds
from treadle.core.request import Note
from treadle.core.usage import Usage
from treadle.protocols.responses import Encoder


@pytest.mark.parametrize(("stop", "reason"), [("length", "max_output_tokens"), ("filtered", "content_filter")])
def test_incomplete_marks_the_last_item_and_says_why(stop: Any, reason: str) -> None:
    """A run that was cut ends in response.incomplete, and the item that was cut says so though it was closed."""
    events = [*message(0, "All of it.", item_id="msg_0"), *message(1, "Only ha")]
    seen = judge([*events, RunEnded(status="incomplete", stop=stop)])
    assert seen.types == [*START, *TEXT, *TEXT, "incomplete"]
    assert seen.final["status"] == "incomplete"
    assert seen.final["incomplete_details"] == {"reason": reason}
    assert seen.final["output"] == [message_item("All of it.", item_id="msg_0"), message_item("Only ha", "incomplete")]


def test_item_of_an_earlier_round_is_whole_when_a_later_round_is_cut() -> None:
    """Only the last round can be cut: what was said before it is complete, also when nothing follows."""
    events = [*message(0, "Whole."), round_started(2)]
    seen = judge([*events, RunEnded(status="incomplete", stop="length")])
    assert seen.types == [*START, *TEXT, "incomplete"]
    assert seen.final["output"] == [message_item("Whole.")]


def test_length_inside_arguments_never_ends_the_call() -> None:
    """Clients run a call once they are told that it is done, and whatever stands in the output."""
    events: list[RunEvent] = [ItemAdded(index=0, item=call("")), ArgumentsDelta(index=0, text='{"a":')]
    seen = judge([*events, RunEnded(status="incomplete", stop="length")])
    assert seen.types == [*START, CALL[0], CALL[1], "incomplete"]
    assert seen.final["output"] == []


def test_a_whole_call_stays_whole_where_the_run_is_cut_behind_it() -> None:
    """Only what was cut never ends."""
    events: list[RunEvent] = [
        ItemAdded(index=0, item=call("")),
        ArgumentsDelta(index=0, text="{}"),
        ItemDone(index=0, item=call("{}")),
        ItemAdded(index=1, item=call("", n=2)),
        ArgumentsDelta(index=1, text='{"a":'),
    ]
    seen = judge([*events, RunEnded(status="incomplete", stop="length")])
    assert seen.types == [*START, *CALL, "output_item.added", "function_call_arguments.delta", "incomplete"]
    assert seen.final["output"] == [function_call("{}")]


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (
            ErrorInfo(code="upstream_broken_stream", message="cut", status=502),
            {"code": "server_error", "message": "cut"},
        ),
        (
            ErrorInfo(code="upstream_status", message="slow down", status=429),
            {"code": "rate_limit_exceeded", "message": "slow down"},
        ),
        (ErrorInfo(code="context", message="too long", status=400), {"code": "invalid_prompt", "message": "too long"}),
        (ErrorInfo(code="bio_policy", message="no", status=400), {"code": "bio_policy", "message": "no"}),
        (None, {"code": "server_error", "message": "the run failed"}),
    ],
)
def test_failure_closes_what_is_open_and_names_an_official_code(error: ErrorInfo | None, shown: dict[str, str]) -> None:
    """A run that broke ends in response.failed with the same id, after its open texts were closed."""
    events: list[RunEvent] = [
        ItemAdded(index=0, item=said("")),
        TextDelta(index=0, text="Hel"),
        ItemAdded(index=1, item=call("")),
        ArgumentsDelta(index=1, text='{"a"'),
    ]
    seen = judge([*events, RunEnded(status="failed", error=error)])
    assert seen.types == [*START, *TEXT, CALL[0], CALL[1], "failed"]
    assert (seen.final["id"], seen.final["status"], seen.final["error"]) == ("resp_1", "failed", shown)
    assert seen.final["output"] == [message_item("Hel", "incomplete")]


def test_failure_before_anything_was_said_has_an_empty_output() -> None:
    """A run that broke at once still has a whole lifecycle."""
    seen = judge([RunEnded(status="failed", error=ErrorInfo(code="x", message="down"))])
    assert seen.types == [*START, "failed"]
    assert seen.final["output"] == []


def test_failure_during_a_server_call_closes_it_as_incomplete() -> None:
    """A server call without a result is neither completed nor failed."""
    seen = judge([tool_started(0, call("{}", name="g", side="server")), RunEnded(status="failed")])
    assert seen.types == [*START, *SERVER[:4], "output_item.done", "failed"]
    assert seen.final["output"] == [server_call(status="incomplete", output=None)]


def test_item_that_was_whole_stays_completed_when_the_run_fails_after_it() -> None:
    """Only what was cut is incomplete: an item that ended before the failure is not."""
    seen = judge([*message(0, "Whole."), RunEnded(status="failed")])
    assert seen.final["output"] == [message_item("Whole.")]


def test_cancelled_run_ends_in_an_event_that_clients_know() -> None:
    """The API has a status `cancelled` but no such event, so response.incomplete carries it, behind an error."""
    events: list[RunEvent] = [ItemAdded(index=0, item=said("")), TextDelta(index=0, text="Hel")]
    seen = judge([*events, RunEnded(status="cancelled")])
    assert seen.types == [*START, *TEXT, "error", "incomplete"]
    assert seen.events[-2] == {
        "type": "error",
        "sequence_number": len(seen.events) - 2,
        "code": "cancelled",
        "message": "The run was cancelled before its answer was complete.",
        "param": None,
    }
    assert (seen.final["status"], seen.final["incomplete_details"], seen.final["error"]) == ("cancelled", None, None)


def test_kept_alive_repeats_in_progress() -> None:
    """The keep-alive is a real event with the last number and the same response id: it is no part of the telling."""
    seen = judge([KeptAlive(), *message(0, "Hi"), KeptAlive(), COMPLETED])
    without = [kind for kind in seen.types if kind != "in_progress"]
    assert without == [*(kind for kind in START if kind != "in_progress"), *TEXT, "completed"]
    assert seen.types.count("in_progress") == 3
    assert {event["response"]["id"] for event in seen.of("in_progress")} == {"resp_1"}


def test_notes_are_not_shown() -> None:
    """What a decoder repaired is for the journal, not for the client's stream."""
    note = Noted(note=Note(code="x", action="repaired", message="y"))
    assert judge([note, *message(0, "Hi"), note, COMPLETED]).types == [*START, *TEXT, "completed"]


def test_usage_of_the_whole_run_has_every_detail() -> None:
    """Usage is what the run says, with the details the SDK's type requires; unknown usage is zeros, and marked."""
    usage = Usage(input_tokens=10, output_tokens=5, cached_tokens=4, cache_write_tokens=3, reasoning_tokens=2)
    seen = judge([*message(0, "Hi"), RunEnded(status="completed", usage=usage)])
    assert seen.final["usage"] == {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 3},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 2},
        "total_tokens": 15,
    }
    assert judge([COMPLETED]).final["usage"]["total_tokens"] == 0


def test_a_limit_is_named_in_the_metadata_beside_the_clients_own() -> None:
    """A run that ended at a limit is completed on the wire; the metadata says which limit, as a string."""
    asked = request(metadata={"user": "7"})
    seen = judge([*message(0, "Hi"), RunEnded(status="completed", limit="max_iterations")], asked)
    assert (seen.final["status"], seen.final["metadata"]) == (
        "completed",
        {"user": "7", "treadle_limit": "max_iterations"},
    )
    assert seen.of("created")[0]["response"]["metadata"] == {"user": "7"}


def test_a_run_cannot_end_twice() -> None:
    """A second end is a mistake of the caller, not a second terminal event."""
    encoder = Encoder(request(), CountingIds())
    encoder.feed(STARTED)
    encoder.feed(COMPLETED)
    with pytest.raises(AssertionError):
        encoder.feed(COMPLETED)
