"""The life of a run, from the request that starts it to the last reader of its events."""

from treadle.runs.service import Rooms, RunHandle, Runs, RunsOptions

__all__ = ["Rooms", "RunHandle", "Runs", "RunsOptions"]
