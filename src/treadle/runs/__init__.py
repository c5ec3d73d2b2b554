"""The life cycle of a run: started, driven, read, cancelled, recovered, ended."""

from treadle.runs.active_run import RunHandle
from treadle.runs.dependencies import RunDependencies, RunOverrides, RunsOptions
from treadle.runs.idempotency import Idempotency, last_try
from treadle.runs.run_service import Runs

__all__ = ["Idempotency", "RunDependencies", "RunHandle", "RunOverrides", "Runs", "RunsOptions", "last_try"]
