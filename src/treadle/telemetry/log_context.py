"""Context variables about a task's work, for its logs and metrics: model call, provider request id, parent span."""

from contextvars import ContextVar

import msgspec

from treadle.core.usage import Usage

upstream_request: ContextVar[str] = ContextVar("treadle_upstream_request", default="")
"""The provider's id of the last model call of this task's run; the logs of its tools include it."""

trace_parent: ContextVar[str] = ContextVar("treadle_trace_parent", default="")
"""The W3C `traceparent` that becomes the parent of a run started in this task."""


class ModelCall(msgspec.Struct, kw_only=True):
    """What is known of a model call; `ended_at`, on the monotonic clock, is 0 while it is running."""

    upstream: str
    protocol: str = ""
    host: str = ""
    model: str = ""
    stop: str = ""
    usage: Usage | None = None
    ended_at: float = 0.0


model_call: ContextVar[ModelCall | None] = ContextVar("treadle_model_call", default=None)
"""The last model call of this task's run; None if a model in this process or the cache answered."""
