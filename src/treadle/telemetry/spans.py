"""OpenTelemetry spans of runs, model calls, tools, approvals and guests, named by the GenAI conventions.

Imported only if spans are enabled. Names, sizes, times and codes are recorded, never content, arguments or results.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any

from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from treadle.core.events import (
    ApprovalDecided,
    ApprovalRequested,
    RoundStarted,
    RunEnded,
    ToolFinished,
    ToolStarted,
)
from treadle.core.usage import Usage
from treadle.telemetry.log_context import ModelCall, trace_parent, upstream_request
from treadle.telemetry.run_observer import About

AGENT = "treadle"
NAME_CHARS_MAX = 128
"""Bound on a tool name, which a model may have invented."""

_PROVIDERS: tuple[tuple[str, str], ...] = (
    ("api.openai.com", "openai"),
    ("openai.azure.com", "azure.ai.openai"),
    ("models.inference.ai.azure.com", "azure.ai.inference"),
    ("api.anthropic.com", "anthropic"),
    ("generativelanguage.googleapis.com", "gcp.gemini"),
    ("aiplatform.googleapis.com", "gcp.vertex_ai"),
    ("amazonaws.com", "aws.bedrock"),
    ("api.mistral.ai", "mistral_ai"),
    ("api.deepseek.com", "deepseek"),
    ("api.groq.com", "groq"),
    ("api.x.ai", "x_ai"),
    ("api.perplexity.ai", "perplexity"),
    ("api.cohere.com", "cohere"),
)
"""Providers by the end of their host: the well-known values of `gen_ai.provider.name`."""

_STOPS = {
    "done": "stop",
    "stop_sequence": "stop",
    "calls": "tool_call",
    "length": "length",
    "filtered": "content_filter",
}
_NS = 1_000_000_000


class Spans:
    """A `Tracer` on an OpenTelemetry provider, which embedders may bring."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("treadle")

    def run(self, about: About, at: float) -> "RunSpans":
        """Start the span of a run, under the parent of its request."""
        attributes = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": AGENT,
            "gen_ai.request.model": about.model,
            "gen_ai.conversation.id": about.conversation_id,
            "gen_ai.response.id": about.response_id,
            "treadle.run.id": about.run_id,
            "treadle.protocol": about.protocol,
        }
        span = self._tracer.start_span(
            f"invoke_agent {AGENT}", _parent(), SpanKind.INTERNAL, attributes, start_time=_ns(at)
        )
        return RunSpans(span, about, self._child)

    def guest(self, name: str) -> "GuestSpan":
        """Start the span of a guest's session, the parent of its runs."""
        attributes = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": name, "treadle.guest.name": name}
        span = self._tracer.start_span(f"invoke_agent {name}", _parent(), attributes=attributes)
        return GuestSpan(span)

    def shutdown(self) -> None:
        """Export what is left and stop. Blocks for a bounded time."""
        self._provider.shutdown()

    def _child(self, name: str, parent: Span, kind: SpanKind, attributes: Mapping[str, Any], at: float) -> Span:
        context = set_span_in_context(parent)
        return self._tracer.start_span(name, context, kind, dict(attributes), start_time=_ns(at))


MakeChild = Callable[[str, Span, SpanKind, Mapping[str, Any], float], Span]


