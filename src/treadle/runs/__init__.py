"""The life of a run, from the request that starts it to the last reader of its events.

It joins engine, upstream, tools and store; it knows no HTTP and no protocol's spelling.
"""

from treadle.runs.active_run import RunHandle
from treadle.runs.dependencies import Instead, Rooms, RunsOptions
from treadle.runs.idempotency import Idempotency, last_try
from treadle.runs.run_service import Runs

__all__ = ["Idempotency", "Instead", "Rooms", "RunHandle", "Runs", "RunsOptions", "last_try"]
