"""Calls and results of a client's history: what is refused, what is put right and noted."""

import logging

import pytest

from treadle.core.errors import ProtocolError
from treadle.core.items import AnyItem, CallItem, ResultItem, TextPart, text_message
from treadle.core.request import Request
from treadle.runs.history_validation import check_results, log_pairs, note_repairs

USER = text_message("user", "hi")


def call(call_id: str) -> CallItem:
    """Return a call of that id."""
    return CallItem(call_id=call_id, name="f", arguments="{}")


def result(call_id: str, name: str = "f") -> ResultItem:
    """Return the result of that call."""
    return ResultItem(call_id=call_id, name=name, output=(TextPart(text="r"),))


@pytest.mark.parametrize(
    ("protocol", "field"),
    [("chat", "messages"), ("responses", "input"), ("messages", "messages"), ("gemini", "contents")],
)
def test_a_result_whose_call_is_nowhere_is_refused_by_its_id(protocol: str, field: str) -> None:
    """The field is named as that API calls it."""
    request = Request(protocol=protocol, model="m")
    with pytest.raises(ProtocolError) as refused:
        check_results(request, [USER, call("a"), result("a"), result("b")], ())
    assert (refused.value.info.param, refused.value.info.status) == (field, 400)
    assert refused.value.message == (
        f"Invalid {field!r}: there is no call with the id 'b', but a result of the tool 'f' for it."
    )


def test_an_id_without_end_is_not_shown_whole() -> None:
    """Words about it are bounded."""
    with pytest.raises(ProtocolError) as refused:
        check_results(Request(protocol="chat", model="m"), [result("x" * 100_000, "y" * 100_000)], ())
    assert len(refused.value.message) < 500


def test_a_call_of_an_earlier_response_is_answered() -> None:
    """What the store knows stands before what the client sends."""
    check_results(Request(protocol="responses", model="m"), [result("a")], {"a"})


@pytest.mark.parametrize(
    ("items", "notes"),
    [
        ([USER, call("a"), call("b"), result("a"), result("b"), USER], []),
        ([call("a"), text_message("assistant", "and"), call("b"), result("a"), result("b")], []),
        ([call("a"), result("a"), call("b"), result("b")], []),
        ([call("a"), call("b"), result("b"), result("a")], [("results_reordered", "kept", 1)]),
        ([call("a"), USER, result("a")], [("result_moved", "repaired", 1)]),
        ([call("a"), call("b"), result("a"), call("c"), result("b"), result("c")], [("result_moved", "repaired", 1)]),
        (
            [call("a"), call("b"), result("b"), text_message("assistant", "so"), result("a")],
            [("result_moved", "repaired", 1), ("results_reordered", "kept", 1)],
        ),
        ([call("a"), result("a"), call("a"), result("a")], [("duplicate_call_id", "repaired", 1)]),
        ([call("a"), USER], []),
    ],
    ids=[
        "in order",
        "text among calls",
        "two turns",
        "turned",
        "behind a message",
        "behind a turn",
        "both",
        "id twice",
        "open",
    ],
)
def test_what_is_put_right_is_noted(items: list[AnyItem], notes: list[tuple[str, str, int]]) -> None:
    """Moved and renamed ones are repairs; the order of results within a turn means nothing in any API."""
    found = note_repairs(items)
    assert [(note.code, note.action, note.count) for note in found] == notes
    assert {note.field for note in found} <= {"history"}


def test_what_a_client_sends_along_is_told_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    """Which calls and results, and nothing that they say."""
    caplog.set_level(logging.DEBUG, logger="treadle")
    log_pairs("run_1", [USER, call("a"), result("a")])
    told = [(each.message, each.__dict__["run_id"], each.__dict__["tool_call_id"]) for each in caplog.records]
    assert told == [("input call attached", "run_1", "a"), ("input result added", "run_1", "a")]