class RunSpans:
    """The spans of one run: a `RunSpansPort`."""

    def __init__(self, span: Span, about: About, child: MakeChild) -> None:
        self._span = span
        self._about = about
        self._child = child
        self._call: Span | None = None
        self._tools: dict[str, tuple[Span, float]] = {}
        self._waits: dict[str, Span] = {}

    def call_began(self, event: RoundStarted, at: float) -> None:
        """Start the span of a model call."""
        attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": self._about.model,
            "gen_ai.request.stream": True,
            "gen_ai.conversation.id": self._about.conversation_id,
            "treadle.iteration": event.round,
            "treadle.plan": event.fingerprint,
        }
        self._call = self._child(f"chat {self._about.model}", self._span, SpanKind.CLIENT, attributes, at)

    def call_ended(self, at: float, call: ModelCall | None, *, first_s: float | None, error: str) -> None:
        """End the span, with the attributes that are known only now."""
        span, self._call = self._call, None
        if span is None:
            return
        if first_s is not None:
            span.set_attribute("gen_ai.response.time_to_first_chunk", first_s)
        if call is not None:
            span.set_attributes(_answered(call))
            self._span.set_attribute("gen_ai.provider.name", provider_of(call))
        _end(span, at, error)

    def tool_began(self, event: ToolStarted, at: float) -> None:
        """Start the span of a tool call."""
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": event.call.name[:NAME_CHARS_MAX],
            "gen_ai.tool.call.id": event.call.call_id,
            "gen_ai.tool.type": "function",
            "treadle.tool.source": event.source,
        }
        name = f"execute_tool {event.call.name[:NAME_CHARS_MAX]}"
        self._tools[event.call.call_id] = self._child(name, self._span, SpanKind.INTERNAL, attributes, at), at

    def tool_ended(self, event: ToolFinished, at: float) -> None:
        """End the span when the tool ended: the event comes later, once all calls of its batch have results."""
        span, began = self._tools.pop(event.call.call_id, (None, at))
        if span is None:
            return
        span.set_attribute("treadle.tool.rc", event.result.rc)
        span.set_attribute("treadle.tool.output_bytes", event.output_bytes)
        if event.sandbox:
            span.set_attribute("treadle.tool.sandbox", event.sandbox)
        _end(span, min(at, began + event.duration_s), event.result.rc if event.result.is_error else "")

    def approval_asked(self, event: ApprovalRequested, at: float) -> None:
        """Start the span of a wait for approval."""
        attributes = {
            "gen_ai.tool.name": event.call.name[:NAME_CHARS_MAX],
            "gen_ai.tool.call.id": event.call.call_id,
            "treadle.approval.id": event.approval_id,
            "treadle.approval.reasons": event.reasons,
        }
        name = f"await_approval {event.call.name[:NAME_CHARS_MAX]}"
        self._waits[event.approval_id] = self._child(name, self._span, SpanKind.INTERNAL, attributes, at)

    def approval_decided(self, event: ApprovalDecided, at: float) -> None:
        """End the span with the decision, but not who made it."""
        span = self._waits.pop(event.approval_id, None)
        if span is not None:
            span.set_attribute("treadle.approval.status", event.status)
            _end(span, at)

    def run_ended(self, event: RunEnded | None, at: float) -> None:
        """End the run's span and all open spans under it."""
        for span in (*self._waits.values(), *(span for span, _ in self._tools.values())):
            _end(span, at)
        self.call_ended(at, None, first_s=None, error="" if event is None else "cancelled")
        status = "handed_over" if event is None else event.status
        self._span.set_attribute("treadle.run.status", status)
        error = ""
        if event is not None:
            self._span.set_attributes({"treadle.iterations": event.rounds, "treadle.tool_calls": event.calls})
            self._span.set_attributes(_used(event.usage))
            if event.limit is not None:
                self._span.set_attribute("treadle.run.limit", event.limit)
            error = "" if event.error is None else event.error.code
        _end(self._span, at, error)


class GuestSpan:
    """The span of one guest's session."""

    def __init__(self, span: Span) -> None:
        self._span = span
        carrier: dict[str, str] = {}
        TraceContextTextMapPropagator().inject(carrier, set_span_in_context(span))
        self.parent = carrier.get("traceparent", "")
        """The `traceparent` of the guest's runs."""

    def end(self, code: str, cpu_s: float) -> None:
        """End the span with a stop code or `ok`."""
        self._span.set_attribute("treadle.guest.stop", code)
        self._span.set_attribute("treadle.guest.cpu_s", cpu_s)
        _end(self._span, time.time(), "" if code == "ok" else code)


def provider_of(call: ModelCall) -> str:
    """Return the well-known name of a model's provider; for other hosts the upstream's name in the settings."""
    host = call.host.rpartition(":")[0] or call.host
    return next((name for end, name in _PROVIDERS if host == end or host.endswith(f".{end}")), call.upstream)


def _answered(call: ModelCall) -> dict[str, Any]:
    host, _, port = call.host.rpartition(":")
    attributes: dict[str, Any] = {
        "gen_ai.provider.name": provider_of(call),
        "gen_ai.response.model": call.model,
        "server.address": host or call.host,
        "treadle.upstream.name": call.upstream,
        "treadle.upstream.protocol": call.protocol,
        **_used(call.usage),
    }
    if host and port.isdigit():
        attributes["server.port"] = int(port)
    if request_id := upstream_request.get():
        attributes["treadle.upstream.request_id"] = request_id
    if call.stop:
        attributes["gen_ai.response.finish_reasons"] = (_STOPS.get(call.stop, call.stop),)
    return attributes


def _used(usage: Usage | None) -> dict[str, Any]:
    if usage is None:
        return {}
    parts = {
        "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens,
    }
    return {
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        **{name: tokens for name, tokens in parts.items() if tokens},
    }


def _parent() -> Context | None:
    """Return the parent from the request's `traceparent`; None means the active span, if any."""
    given = trace_parent.get()
    return TraceContextTextMapPropagator().extract({"traceparent": given}) if given else None


def _end(span: Span, at: float, error: str = "") -> None:
    if error:
        span.set_attribute("error.type", error)
        span.set_status(Status(StatusCode.ERROR))
    span.end(_ns(at))


def _ns(at: float) -> int:
    return int(at * _NS)
