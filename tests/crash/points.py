"""Failpoints: the ports of a run wrapped so that before and after each call there is a named place to die at."""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any, TypeVar

from treadle.core.events import ModelEvent, RunEnded
from treadle.core.items import CallItem
from treadle.core.journal_entries import Entry
from treadle.core.plan import Plan
from treadle.core.tool_definitions import CallContext, Outcome
from treadle.engine.ports import Model, Toolbox
from treadle.journal.journal_interface import Chunk, RunJournal, RunRow, Store

T = TypeVar("T")
SETTLE_S = 2.0
_WRAPPED = ("set_session_head", "purge_run", "pin")
"""Writes of the store itself, beside those of a run's journal."""


class Points:
    """Counts the places that the process came by; at the one numbered `fatal` it is killed without warning."""

    def __init__(self, fatal: int | None = None) -> None:
        self.names: list[str] = []
        self._fatal = fatal

    def pass_by(self, name: str) -> None:
        """Come by a place."""
        self.names.append(name)
        if len(self.names) == self._fatal:
            os.kill(os.getpid(), signal.SIGKILL)

    async def around(self, name: str, work: Awaitable[T]) -> T:
        """Await something between two places."""
        self.pass_by(f"before {name}")
        result = await work
        self.pass_by(f"after {name}")
        return result

    def around_write(self, name: str, begin: Callable[[], Awaitable[T]]) -> asyncio.Future[T]:
        """Begin a write and await it, between two places."""

        async def write() -> T:
            self.pass_by(f"before {name}")
            result = await begin()
            self.pass_by(f"after {name}")
            return result

        return asyncio.ensure_future(write())


class FatalJournal:
    """Fits `RunJournal`."""

    def __init__(self, journal: RunJournal, points: Points, told: asyncio.Event) -> None:
        self._journal = journal
        self._points = points
        self._told = told

    @property
    def run_id(self) -> str:
        return self._journal.run_id

    @property
    def epoch(self) -> int:
        return self._journal.epoch

    @property
    def attempt(self) -> int:
        return self._journal.attempt

    def append(self, entries: Sequence[Entry]) -> asyncio.Future[int]:
        kinds = " ".join(entry.kind for entry in entries)
        return self._points.around_write(f"append {kinds}", lambda: self._journal.append(entries))

    def finish(self, entries: Sequence[Entry], ended: RunEnded, *, forget: Sequence[str] = ()) -> asyncio.Future[int]:
        kinds = " ".join(entry.kind for entry in entries)
        return self._points.around_write(f"finish {kinds}", lambda: self._journal.finish(entries, ended, forget=forget))

    async def write_chunk(self, chunk: Chunk, *, keep_from: int, is_durable: bool = False) -> None:
        await self._points.around("tell", self._journal.write_chunk(chunk, keep_from=keep_from, is_durable=is_durable))
        self._told.set()

    def renew(self) -> asyncio.Future[int]:
        return self._journal.renew()

    async def release(self) -> None:
        await self._points.around("release", self._journal.release())


class FatalStore:
    """Fits `Store`: what writes is wrapped, what reads is passed on."""

    def __init__(self, store: Store, points: Points) -> None:
        self._store = store
        self._points = points
        self.told = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name not in _WRAPPED:
            return method
        return lambda *args, **named: self._points.around(name, method(*args, **named))

    def start_run(self, row: RunRow, entries: Sequence[Entry], **named: Any) -> asyncio.Future[RunJournal]:
        async def start() -> RunJournal:
            journal = await self._store.start_run(row, entries, **named)
            return FatalJournal(journal, self._points, self.told)

        return self._points.around_write("start_run", start)

    async def claim_abandoned(
        self, owner: str, lease_s: float, limit: int, **only: Any
    ) -> list[tuple[RunRow, RunJournal]]:
        claimed = await self._points.around("claim", self._store.claim_abandoned(owner, lease_s, limit, **only))
        return [(row, FatalJournal(journal, self._points, self.told)) for row, journal in claimed]

    async def settled(self) -> None:
        """Wait until what the run said last can be read by other processes."""
        async with asyncio.timeout(SETTLE_S):
            await self.told.wait()
        self.told.clear()


class FatalModel:
    """Fits `Model`."""

    def __init__(self, model: Model, points: Points) -> None:
        self._model = model
        self._points = points

    async def stream(self, plan: Plan, run_id: str) -> AsyncGenerator[list[ModelEvent], None]:
        self._points.pass_by("before the model call")
        async for batch in self._model.stream(plan, run_id):
            yield batch
            self._points.pass_by("after a batch of the model")


class FatalToolbox:
    """Fits `Toolbox`: the effect comes between the two places."""

    def __init__(self, toolbox: Toolbox, points: Points) -> None:
        self._toolbox = toolbox
        self._points = points

    async def run(self, call: CallItem, context: CallContext) -> Outcome:
        return await self._points.around(f"tool {call.name}", self._toolbox.run(call, context))
