"""Spans of runs, kept in memory and read back: names, parents, times, and what is not in them."""

from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from treadle import Runtime, Settings, tool
from treadle.config import StoreSection
from treadle.config.telemetry_settings import TelemetrySection
from treadle.core.errors import ConfigError, ErrorInfo, ToolFailed
from treadle.core.events import (
    ApprovalDecided,
    ApprovalRequested,
    RoundStarted,
    RunEnded,
    ToolStarted,
)
from treadle.core.ids import CountingIds
from treadle.core.items import CallItem
from treadle.core.usage import Usage
from treadle.providers.fakes.scripted_model import Script, ScriptedModel, ScriptTurn
from treadle.providers.fakes.scripted_reply import ReplyCall
from treadle.runtime import Parts
from treadle.telemetry import Metrics, ModelCall, model_call, trace_parent
from treadle.telemetry.run_observer import About, RunObserver
from treadle.telemetry.spans import Spans, provider_of

ABOUT = About(run_id="run_1", response_id="resp_1", conversation_id="conv_1", protocol="chat", model="m")
CALL = CallItem(call_id="c1", name="look", arguments='{"hidden": 1}')
ROUND = RoundStarted(round=1, fingerprint="f")
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Time:
    """A clock that is put forward by hand."""

    at = 1_000.0

    def now(self) -> float:
        return self.at

    monotonic = now


@pytest.fixture
def kept() -> InMemorySpanExporter:
    """Return where spans are kept."""
    return InMemorySpanExporter()


@pytest.fixture
def spans(kept: InMemorySpanExporter) -> Spans:
    """Return what makes them."""
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(kept))
    return Spans(provider)


@pytest.fixture
def watch(spans: Spans) -> RunObserver:
    """Return what watches a run."""
    return RunObserver(ABOUT, Metrics(), Time(), spans)


