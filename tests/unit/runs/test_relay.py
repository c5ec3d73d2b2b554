"""The relay: what a run says is told to other processes while it is fresh, and never as nothing."""

import asyncio
from typing import cast

from treadle.canon.events import Numbered, RoundStarted, TextDelta
from treadle.runs import relay
from treadle.runs.relay import Relay
from treadle.store.journal import Chunk, RunJournal


class Telling:
    """A journal that keeps what it is told."""

    run_id = "run_1"

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []
        self.told = asyncio.Event()

    async def tell(self, chunk: Chunk, *, keep_from: int) -> None:
        """Keep a chunk; one of nothing is the caller's mistake."""
        assert chunk.count > 0
        self.chunks.append(chunk)
        self.told.set()


async def test_runs_that_speak_at_different_times_are_told_together() -> None:
    """None of them sooner than it would be alone, all in one turn of the loop: the store commits them at once."""
    loop = asyncio.get_running_loop()
    moments = {relay._moment(1000.0 + relay.FLUSH_S * part / 20) for part in range(1, 11)}
    assert len(moments) == 1
    now = loop.time()
    assert 0 <= relay._moment(now) - now <= relay.FLUSH_S / 2 + 1e-6


async def test_a_call_that_ends_before_its_words_are_told_tells_nothing() -> None:
    """Between the timer and the write the round may end: its words are durable then, and there is no chunk of none."""
    journal = Telling()
    told = Relay(cast("RunJournal", journal))
    told.note([Numbered(event=TextDelta(index=0, text="a"))])
    told._flush()
    told.note([Numbered(event=RoundStarted(round=2, fingerprint="f"))])
    await told.close()
    assert journal.chunks == []
    told = Relay(cast("RunJournal", journal))
    told.note([Numbered(event=TextDelta(index=0, text="a"))])
    await asyncio.wait_for(journal.told.wait(), relay.FLUSH_S * 50)
    assert [chunk.count for chunk in journal.chunks] == [1]
    await told.close()
