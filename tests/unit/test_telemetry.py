import logging

import msgspec
import pytest

from treadle.core.events import RunEnded, ToolFinished
from treadle.core.items import CallItem, ResultItem
from treadle.core.request import Note
from treadle.core.usage import Usage
from treadle.telemetry import REDACTED, JsonLines, Metrics, Redactor, rc_label
from treadle.telemetry.prometheus import write_text


def series(metrics: Metrics) -> dict[str, float]:
    """Return what is exposed, by series."""
    lines = write_text(metrics.registry.collect()).decode().splitlines()
    return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines if not line.startswith("#")}


def finished(name: str, rc: str = "ok") -> ToolFinished:
    """Return the end of a call."""
    result = ResultItem(call_id="c", is_error=rc != "ok", rc=rc)
    return ToolFinished(index=0, call=CallItem(call_id="c", name=name), result=result, output_bytes=7)


def test_the_four_tool_metrics_are_counted():
    """Rounds, calls by tool, failures by code, bytes."""
    metrics = Metrics()
    metrics.set_tool_names(["add"])
    metrics.rounds.inc()
    metrics.tool_finished(finished("add"))
    metrics.tool_finished(finished("add", "timeout"))
    seen = series(metrics)
    assert seen["tool_call_iterations_total"] == 1
    assert seen['tool_calls_total{tool="add"}'] == 2
    assert seen['tool_call_failures_total{rc="timeout"}'] == 1
    assert seen["tool_output_bytes_total"] == 14


def test_a_model_cannot_make_new_labels():
    """Names nobody registered are one label, whatever the model invents."""
    metrics = Metrics()
    for number in range(50):
        metrics.tool_finished(finished(f"invented_{number}"))
    labels = [name for name in series(metrics) if name.startswith("tool_calls_total")]
    assert labels == ['tool_calls_total{tool="unknown"}']


@pytest.mark.parametrize(
    ("rc", "label"),
    [("ok", "ok"), ("timeout", "timeout"), ("137", "137"), ("-28", "-28"), ("weird", "other"), ("99999", "other")],
)
def test_result_codes_are_a_bounded_set(rc: str, label: str):
    """The closed list, small numbers, and one word for the rest."""
    assert rc_label(rc) == label


def test_recovered_calls_are_counted_by_dialect():
    """The note of a recovery names its dialect; other notes count nothing there."""
    metrics = Metrics()
    metrics.noted(Note(code="call_recovered", action="repaired", message="m", field="glm47"))
    metrics.noted(Note(code="no_id", action="repaired", message="m", field="glm47"))
    assert series(metrics)['treadle_recovered_calls_total{dialect="glm47"}'] == 1


def test_endings_tokens_limits_and_repairs_are_counted():
    """What an operator asks first."""
    metrics = Metrics()
    ended = RunEnded(status="completed", limit="max_iterations", usage=Usage(input_tokens=3, output_tokens=4))
    metrics.run_ended(ended, "responses")
    metrics.noted(Note(code="no_id", action="repaired", message="m", count=2))
    seen = series(metrics)
    assert seen['treadle_runs_total{protocol="responses",status="completed"}'] == 1
    assert seen['treadle_run_limits_total{limit="max_iterations"}'] == 1
    assert seen['treadle_tokens_total{direction="input"}'] == 3
    assert seen['treadle_notes_total{code="no_id"}'] == 2


def test_secrets_are_blanked_by_name_and_by_value():
    """A key is not written wherever it stands; token counts and names of variables are."""
    redactor = Redactor(["sk-very-secret"])
    fields = {
        "api_key": "anything",
        "authorization": "Bearer x",
        "url": "http://x/?k=sk-very-secret",
        "input_tokens": 5,
        "key_env": "OPENAI_API_KEY",
    }
    assert redactor.fields(fields) == {
        "api_key": REDACTED,
        "authorization": REDACTED,
        "url": f"http://x/?k={REDACTED}",
        "input_tokens": 5,
        "key_env": "OPENAI_API_KEY",
    }


def test_log_lines_are_json_on_one_line():
    """Whatever is logged, a line is one object; line breaks cannot forge a second."""
    record = logging.makeLogRecord(
        {
            "name": "treadle.runs",
            "levelname": "INFO",
            "created": 1.25,
            "msg": "two\nlines sk-very-secret",
            "run_id": "run_1",
        }
    )
    line = JsonLines(Redactor(["sk-very-secret"])).format(record)
    assert "\n" not in line
    assert msgspec.json.decode(line) == {
        "at": 1.25,
        "level": "info",
        "logger": "treadle.runs",
        "message": f"two\nlines {REDACTED}",
        "run_id": "run_1",
    }


def test_a_clients_key_is_blanked_wherever_it_stands() -> None:
    """Nobody knows it beforehand, but it has a form of its own."""
    key = f"tr_{'0a' * 8}_{'b1' * 32}"
    assert Redactor().text(f"refused {key} here") == f"refused {REDACTED} here"
    assert Redactor(["sk-very-secret"]).text(f"?key={key}&x=sk-very-secret") == f"?key={REDACTED}&x={REDACTED}"
    assert Redactor().text("tr_short") == "tr_short"


def test_refusals_are_counted_by_a_closed_set_of_codes() -> None:
    """What is not in it is other."""
    metrics = Metrics()
    for code in ("budget_exceeded", "made-up"):
        metrics.refused(code)
    assert metrics.registry.value("treadle_refused_requests_total", {"code": "budget_exceeded"}) == 1
    assert metrics.registry.value("treadle_refused_requests_total", {"code": "other"}) == 1
