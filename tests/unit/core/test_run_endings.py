"""Every end of a run that is no answer is an error in every protocol, whatever its status is called."""

from typing import get_args

import msgspec
import pytest

from treadle.core.errors import ErrorInfo
from treadle.core.events import ENDED, ItemAdded, RunEnded, RunStarted, Status, TextDelta
from treadle.core.ids import CountingIds
from treadle.core.items import MessageItem
from treadle.core.request import Request, Surface
from treadle.core.run_endings import CANCELLED, ENDINGS, UNKNOWN, Ending, failure_of, may_retry
from treadle.protocols.protocol_registry import PROTOCOLS
from treadle.protocols.sse import SseReader

STARTED = RunStarted(run_id="run_1", response_id="resp_1", model="m", created_at=1.0)
SAID = (STARTED, ItemAdded(index=0, item=MessageItem(role="assistant", content=(), id="msg_1")))
TEXT = TextDelta(index=0, text="Only ha")
WHOLE = (b'"finish_reason":"', b"response.completed", b"message_stop", b'"finishReason":"')
"""What tells the end of an answer, in each protocol."""


def test_every_last_status_has_a_meaning() -> None:
    """A status that is added to the runs must be given one here first."""
    meanings = {status: failure_of(RunEnded(status=status)) for status in get_args(Status) if status in ENDED}
    assert meanings == {
        "completed": None,
        "requires_action": None,
        "incomplete": None,
        "failed": UNKNOWN,
        "cancelled": CANCELLED,
    }


def test_a_run_that_says_why_it_ended_is_believed() -> None:
    """The words of the table are for runs that say nothing."""
    error = ErrorInfo(code="x", message="why", status=503)
    assert failure_of(RunEnded(status="failed", error=error)) == error
    assert failure_of(RunEnded(status="completed", error=error)) is None


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("ending", [each for each in ENDINGS if each.end is not None], ids=lambda each: each.name)
def test_an_end_is_written_as_what_it_is(ending: Ending, protocol: str) -> None:
    """In the stream and in the body: an answer has its protocol's own end, and what is none never has."""
    assert ending.end is not None
    sent: dict[bool, bytes] = {}
    for streams in (True, False):
        request = Request(protocol=protocol, model="m", surface=Surface(stream=streams))
        encoder = PROTOCOLS[protocol].codec.encoder(request, CountingIds())
        frames = b"".join(frame for event in (*SAID, TEXT, ending.end) for frame in encoder.feed(event))
        sent[streams] = frames if streams else encoder.body()
    failure = failure_of(ending.end)
    has_end = any(word in sent[True] for word in (*WHOLE, b"response.incomplete"))
    assert has_end == (failure is None) or (protocol, ending.end.status) == ("responses", "cancelled")
    if failure is not None:
        last = [frame for frame in SseReader().feed(sent[True]) if frame.data != "[DONE]"][-1]
        assert failure.message in sent[True].decode()
        assert last.event in ("", "error", "response.failed", "response.incomplete")
        body = msgspec.json.decode(sent[False])
        assert body["error"] is not None or body["status"] == "cancelled"


@pytest.mark.parametrize(
    ("code", "retryable", "has_run_tools", "is_keyed", "may"),
    [
        ("cancelled", False, False, True, False),
        ("server_stopping", True, False, False, True),
        ("server_stopping", True, True, True, False),
        ("store_unavailable", True, True, False, False),
        ("store_unavailable", True, True, True, True),
        ("lease_lost", True, True, True, True),
        ("handed_over", False, False, False, False),
        ("handed_over", False, True, True, True),
    ],
)
def test_a_retry_is_wanted_only_where_it_helps(
    code: str, retryable: bool, has_run_tools: bool, is_keyed: bool, may: bool
) -> None:
    """A run that goes on elsewhere is found again by its key; nothing else may run a tool twice."""
    error = ErrorInfo(code=code, message="", retryable=retryable)
    assert may_retry(error, has_run_tools=has_run_tools, is_keyed=is_keyed) == may
