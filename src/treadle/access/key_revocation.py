"""Cancels the active runs of a revoked key, in all processes, and finds out which cancellations were revocations."""

from collections.abc import Iterable
from typing import get_args

from treadle.core.errors import ErrorInfo
from treadle.core.events import ENDED, Status
from treadle.core.run_endings import REVOKED
from treadle.journal.journal_interface import RunRow, RunSearch, Store

PAGE = 200
_LIVE: tuple[Status, ...] = tuple(each for each in get_args(Status) if each not in ENDED)


async def stop_runs(store: Store, key_id: str) -> int:
    """Request the cancellation of every active run of a key; return how many there were.

    Raises: StoreError.
    """
    stopped = 0
    for status in _LIVE:
        before: str | None = None
        search = RunSearch(status=status, key_id=key_id)
        while page := await store.search_runs(search, limit=PAGE, before=before):
            for row in page:
                stopped += await store.request_cancel(row.id)
            before = page[-1].id
    return stopped


async def why_cancelled(store: Store, rows: Iterable[RunRow]) -> dict[str, ErrorInfo | None]:
    """Return the error that each of these cancelled runs ends with: `REVOKED`, or None if it was cancelled by a person.

    Raises: StoreError.
    """
    keys = {row.id: row.key_id for row in rows}
    named = {key_id for key_id in keys.values() if key_id}
    revoked = await store.keys.revoked(named) if named else frozenset[str]()
    return {run_id: REVOKED if key_id in revoked else None for run_id, key_id in keys.items()}
