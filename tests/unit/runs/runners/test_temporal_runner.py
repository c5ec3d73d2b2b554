"""What an activity of Temporal's does to its run when Temporal ends it."""

import asyncio

import pytest

pytest.importorskip("temporalio", reason="the extra treadle[temporal] is not installed")
from temporalio.activity import ActivityCancellationDetails
from temporalio.testing import ActivityEnvironment

from treadle.runs.runners.temporal_runner import TemporalRunner


class _Host:
    """Drives a run that never ends, and remembers who was cancelled."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.cancelled: list[str] = []

    async def drive_to_end(self, run_id: str) -> None:
        self.begun.set()
        await asyncio.Event().wait()

    async def cancel(self, run_id: str) -> bool:
        self.cancelled.append(run_id)
        return True


@pytest.mark.parametrize(
    ("why", "cancelled"),
    [
        (ActivityCancellationDetails(cancel_requested=True), ["run_1"]),
        (ActivityCancellationDetails(timed_out=True), []),
        (ActivityCancellationDetails(not_found=True), []),
        (ActivityCancellationDetails(worker_shutdown=True), []),
    ],
)
async def test_only_who_asks_for_it_cancels_a_run(why: ActivityCancellationDetails, cancelled: list[str]) -> None:
    """A heartbeat that came too late, or a process that leaves, hands the run to somebody else as it is."""
    host, runner, environment = _Host(), TemporalRunner("nowhere:1", namespace="n", queue="q"), ActivityEnvironment()
    runner._host = host  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
    driving = asyncio.ensure_future(environment.run(runner._drive, "run_1"))  # pyright: ignore[reportPrivateUsage]
    await host.begun.wait()
    environment.cancel(cancellation_details=why)
    with pytest.raises(asyncio.CancelledError):
        await driving
    assert host.cancelled == cancelled
