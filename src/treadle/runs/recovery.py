"""What happens to runs whose process died: they are taken over, every open call gets its result, and they end."""

import msgspec

from treadle.canon.errors import ErrorInfo, TreadleError
from treadle.canon.events import RunEnded
from treadle.canon.items import CallItem, ResultItem, text_result
from treadle.canon.messages import Entry, entry_of_item, item_of_entry
from treadle.engine.ports import Clock
from treadle.runs.history import INTERRUPTED
from treadle.store.journal import RunJournal, Store

BATCH = 100


async def close_abandoned(store: Store, clock: Clock, owner: str, lease_s: float) -> list[str]:
    """Take over every run whose lease ended and close it; return their ids."""
    closed: list[str] = []
    while claimed := await store.claim_abandoned(owner, lease_s, BATCH):
        for row, journal in claimed:
            try:
                await _close(await store.entries(row.id), journal, clock.now())
            except TreadleError:
                continue
            closed.append(row.id)
    return closed


async def _close(entries: list[Entry], journal: RunJournal, now: float) -> None:
    items = [item_of_entry(entry) for entry in entries if entry.kind in ("tool_call", "tool_result")]
    answered = {item.call_id for item in items if isinstance(item, ResultItem)}
    results = [
        entry_of_item(text_result(item, INTERRUPTED, is_error=True, rc="interrupted"), at=now)
        for item in items
        if isinstance(item, CallItem) and item.side == "server" and item.call_id not in answered
    ]
    ended = RunEnded(
        status="failed",
        error=ErrorInfo(code="interrupted", message="The process that ran this was stopped.", status=503),
        ended_at=now,
    )
    status = Entry(kind="status", content=ended.status, data=msgspec.Raw(msgspec.json.encode(ended)), at=now)
    await journal.finish([*results, status], ended)
