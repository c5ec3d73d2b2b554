"""`treadle eval bfcl`: plays the questions of bfcl-eval through the gateway, with the ground truth or real models."""

import argparse
import asyncio
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.cli import command_base as command
from treadle.cli.eval_flags import is_live
from treadle.cli.eval_live import models_of
from treadle.cli.eval_offline import write_reports
from treadle.cli.eval_progress import SampleProgress
from treadle.core.errors import ConfigError
from treadle.terminal.rendering.sanitize import clean

if TYPE_CHECKING:
    from treadle.evals.bfcl.bfcl_runner import BfclOptions
    from treadle.evals.results.result_folder import RunFolder
    from treadle.evals.results.sample_rows import SampleRow

SHOWN = 20


def play_bfcl(args: argparse.Namespace) -> int:
    """Play the questions, print the failures, and return the exit code; with the ground truth nothing may fail."""
    from treadle.evals.bfcl.bfcl_runner import read_questions, run_bfcl
    from treadle.evals.results.pass_fail_gate import BUDGET_REACHED, NOT_JUDGED, judge_run

    asks_models = args.live or is_live(os.environ)
    options = _read_options(args, asks_models=asks_models)
    total = len(read_questions(options)) * len(options.models) * len(options.apis)
    print(f"{total} questions through {', '.join(options.apis)}, of {', '.join(options.models)}", file=sys.stderr)
    folder = None if args.out is None else _folder(args.out, options)
    bar = SampleProgress(total, sys.stderr)

    def report_row(row: "SampleRow") -> None:
        if folder is not None:
            folder.add(row, None)
        bar.update(row)

    try:
        rows = asyncio.run(run_bfcl(options, report_row))
    except KeyboardInterrupt:
        bar.close()
        saved = "nothing was kept, for that name a folder with -o" if folder is None else f"kept in {folder.path}"
        print(f"interrupted; {saved}", file=sys.stderr)
        return command.CANCELLED
    bar.close()
    if folder is not None:
        folder.rewrite(rows)
        write_reports(folder)
    _print_results(rows, as_json=args.json)
    if len(rows) < total:
        return BUDGET_REACHED
    if not asks_models and any(row.outcome == "broken" for row in rows):
        return NOT_JUDGED
    # A real model is expected to miss some of these questions: without --at-least it is measured, not judged.
    gate = judge_run(rows, at_least=args.at_least if args.at_least is not None else 0.0 if asks_models else None)
    for reason in gate.reasons:
        print(clean(f"treadle: {reason}"), file=sys.stderr)
    return gate.exit_code


def _read_options(args: argparse.Namespace, *, asks_models: bool) -> "BfclOptions":
    """Read what is asked of whom.

    Raises: ConfigError, naming the flag.
    """
    from treadle.evals.bfcl.bfcl_client import APIS
    from treadle.evals.bfcl.bfcl_runner import TRUTH, BfclOptions
    from treadle.evals.bfcl.dataset import SETS, find_wheel

    sets, apis = tuple(args.sets or SETS), tuple(args.apis or APIS)
    for given, known, name in ((sets, SETS, "sets"), (apis, APIS, "apis")):
        if unknown := [each for each in given if each not in known]:
            raise ConfigError(f"there is no {unknown[0]!r}", param=name, hint=f"there are {', '.join(known)}")
    if args.models and not asks_models:
        raise ConfigError("--models needs --live", param="models", hint="without it the ground truth is played")
    if args.budget_usd is not None:
        raise ConfigError("--budget-usd is not kept here", param="budget_usd", hint="--max-requests is")
    settings = command.read_flags(args).settings
    models = models_of(args.models, settings, os.environ) if asks_models else [TRUTH]
    if not models:
        raise ConfigError("no model is named", param="models", hint="--models A,B, or leave out --live")
    return BfclOptions(
        wheel=find_wheel(args.wheel),
        sets=sets,
        apis=apis,
        models=tuple(dict.fromkeys(models)),
        every=args.every,
        jobs=args.jobs or 4,
        requests_max=args.max_requests,
        settings=settings,
        env=os.environ,
    )


def _print_results(rows: "list[SampleRow]", *, as_json: bool) -> None:
    """Print what failed, then the rates."""
    from treadle.evals.results.terminal_table import summarise, write_summary

    bad = [row for row in rows if row.outcome != "pass"]
    for row in bad[:SHOWN]:
        print(clean(f"{row.outcome} {row.key}: {row.reason[:300]}"), file=sys.stderr)
    if as_json:
        command.print_json(summarise(rows))
    else:
        print(clean(f"{write_summary(rows)}{write_sets(rows)}"), end="")


def write_sets(rows: "list[SampleRow]") -> str:
    """Write the rate of each set, for each model."""
    from treadle.evals.results.sample_rows import by
    from treadle.evals.results.statistics import wilson

    lines: list[str] = []
    for name, group in by(rows, lambda row: f"{row.arm}: {row.title}").items():
        judged = [row for row in group if row.outcome != "broken"]
        passed = sum(row.outcome == "pass" for row in judged)
        low, high = wilson(passed, len(judged))
        lines.append(f"{name}  {passed}/{len(judged)} [{low:.3f},{high:.3f}]\n")
    return "".join(lines)


def _folder(path: Path, options: "BfclOptions") -> "RunFolder":
    """Create the folder of the run: every answer is stored as soon as it is graded."""
    from treadle.evals.results.fingerprint import code_fingerprints
    from treadle.evals.results.result_folder import EvalRunInfo, RunFolder

    folder = RunFolder(path)
    folder.create(
        EvalRunInfo(
            name="bfcl",
            mode="bfcl",
            started_at=time.time(),
            models=options.models,
            fingerprints=code_fingerprints(),
        )
    )
    return folder
