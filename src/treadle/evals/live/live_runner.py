"""Plays scenarios with real models through the gateway's own runtime, and records everything.

Only transport failures are retried, and every attempt is recorded. A sample is `broken` if the transport prevented it
from being graded; errors of the model are graded.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack

import msgspec

from treadle.config import Settings, ToolsSection
from treadle.config.settings import RepairSection
from treadle.core.errors import ErrorInfo, TreadleError, UpstreamError
from treadle.core.request import Options
from treadle.core.shared_ports import Clock
from treadle.engine.ports import Model
from treadle.evals.graders import GraderEvidence, grade
from treadle.evals.live.model_judge import judge
from treadle.evals.live.quirk_detection import symptoms_of
from treadle.evals.live.sample_plan import LivePlan, Work
from treadle.evals.live.spending_ledger import BUDGET_REACHED, Metered, SpendingLedger, is_transport
from treadle.evals.results.result_folder import CASSETTES, RunFolder
from treadle.evals.results.sample_rows import Attempt, SampleRow, regraded
from treadle.evals.scenario_playback import Stage, Staged
from treadle.providers.quirk_table import QUIRKS
from treadle.runtime import Parts, Runtime, SystemClock

RETRY_S = (1.0, 4.0, 15.0)
"""The pauses before further attempts, unless the provider sends a retry time."""
BREAKER_CALLS = 1_000_000
"""A threshold never reached, so that the circuit breaker stays closed."""
SAMPLE_S = 900.0
"""How long one attempt may take."""


class LiveOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a live run is made: its plan, bounds, sampling, and what it is made with."""

    plan: LivePlan
    settings: Settings
    env: Mapping[str, str]
    jobs: int = 4
    budget_usd: float | None = None
    requests_max: int | None = None
    options: Options = Options()
    judge_model: str = ""
    clock: Clock = SystemClock()


Progress = Callable[[SampleRow, SpendingLedger], None]
"""Receives every sample as soon as it is complete."""


def alone(settings: Settings) -> Settings:
    """Return what of the settings says how models are reached, and nothing that would answer or act in their place.

    No cache, no fallback to another model, no tools, no keys of clients, no policy of this installation.
    """
    return Settings(
        default_model=settings.default_model,
        limits=settings.limits,
        repair=settings.repair,
        upstreams=settings.upstreams,
        upstream=settings.upstream,
        route=tuple(msgspec.structs.replace(route, tools=None, fallback=()) for route in settings.route),
        tools=ToolsSection(demo=False),
    )


