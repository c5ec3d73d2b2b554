"""The relay: what a run says is told to other processes while it is fresh, and never as nothing."""

import asyncio
from typing import cast

from treadle.core.errors import StoreError
from treadle.core.events import Numbered, RoundStarted, TextDelta
from treadle.journal.journal_interface import Chunk, RunJournal
from treadle.runs import live_event_relay as relay
from treadle.runs.event_feed import BATCH_TEXT_MAX, EventFeed
from treadle.runs.live_event_relay import LiveEventRelay


class Telling:
    """A journal that keeps what it is told."""

    run_id = "run_1"

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []
        self.durable: list[bool] = []
        self.told = asyncio.Event()
        self.is_broken = False

    async def write_chunk(self, chunk: Chunk, *, keep_from: int, is_durable: bool = False) -> None:
        """Keep a chunk, and fail if it shall; one of nothing is the caller's mistake."""
        assert chunk.count > 0
        self.chunks.append(chunk)
        self.durable.append(is_durable)
        self.told.set()
        if self.is_broken:
            raise StoreError("The disk is full.")


async def test_runs_that_speak_at_different_times_are_told_together() -> None:
    """None of them sooner than it would be alone, all in one turn of the loop: the store commits them at once."""
    loop = asyncio.get_running_loop()
    moments = {relay._next_flush(1000.0 + relay.FLUSH_S * part / 20) for part in range(1, 11)}
    assert len(moments) == 1
    now = loop.time()
    assert 0 <= relay._next_flush(now) - now <= relay.FLUSH_S / 2 + 1e-6


async def test_a_call_that_ends_before_its_words_are_told_tells_nothing() -> None:
    """Before the moment comes the round may end: its words are durable then, and there is no chunk of none."""
    journal, events = Telling(), [Numbered(event=TextDelta(index=0, text="a"))]
    told = LiveEventRelay(cast("RunJournal", journal), EventFeed(events=events))
    told.notify()
    events.append(Numbered(event=RoundStarted(round=2, fingerprint="f")))
    told._flush()
    await told.close()
    assert journal.chunks == []
    told = LiveEventRelay(
        cast("RunJournal", journal), EventFeed(events=[*events, Numbered(event=TextDelta(index=0, text="b"))])
    )
    told.notify()
    await asyncio.wait_for(journal.told.wait(), relay.FLUSH_S * 50)
    assert [(chunk.first, chunk.count) for chunk in journal.chunks] == [(3, 1)]
    await told.close()


async def test_chunks_are_durable_where_clients_count_on_them() -> None:
    """Those of a run in the background are shown what is stored, and nothing else."""
    for is_durable in (False, True):
        journal, feed = Telling(), EventFeed(events=[Numbered(event=TextDelta(index=0, text="a"))])
        told = LiveEventRelay(cast("RunJournal", journal), feed, is_durable=is_durable)
        told._flush()
        await asyncio.wait_for(journal.told.wait(), relay.FLUSH_S * 50)
        assert journal.durable == [is_durable]
        await told.close()


async def test_what_could_not_be_told_is_told_again_from_the_beginning_of_its_call() -> None:
    """After a failure of the store the whole call is written anew; what is told once is not told twice."""
    journal = Telling()
    events = [Numbered(event=RoundStarted(round=1, fingerprint="f")), Numbered(event=TextDelta(index=0, text="a"))]
    told = LiveEventRelay(cast("RunJournal", journal), EventFeed(events=events))
    for text, broken in (("b", False), ("c", True), ("d", False)):
        journal.is_broken = broken
        journal.told.clear()
        events.append(Numbered(event=TextDelta(index=0, text=text)))
        told.notify()
        await asyncio.wait_for(journal.told.wait(), relay.FLUSH_S * 50)
        await asyncio.sleep(0)
    assert [(chunk.first, chunk.count) for chunk in journal.chunks] == [(2, 2), (4, 1), (2, 4)]
    await told.close()


async def test_a_model_that_says_much_is_told_in_several_chunks_one_after_the_other() -> None:
    """What waits for the store is bounded, and goes on as soon as the store has taken the last one."""
    journal, text = Telling(), "x" * (BATCH_TEXT_MAX // 2)
    events = [Numbered(event=TextDelta(index=0, text=text)) for _ in range(7)]
    feed = EventFeed(events=events)
    told = LiveEventRelay(cast("RunJournal", journal), feed)
    told._flush()
    async with asyncio.timeout(relay.FLUSH_S * 50):
        while feed.stored < 7:  # noqa: ASYNC110 that it is kept is told to readers alone
            await asyncio.sleep(0)
    assert [(chunk.first, chunk.count) for chunk in journal.chunks] == [(1, 2), (3, 2), (5, 2), (7, 1)]
    await told.close()
