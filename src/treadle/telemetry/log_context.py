"""What is known of the work that a task does, for whoever logs or measures it there. Each task has its own."""

from contextvars import ContextVar

import msgspec

from treadle.core.usage import Usage

upstream_request: ContextVar[str] = ContextVar("treadle_upstream_request", default="")
"""The id that the provider gave the last model call of the run this task works for: it is in the logs of its tools."""

trace_parent: ContextVar[str] = ContextVar("treadle_trace_parent", default="")
"""The W3C `traceparent` under which a run that is started here is to be seen."""


class ModelCall(msgspec.Struct, kw_only=True):
    """A model call as the room that made it knows it; `ended_at`, on the monotonic clock, is 0 while it lasts."""

    upstream: str
    protocol: str = ""
    host: str = ""
    model: str = ""
    stop: str = ""
    usage: Usage | None = None
    ended_at: float = 0.0


model_call: ContextVar[ModelCall | None] = ContextVar("treadle_model_call", default=None)
"""The last model call of the run this task works for; nothing, where a model of this process or a cache answers."""
