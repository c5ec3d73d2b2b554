"""Live runs against a local model that misbehaves at known rates: the rates come back within their intervals."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from treadle.config import Route, Settings, ToolsSection, Upstream
from treadle.config.settings import CacheSection
from treadle.core.errors import NotFound
from treadle.core.events import RunStarted
from treadle.evals.live.live_runner import LiveOptions, LiveRunner, alone
from treadle.evals.live.prices import EvalPrice
from treadle.evals.live.quirk_detection import detect
from treadle.evals.live.sample_plan import LivePlan
from treadle.evals.results.result_folder import CASSETTES, EvalRunInfo, RunFolder
from treadle.evals.results.sample_rows import SampleRow
from treadle.evals.results.statistics import wilson
from treadle.evals.results.terminal_table import summarise
from treadle.evals.scenario_file import Scenario, find_scenarios, load_scenario
from treadle.providers.fakes.fake_server import ScriptServer
from treadle.providers.quirk_table import profile_of
from treadle.runtime import SystemClock
from unit.evals.live.flaky import FlakyModel, Rates

CHOSEN = ("select.one_tool", "parallel.results_in_order", "state.carry_id", "restrain.no_tool_needed")
SCENARIOS = tuple(each for each in map(load_scenario, find_scenarios()) if each.id in CHOSEN)
PRICE = EvalPrice(input_usd=1.0, output_usd=2.0)


class Hasty(SystemClock):
    """A clock that waits for nobody."""

    async def sleep(self, seconds: float) -> None:
        """Go on at once."""
        await asyncio.sleep(0)


class Lab:
    """A live run on a local server, with everything at hand."""

    def __init__(self, model: FlakyModel, url: str, path: Path) -> None:
        self.model = model
        self._url = url
        self.folder = RunFolder(path)

    def runner(self, scenarios: Sequence[Scenario] = SCENARIOS, **values: Any) -> LiveRunner:
        """Return a runner of these scenarios."""
        planned = {"trials": 1, "models": ("flaky",), "prices": {"flaky": PRICE}}
        names = LivePlan.__struct_fields__
        planned |= {name: value for name, value in values.items() if name in names}
        plan = LivePlan(scenarios=tuple(scenarios), **planned)
        upstreams = (
            Upstream(name="local", base_url=self._url, models=("flaky", "judge")),
            Upstream(name="other", base_url=self._url, models=("elsewhere",)),
        )
        more = {name: value for name, value in values.items() if name not in names}
        options = LiveOptions(plan=plan, settings=Settings(upstream=upstreams), env={}, clock=Hasty(), **more)
        if not (self.folder.path / "run.json").exists():
            self.folder.create(EvalRunInfo(name="t", mode="live", scenarios=tuple(scenarios)))
        return LiveRunner(options, self.folder)

    async def run(self, **values: Any) -> list[SampleRow]:
        """Make all samples."""
        runner = self.runner(**values)
        return await runner.run(runner._plan.work())


@asynccontextmanager
async def lab(path: Path, rates: Rates | None = None, seed: int = 1) -> AsyncGenerator[Lab, None]:
    """Serve a model that errs at these rates."""
    model = FlakyModel(SCENARIOS, rates or Rates(), seed)
    async with ScriptServer(model) as server:
        yield Lab(model, server.url, path / "run")


@pytest.mark.slow
async def test_known_rates_come_back_within_their_intervals(tmp_path: Path) -> None:
    """Mistakes of the model are failures, of the transport are not; stray shapes are counted; nothing is broken."""
    rates = Rates(mistake=0.25, overloaded=0.04, index_zero=0.5)
    async with lab(tmp_path, rates) as here:
        rows = await here.run(trials=20, jobs=8, attempts=8)
    (summary,) = summarise(rows)
    assert (summary.judged, summary.broken) == (80, 0)
    low, high = summary.wilson
    assert low <= 1 - rates.mistake <= high
    assert summary.judged - summary.passed == here.model.mistakes
    parallel = [row for row in rows if row.scenario == "parallel.results_in_order"]
    stray = sum(row.quirks.get("index_zero", 0) > 0 for row in parallel)
    low, high = wilson(stray, len([row for row in parallel if row.outcome == "pass"]))
    assert low <= rates.index_zero <= high
    retried = [each for row in rows for each in row.attempts[:-1]]
    assert len(retried) == here.model.overloads > 0
    assert {each.ended for each in retried} == {"scripted"}


async def test_a_perfect_model_passes_and_everything_is_kept(tmp_path: Path) -> None:
    """Tokens, cost, transcripts, and cassettes with what the network carried, from which quirks are counted."""
    async with lab(tmp_path, Rates(index_zero=1.0)) as here:
        rows = await here.run(trials=2)
    assert {row.outcome for row in rows} == {"pass"}
    assert sorted(row.key for row in here.folder.rows()) == sorted(row.key for row in rows)
    for row in rows:
        evidence = here.folder.evidence(row.key)
        assert evidence is not None
        events = [event for run in evidence.transcript.runs for event in run.events]
        run_ids = [event.run_id for event in events if isinstance(event, RunStarted)]
        kept = [[*(here.folder.path / CASSETTES).glob(f"{run_id}.*.jsonl")] for run_id in run_ids]
        assert kept
        assert all(kept)
        requests = row.attempts[-1].requests
        assert (row.input_tokens, row.output_tokens) == (100 * requests, 20 * requests)
        assert row.cost_usd == pytest.approx(PRICE.cost(100 * requests, 20 * requests))
    (found,) = detect([here.folder.path])
    assert found.symptoms == {"index_zero": 2}


async def test_a_transport_that_never_works_is_broken_with_every_attempt_kept(tmp_path: Path) -> None:
    """The model is not blamed; what is no failure of the transport is not tried again."""
    async with lab(tmp_path, Rates(overloaded=1.0)) as here:
        (row, *_) = await here.run(attempts=2)
    assert (row.outcome, len(row.attempts)) == ("broken", 2)
    assert "overloaded" in row.reason
    assert [(each.ended, each.requests) for each in row.attempts] == [("scripted", 1)] * 2
    async with lab(tmp_path / "other", Rates(refused=1.0)) as here:
        (row, *_) = await here.run(attempts=3)
        assert (row.outcome, len(row.attempts)) == ("broken", 1)
        (found,) = detect([here.folder.path])
    assert found.suggested == ["no_seed"]


async def test_an_invented_tool_is_the_models_failure_and_never_broken(tmp_path: Path) -> None:
    """A mistake is graded, whatever it was."""
    async with lab(tmp_path, Rates(mistake=1.0)) as here:
        rows = await here.run()
    assert {row.outcome for row in rows if row.scenario != "restrain.no_tool_needed"} == {"fail"}


async def test_requests_and_money_are_bounded(tmp_path: Path) -> None:
    """No model call begins that could go over; what was made is kept, the rest is left."""
    async with lab(tmp_path) as here:
        runner = here.runner(trials=5, requests_max=7, jobs=2)
        rows = await runner.run(runner._plan.work())
    assert (runner.ledger.requests, runner.ledger.is_exhausted) == (7, True)
    assert 0 < len(rows) < 20
    async with lab(tmp_path / "money") as here:
        runner = here.runner(trials=50, budget_usd=0.02, jobs=1)
        await runner.run(runner._plan.work())
    assert runner.ledger.is_exhausted
    assert runner.ledger.spent_usd <= 0.02


async def test_strategies_are_arms_of_their_own(tmp_path: Path) -> None:
    """Without repair a call in text stays text; with it the same model passes."""
    (one,) = [each for each in SCENARIOS if each.id == "select.one_tool"]
    text = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
    first = msgspec.structs.replace(one.script[0], calls=(), text=text)
    spelled = msgspec.structs.replace(one, script=(first, *one.script[1:]))
    model = FlakyModel([spelled], Rates())
    async with ScriptServer(model) as server:
        here = Lab(model, server.url, tmp_path / "run")
        rows = await here.run(scenarios=[one], strategies=("bare", "repair", "full"))
    assert {row.strategy: row.outcome for row in rows} == {"bare": "fail", "repair": "pass", "full": "pass"}
    assert {row.arm for row in rows} == {"flaky (bare)", "flaky (repair)", "flaky"}


def test_bare_knows_no_quirks_but_how_to_say_the_key(tmp_path: Path) -> None:
    """Without its key an endpoint says nothing at all; nothing asks again behind the ledger's back."""
    azure = "https://x.openai.azure.com/openai/v1"
    upstream = Upstream(name="azure", base_url=azure, models=("m",), quirks=("no_seed",))
    plan = LivePlan(models=("m",), scenarios=SCENARIOS)
    options = LiveOptions(plan=plan, settings=Settings(upstream=(upstream,)), env={})
    runner = LiveRunner(options, RunFolder(tmp_path))
    names = {
        strategy: profile_of("chat", "x.openai.azure.com", "m", runner._settings(strategy).upstream[0].quirks).names
        for strategy in ("bare", "repair", "full")
    }
    assert names["bare"] == names["repair"] == ("key_in_api_key",)
    assert {"no_seed", "new_max_tokens", "key_in_api_key"} <= set(names["full"])
    assert runner._settings("full").upstreams.retries == 0