def by_name(kept: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    """Return the spans that ended, by name."""
    return {span.name: span for span in kept.get_finished_spans()}


def attributes(span: ReadableSpan) -> dict[str, Any]:
    """Return what a span says."""
    return dict(span.attributes or {})


@tool(effect="read")
def look(word: str) -> str:
    """Look a word up.

    Args:
        word: The word.
    """
    if word == "fails":
        raise ToolFailed("hidden words")
    return f"hidden result of {word}"


async def test_a_run_with_a_tool_is_a_tree_of_spans_without_what_was_said(
    tmp_path: Path, spans: Spans, kept: InMemorySpanExporter
) -> None:
    """The run, its model calls and its tool, each in the words of the conventions."""
    turns = (ScriptTurn(calls=(ReplyCall(name="look", args={"word": "hidden"}),)), ScriptTurn(text="hidden answer"))
    model = ScriptedModel(Script(turns=turns), ids=CountingIds())
    settings = Settings(store=StoreSection(url=f"sqlite:///{tmp_path / 'treadle.db'}"), default_model="m")
    async with Runtime(settings, tools=[look], model=model, parts=Parts(tracer=spans)) as runtime:
        told = [event async for event in runtime.run("hidden question")]
    assert isinstance(told[-1], RunEnded)
    found = kept.get_finished_spans()
    assert [span.name for span in found] == ["chat m", "execute_tool look", "chat m", "invoke_agent treadle"]
    run = found[-1]
    assert run.parent is None
    for child in found[:-1]:
        assert child.parent is not None
        assert child.parent.span_id == run.context.span_id
        assert run.start_time <= child.start_time <= child.end_time <= run.end_time
    assert [span.kind for span in found] == [SpanKind.CLIENT, SpanKind.INTERNAL, SpanKind.CLIENT, SpanKind.INTERNAL]
    assert [attributes(span)["gen_ai.operation.name"] for span in found] == [
        "chat",
        "execute_tool",
        "chat",
        "invoke_agent",
    ]
    executed = attributes(found[1])
    assert executed["gen_ai.tool.name"] == "look"
    assert executed["gen_ai.tool.call.id"]
    assert executed["treadle.tool.rc"] == "ok"
    said = attributes(run)
    assert (said["treadle.run.status"], said["treadle.tool_calls"], said["gen_ai.request.model"]) == (
        "completed",
        1,
        "m",
    )
    assert "hidden" not in repr([(span.name, span.attributes, span.events, span.status.description) for span in found])


async def test_a_tool_that_fails_is_an_error_by_its_code(
    tmp_path: Path, spans: Spans, kept: InMemorySpanExporter
) -> None:
    """And the run that goes on after it is not."""
    turns = (ScriptTurn(calls=(ReplyCall(name="look", args={"word": "fails"}),)), ScriptTurn(text="so it is"))
    model = ScriptedModel(Script(turns=turns), ids=CountingIds())
    settings = Settings(store=StoreSection(url=f"sqlite:///{tmp_path / 'treadle.db'}"), default_model="m")
    async with Runtime(settings, tools=[look], model=model, parts=Parts(tracer=spans)) as runtime:
        async for _ in runtime.run("go"):
            pass
    failed = by_name(kept)["execute_tool look"]
    assert failed.status.status_code is StatusCode.ERROR
    assert attributes(failed)["error.type"] == "failed"
    assert "hidden" not in repr(failed.to_json())
    assert by_name(kept)["invoke_agent treadle"].status.status_code is StatusCode.UNSET


def test_a_model_call_says_whose_model_it_was_and_what_it_used(watch: RunObserver, kept: InMemorySpanExporter) -> None:
    """What only the upstream's answer tells is on the span of the call, and the run has the sum."""
    watch.observe(ROUND)
    usage = Usage(input_tokens=5, output_tokens=7, cached_tokens=2)
    call = ModelCall(upstream="mine", protocol="messages", host="api.anthropic.com", model="big", ended_at=1_000.0)
    call.usage, call.stop = usage, "calls"
    model_call.set(call)
    watch.observe(RunEnded(status="completed", usage=usage))
    found = by_name(kept)
    said = attributes(found["chat m"])
    assert said["gen_ai.provider.name"] == "anthropic"
    assert said["gen_ai.response.finish_reasons"] == ("tool_call",)
    assert said["gen_ai.usage.input_tokens"] == 5
    assert said["gen_ai.usage.cache_read.input_tokens"] == 2
    assert "gen_ai.usage.reasoning.output_tokens" not in said
    assert said["server.address"] == "api.anthropic.com"
    assert said["treadle.upstream.name"] == "mine"
    assert said["treadle.upstream.protocol"] == "messages"
    assert attributes(found["invoke_agent treadle"])["gen_ai.usage.output_tokens"] == 7


def test_a_call_that_failed_has_its_code_and_not_its_words(watch: RunObserver, kept: InMemorySpanExporter) -> None:
    """An upstream's message may quote what it was sent."""
    model_call.set(None)
    watch.observe(ROUND)
    watch.observe(RunEnded(status="failed", error=ErrorInfo(code="upstream_status", message="hidden words")))
    for span in kept.get_finished_spans():
        assert attributes(span)["error.type"] == "upstream_status"
        assert span.status.description is None
        assert "hidden" not in repr(span.to_json())


def test_a_wait_for_a_person_is_a_span(watch: RunObserver, kept: InMemorySpanExporter) -> None:
    """From the question to the decision, which it says; who decided is nobody's business."""
    watch.observe(ApprovalRequested(index=0, call=CALL, approval_id="a1", reasons=("effect",)))
    watch.observe(ApprovalDecided(index=0, call=CALL, approval_id="a1", status="denied", by="ada", reason="hidden"))
    [span] = kept.get_finished_spans()
    assert span.name == "await_approval look"
    assert attributes(span)["treadle.approval.status"] == "denied"
    assert "ada" not in repr(span.to_json())


def test_what_is_open_when_a_run_ends_or_goes_elsewhere_is_ended(
    watch: RunObserver, kept: InMemorySpanExporter
) -> None:
    """No span is lost because its end was never told."""
    watch.observe(ROUND)
    watch.observe(ToolStarted(index=0, call=CALL))
    watch.observe(ApprovalRequested(index=0, call=CALL, approval_id="a1"))
    watch.close()
    watch.close()
    names = sorted(span.name for span in kept.get_finished_spans())
    assert names == ["await_approval look", "chat m", "execute_tool look", "invoke_agent treadle"]
    assert attributes(by_name(kept)["invoke_agent treadle"])["treadle.run.status"] == "handed_over"


def test_a_run_is_seen_under_what_asked_for_it(watch: RunObserver, kept: InMemorySpanExporter) -> None:
    """By the W3C header; one that is not a header is as good as none."""
    token = trace_parent.set(PARENT)
    watch.observe(RunEnded(status="completed"))
    trace_parent.reset(token)
    [span] = kept.get_finished_spans()
    assert span.parent is not None
    assert f"{span.parent.span_id:016x}" == "b7ad6b7169203331"
    assert f"{span.context.trace_id:032x}" == "0af7651916cd43dd8448eb211c80319c"


def test_a_parent_that_is_nonsense_is_none(watch: RunObserver, kept: InMemorySpanExporter) -> None:
    """Whatever a client writes into the header."""
    token = trace_parent.set("00-zz\r\nx: y")
    watch.observe(RunEnded(status="completed"))
    trace_parent.reset(token)
    [span] = kept.get_finished_spans()
    assert span.parent is None


def test_a_guest_is_a_span_and_its_runs_are_under_it(spans: Spans, kept: InMemorySpanExporter) -> None:
    """Its parent is handed on as text, since its sends come from another thread or process."""
    guest = spans.guest("poet")
    token = trace_parent.set(guest.parent)
    RunObserver(ABOUT, Metrics(), Time(), spans).observe(RunEnded(status="completed"))
    trace_parent.reset(token)
    guest.end("fuel", 0.25)
    run, poet = kept.get_finished_spans()
    assert poet.name == "invoke_agent poet"
    assert attributes(poet)["error.type"] == "fuel"
    assert run.parent is not None
    assert run.parent.span_id == poet.context.span_id


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("api.openai.com", "openai"),
        ("eu.openai.azure.com:443", "azure.ai.openai"),
        ("127.0.0.1:8000", "mine"),
        ("notapi.openai.com.example.org", "mine"),
    ],
)
def test_a_provider_is_known_by_the_end_of_its_host(host: str, name: str) -> None:
    """And an address of one's own is called what the settings call it."""
    assert provider_of(ModelCall(upstream="mine", host=host)) == name


def test_spans_without_a_place_to_send_them_are_refused(tmp_path: Path) -> None:
    """Nothing is sent anywhere that nobody named."""
    store = StoreSection(url=f"sqlite:///{tmp_path / 'treadle.db'}")
    with pytest.raises(ConfigError, match="nothing says where to send") as caught:
        Runtime(Settings(store=store, telemetry=TelemetrySection(spans=True)), parts=Parts(env={"HOME": "/"}))
    assert caught.value.info.param == "telemetry.otlp_endpoint"
