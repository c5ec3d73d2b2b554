"""Metrics, log lines and spans, and the redaction of secrets in them."""

from treadle.telemetry.log_context import ModelCall, model_call, trace_parent, upstream_request
from treadle.telemetry.log_lines import Gathered, JsonLines, say
from treadle.telemetry.metrics import REFUSALS, Metrics, rc_label
from treadle.telemetry.redaction import REDACTED, Redactor

__all__ = [
    "REDACTED",
    "REFUSALS",
    "Gathered",
    "JsonLines",
    "Metrics",
    "ModelCall",
    "Redactor",
    "model_call",
    "rc_label",
    "say",
    "trace_parent",
    "upstream_request",
]
