"""Background tasks beside the heartbeat that claim waiting runs early, and place runs that no process drives."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Container

from treadle.core.errors import TreadleError
from treadle.journal.journal_interface import Store
from treadle.runs.runners.runner_interface import PlacementFailed, RunDriver

log = logging.getLogger("treadle.runs")

RECONCILE_S = 60.0
"""How often to check that every background run is placed."""
RECONCILE_MAX = 1_000
_PAGE = 100


async def poll_abandoned(
    every_s: float, take_over: Callable[[], Awaitable[object]], has_capacity: asyncio.Event
) -> None:
    """Claim runs without an owner, more often than the heartbeat, and at once when there is capacity again; forever."""
    while True:
        has_capacity.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(every_s):
                await has_capacity.wait()
        try:
            await take_over()
        except TreadleError as error:
            log.debug("cannot look for runs", extra={"code": error.info.code})


async def reconcile(runner: RunDriver, store: Store, driven: Container[str]) -> None:
    """Place every background run that is not driven here, forever: it may have been started under another runner."""
    while True:
        try:
            await _place_all(runner, store, driven)
        except (TreadleError, PlacementFailed) as error:
            log.warning("runs in the background not placed: %s", error)
        await asyncio.sleep(RECONCILE_S)


async def _place_all(runner: RunDriver, store: Store, driven: Container[str]) -> None:
    before: str | None = None
    for _ in range(RECONCILE_MAX // _PAGE):
        rows = await store.list_runs(status="running", limit=_PAGE, before=before)
        for row in rows:
            if row.background and row.id not in driven:
                await runner.place(row.id)
        if len(rows) < _PAGE:
            return
        before = rows[-1].id
