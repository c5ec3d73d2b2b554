"""Plays a guest against a model that says what it is told to, on a private journal."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec

from treadle.core.errors import NotFound
from treadle.core.ids import CountingIds
from treadle.core.items import ResultItem, text_of
from treadle.core.journal_entries import Entry, item_of_entry
from treadle.core.tool_definitions import CallContext, Outcome, ServerTool
from treadle.engine.limits import Limits
from treadle.journal.sqlite.store import SqliteStore
from treadle.runs import RunDependencies, Runs, RunsOptions
from treadle.runtime import SystemClock
from treadle.telemetry import Metrics
from treadle.wasm.engine.compiler import Compiler
from treadle.wasm.engine.guest_limits import EngineMode, Isolation, SandboxLimits
from treadle.wasm.engine.wasi_grants import WasiGrant
from treadle.wasm.engine.wasmtime_engine import load_wasmtime
from treadle.wasm.execution.conversation_runs import ConversationRuns
from treadle.wasm.execution.process_workers import GuestWorker, GuestWorkers
from treadle.wasm.execution.session_program import ProgramEnded
from treadle.wasm.execution.thread_messages import GuestOutput
from treadle.wasm.guest_pool import GuestModule, GuestPool
from treadle.wasm.guest_service import Guests
from unit.engine.fakes import FakeModel, FakeToolbox, ask_for, call, say

LIMITS = SandboxLimits(cpu_s=0.2, wall_s=20.0, memory_bytes_max=4_194_304, host_calls_max=5_000)


class Names:
    """One model under every name but one, and server tools."""

    def __init__(self, model: FakeModel, tools: Sequence[ServerTool] = ()) -> None:
        self._model = model
        self._tools = tuple(tools)

    def model_for(self, name: str) -> FakeModel:
        if name == "missing":
            raise NotFound("no such model", param="model")
        return self._model

    def tools(self) -> tuple[ServerTool, ...]:
        return self._tools


class OnePool(GuestWorkers):
    """Workers for any module: a process for each of a hundred guests would be most of the test."""

    def __init__(self) -> None:
        super().__init__()
        self.busy: list[GuestWorker] = []

    async def take(self, key: str) -> GuestWorker:
        self.busy.append(await super().take("any"))
        return self.busy[-1]

    async def give_back(self, key: str, worker: GuestWorker) -> None:
        self.busy.remove(worker)
        await super().give_back("any", worker)


class Played(msgspec.Struct, frozen=True, kw_only=True):
    """How a guest ended, what it said, and what the journal has of its runs."""

    ended: ProgramEnded
    said: list[GuestOutput]
    entries: list[Entry]
    statuses: list[str]

    @property
    def answer(self) -> int | str | None:
        """Return the exit code, or the code of the stop."""
        return self.ended.exit_code if self.ended.stop is None else self.ended.stop.code

    @property
    def results(self) -> list[str]:
        """Return what the model was given for its calls."""
        items = [item_of_entry(entry) for entry in self.entries if entry.kind == "tool_result"]
        return [text_of(item.output) for item in items if isinstance(item, ResultItem)]


class Stage:
    """Guests on a private journal, with a model."""

    def __init__(self, quarters: GuestPool, store: SqliteStore) -> None:
        self.quarters = quarters
        self.store = store
        self.runs: Runs | None = None

    async def play(
        self,
        wat: str | bytes,
        *,
        model: FakeModel | None = None,
        tools: Sequence[ServerTool] = (),
        limits: SandboxLimits = LIMITS,
        loop_limits: Limits | None = None,
        mode: EngineMode = "safe",
        isolation: Isolation = "thread",
        grants: tuple[str, ...] = (),
        stdin: bytes = b"",
        name: str = "guest",
        wasi: WasiGrant | None = None,
    ) -> Played:
        """Run one guest to its end."""
        wasm = bytes(load_wasmtime().wat2wasm(wat)) if isinstance(wat, str) else wat
        said: list[GuestOutput] = []
        guests = self.guests(model or FakeModel(say("hello")), tools, loop_limits)
        module = GuestModule(
            name=name, path="", limits=limits, engine=mode, isolation=isolation, grants=grants, model="m", wasi=wasi
        )
        ended = await guests.run(module, wasm=wasm, on_output=said.append, stdin=stdin)
        entries = [entry for run_id in ended.run_ids for entry in await self.store.entries(run_id)]
        rows = [await self.store.find_run(run_id) for run_id in ended.run_ids]
        return Played(ended=ended, said=said, entries=entries, statuses=[row.status for row in rows if row])

    async def kinds(self) -> list[str]:
        """Return the kinds of the entries of every run so far."""
        rows = await self.store.list_runs(limit=100)
        return [entry.kind for row in rows for entry in await self.store.entries(row.id)]

    def guests(self, model: FakeModel, tools: Sequence[ServerTool] = (), loop_limits: Limits | None = None) -> Guests:
        """Return guests whose sends this model answers."""
        names = Names(model, tools)
        toolbox = FakeToolbox(**{tool.name: _server_result for tool in tools})
        rooms = RunDependencies(
            store=self.store,
            models=names,
            tools=names,
            toolbox=toolbox,
            clock=SystemClock(),
            ids=_ids,
            metrics=Metrics(),
        )
        limits = loop_limits or Limits()
        self.runs = Runs(rooms, RunsOptions(owner="test", limits=limits))
        return Guests(self.quarters, ConversationRuns(self.runs, names, toolbox, limits, default_model="m"))


_ids = CountingIds()


def _server_result(_: object) -> Outcome:
    return Outcome(text="from the server")


@asynccontextmanager
async def stage(live_max: int = 256) -> AsyncIterator[Stage]:
    """Open a private journal and quarters that compile here."""
    quarters = GuestPool(Compiler(in_child=False), live_max=live_max)
    quarters.workers = OnePool()
    store = SqliteStore(":memory:", clock=SystemClock().now)
    await store.open()
    try:
        yield Stage(quarters, store)
    finally:
        await quarters.close()
        await store.close()


def calling(*arguments: str, name: str = "t", then: str = "done") -> FakeModel:
    """Return a model that calls a tool once for each arguments in one turn, then says something."""
    calls = [call(name, arguments=text, call_id=f"call_{number}") for number, text in enumerate(arguments)]
    return FakeModel(ask_for(*calls), say(then))


__all__ = ["LIMITS", "CallContext", "Played", "Stage", "ask_for", "call", "calling", "say", "stage"]
