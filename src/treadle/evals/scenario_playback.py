"""Plays one scenario: its turns become runs of a real runtime, with a scripted or a real model.

Also plays the user, the client's own tools, a client that disconnects, and a process that crashes and is recovered by
another. The results are read from the journal.
"""

import tempfile
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, aclosing
from pathlib import Path

import msgspec

from treadle.config import Settings, StoreSection
from treadle.core.errors import ConfigError
from treadle.core.events import RunEnded, RunEvent
from treadle.core.items import AnyItem, CallItem, ResultItem, text_message, text_result
from treadle.core.journal_entries import item_of_entry
from treadle.core.request import Options, Request
from treadle.core.tool_definitions import ToolChoice, ToolSpec
from treadle.evals.distractor_tools import distractors
from treadle.evals.fixed_clock import BEGIN, LEASE_OVER_S, StillClock
from treadle.evals.scenario_file import CannedTool, Scenario, UserTurn
from treadle.evals.scenario_tools import Cans, Toolkit
from treadle.evals.transcript import PlayedRun, Transcript
from treadle.journal.sqlite.backup import back_up
from treadle.runs import RunHandle
from treadle.runtime import Parts, Runtime
from treadle.tools import Tool

MEMORY = "sqlite:///:memory:"
CLIENT_ROUNDS_MAX = 32
"""How often a client answers its own calls in one turn."""

MakeRuntime = Callable[[Settings, Sequence[Tool], Parts], Runtime]
"""Builds the runtime of a play: with the scripted model, or with a real one."""


class Staged(msgspec.Struct, frozen=True, kw_only=True):
    """What a play is made with. `options` are those of every request, `parts` what the runtime is given."""

    settings: Settings
    parts: Parts
    make: MakeRuntime
    options: Options = Options()


class Stage:
    """One scenario while it is played."""

    def __init__(self, scenario: Scenario, staged: Staged) -> None:
        self._scenario = scenario
        self._staged = staged
        self.toolkit = Toolkit(scenario.world)
        self._tools = [
            *self.toolkit.tools(scenario.tools),
            *self.toolkit.canned(scenario.tool),
            *distractors(scenario.distractors),
        ]
        self._client_cans = {tool.name: Cans(tool) for tool in scenario.client_tool}
        self._client_specs = tuple(_spec(tool) for tool in scenario.client_tool)
        self._folder: Path | None = None
        self._runtime: Runtime | None = None
        self._runs: list[PlayedRun] = []

    async def play(self) -> Transcript:
        """Play all turns.

        Raises: TreadleError, for what keeps the scenario from being played.
        """
        async with AsyncExitStack() as exits:
            if any(turn.crash_at for turn in self._scenario.turn):
                self._folder = Path(exits.enter_context(tempfile.TemporaryDirectory(prefix="treadle-eval-")))
            exits.push_async_callback(self._close)
            await self._open("a.db", BEGIN)
            for turn in self._scenario.turn:
                for decision in turn.decide:
                    self.toolkit.decide(decision)
                await self._turn(turn)
        return Transcript(
            runs=tuple(self._runs), tools=tuple(tool.declared for tool in self._tools), client_tools=self._client_specs
        )

    async def _open(self, name: str, now: float) -> None:
        url = MEMORY if self._folder is None else f"sqlite:///{self._folder / name}"
        settings = msgspec.structs.replace(self._staged.settings, store=StoreSection(url=url))
        parts = self._staged.parts
        if isinstance(parts.clock, StillClock):
            parts = msgspec.structs.replace(parts, clock=StillClock(now))
        self._runtime = self._staged.make(settings, self._tools, parts)
        await self._runtime.open()

    async def _close(self) -> None:
        if self._runtime is not None:
            await self._runtime.close()

    async def _turn(self, turn: UserTurn) -> None:
        """Let the user speak, and the client answer the calls of its own tools."""
        items: tuple[AnyItem, ...] = (text_message("user", turn.user),)
        for _ in range(CLIENT_ROUNDS_MAX):
            played = await self._run(turn, items)
            self._runs.append(played)
            items = tuple(self._client_results(played))
            if not items:
                return
        raise ConfigError(f"the client was asked more than {CLIENT_ROUNDS_MAX} times in one turn", param="turn")

    async def _run(self, turn: UserTurn, items: tuple[AnyItem, ...]) -> PlayedRun:
        request = Request(
            protocol="treadle",
            model="",
            items=items,
            instructions=self._scenario.instructions or None,
            tools=self._client_specs,
            tool_choice=_choice(turn.tool_choice),
            options=self._staged.options,
        )
        session = await self._now.session("scenario")
        handle = await self._now.runs.start(request, session_id=session)
        events = await self._follow(handle, turn)
        return PlayedRun(entries=tuple(await self._now.store.entries(handle.run_id)), events=tuple(events))

    @property
    def _now(self) -> Runtime:
        """Return the process that is alive."""
        assert self._runtime is not None
        return self._runtime

    async def _follow(self, handle: RunHandle, turn: UserTurn) -> list[RunEvent]:
        """Follow the run to its end; disconnect or crash at the given event."""
        events: list[RunEvent] = []
        async with aclosing(handle.events()) as batches:
            async for batch in batches:
                events += [numbered.event for numbered in batch]
                tags = {type(numbered.event).__struct_config__.tag for numbered in batch}
                if turn.crash_at in tags and not isinstance(events[-1], RunEnded):
                    return await self._recover_elsewhere(handle.run_id)
                if turn.leave_at in tags:
                    await handle.cancel()
        await handle.wait()
        return events

    async def _recover_elsewhere(self, run_id: str) -> list[RunEvent]:
        """Copy the disk as a crash would leave it, and recover from it in another process."""
        assert self._folder is not None
        back_up(self._folder / "a.db", self._folder / "b.db", lambda _done, _of: None)
        await self._close()
        self.toolkit.things.release()
        await self._open("b.db", BEGIN + LEASE_OVER_S)
        events: list[RunEvent] = []
        async with aclosing(self._now.runs.events(run_id)) as batches:
            async for batch in batches:
                events += [numbered.event for numbered in batch]
        return events

    def _client_results(self, played: PlayedRun) -> list[ResultItem]:
        """Return what the client's tools give for the calls that wait for it."""
        stored = [item_of_entry(entry) for entry in played.entries if entry.kind == "tool_call" and not entry.is_input]
        calls = [item for item in stored if isinstance(item, CallItem) and item.side == "client"]
        results: list[ResultItem] = []
        for call in calls:
            given = self._client_cans[call.name].next()
            text = given.output if given.error is None else given.error
            results.append(text_result(call, text, is_error=given.error is not None))
        return results


def _spec(tool: CannedTool) -> ToolSpec:
    return ToolSpec(name=tool.name, description=tool.description, parameters=msgspec.Raw(tool.parameters.encode()))


def _choice(said: str) -> ToolChoice:
    match said:
        case "auto" | "none" | "required":
            return ToolChoice(mode=said)
        case name:
            return ToolChoice(mode="named", name=name)