class LiveRunner:
    """One live run into one folder."""

    def __init__(self, options: LiveOptions, folder: RunFolder, progress: Progress | None = None) -> None:
        self._options = options
        self._plan = options.plan
        self._folder = folder
        self._progress = progress
        self.ledger = SpendingLedger(requests_max=options.requests_max, budget_usd=options.budget_usd)
        self._houses: dict[str, Runtime] = {}

    async def run(self, work: Sequence[Work]) -> list[SampleRow]:
        """Make the samples, so many at once; stop when the budget is reached.

        Raises: TreadleError, for a model that nobody serves.
        """
        waiting = list(reversed(work))
        rows: list[SampleRow] = []
        async with AsyncExitStack() as exits:
            for strategy in self._plan.strategies:
                self._houses[strategy] = house = Runtime(self._settings(strategy), parts=Parts(env=self._options.env))
                exits.push_async_callback(house.router.close)
            for model in self._plan.models:
                self._model(model, self._plan.strategies[0])

            async def worker() -> None:
                while waiting and not self.ledger.is_exhausted:
                    each = waiting.pop()
                    row, evidence = await self._sample(each)
                    if row is None:
                        return
                    self._folder.add(row, evidence)
                    rows.append(row)
                    if self._progress is not None:
                        self._progress(row, self.ledger)

            await asyncio.gather(*(worker() for _ in range(max(1, self._options.jobs))))
        return rows

    def _settings(self, strategy: str) -> Settings:
        """Return the settings of a strategy: what it does not use is turned off, upstream by upstream."""
        settings = alone(self._options.settings)
        settings = msgspec.structs.replace(
            settings,
            record=str(self._folder.path / CASSETTES),
            # Retries and the circuit breaker are off: every request must be counted and every attempt recorded.
            upstreams=msgspec.structs.replace(settings.upstreams, retries=0, breaker_calls=BREAKER_CALLS),
        )
        if strategy == "full":
            return settings
        off = tuple(f"-{name}" for name, quirk in QUIRKS.items() if not quirk.is_detector and not quirk.key_header)
        repair = () if strategy == "bare" else None
        return msgspec.structs.replace(
            settings,
            upstream=tuple(
                msgspec.structs.replace(upstream, quirks=off, repair=repair) for upstream in settings.upstream
            ),
            route=tuple(msgspec.structs.replace(route, repair=repair) for route in settings.route),
            repair=RepairSection(tiers=()) if strategy == "bare" else RepairSection(),
        )

    def _model(self, name: str, strategy: str) -> Model:
        return self._houses[strategy].router.model_for(name)

    async def _sample(self, work: Work) -> tuple[SampleRow | None, GraderEvidence | None]:
        """Make one sample, retrying transport failures; None when the budget ended it."""
        attempts: list[Attempt] = []
        for number in range(self._plan.attempts):
            started = time.perf_counter()
            metered = Metered(
                self._model(work.model, work.strategy),
                self.ledger,
                self._plan.prices.get(work.model),
                self._plan.output_tokens_max,
            )
            evidence, error = await self._attempt(work, metered)
            if error is not None and error.code == BUDGET_REACHED:
                return None, None
            attempts.append(_attempt(metered, error, time.perf_counter() - started))
            if error is None or not is_transport(error) or number + 1 == self._plan.attempts:
                return await self._row(work, metered, tuple(attempts), evidence, error)
            wait = RETRY_S[min(number, len(RETRY_S) - 1)] if error.retry_after_s is None else error.retry_after_s
            await self._options.clock.sleep(wait)
        raise AssertionError("there is always a last attempt")

    async def _attempt(self, work: Work, metered: Metered) -> tuple[GraderEvidence | None, ErrorInfo | None]:
        scenario = work.scenario
        settings = Settings(
            default_model=work.model,
            limits=scenario.limits,
            tools=ToolsSection(demo=False),
            repair=self._houses[work.strategy].settings.repair,
        )
        staged = Staged(
            settings=settings,
            parts=Parts(env=self._options.env),
            make=lambda settings, tools, parts: Runtime(settings, tools=tools, model=metered, parts=parts),
            options=msgspec.structs.replace(self._options.options, max_output_tokens=self._plan.output_tokens_max),
        )
        stage = Stage(scenario, staged)
        before = stage.toolkit.document()
        started = time.perf_counter()
        try:
            async with asyncio.timeout(SAMPLE_S):
                transcript = await stage.play()
        except TimeoutError:
            return None, ErrorInfo(code="upstream_timeout", message=f"it took longer than {SAMPLE_S:g} s", status=504)
        except TreadleError as error:
            return None, error.info
        evidence = GraderEvidence(
            transcript=transcript,
            before=before,
            after=stage.toolkit.document(),
            setting="live",
            duration_s=round(time.perf_counter() - started, 3),
            cost_usd=metered.cost_usd,
        )
        return evidence, metered.failure

    async def _row(
        self,
        work: Work,
        metered: Metered,
        attempts: tuple[Attempt, ...],
        evidence: GraderEvidence | None,
        error: ErrorInfo | None,
    ) -> tuple[SampleRow, GraderEvidence | None]:
        usage = metered.usage
        costs = [each.cost_usd for each in attempts if each.cost_usd is not None]
        row = SampleRow(
            key=work.key,
            scenario=work.scenario.id,
            title=work.scenario.title,
            model=work.model,
            strategy=work.strategy,
            trial=work.trial,
            outcome="broken",
            input_tokens=0 if usage is None else usage.input_tokens,
            output_tokens=0 if usage is None else usage.output_tokens,
            cost_usd=sum(costs) if costs else None,
            duration_s=attempts[-1].duration_s,
            quirks=symptoms_of(metered.notes),
            attempts=attempts,
        )
        if error is not None:
            return msgspec.structs.replace(row, reason=f"{error.code}: {error.message}"), evidence
        assert evidence is not None
        evidence = await self._judged(work, evidence)
        transcript = evidence.transcript
        row = msgspec.structs.replace(row, calls=len(transcript.calls), rounds=transcript.rounds)
        return regraded(row, grade(work.scenario.expect, evidence)), evidence

    async def _judged(self, work: Work, evidence: GraderEvidence) -> GraderEvidence:
        if not self._options.judge_model or not any(expect.judge for expect in work.scenario.expect):
            return evidence
        name = self._options.judge_model
        price, tokens = self._plan.prices.get(name), self._plan.output_tokens_max
        judging = Metered(self._model(name, work.strategy), self.ledger, price, tokens)
        try:
            opinions = await judge(work.scenario, evidence, judging, name)
        except UpstreamError:
            return evidence
        return msgspec.structs.replace(evidence, opinions=opinions)


def _attempt(metered: Metered, error: ErrorInfo | None, duration_s: float) -> Attempt:
    usage = metered.usage
    return Attempt(
        ended="judged" if error is None else error.code,
        error="" if error is None else error.message,
        requests=metered.requests,
        input_tokens=0 if usage is None else usage.input_tokens,
        output_tokens=0 if usage is None else usage.output_tokens,
        cost_usd=metered.cost_usd,
        duration_s=round(duration_s, 3),
    )
