"""Plays scenarios offline: the real runtime, the real loop and the real decoder, with a scripted model and toolkit.

Each scenario is played once for each chunk size, on a store of its own that is thrown away. What the model or a
tool does wrong is graded; only what keeps a scenario from being judged at all makes it `broken`.
"""

import asyncio
import tempfile
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path

from treadle.canon.errors import ConfigError, TreadleError, UpstreamError
from treadle.canon.events import ModelEvent, RunEvent, RunStarted
from treadle.canon.ids import CountingIds
from treadle.canon.plan import Plan
from treadle.config import Settings, StoreSection, ToolsSection
from treadle.evals.graders import Evidence, grade
from treadle.evals.report import Sample, SuiteResult
from treadle.evals.scenario import Scenario, UserTurn, find_scenarios, load_scenario
from treadle.evals.toolkit import Toolkit
from treadle.evals.transcript import PlayedRun, Transcript
from treadle.runtime import Parts, Runtime
from treadle.upstream.script import Script, ScriptedModel, ScriptMismatch

CHUNK_SIZES: tuple[int | None, ...] = (1, 7, None)
PLAY_S = 20.0
"""How long one play may take before it counts as broken."""


async def run_suite(
    paths: Sequence[Path] | None = None, *, chunk_sizes: Sequence[int | None] = CHUNK_SIZES
) -> SuiteResult:
    """Play every scenario of the files and folders, or those that come with Treadle, at every chunk size.

    Raises: ConfigError, when a path has no scenario. A scenario that cannot be read is a broken sample.
    """
    files = find_scenarios(*(paths or ()))
    started = time.perf_counter()
    samples: list[Sample] = []
    for file in files:
        try:
            scenario = load_scenario(file)
        except ConfigError as error:
            samples.append(Sample(scenario=file.stem, broken=error.message))
            continue
        samples += [await play(scenario, chunk_bytes) for chunk_bytes in chunk_sizes]
    return SuiteResult(samples=tuple(samples), duration_s=time.perf_counter() - started)


async def play(scenario: Scenario, chunk_bytes: int | None = None) -> Sample:
    """Play one scenario, its replies cut at the chunk size, and grade what came of it."""
    started = time.perf_counter()
    try:
        async with asyncio.timeout(PLAY_S):
            evidence = await _evidence(scenario, chunk_bytes)
        broken = None
    except TimeoutError:
        evidence, broken = None, f"it took longer than {PLAY_S:g} s"
    except TreadleError as error:
        evidence, broken = None, f"{error.info.code}: {error.message}"
    return Sample(
        scenario=scenario.id,
        title=scenario.title,
        chunk_bytes=chunk_bytes,
        verdicts=() if evidence is None else tuple(grade(scenario.expect, evidence)),
        broken=broken,
        calls=0 if evidence is None else len(evidence.transcript.calls),
        rounds=0 if evidence is None else evidence.transcript.rounds,
        duration_s=time.perf_counter() - started,
    )


async def _evidence(scenario: Scenario, chunk_bytes: int | None) -> Evidence:
    toolkit = Toolkit(scenario.world)
    tools = [*toolkit.tools(scenario.tools), *toolkit.canned(scenario.tool)]
    before = toolkit.document()
    ids = CountingIds()
    scripted = ScriptedModel(Script(turns=scenario.script), ids=ids, chunk_bytes=chunk_bytes)
    with tempfile.TemporaryDirectory(prefix="treadle-eval-") as folder:
        settings = Settings(
            default_model="script",
            limits=scenario.limits,
            store=StoreSection(url=f"sqlite:///{folder}/eval.db"),
            tools=ToolsSection(demo=False),
        )
        async with Runtime(settings, tools=tools, model=_Judged(scripted), parts=Parts(ids=ids, env={})) as runtime:
            runs: list[PlayedRun] = []
            for turn in scenario.turn:
                for decision in turn.decide:
                    toolkit.decide(decision)
                runs.append(await _run(runtime, turn))
    return Evidence(
        transcript=Transcript(runs=tuple(runs), tools=tuple(tool.declared for tool in tools)),
        before=before,
        after=toolkit.document(),
        mismatches=_mismatches(scripted),
    )


async def _run(runtime: Runtime, turn: UserTurn) -> PlayedRun:
    events: list[RunEvent] = []
    async with aclosing(runtime.run(turn.user, session="scenario")) as told:
        async for event in told:
            events.append(event)
    run_id = next(event.run_id for event in events if isinstance(event, RunStarted))
    return PlayedRun(entries=tuple(await runtime.store.entries(run_id)), events=tuple(events))


def _mismatches(scripted: ScriptedModel) -> tuple[str, ...]:
    """Return what did not fit the script: asked otherwise, too often, or not often enough."""
    try:
        scripted.player.verify()
    except ScriptMismatch as mismatch:
        return tuple(str(mismatch).splitlines())
    return ()


class _Judged:
    """A scripted model whose mismatch ends the run as an upstream's failure would; the grader then tells of it."""

    def __init__(self, scripted: ScriptedModel) -> None:
        self._scripted = scripted

    async def stream(self, plan: Plan, run_id: str) -> AsyncGenerator[list[ModelEvent], None]:
        try:
            async with aclosing(self._scripted.stream(plan, run_id)) as batches:
                async for batch in batches:
                    yield batch
        except ScriptMismatch as mismatch:
            raise UpstreamError(str(mismatch), code="script_mismatch") from None
