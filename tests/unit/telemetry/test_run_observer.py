"""The one observer of a run: times, lines and labels."""

import logging

import pytest

from treadle.core.errors import ErrorInfo
from treadle.core.events import (
    ApprovalDecided,
    ApprovalRequested,
    ItemAdded,
    ItemDone,
    Noted,
    RoundStarted,
    RunEnded,
    RunEvent,
    RunStarted,
    TextDelta,
    ToolFinished,
    ToolStarted,
)
from treadle.core.items import CallItem, MessageItem, ResultItem, TextPart
from treadle.core.request import Note
from treadle.core.usage import Usage
from treadle.telemetry import Metrics, ModelCall, model_call, upstream_request
from treadle.telemetry.run_observer import About, RunObserver

ABOUT = About(run_id="run_1", response_id="resp_1", conversation_id="conv_1", protocol="chat", model="m")
CALL = CallItem(call_id="c1", name="look", arguments='{"secret-argument": 1}')
RESULT = ResultItem(call_id="c1", output=(TextPart(text="secret-result"),), rc="ok")


class Time:
    """A clock that is put forward by hand."""

    def __init__(self) -> None:
        self.at = 100.0

    def now(self) -> float:
        return self.at

    monotonic = now


def watched(*events: RunEvent | float) -> Metrics:
    """Return what is counted of a run; numbers between its events are seconds that pass."""
    time, metrics = Time(), Metrics()
    watch = RunObserver(ABOUT, metrics, time)
    for event in events:
        if isinstance(event, float):
            time.at += event
        else:
            watch.observe(event)
    return metrics


def sample(metrics: Metrics, name: str, **labels: str) -> float | None:
    """Return one series."""
    return metrics.registry.value(name, labels)


ROUND = RoundStarted(round=1, fingerprint="f")
SAYS = ItemAdded(index=0, item=MessageItem(role="assistant"))


def test_a_model_call_is_timed_to_its_first_event_and_to_its_end() -> None:
    """What only its next step tells is its end; deltas in between change nothing."""
    metrics = watched(ROUND, 2.0, SAYS, 1.0, TextDelta(index=0, text="x"), SAYS, 4.0, RunEnded(status="completed"))
    assert sample(metrics, "treadle_model_first_event_seconds_sum", upstream="local") == 2.0
    assert sample(metrics, "treadle_model_first_event_seconds_count", upstream="local") == 1
    assert sample(metrics, "treadle_model_call_duration_seconds_sum", upstream="local") == 7.0
    assert sample(metrics, "treadle_run_duration_seconds_sum") == 7.0


def test_a_call_of_an_upstream_is_counted_to_it_and_ends_when_it_did() -> None:
    """The tool that ran afterwards is no part of it, and the next round does not count to the last one's upstream."""
    time, metrics = Time(), Metrics()
    watch = RunObserver(ABOUT, metrics, time)
    watch.observe(ROUND)
    model_call.set(ModelCall(upstream="far", stop="calls", ended_at=103.0))
    time.at = 104.0
    watch.observe(ToolStarted(index=0, call=CALL))
    watch.observe(RoundStarted(round=2, fingerprint="g"))
    time.at = 105.0
    watch.observe(SAYS)
    assert sample(metrics, "treadle_model_call_duration_seconds_sum", upstream="far") == 3.0
    assert sample(metrics, "treadle_model_first_event_seconds_sum", upstream="local") == 1.0


def test_the_wait_for_a_person_is_timed() -> None:
    """From the question to the decision, by the approval's id."""
    asked = ApprovalRequested(index=0, call=CALL, approval_id="a1")
    decided = ApprovalDecided(index=0, call=CALL, approval_id="a1", status="approved")
    other = ApprovalDecided(index=0, call=CALL, approval_id="a2", status="denied")
    metrics = watched(ROUND, asked, 30.0, decided, other)
    assert sample(metrics, "treadle_approval_wait_seconds_sum") == 30.0
    assert sample(metrics, "treadle_approval_wait_seconds_count") == 1


def test_a_tool_and_an_end_are_a_line_each_without_what_was_said(caplog: pytest.LogCaptureFixture) -> None:
    """Iteration, name, id, code, time, size and the provider's own id; never arguments or results."""
    finished = ToolFinished(index=0, call=CALL, result=RESULT, duration_s=0.5, output_bytes=13)
    token = upstream_request.set("req_9")
    with caplog.at_level(logging.DEBUG, "treadle.runs"):
        watched(
            RunStarted(run_id="run_1", response_id="resp_1", model="m", created_at=1.0),
            RoundStarted(round=3, fingerprint="f"),
            finished,
            1.5,
            RunEnded(status="completed", rounds=3, calls=1, usage=Usage(input_tokens=5, output_tokens=7)),
        )
    upstream_request.reset(token)
    lines = {record.getMessage(): vars(record) for record in caplog.records}
    told = lines["tool look: ok"]
    fields = ("run_id", "iteration", "tool_name", "tool_call_id", "rc", "duration_s", "output_bytes")
    assert [told[field] for field in fields] == ["run_1", 3, "look", "c1", "ok", 0.5, 13]
    assert told["upstream_request_id"] == "req_9"
    ended = lines["run completed"]
    assert (ended["status"], ended["iterations"], ended["tool_calls"], ended["duration_s"]) == ("completed", 3, 1, 1.5)
    assert (ended["input_tokens"], ended["output_tokens"], ended["protocol"]) == (5, 7, "chat")
    assert "secret" not in repr([vars(record) for record in caplog.records])


def test_a_failed_run_is_a_warning_with_its_code(caplog: pytest.LogCaptureFixture) -> None:
    """An operator looks for codes."""
    with caplog.at_level(logging.INFO, "treadle.runs"):
        watched(RunEnded(status="failed", error=ErrorInfo(code="upstream_timeout", message="It was silent.")))
    [record] = caplog.records
    assert (record.levelname, vars(record)["code"]) == ("WARNING", "upstream_timeout")


def test_what_others_name_does_not_grow_the_series() -> None:
    """Ten thousand invented tools, codes and notes are a bounded number of series."""
    metrics = Metrics()
    watch = RunObserver(ABOUT, metrics, Time())
    for number in range(10_000):
        call = CallItem(call_id=f"c{number}", name=f"tool_{number}")
        result = ResultItem(call_id=f"c{number}", is_error=True, rc=f"odd_{number}")
        watch.observe(ToolFinished(index=0, call=call, result=result))
        watch.observe(Noted(note=Note(code=f"note_{number}", action="repaired", message="m")))
        metrics.guest_ended(f"stop_{number}", 0.0)
        metrics.refused(f"refusal_{number}")
    series = [(each.name, *each.labels.values()) for family in metrics.registry.collect() for each in family.samples]
    assert len([each for each in series if each[0] == "tool_calls_total"]) == 1
    assert len(series) < 1_000


def test_a_call_is_told_at_debug_when_it_starts_and_when_it_is_whole(caplog: pytest.LogCaptureFixture) -> None:
    """Also a client's, which no tool of ours ends; its size is told, and nothing that it says."""
    caplog.set_level(logging.DEBUG, logger="treadle")
    watched(ItemAdded(index=0, item=CallItem(call_id="c1", name="look")), ItemDone(index=0, item=CALL))
    told = [
        (each.message, each.__dict__.get("tool_call_id"), each.__dict__.get("argument_bytes"))
        for each in caplog.records
    ]
    assert told == [("call started", "c1", None), ("call complete", "c1", 22)]
    assert "secret-argument" not in caplog.text
