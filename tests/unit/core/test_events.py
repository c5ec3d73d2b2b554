import msgspec
import pytest
from hypothesis import given

from treadle.core.events import ItemDone, RunEnded, RunStarted, TextDelta, ToolFinished, read_event, write_event
from treadle.core.items import CallItem, ResultItem, TextPart
from treadle.core.request import Options, Request, Surface
from treadle.core.tool_definitions import ToolSpec
from treadle.core.usage import Usage
from unit.core import strategies


@given(strategies.items)
def test_an_item_event_survives_json(item):
    """What a client of the runs API reads is what happened."""
    event = ItemDone(index=3, item=item)
    assert read_event(msgspec.json.encode(event)) == event


@pytest.mark.parametrize(
    "event",
    [
        RunStarted(run_id="run_1", response_id="resp_1", model="m", created_at=1.0),
        TextDelta(index=0, text="hé"),
        ToolFinished(index=1, call=CallItem(call_id="c", name="f"), result=ResultItem(call_id="c"), duration_s=0.5),
        RunEnded(status="completed", usage=Usage(input_tokens=1, output_tokens=2)),
    ],
)
def test_a_run_event_survives_json(event):
    """Run events decode to themselves by their type."""
    assert read_event(msgspec.json.encode(event)) == event


def test_a_result_has_its_envelope_where_it_is_told_and_nowhere_else():
    """What follows from the result is made for whoever reads it: a large result is held and measured once."""
    large = "x" * 10_000
    result = ResultItem(call_id="c", output=(TextPart(text=large),))
    event = ToolFinished(index=1, call=CallItem(call_id="c", name="f"), result=result)
    kept, told = msgspec.json.encode(event), write_event(event)
    assert (kept.count(large.encode()), told.count(large.encode())) == (1, 2)
    assert msgspec.json.decode(told)["envelope"] == {"ok": True, "data": large, "warnings": [], "errors": []}
    assert read_event(told) == event
    assert (event.envelope.ok, msgspec.json.decode(event.envelope.data)) == (True, large)


def test_a_request_survives_json():
    """What is kept of a request can be read back, raw fields included."""
    request = Request(
        protocol="responses",
        model="m",
        tools=(ToolSpec(name="f", format=msgspec.Raw(b'{"type":"text"}')),),
        options=Options(output_schema=msgspec.Raw(b'{"type":"object"}'), extra={"x": msgspec.Raw(b"[1]")}),
        surface=Surface(metadata=msgspec.Raw(b'{"a":"b"}')),
    )
    assert msgspec.json.decode(msgspec.json.encode(request), type=Request) == request
