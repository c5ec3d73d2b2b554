"""What Treadle says of itself: metrics, log lines, spans; and what must never be written.

It hears events and numbers; it asks nobody for anything, and sends nothing that the settings do not name a receiver
for.
"""

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
