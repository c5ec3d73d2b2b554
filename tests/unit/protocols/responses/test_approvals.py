"""Approval items of the Responses API: Treadle's own are read and written, the upstream's stay as they are."""

from typing import Any

import msgspec
import openai
import pytest
from openai.types.responses import Response

from stream.responses_runs import call, message
from treadle.core.errors import ProtocolError
from treadle.core.events import ApprovalDecided, ApprovalRequested, RunEnded, RunEvent, RunStarted, ToolFinished
from treadle.core.ids import CountingIds
from treadle.core.items import CallItem, OpaqueItem, text_result
from treadle.core.request import Assent, Request
from treadle.protocols.responses import Encoder, read_request

STARTED = RunStarted(run_id="run_1", response_id="resp_1", model="m", created_at=1000.0)
WIPE = call('{"path":"b"}', n=1, name="wipe", side="server")
ASKED = ApprovalRequested(index=1, call=WIPE, approval_id="apr_1", source="python", is_deferred=True)
HOSTED = {"type": "mcp", "server_label": "deep", "server_url": "https://example.org/mcp"}


def reading(*items: Any, **body: Any) -> Request:
    """Read a request of these items."""
    return read_request(msgspec.json.encode({"model": "m", "input": list(items), **body}))


def told(*events: RunEvent, status: Any = "requires_action", stream: bool = False) -> tuple[list[Any], Response]:
    """Write a run; return its stream, and the whole response as the SDK reads it."""
    request = reading({"role": "user", "content": "go"}, stream=stream)
    encoder = Encoder(request, CountingIds())
    frames = [frame for event in (STARTED, *events, RunEnded(status=status)) for frame in encoder.feed(event)]
    lines = [msgspec.json.decode(frame.split(b"data: ", 1)[1]) for frame in frames]
    return lines, openai.types.responses.Response.model_validate_json(encoder.body())


def test_an_answer_is_no_item() -> None:
    """It stands beside the input, with the place where it was written."""
    answer = {"type": "mcp_approval_response", "approval_request_id": "apr_1", "approve": False, "reason": "no"}
    request = reading({"role": "user", "content": "x"}, answer)
    assert len(request.items) == 1
    assert request.approvals == (
        Assent(approval_id="apr_1", approve=False, reason="no", field="input[1].approval_request_id"),
    )


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"approve": True}, "input[0].approval_request_id"),
        ({"approval_request_id": "apr_1"}, "input[0].approve"),
        ({"approval_request_id": "apr_1", "approve": 1}, "input[0].approve"),
        ({"approval_request_id": 7, "approve": True}, "input[0].approval_request_id"),
    ],
)
def test_an_answer_that_is_none_names_its_field(fields: dict[str, Any], param: str) -> None:
    """What is missing, or of the wrong type."""
    with pytest.raises(ProtocolError) as caught:
        reading({"type": "mcp_approval_response", **fields})
    assert caught.value.info.param == param


def test_a_question_of_treadles_own_stands_for_its_call() -> None:
    """By the id of the question."""
    question = {
        "type": "mcp_approval_request",
        "id": "apr_1",
        "server_label": "python",
        "name": "wipe",
        "arguments": '{"path":"b"}',
    }
    [item] = reading(question).items
    assert item == CallItem(id="apr_1", call_id="apr_1", name="wipe", arguments='{"path":"b"}', side="server")


def test_the_upstreams_own_questions_and_answers_are_its_business() -> None:
    """Of a server that the upstream calls: kept exactly as they came."""
    question = {"type": "mcp_approval_request", "id": "q_1", "server_label": "deep", "name": "f", "arguments": "{}"}
    answer = {"type": "mcp_approval_response", "approval_request_id": "q_1", "approve": True}
    for request in (reading(question, answer, tools=[HOSTED]), reading({**question, "server_label": "deep"}, answer)):
        assert [type(item) for item in request.items] == [OpaqueItem, OpaqueItem]
        assert request.approvals == ()


@pytest.mark.parametrize("stream", [False, True])
def test_a_run_that_leaves_a_question_ends_with_it(stream: bool) -> None:
    """After everything else, as an item that is whole at once; the response is completed."""
    lines, response = told(ASKED, *message(2, "Let me see."), stream=stream)
    assert response.status == "completed"
    asked = response.output[-1]
    assert asked.to_dict() == {
        "id": "apr_1",
        "type": "mcp_approval_request",
        "name": "wipe",
        "arguments": '{"path":"b"}',
        "server_label": "python",
    }
    shown = [(line["type"], line["output_index"]) for line in lines if line.get("item", {}).get("id") == "apr_1"]
    steps = ["response.output_item.added", "response.output_item.done"]
    assert shown == ([(step, 1) for step in steps] if stream else [])


@pytest.mark.parametrize("status", ["failed", "cancelled", "completed"])
def test_a_question_that_the_run_did_not_leave_is_not_shown(status: str) -> None:
    """It was withdrawn, or answered while the run waited."""
    _, response = told(ASKED, status=status)
    assert response.output == []


def test_a_call_names_the_question_it_was_decided_by() -> None:
    """And shows the arguments it ran with."""
    decided = ApprovalDecided(index=1, call=WIPE, approval_id="apr_1", status="approved", arguments='{"path":"z"}')
    changed = msgspec.structs.replace(WIPE, arguments='{"path":"z"}')
    finished = ToolFinished(index=1, call=changed, result=text_result(WIPE, "wiped"), source="python")
    _, response = told(decided, finished, status="completed")
    [item] = response.output
    assert item.type == "mcp_call"
    assert (item.approval_request_id, item.arguments, item.output) == ("apr_1", '{"path":"z"}', "wiped")
