"""Live eval runs: chooses models, estimates the cost, shows progress and reports results."""

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.cli import command_base as command
from treadle.cli.eval_offline import write_reports, write_text
from treadle.cli.eval_progress import SampleProgress
from treadle.cli.eval_stored_runs import FOLDER
from treadle.core.errors import ConfigError, UpstreamError
from treadle.terminal.rendering.sanitize import clean

if TYPE_CHECKING:
    from treadle.config import Settings
    from treadle.evals.live.live_runner import LiveOptions, LiveRunner
    from treadle.evals.live.prices import EvalPrice
    from treadle.evals.live.sample_plan import LivePlan, Work
    from treadle.evals.results.result_folder import EvalRunInfo, RunFolder
    from treadle.evals.results.sample_rows import SampleRow
    from treadle.evals.scenario_file import Scenario

JOBS = 4
TRIALS = 5
TOKENS_MAX = 2_048
LISTING_S = 15.0
OPENROUTER = "openrouter"


def play_live(args: argparse.Namespace) -> int:
    """Plan, print the bound, play, and report."""
    from treadle.evals.live.live_runner import LiveRunner
    from treadle.evals.live.sample_plan import check_plan, write_plan
    from treadle.evals.results.compare import check_comparable
    from treadle.evals.results.result_folder import RunFolder

    if args.resume is not None:
        _read_resumed(args)
    args.trials, args.max_tokens = args.trials or TRIALS, args.max_tokens or TOKENS_MAX
    scenarios, unread = _scenarios(args)
    for each in unread:
        print(clean(f"treadle: {each}"), file=sys.stderr)
    options = asyncio.run(_options(args, scenarios))
    plan = options.plan
    check_plan(plan, budget_usd=args.budget_usd)
    if args.baseline is not None:
        check_comparable(RunFolder(args.baseline).info(), _info(args, options))
    folder, work = _folder(args, options)
    bounds = write_plan(plan, work, budget_usd=args.budget_usd, requests_max=args.max_requests)
    print(clean(bounds), end="", file=sys.stderr)
    if args.dry_run:
        return command.OK
    if args.resume is None:
        folder.create(_info(args, options))
    bar = SampleProgress(len(work), sys.stderr)
    runner = LiveRunner(options, folder, bar.update)
    try:
        asyncio.run(runner.run(work))
    except KeyboardInterrupt:
        bar.close()
        print(f"interrupted; go on with: treadle eval --live --resume {folder.path}", file=sys.stderr)
        return command.CANCELLED
    bar.close()
    return _finish(args, folder, runner, unread)


def _read_resumed(args: argparse.Namespace) -> None:
    """Fill in flags from the run that is resumed.

    Raises: ConfigError, where a flag differs: all samples of a run are of the same models, asked in the same way.
    """
    from treadle.evals.results.result_folder import RunFolder

    info = RunFolder(args.resume).info()
    if info.mode != "live":
        raise ConfigError(f"{args.resume} is no live run", param="resume")
    was: dict[str, object] = {"models": list(info.models), "strategies": list(info.strategies)}
    was |= {name: info.sampling.get(name) for name in ("max_tokens", "temperature", "seed")}
    was["judge"] = info.sampling.get("judge", "")
    for name, value in was.items():
        given = getattr(args, name)
        if given not in (None, "", value):
            raise ConfigError(
                f"the run {args.resume} was made with another --{name.replace('_', '-')}: {value}",
                param=name,
                hint="leave it out, or begin a new run",
            )
        setattr(args, name, value)
    args.trials = args.trials or info.trials


async def _options(args: argparse.Namespace, scenarios: "Sequence[Scenario]") -> "LiveOptions":
    from treadle.core.request import Options
    from treadle.evals.live.live_runner import LiveOptions
    from treadle.evals.live.prices import read_price
    from treadle.evals.live.sample_plan import LivePlan

    settings = command.read_flags(args).settings
    models = list(dict.fromkeys(models_of(args.models, settings, os.environ)))
    given = dict(read_price(text) for text in args.price)
    asked = [*models, args.judge] if args.judge else models
    prices = {**await _listed(settings, asked, os.environ), **_configured(settings, asked), **given}
    plan = LivePlan(
        models=tuple(models),
        scenarios=tuple(scenarios),
        trials=args.trials,
        strategies=tuple(args.strategies or ("full",)),
        output_tokens_max=args.max_tokens,
        prices={model: prices[model] for model in [*models, args.judge] if model in prices},
    )
    return LiveOptions(
        plan=plan,
        settings=settings,
        env=os.environ,
        jobs=args.jobs or JOBS,
        budget_usd=args.budget_usd,
        requests_max=args.max_requests,
        options=Options(temperature=args.temperature, seed=args.seed),
        judge_model=args.judge,
    )


