"""Exports spans to a collector as OTLP over HTTP, in the library's own thread. Imported only if spans are enabled."""

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from treadle.telemetry.spans import Spans

SEND_S = 5.0
"""Time limit of one export, and so the longest wait for the last one at shutdown."""

TRACES_PATH = "/v1/traces"


def open_spans(endpoint: str, service_name: str) -> Spans:
    """Return spans that are exported to this endpoint.

    Headers, sampling and batch sizes are read from the standard `OTEL_` variables.
    """
    url = endpoint if endpoint.endswith(TRACES_PATH) else f"{endpoint.rstrip('/')}{TRACES_PATH}"
    provider = TracerProvider(resource=Resource.create({"service.name": service_name}), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=url, timeout=SEND_S)))
    return Spans(provider)
