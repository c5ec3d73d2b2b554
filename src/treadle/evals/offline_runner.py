"""Plays scenarios offline: the real runtime, loop and decoder, with a scripted model and toolkit.

Each scenario is played once on each upstream protocol, on a temporary store, and every reply is decoded at every chunk
size. Errors of the model or a tool are graded; a sample is `broken` only if it cannot be graded at all.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from pathlib import Path

import msgspec

from treadle.config import Settings, ToolsSection
from treadle.core.errors import TreadleError, UpstreamError
from treadle.core.events import ModelEvent
from treadle.core.ids import CountingIds
from treadle.core.plan import Plan
from treadle.evals.chunking_check import CutWatch
from treadle.evals.fixed_clock import StillClock, no_sleep
from treadle.evals.graders import GraderEvidence, grade
from treadle.evals.process_pool import Tell, shared
from treadle.evals.scenario_file import Scenario, find_scenarios, load_scenario, read_scenarios
from treadle.evals.scenario_playback import Stage, Staged
from treadle.evals.suite_report import SuiteResult, SuiteSample
from treadle.protocols.protocol_registry import CHAT, GEMINI, MESSAGES, PROTOCOL_NAMES, RESPONSES, ProtocolName
from treadle.providers.fakes.scripted_model import Script, ScriptedModel, ScriptMismatch
from treadle.runtime import Parts, Runtime, repair_rules

PLAYED_AT: dict[ProtocolName, int | None] = {CHAT: 11, RESPONSES: 7, MESSAGES: 64, GEMINI: None}
"""The size of a network read in the play on each protocol, where none is asked for; replies are read at all sizes."""
PLAY_S = 20.0
"""How long one play may take before it counts as broken."""


class Play(msgspec.Struct, frozen=True, kw_only=True):
    """How a scenario is played: on which upstream protocol, and its replies cut at which size."""

    protocol: ProtocolName = CHAT
    chunk_bytes: int | None = None


class Played(msgspec.Struct, frozen=True, kw_only=True):
    """A sample, and what it was graded on; nothing when it could not be played."""

    sample: SuiteSample
    evidence: GraderEvidence | None = None


_PLAYED: msgspec.json.Decoder[list[Played]] = msgspec.json.Decoder(list[Played])
Heed = Callable[[Played], None]
"""Hears of every play, in the order of the scenarios."""


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One scenario file, and how to play it. `unread` says why it cannot be played."""

    file: str
    unread: str = ""
    protocols: tuple[ProtocolName, ...] = PROTOCOL_NAMES
    chunk_sizes: tuple[int | None, ...] = ()
    only: tuple[str, ...] = ()


async def run_suite(
    paths: Sequence[Path] | None = None,
    *,
    chunk_sizes: Sequence[int | None] = (),
    protocols: Sequence[ProtocolName] = PROTOCOL_NAMES,
    only: Sequence[str] = (),
    heed: Heed | None = None,
) -> SuiteResult:
    """Play every scenario of the files and folders, or those that come with Treadle, in this process.

    Without chunk sizes each protocol has its own. `only` are patterns of ids, or tags. `heed` hears of every play.
    Raises: ConfigError, when a path has no scenario. A scenario that cannot be read is a broken sample.
    """
    started = time.perf_counter()
    samples: list[SuiteSample] = []
    files = find_scenarios(*(paths or ()))
    _, unread = read_scenarios(files)
    for file in files:
        task = Task(
            file=str(file),
            protocols=tuple(protocols),
            chunk_sizes=tuple(chunk_sizes),
            only=tuple(only),
            unread=unread.get(file, ""),
        )
        for played in await _play_task(task):
            samples.append(played.sample)
            if heed is not None:
                heed(played)
    return SuiteResult(samples=tuple(samples), duration_s=time.perf_counter() - started)


def run_tasks(
    tasks: Sequence[Task], *, jobs: int = 1, heed: Heed | None = None, tell: Tell | None = None
) -> SuiteResult:
    """Play tasks in so many processes; the result is the same however many there are. `tell` hears how many."""
    started = time.perf_counter()
    samples: list[SuiteSample] = []
    for answer in shared(_work, tasks, jobs, tell):
        for played in _PLAYED.decode(answer):
            samples.append(played.sample)
            if heed is not None:
                heed(played)
    return SuiteResult(samples=tuple(samples), duration_s=time.perf_counter() - started)


