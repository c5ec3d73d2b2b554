"""Metrics, log lines and spans, and the redaction of secrets in them."""

from treadle.telemetry.log_context import ModelCall, model_call, trace_parent, upstream_request
from treadle.telemetry.log_lines import BatchedLogHandler, JsonLines, log_line
from treadle.telemetry.metrics import REFUSALS, Metrics, rc_label
from treadle.telemetry.redaction import REDACTED, Redactor

__all__ = [
    "REDACTED",
    "REFUSALS",
    "BatchedLogHandler",
    "JsonLines",
    "Metrics",
    "ModelCall",
    "Redactor",
    "log_line",
    "model_call",
    "rc_label",
    "trace_parent",
    "upstream_request",
]
