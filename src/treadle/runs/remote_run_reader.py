"""Reads a run that is not driven here: from its journal, and beyond it from what its owner tells as it goes."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec

from treadle.core.events import ENDED, Numbered, Numbering, RunEnded, RunEvent, RunRecovered
from treadle.core.run_endings import NOT_STORED, failure_of
from treadle.journal.journal_interface import Store
from treadle.runs.event_feed import FeedBatches
from treadle.runs.replay.event_replay import EventReplay

WAIT_S = 0.25
"""How long nothing need happen before the journal is looked at again."""


async def after_number(batches: FeedBatches, after: int) -> AsyncGenerator[list[Numbered], None]:
    """Yield the events of a run that are numbered above `after`; the batches are all of them.

    An event that does not stand has no number, and comes whatever the number is.
    """
    numbering = Numbering()
    async with aclosing(batches):
        async for batch in batches:
            if fresh := [each for each in batch if not each.stands or numbering.take(each.event) > after]:
                yield fresh


async def tail(store: Store, run_id: str) -> AsyncGenerator[list[Numbered], None]:
    """Yield the events of a run, as they come, until its end.

    Raises: NotFound, Damaged.
    """
    replay, seen, told = EventReplay(), 0, 0
    recoveries: set[int] = set()
    while True:
        entries = await store.entries(run_id, after=seen)
        before = replay.event_count
        journalled = [numbered for entry in entries for numbered in replay.events_of(entry)]
        # What was told of a call behind a recovery that was not told, is not part of the run.
        told = min([told, *(_recoveries(journalled, before) - recoveries)])
        fresh = journalled[max(0, told - before) :]
        told = max(told, replay.event_count)
        seen = entries[-1].seq if entries else seen
        is_over = any(isinstance(numbered.event, RunEnded) for numbered in journalled)
        if not is_over:
            live = [Numbered(event=event) for event in await read_live_events(store, run_id, told)]
            fresh += live
            told += len(live)
        recoveries |= _recoveries(fresh, told - len(fresh))
        if fresh:
            yield fresh
        if is_over:
            return
        if ended := await _deleted_end(store, run_id):
            yield ended
            return
        await store.wait_change(run_id, WAIT_S)


def _recoveries(events: list[Numbered], before: int) -> set[int]:
    """Return the places of those that say that the run was recovered; `before` is the place of the first event."""
    return {place for place, each in enumerate(events, before) if type(each.event) is RunRecovered}


async def read_live_events(store: Store, run_id: str, told: int) -> list[RunEvent]:
    """Return what the owner of a run told beyond the first `told` events, without a gap."""
    events: list[RunEvent] = []
    for chunk in await store.chunks(run_id, after=told):
        position = told + len(events)
        if chunk.first > position + 1:
            break
        events += msgspec.json.decode(chunk.data, type=list[RunEvent])[position + 1 - chunk.first :]
    return events


async def _deleted_end(store: Store, run_id: str) -> list[Numbered]:
    """Return the end of a run whose content is gone already, from what is left of it.

    It is never that of a whole answer: whoever reads here has not seen all of it.
    """
    row = await store.find_run(run_id)
    if row is None:
        return [Numbered(event=RunEnded(status="cancelled"))]
    if row.status not in ENDED or await store.entries(run_id, limit=1):
        return []
    ended = RunEnded(
        status=row.status,
        usage=row.usage,
        limit=row.limit,
        error=row.error,
        rounds=row.rounds,
        calls=row.calls,
        ended_at=row.ended_at or 0.0,
    )
    if failure_of(ended) is None:
        ended = msgspec.structs.replace(ended, status="failed", error=NOT_STORED)
    return [Numbered(event=ended)]
