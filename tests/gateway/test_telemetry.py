"""What a whole Treadle says of itself: spans at a collector, numbers at /metrics, lines in the log."""

import json
import logging
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from gateway.gateway import Gateway
from treadle import tool
from treadle.config.telemetry_settings import TelemetrySection
from treadle.core.usage import Usage
from treadle.providers.fakes.scripted_model import Script, ScriptTurn
from treadle.providers.fakes.scripted_reply import ReplyCall
from treadle.telemetry import JsonLines, Redactor

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"
CALLS_AND_SAYS = Script(
    turns=(
        ScriptTurn(calls=(ReplyCall(name="look", args={"word": "hidden-argument"}),)),
        ScriptTurn(text="It is so.", usage=Usage(input_tokens=5, output_tokens=2)),
    )
)


@tool(effect="read")
def look(word: str) -> str:
    """Look a word up.

    Args:
        word: The word.
    """
    return "hidden-result"


class Collector(ThreadingHTTPServer):
    """Takes OTLP over HTTP, as a real one does."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.bodies: list[tuple[str, bytes]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def spans(self) -> list[Any]:
        """Return all spans that were sent."""
        found = []
        for _, body in self.bodies:
            message = ExportTraceServiceRequest.FromString(body)
            found += [span for each in message.resource_spans for scope in each.scope_spans for span in scope.spans]
        return found


class _Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.bodies.append((self.path, body))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def collector() -> Iterator[Collector]:
    """Run a collector."""
    server = Collector()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def ask(gateway: Gateway, **headers: str) -> str:
    """Ask for the scripted answer, and return it."""
    client = OpenAI(base_url=gateway.url, api_key="none", max_retries=0)
    answer = client.chat.completions.create(
        model="script", messages=[{"role": "user", "content": "hidden-question"}], extra_headers=headers
    )
    client.close()
    return answer.choices[0].message.content or ""


def test_spans_reach_a_collector_under_the_clients_own(tmp_path: Path, collector: Collector) -> None:
    """One tree for a request: the client's span, the run, its model calls, its tool; and nothing that was said."""
    section = TelemetrySection(spans=True, otlp_endpoint=collector.url, service_name="loom")
    with Gateway(CALLS_AND_SAYS, tmp_path, tools=[look], telemetry=section) as gateway:
        assert ask(gateway, traceparent=PARENT) == "It is so."
    assert {path for path, _ in collector.bodies} == {"/v1/traces"}
    spans = collector.spans()
    assert sorted(span.name for span in spans) == [
        "chat script",
        "chat script",
        "execute_tool look",
        "invoke_agent treadle",
    ]
    assert {span.trace_id.hex() for span in spans} == {TRACE}
    [run] = [span for span in spans if span.name.startswith("invoke_agent")]
    assert run.parent_span_id.hex() == "b7ad6b7169203331"
    assert {span.parent_span_id for span in spans if span is not run} == {run.span_id}
    said = b"".join(body for _, body in collector.bodies)
    assert b"loom" in said
    assert b"gen_ai.usage.input_tokens" in said
    assert b"hidden" not in said


def test_nothing_is_sent_unless_spans_are_on(tmp_path: Path, collector: Collector) -> None:
    """An address alone is not a wish."""
    with Gateway(
        CALLS_AND_SAYS, tmp_path, tools=[look], telemetry=TelemetrySection(otlp_endpoint=collector.url)
    ) as gateway:
        ask(gateway, traceparent=PARENT)
    assert collector.bodies == []


def test_a_collector_that_is_away_harms_no_request(tmp_path: Path) -> None:
    """Answers are as ever, and the process still ends in time."""
    section = TelemetrySection(spans=True, otlp_endpoint="http://127.0.0.1:9")
    with Gateway(CALLS_AND_SAYS, tmp_path, tools=[look], telemetry=section) as gateway:
        assert ask(gateway) == "It is so."
        began = time.monotonic()
    assert time.monotonic() - began < 15


def test_requests_tools_and_ends_are_lines_of_json(tmp_path: Path) -> None:
    """Each one object, whatever a client writes; no argument, no result, no text."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.setFormatter(JsonLines(Redactor()))
    handler.emit = lambda record: lines.append(handler.format(record))  # type: ignore[method-assign]
    logger = logging.getLogger("treadle")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        with Gateway(CALLS_AND_SAYS, tmp_path, tools=[look]) as gateway:
            ask(gateway, **{"x-request-id": "req-of-mine"})
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
    said = [json.loads(line) for line in lines]
    assert not any("\n" in line or "\r" in line for line in lines)
    [request] = [each for each in said if each.get("route") == "/v1/chat/completions"]
    assert (request["status"], request["method"], request["request_id"]) == (200, "POST", "req-of-mine")
    assert request["duration_s"] > 0
    [called] = [each for each in said if "rc" in each]
    assert (called["tool_name"], called["rc"], called["iteration"]) == ("look", "ok", 1)
    [ended] = [each for each in said if each["message"] == "run completed"]
    assert ended["run_id"] == called["run_id"]
    assert "hidden" not in "".join(lines)


def test_metrics_show_times_tokens_breakers_and_streams(tmp_path: Path) -> None:
    """The series that an operator's board is made of, by name."""
    with Gateway(CALLS_AND_SAYS, tmp_path, tools=[look]) as gateway:
        ask(gateway)
        registry = gateway.runtime.metrics.registry
        wanted = {
            ("treadle_model_call_duration_seconds_count", (("upstream", "script"),)): 2,
            ("treadle_model_first_event_seconds_count", (("upstream", "script"),)): 2,
            ("treadle_run_duration_seconds_count", ()): 1,
            ("treadle_upstream_breaker_state", (("upstream", "script"),)): 0,
            ("treadle_upstream_live_calls", (("upstream", "script"),)): 0,
            ("treadle_upstream_waiting_calls", (("upstream", "script"),)): 0,
            ("treadle_upstream_calls_total", (("upstream", "script"), ("outcome", "ok"))): 2,
            ("treadle_open_streams", ()): 0,
            ("tool_calls_total", (("tool", "look"),)): 1,
            ("tool_call_iterations_total", ()): 2,
        }
        found = {key: registry.value(key[0], dict(key[1])) for key in wanted}
        assert found == wanted