async def test_a_judge_is_heard_and_does_not_decide(tmp_path: Path) -> None:
    """Its opinion is kept with its model and its prompt; what it says that is no verdict is one that says so."""
    (one,) = [each for each in SCENARIOS if each.id == "restrain.no_tool_needed"]
    expect = msgspec.structs.replace(one.expect[0], judge="Is the answer polite?")
    rubric = msgspec.structs.replace(one, expect=(expect, *one.expect[1:]))
    async with lab(tmp_path) as here:
        here.model.opinions = ['{"passed": false, "reason": "curt"}', "no idea"]
        rows = await here.run(scenarios=[rubric], trials=2, judge_model="judge", jobs=1)
        kept = [here.folder.evidence(row.key) for row in rows]
    assert [row.outcome for row in rows] == ["pass", "pass"]
    opinions = [each for evidence in kept if evidence is not None for each in evidence.opinions]
    assert [(each.passed, each.model) for each in opinions] == [(False, "judge")] * 2
    assert opinions[0].reason == "curt"
    assert "no verdict" in opinions[1].reason
    assert all(each.prompt_sha256 for each in opinions)


def test_nothing_but_the_model_is_measured() -> None:
    """No cache answers for it, no other model takes its place, no policy forbids it anything."""
    settings = Settings(
        cache=CacheSection(enabled=True),
        upstream=(Upstream(name="a", base_url="http://127.0.0.1:9/v1"),),
        route=(Route(model="m", upstream="a", fallback=("a/other",), tools=("x",)),),
        tools=ToolsSection(load=("tools.py",)),
    )
    kept = alone(settings)
    assert (kept.upstream, kept.cache.enabled, kept.tools.load) == (settings.upstream, False, ())
    assert kept.route == (Route(model="m", upstream="a"),)


async def test_a_model_that_nobody_serves_is_an_error_before_anything_is_asked(tmp_path: Path) -> None:
    """A typo must not look like a bad model."""
    async with lab(tmp_path) as here:
        with pytest.raises(NotFound):
            await here.run(models=("nobody",))
    assert here.folder.rows() == []
