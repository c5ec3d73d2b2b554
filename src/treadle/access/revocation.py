"""What a revoked key leaves behind: the runs it has begun are asked to end, wherever they are driven."""

from typing import get_args

from treadle.canon.events import ENDED, Status
from treadle.store.journal import RunSearch, Store

PAGE = 200
_LIVE: tuple[Status, ...] = tuple(each for each in get_args(Status) if each not in ENDED)


async def stop_runs(store: Store, key_id: str) -> int:
    """Ask for the end of every run of a key that goes on; return how many there were.

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
