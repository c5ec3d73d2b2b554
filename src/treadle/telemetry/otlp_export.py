"""Sends spans to a collector, as OTLP over HTTP, in a thread of the library's own. Imported only where asked for."""

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from treadle.telemetry.spans import Spans

SEND_S = 5.0
"""How long one sending may take, and so how long a process that ends may wait for its last."""

TRACES_PATH = "/v1/traces"


def open_spans(endpoint: str, service_name: str) -> Spans:
    """Return spans that are sent there; headers, sampling and sizes are read from the standard `OTEL_` variables."""
    url = endpoint if endpoint.endswith(TRACES_PATH) else f"{endpoint.rstrip('/')}{TRACES_PATH}"
    provider = TracerProvider(resource=Resource.create({"service.name": service_name}), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=url, timeout=SEND_S)))
    return Spans(provider)