def models_of(named: Sequence[str] | None, settings: "Settings", env: Mapping[str, str]) -> list[str]:
    """Return the models to ask: named, or OPENROUTER_MODELS, or OPENROUTER_MODEL, or the default of an upstream."""
    if named:
        return list(named)
    listed = env.get("OPENROUTER_MODELS", "") or env.get("OPENROUTER_MODEL", "")
    if listed and env.get("OPENROUTER_API_KEY"):
        return [f"{OPENROUTER}/{name.strip()}" for name in listed.split(",") if name.strip()]
    return [settings.model] if settings.upstream and settings.model else []


def _configured(settings: "Settings", models: Sequence[str]) -> "dict[str, EvalPrice]":
    """Return the prices that the configuration names."""
    from treadle.evals.live.prices import EvalPrice
    from treadle.runtime.provider_setup import Prices

    found = {model: price for model in models if (price := Prices(settings).price(model)) is not None}
    return {model: EvalPrice(input_usd=each.input, output_usd=each.output) for model, each in found.items()}


def _scenarios(args: argparse.Namespace) -> "tuple[list[Scenario], list[str]]":
    """Return the scenarios to play, and which files could not be read: those break only themselves."""
    from treadle.evals.results.result_folder import RunFolder
    from treadle.evals.scenario_file import find_scenarios, read_scenarios

    if args.resume is not None and not args.paths and not args.scenarios:
        return list(RunFolder(args.resume).info().scenarios), []
    read, unread = read_scenarios(find_scenarios(*args.paths))
    found = [each for each in read.values() if each.is_live and each.matches(args.scenarios or ())]
    return found, [f"{file}: {reason}" for file, reason in unread.items()]


async def _listed(settings: "Settings", models: Sequence[str], env: Mapping[str, str]) -> "dict[str, EvalPrice]":
    """Ask the models' endpoints for prices; most have no such list, which is no error."""
    from treadle.evals.live.live_runner import alone
    from treadle.evals.live.prices import read_listing
    from treadle.providers.demo_model import DemoModel
    from treadle.providers.provider_client import HttpClient
    from treadle.providers.provider_model import UpstreamModel
    from treadle.runtime import Parts, Runtime

    router = Runtime(alone(settings), parts=Parts(env=env)).router
    found: dict[str, EvalPrice] = {}
    lists: dict[str, dict[str, EvalPrice]] = {}
    client = HttpClient()
    try:
        for name in models:
            model = router.model_for(name)
            if isinstance(model, DemoModel):
                raise ConfigError(
                    f"no upstream serves {name}, only the demonstration model would answer",
                    param="models",
                    hint="configure an [[upstream]], or set OPENROUTER_API_KEY",
                )
            if not isinstance(model, UpstreamModel):
                continue
            place = model.endpoint.name
            if place not in lists:
                try:
                    lists[place] = read_listing(await client.get(model.endpoint, "models", LISTING_S))
                except UpstreamError:
                    lists[place] = {}
            if model.name in lists[place]:
                found[name] = lists[place][model.name]
    finally:
        await client.close()
        await router.close()
    return found


def _folder(args: argparse.Namespace, options: "LiveOptions") -> "tuple[RunFolder, list[Work]]":
    """Return where the run is stored, and what is left to do."""
    from treadle.evals.results.result_folder import RunFolder

    work = options.plan.work()
    if args.resume is None:
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        return RunFolder(args.out or Path(FOLDER) / f"{stamp}-{args.name}"), work
    folder = RunFolder(args.resume)
    _check_same(folder, options.plan)
    rows = folder.rows()
    stored = [row for row in rows if row.outcome != "broken"]
    if len(stored) < len(rows) and not args.dry_run:
        folder.rewrite(stored)
    done = {row.key for row in stored}
    return folder, [each for each in work if each.key not in done]


