"""What a process does beside its heartbeat so that no run in the background waits for nothing."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Container

from treadle.core.errors import TreadleError
from treadle.journal.journal_interface import Store
from treadle.runs.runners.runner_interface import PlacementFailed, RunDriver

log = logging.getLogger("treadle.runs")

RECONCILE_S = 60.0
"""How often it is looked whether somebody sees to every run that is placed from outside."""
RECONCILE_MAX = 1_000
_PAGE = 100


async def poll_abandoned(every_s: float, take_over: Callable[[], Awaitable[object]], has_room: asyncio.Event) -> None:
    """Take what has no owner, more often than the heart beats, and at once when there is room again; for ever."""
    while True:
        has_room.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(every_s):
                await has_room.wait()
        try:
            await take_over()
        except TreadleError as error:
            log.debug("cannot look for runs", extra={"code": error.info.code})


async def reconcile(runner: RunDriver, store: Store, driven: Container[str]) -> None:
    """Place every run in the background that nobody drives here, for ever: another runner may have begun it."""
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
