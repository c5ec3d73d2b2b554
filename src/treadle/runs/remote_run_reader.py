"""Reads a run that another process drives: from its journal, then from the live chunks that its owner writes."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec

from treadle.core.events import ENDED, Numbered, Numbering, RunEnded, RunEvent, RunRecovered
from treadle.core.run_endings import NOT_STORED, failure_of
from treadle.journal.journal_interface import Store
from treadle.runs.event_feed import FeedBatches
from treadle.runs.replay.event_replay import EventReplay

WAIT_S = 0.25
"""How long to wait for a change notification before the journal is read again."""


async def after_number(batches: FeedBatches, after: int) -> AsyncGenerator[list[Numbered], None]:
    """Yield the events of a run that are numbered above `after`, given all of its batches.

    A provisional event (`stands` is False) has no number and is always yielded.
    """
    numbering = Numbering()
    async with aclosing(batches):
        async for batch in batches:
            if fresh := [each for each in batch if not each.stands or numbering.take(each.event) > after]:
                yield fresh


async def tail(store: Store, run_id: str) -> AsyncGenerator[list[Numbered], None]:
    """Yield the events of a run as they are written, until its end.

    Raises: NotFound, Damaged.
    """
    replay, seen, yielded = EventReplay(), 0, 0
    recoveries: set[int] = set()
    while True:
        entries = await store.entries(run_id, after=seen)
        before = replay.event_count
        journalled = [numbered for entry in entries for numbered in replay.events_of(entry)]
        # Events that were yielded after a recovery not seen here are not part of the run: go back to it.
        yielded = min([yielded, *(_recoveries(journalled, before) - recoveries)])
        fresh = journalled[max(0, yielded - before) :]
        yielded = max(yielded, replay.event_count)
        seen = entries[-1].seq if entries else seen
        is_over = any(isinstance(numbered.event, RunEnded) for numbered in journalled)
        if not is_over:
            live = [Numbered(event=event) for event in await read_live_events(store, run_id, yielded)]
            fresh += live
            yielded += len(live)
        recoveries |= _recoveries(fresh, yielded - len(fresh))
        if fresh:
            yield fresh
        if is_over:
            return
        if ended := await _deleted_end(store, run_id):
            yield ended
            return
        await store.wait_change(run_id, WAIT_S)


def _recoveries(events: list[Numbered], before: int) -> set[int]:
    """Return the positions of the recovery events; `before` is the position of the first event."""
    return {place for place, each in enumerate(events, before) if type(each.event) is RunRecovered}


async def read_live_events(store: Store, run_id: str, known: int) -> list[RunEvent]:
    """Return the live events of a run after the first `known` ones, without a gap."""
    events: list[RunEvent] = []
    for chunk in await store.chunks(run_id, after=known):
        position = known + len(events)
        if chunk.first > position + 1:
            break
        events += msgspec.json.decode(chunk.data, type=list[RunEvent])[position + 1 - chunk.first :]
    return events


async def _deleted_end(store: Store, run_id: str) -> list[Numbered]:
    """Return the end of a run whose content was deleted, made from its row.

    It is never a successful end: this reader has not seen the whole answer.
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
