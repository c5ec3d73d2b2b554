"""A database that takes its time: what need not be durable does not wait for it."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any

import pytest

from sim.loop import run
from sim.store import SimStore
from treadle.core.events import Finished, ItemAdded, ItemDone, ModelEvent, TextDelta
from treadle.core.ids import CountingIds
from treadle.core.items import MessageItem, TextPart, text_message
from treadle.core.journal_entries import Entry
from treadle.core.plan import Plan
from treadle.core.request import Request, Surface
from treadle.journal.journal_interface import Chunk, RunJournal
from treadle.runs import RunDependencies, Runs, RunsOptions
from treadle.telemetry import Metrics

COMMIT_S = 0.2
PIECE_S = 0.01
PIECES = 100


def slowly(begin: Callable[[], Awaitable[Any]]) -> asyncio.Future[Any]:
    """Begin something after 200 ms."""

    async def work() -> Any:
        await asyncio.sleep(COMMIT_S)
        return await begin()

    return asyncio.ensure_future(work())


class SlowJournal:
    """Takes 200 ms for every write."""

    def __init__(self, journal: RunJournal) -> None:
        self._journal = journal
        self.run_id, self.epoch = journal.run_id, journal.epoch
        self.renew, self.release = journal.renew, journal.release

    def append(self, entries: Sequence[Entry]) -> asyncio.Future[int]:
        return slowly(lambda: self._journal.append(entries))

    def finish(self, entries: Sequence[Entry], ended: Any, **more: Any) -> asyncio.Future[int]:
        return slowly(lambda: self._journal.finish(entries, ended, **more))

    async def write_chunk(self, chunk: Chunk, *, keep_from: int, is_durable: bool = False) -> None:
        await asyncio.sleep(COMMIT_S)
        await self._journal.write_chunk(chunk, keep_from=keep_from, is_durable=is_durable)


class SlowStore:
    """A store whose runs are written slowly."""

    def __init__(self, store: SimStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def start_run(self, *args: Any, **named: Any) -> asyncio.Future[SlowJournal]:
        async def start() -> SlowJournal:
            return SlowJournal(await self._store.start_run(*args, **named))

        return slowly(start)


class Steady:
    """A model that says a word every 10 ms, and the ports that a run needs beside it."""

    def __init__(self) -> None:
        self.said: list[float] = []

    def model_for(self, name: str) -> "Steady":
        return self

    def tools(self) -> list[Any]:
        return []

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    monotonic = now
    sleep = staticmethod(asyncio.sleep)

    async def stream(self, plan: Plan, run_id: str) -> AsyncGenerator[list[ModelEvent], None]:
        item = MessageItem(id="msg_1", role="assistant")
        yield [ItemAdded(index=0, item=item)]
        for number in range(PIECES):
            await asyncio.sleep(PIECE_S)
            self.said.append(self.now())
            yield [TextDelta(index=0, text=f"{number} ")]
        text = "".join(f"{number} " for number in range(PIECES))
        done = MessageItem(id="msg_1", role="assistant", content=(TextPart(text=text),))
        yield [ItemDone(index=0, item=done), Finished(stop="done")]


async def listen(model: Steady, heard: list[float]) -> None:
    """Ask, and note when each piece of the answer arrives."""
    store = SimStore(model.now)
    await store.open()
    rooms = RunDependencies(
        store=SlowStore(store),
        models=model,
        tools=model,
        toolbox=model,
        clock=model,
        ids=CountingIds(),
        metrics=Metrics(),
    )
    runs = Runs(rooms, RunsOptions())
    await runs.open()
    asked = Request(protocol="responses", model="m", items=(text_message("user", "go"),), surface=Surface(stream=True))
    handle = await runs.start(asked)
    async for batch in handle.events():
        heard += [model.now() for numbered in batch if isinstance(numbered.event, TextDelta)]
    await runs.close()
    await store.close()


def test_a_slow_database_does_not_hold_up_the_words():
    """With 200 ms for each commit every piece of text is passed on the moment it comes."""
    model, heard = Steady(), list[float]()
    run(listen(model, heard))
    assert len(heard) == PIECES
    assert max(at - said for at, said in zip(heard, model.said, strict=True)) == pytest.approx(0.0)