def _work(tasks: Sequence[Task]) -> list[bytes]:
    """Play tasks one after the other, in a child process whose log is discarded."""
    logging.getLogger("treadle").addHandler(logging.NullHandler())
    logging.getLogger("treadle").propagate = False

    async def play_all() -> list[bytes]:
        return [msgspec.json.encode(await _play_task(task)) for task in tasks]

    return asyncio.run(play_all())


async def _play_task(task: Task) -> list[Played]:
    if task.unread:
        return [Played(sample=SuiteSample(scenario=Path(task.file).stem, broken=task.unread))]
    scenario = load_scenario(Path(task.file))
    if not scenario.matches(task.only):
        return []
    return [await play_whole(scenario, each) for each in plays_of(scenario, task.protocols, task.chunk_sizes)]


def plays_of(
    scenario: Scenario, protocols: Sequence[ProtocolName] = PROTOCOL_NAMES, chunk_sizes: Sequence[int | None] = ()
) -> list[Play]:
    """Return how a scenario is played."""
    return [
        Play(protocol=protocol, chunk_bytes=size)
        for protocol in scenario.protocols
        if protocol in protocols
        for size in (chunk_sizes or (PLAYED_AT[protocol],))
    ]


async def play(scenario: Scenario, chunk_bytes: int | None = None, protocol: ProtocolName = CHAT) -> SuiteSample:
    """Play one scenario, its replies cut at the chunk size, and grade what came of it."""
    return (await play_whole(scenario, Play(protocol=protocol, chunk_bytes=chunk_bytes))).sample


async def play_whole(scenario: Scenario, how: Play) -> Played:
    """Play one scenario and keep what it was graded on."""
    started = time.perf_counter()
    try:
        async with asyncio.timeout(PLAY_S):
            evidence = await _evidence(scenario, how)
        broken = None
    except TimeoutError:
        evidence, broken = None, f"it took longer than {PLAY_S:g} s"
    except TreadleError as error:
        evidence, broken = None, f"{error.info.code}: {error.message}"
    sample = SuiteSample(
        scenario=scenario.id,
        title=scenario.title,
        protocol=how.protocol,
        chunk_bytes=how.chunk_bytes,
        verdicts=() if evidence is None else tuple(grade(scenario.expect, evidence)),
        broken=broken,
        calls=0 if evidence is None else len(evidence.transcript.calls),
        rounds=0 if evidence is None else evidence.transcript.rounds,
        duration_s=time.perf_counter() - started,
    )
    return Played(sample=sample, evidence=evidence)


async def _evidence(scenario: Scenario, how: Play) -> GraderEvidence:
    ids = CountingIds()
    settings = Settings(
        default_model=scenario.model, limits=scenario.limits, tools=ToolsSection(demo=False), repair=scenario.repair
    )
    rules = repair_rules(None, settings)
    scripted = ScriptedModel(
        Script(turns=scenario.script),
        ids=ids,
        chunk_bytes=how.chunk_bytes,
        protocol=how.protocol,
        sleep=no_sleep,
        idle_s=scenario.limits.idle_s,
    )
    watch = CutWatch(how.protocol, rules, every_cut=scenario.every_cut)
    scripted.repair, scripted.heard = rules, watch.hear
    judged = _Judged(scripted)
    staged = Staged(
        settings=settings,
        parts=Parts(ids=ids, env={}, clock=StillClock(), is_attended=False),
        make=lambda settings, tools, parts: Runtime(settings, tools=tools, model=judged, parts=parts),
    )
    stage = Stage(scenario, staged)
    before = stage.toolkit.document()
    transcript = await stage.play()
    return GraderEvidence(
        transcript=transcript,
        before=before,
        after=stage.toolkit.document(),
        mismatches=_mismatches(scripted),
        cuts=tuple(watch.problems),
        protocol=how.protocol,
    )


def _mismatches(scripted: ScriptedModel) -> tuple[str, ...]:
    """Return what did not fit the script: asked otherwise, too often, or not often enough."""
    try:
        scripted.player.verify()
    except ScriptMismatch as mismatch:
        return tuple(str(mismatch).splitlines())
    return ()


class _Judged:
    """A scripted model; a mismatch ends the run like a provider failure, and the grader reports it."""

    def __init__(self, scripted: ScriptedModel) -> None:
        self._scripted = scripted

    async def stream(self, plan: Plan, run_id: str) -> AsyncGenerator[list[ModelEvent], None]:
        try:
            async with aclosing(self._scripted.stream(plan, run_id)) as batches:
                async for batch in batches:
                    yield batch
        except ScriptMismatch as mismatch:
            raise UpstreamError(str(mismatch), code="script_mismatch") from None
