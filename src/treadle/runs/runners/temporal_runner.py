"""The runner that lets Temporal place background runs: one workflow for each run, with one activity that drives it.

Only the run's id is sent to Temporal; the steps are in the journal. If a process dies or hangs, its heartbeats stop and
Temporal gives the run to another one, which waits for the lease to end. Cancelling the workflow cancels its run, and
cancelling the run ends its workflow.
"""

import asyncio
import contextlib
import logging
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.common import RetryPolicy, WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError
from temporalio.worker import Worker

from treadle.core.errors import ConfigError, TreadleError
from treadle.runs.runners.runner_interface import DEFAULT_TERMS, PlacementFailed, RunHost, RunnerTerms, ShuttingDown

log = logging.getLogger("treadle.runs")

WORKFLOW = "treadle-run"
ACTIVITY = "treadle-drive"
CONNECT_S = 10.0
PLACE_S = 5.0
RUNS_MAX = 100
"""The default number of runs that one process drives at once."""
_RUN_AGE = timedelta(days=7)
"""Longer than any run may take: its own limits end it long before."""
_AGAIN = RetryPolicy(
    initial_interval=timedelta(seconds=1), backoff_coefficient=2.0, maximum_interval=timedelta(seconds=10)
)


@workflow.defn(name=WORKFLOW, sandboxed=False)
class RunWorkflow:
    """One run, from when it is durable to its end."""

    @workflow.run
    async def run(self, run_id: str, heartbeat_s: float) -> str:
        """Have some process drive the run, retried as often as needed; return its status."""
        return await workflow.execute_activity(
            ACTIVITY,
            run_id,
            result_type=str,
            start_to_close_timeout=_RUN_AGE,
            heartbeat_timeout=timedelta(seconds=heartbeat_s),
            retry_policy=_AGAIN,
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        )


class TemporalRunner:
    """Fits `RunDriver`."""

    places_runs = True
    poll_s: float | None = None

    def __init__(
        self,
        address: str,
        *,
        namespace: str,
        queue: str,
        key: str = "",
        tls: bool = False,
        terms: RunnerTerms = DEFAULT_TERMS,
    ) -> None:
        self._address = address
        self._namespace = namespace
        self._queue = queue
        self._key = key
        self._tls = tls
        self._terms = terms
        self._client: Client | None = None
        self._host: RunHost | None = None
        self._worker: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    def capacity(self, driven: int) -> int | None:
        """Return no bound: the worker bounds what Temporal gives this process."""
        return None

    async def open(self, host: RunHost) -> None:
        """Connect, and start to take runs.

        Raises: ConfigError, when there is no Temporal at that address or it has no such namespace.
        """
        self._host = host
        try:
            async with asyncio.timeout(CONNECT_S):
                self._client = await Client.connect(
                    self._address,
                    namespace=self._namespace,
                    api_key=self._key or None,
                    tls=self._tls or bool(self._key),
                )
        except (RuntimeError, RPCError, TimeoutError) as error:
            raise ConfigError(
                f"Temporal at {self._address} cannot be reached: {error or 'no answer'}",
                param="runner.temporal",
                hint='Check runner.temporal and runner.namespace, or set runner.kind = "auto".',
            ) from None
        self._worker = asyncio.create_task(self._work(self._client), name="treadle-temporal")

    async def place(self, run_id: str) -> None:
        """Start the workflow of a run, unless it is running.

        Raises: Unplaced.
        """
        if self._client is None:
            raise PlacementFailed("not connected")
        try:
            await self._client.start_workflow(
                WORKFLOW,
                args=[run_id, self._terms.heartbeat_s],
                id=f"treadle-{run_id}",
                task_queue=self._queue,
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
                rpc_timeout=timedelta(seconds=PLACE_S),
            )
        except RPCError as error:
            raise PlacementFailed(f"Temporal did not take it: {error.message}") from error

    async def close(self) -> None:
        """Take no more runs, and wait for those that are driven here; idempotent."""
        self._closing.set()
        if self._worker is not None:
            await asyncio.wait([self._worker])

    async def _work(self, client: Client) -> None:
        """Take runs until this process shuts down; while Temporal is unavailable its library retries."""
        worker = Worker(
            client,
            task_queue=self._queue,
            workflows=[RunWorkflow],
            activities=[self._drive],
            max_concurrent_activities=self._terms.runs_max or RUNS_MAX,
            graceful_shutdown_timeout=timedelta(seconds=self._terms.heartbeat_s),
        )
        try:
            async with worker:
                await self._closing.wait()
        except RuntimeError as error:
            log.error("Temporal gives this process no runs any more: %s", error)

    @activity.defn(name=ACTIVITY)
    async def _drive(self, run_id: str) -> str:
        assert self._host is not None, "`open` comes first"
        beating = asyncio.create_task(self._heartbeat())
        try:
            return await self._host.drive_to_end(run_id) or "gone"
        except ShuttingDown:
            raise ApplicationError("This process is leaving.", type="leaving") from None
        except TreadleError as error:
            raise ApplicationError(error.message, type=error.info.code) from None
        except asyncio.CancelledError:
            if _is_asked_to_cancel():
                with contextlib.suppress(TreadleError):
                    await self._host.cancel(run_id)
            raise
        finally:
            beating.cancel()

    async def _heartbeat(self) -> None:
        while True:
            activity.heartbeat()
            await asyncio.sleep(self._terms.heartbeat_s / 3)


def _is_asked_to_cancel() -> bool:
    """Return whether the run was cancelled on purpose: after a late heartbeat another worker may continue it."""
    details = activity.cancellation_details()
    return details is not None and details.cancel_requested