def _check_same(folder: "RunFolder", plan: "LivePlan") -> None:
    """Refuse to continue a run of other scenarios, graders or tools. Raises: ConfigError."""
    from treadle.evals.results.fingerprint import COMPARED, code_fingerprints, scenario_fingerprint

    info, now = folder.info(), code_fingerprints()
    if other := [name for name in COMPARED if info.fingerprints.get(name) != now[name]]:
        regrade = f"treadle eval regrade {folder.path} grades what there is by those of today; then go on"
        raise ConfigError(
            f"the run {folder.path} was made with other {' and '.join(other)}",
            param="resume",
            hint=regrade if other == ["graders"] else "begin a new run",
        )
    before = info.scenario_fingerprints
    changed = [each.id for each in plan.scenarios if before.get(each.id) != scenario_fingerprint(each)]
    if changed:
        raise ConfigError(
            f"the run {folder.path} was made with other scenarios: {', '.join(changed[:5])}",
            param="resume",
            hint="give the same paths and patterns, or begin a new run",
        )


def _info(args: argparse.Namespace, options: "LiveOptions") -> "EvalRunInfo":
    from treadle.evals.results.fingerprint import code_fingerprints, scenario_fingerprint
    from treadle.evals.results.result_folder import EvalRunInfo

    plan = options.plan
    sampling = {"temperature": args.temperature, "seed": args.seed, "max_tokens": args.max_tokens, "judge": args.judge}
    return EvalRunInfo(
        name=args.name,
        mode="live",
        started_at=time.time(),
        models=plan.models,
        strategies=plan.strategies,
        trials=plan.trials,
        sampling={name: value for name, value in sampling.items() if value not in (None, "")},
        endpoints={each.name: f"{each.base_url} ({each.protocol})" for each in options.settings.upstream},
        fingerprints=code_fingerprints(),
        scenario_fingerprints={each.id: scenario_fingerprint(each) for each in plan.scenarios},
        scenarios=plan.scenarios,
    )


def _finish(args: argparse.Namespace, folder: "RunFolder", runner: "LiveRunner", unread: Sequence[str]) -> int:
    """Write the reports, print the table and what failed, and return the exit code."""
    from treadle.evals.results.junit import write_junit_rows
    from treadle.evals.results.terminal_table import summarise, write_summary
    from treadle.evals.results.trend import append_history

    rows = folder.rows()
    write_reports(folder)
    if not runner.ledger.is_exhausted:
        append_history(folder.path.parent, folder.info(), rows)
    if args.junit is not None:
        write_text(args.junit, write_junit_rows(rows), "junit")
    if args.json:
        command.print_json(summarise(rows))
    else:
        print(clean(write_summary(rows)), end="")
    print(f"kept in {folder.path}; {runner.ledger.requests} requests", file=sys.stderr)
    return print_gate(args, folder, rows, unread=unread, is_exhausted=runner.ledger.is_exhausted)


def print_gate(
    args: argparse.Namespace, folder: "RunFolder", rows: "list[SampleRow]", *, unread: Sequence[str], is_exhausted: bool
) -> int:
    """Print which scenarios failed and why the run does not pass, and return the exit code."""
    from treadle.evals.results.compare import check_comparable, compare, write_comparison
    from treadle.evals.results.pass_fail_gate import BUDGET_REACHED, judge_run, write_failures
    from treadle.evals.results.result_folder import RunFolder

    print(clean(write_failures(rows)), end="", file=sys.stderr)
    if is_exhausted:
        print("treadle: the budget ended the run before all samples were made", file=sys.stderr)
        return BUDGET_REACHED
    compared = []
    # Without a judged sample there is nothing to compare, and that alone decides.
    if args.baseline is not None and any(row.outcome != "broken" for row in rows):
        before = RunFolder(args.baseline)
        check_comparable(before.info(), folder.info())
        compared = compare(before.rows(), rows)
        out = sys.stderr if args.json else sys.stdout
        print(clean(write_comparison(compared)), end="", file=out)
    gate = judge_run(rows, at_least=args.at_least, compared=compared, allow_drop=args.allow_drop, unread=unread)
    for reason in gate.reasons:
        print(clean(f"treadle: {reason}"), file=sys.stderr)
    return gate.exit_code
