"""A simulated process: real runs on ports that can be slowed, frozen and cut off at any await.

Everything a process does to the world goes through `Gate`: a frozen process does nothing until it is let go on, a
dead one nothing any more. What it still has in memory does not count.
"""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any, TypeVar

from crash.checker import Effect
from crash.scenes import Scene, SceneModel, server_tools
from sim.store import CURRENT
from treadle.core.errors import StoreError
from treadle.core.events import ModelEvent, RunEnded
from treadle.core.ids import CountingIds, SeededIds
from treadle.core.items import CallItem
from treadle.core.journal_entries import Entry
from treadle.core.plan import Plan
from treadle.core.tool_definitions import CallContext, Outcome, ServerTool
from treadle.engine.ports import Model
from treadle.journal.journal_interface import Chunk, RunJournal, RunRow, Store
from treadle.runs import RunDependencies, Runs, RunsOptions
from treadle.runtime.database_clock import SharedClock
from treadle.telemetry import Metrics

T = TypeVar("T")
LEASE_S = 15.0


class Dead(BaseException):
    """The process is no more; what is left of its code must not act."""


class Gate:
    """What stands between a process and the world."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.is_dead = False
        self.fails = 0.0
        self.is_late = False
        self.wrong_s = 0.0
        self._open = asyncio.Event()
        self._open.set()

    def freeze(self) -> None:
        """Let nothing through."""
        self._open.clear()

    def thaw(self) -> None:
        """Let everything through again."""
        self._open.set()

    async def step(self) -> None:
        """Take a while; never return while frozen, and never again when dead."""
        if self.chance.random() < 0.7:
            await asyncio.sleep(self.chance.choice((0.0, 0.001, 0.01, 0.1)))
        await self.check()

    async def check(self) -> None:
        """Wait while frozen, and end here if dead."""
        while not self._open.is_set() and not self.is_dead:
            await self._open.wait()
        if self.is_dead:
            raise Dead

    def is_full(self) -> bool:
        """Tell whether this time the disk is full."""
        return self.fails > 0.0 and self.chance.random() < self.fails

    async def through(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do something to the world, some time before or after which the process may stop."""
        await self.step()
        result = await work()
        await self.step()
        return result


class GatedJournal:
    """Fits `RunJournal`."""

    def __init__(self, journal: RunJournal, gate: Gate) -> None:
        self._journal = journal
        self._gate = gate
        self.run_id = journal.run_id
        self.epoch, self.attempt = journal.epoch, journal.attempt

    def append(self, entries: Sequence[Entry]) -> asyncio.Future[int]:
        return asyncio.ensure_future(self._gate.through(lambda: self._journal.append(entries)))

    def finish(self, entries: Sequence[Entry], ended: RunEnded, *, forget: Sequence[str] = ()) -> asyncio.Future[int]:
        return asyncio.ensure_future(self._gate.through(lambda: self._journal.finish(entries, ended, forget=forget)))

    async def write_chunk(self, chunk: Chunk, *, keep_from: int, is_durable: bool = False) -> None:
        if self._gate.is_late:
            raise StoreError("The store takes too long.")
        await self._gate.through(lambda: self._journal.write_chunk(chunk, keep_from=keep_from, is_durable=is_durable))

    def renew(self) -> asyncio.Future[int]:
        return asyncio.ensure_future(self._gate.through(self._journal.renew))

    async def release(self) -> None:
        await self._gate.through(self._journal.release)


class GatedStore:
    """Fits `Store`."""

    def __init__(self, store: Store, gate: Gate) -> None:
        self._store = store
        self._gate = gate

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        return lambda *args, **named: self._gate.through(lambda: method(*args, **named))

    def start_run(self, row: RunRow, entries: Sequence[Entry], **named: Any) -> asyncio.Future[RunJournal]:
        async def start() -> RunJournal:
            work = self._gate.through(lambda: self._store.start_run(row, entries, **named))
            return GatedJournal(await work, self._gate)

        return asyncio.ensure_future(start())

    async def claim_abandoned(
        self, owner: str, lease_s: float, limit: int, **only: Any
    ) -> list[tuple[RunRow, RunJournal]]:
        claimed = await self._gate.through(lambda: self._store.claim_abandoned(owner, lease_s, limit, **only))
        return [(row, GatedJournal(journal, self._gate)) for row, journal in claimed]


class GatedClock:
    """Fits `Clock`: a wall clock that may be set wrong, and one that never jumps."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def now(self) -> float:
        return asyncio.get_running_loop().time() + self._gate.wrong_s

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self._gate.check()


class Process:
    """One process from its start to its death. `scenes` are found by the model's name."""

    def __init__(self, name: str, store: Store, scenes: dict[str, Scene], world: "Sink", chance: random.Random) -> None:
        self.name = name
        self.gate = Gate(chance)
        self._scenes = scenes
        self._world = world
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._ids = CountingIds(namespace=f"{name}_")
        self.clock = SharedClock(GatedClock(self.gate))
        rooms = RunDependencies(
            store=GatedStore(store, self.gate),
            models=self,
            tools=self,
            toolbox=self,
            clock=self.clock,
            ids=self._ids,
            metrics=Metrics(),
        )
        self.runs = Runs(rooms, RunsOptions(owner=name, lease_s=LEASE_S))

    def model_for(self, name: str) -> Model:
        return _GatedModel(
            SceneModel(self._scenes[name], self._world.refuse, self.gate.step, SeededIds(), self._world.asked),
            self.gate,
        )

    def tools(self) -> Sequence[ServerTool]:
        return server_tools()

    async def run(self, call: CallItem, context: CallContext) -> Outcome:
        """Be the toolbox: the effect is a line in the ledger."""
        await self.gate.step()
        self._world.effects.append(Effect(context.run_id, call.call_id, call.name, context.idempotency_key))
        await self.gate.step()
        await asyncio.sleep(self.gate.chance.choice((0.0, 0.5, 3.0)))
        await self.gate.check()
        return Outcome(text=f"{call.name} did it", output_bytes=10)

    def spawn(self, work: Any) -> "asyncio.Task[Any]":
        """Start something that belongs to this process."""
        token = CURRENT.set(self)
        try:
            return asyncio.get_running_loop().create_task(work)
        finally:
            CURRENT.reset(token)

    def adopt(self, task: "asyncio.Task[Any]") -> None:
        """Remember a task of this process."""
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    def kill(self) -> None:
        """End the process without warning: no code of it acts any more."""
        self.gate.is_dead = True
        self.gate.thaw()
        for task in list(self._tasks):
            task.cancel()


class _GatedModel:
    def __init__(self, model: Model, gate: Gate) -> None:
        self._model = model
        self._gate = gate

    async def stream(self, plan: Plan, run_id: str) -> AsyncGenerator[list[ModelEvent], None]:
        await self._gate.step()
        async for batch in self._model.stream(plan, run_id):
            yield batch
            await self._gate.step()


class Sink:
    """What the world keeps of all processes: effects, and what providers would have refused."""

    def __init__(self) -> None:
        self.effects: list[Effect] = []
        self.problems: list[str] = []
        self.asked = Counter[str]()

    def refuse(self, problem: str) -> None:
        """Take down what a provider would not have accepted."""
        self.problems.append(problem)


def task_factory(loop: asyncio.AbstractEventLoop, work: Any, **named: Any) -> "asyncio.Task[Any]":
    """Make tasks that know their process."""
    task = asyncio.Task(work, loop=loop, **named)
    owner = CURRENT.get()
    if owner is not None:
        owner.adopt(task)
        if owner.gate.is_dead:
            task.cancel()
    return task
