"""`treadle eval bfcl`: the questions of bfcl-eval through the gateway, with the ground truth or with real models."""

import argparse
import asyncio
import os
import sys
from typing import TYPE_CHECKING

from treadle.canon.errors import ConfigError
from treadle.cli import command
from treadle.cli.evals.command import LIVE_VARIABLE
from treadle.cli.evals.live import BUDGET, INVALID
from treadle.cli.evals.progress import Bar
from treadle.cli.terminal.clean import clean

if TYPE_CHECKING:
    from treadle.evals.results.rows import Row

SHOWN = 20


def play_bfcl(args: argparse.Namespace) -> int:
    """Ask, print what failed, and return how it went; with the ground truth nothing may fail."""
    from treadle.evals.bfcl.archive import SETS, find_wheel
    from treadle.evals.bfcl.client import APIS
    from treadle.evals.bfcl.runner import TRUTH, BfclOptions, read_questions, run_bfcl
    from treadle.evals.results.table import summarise, write_summary

    sets, apis = tuple(args.sets or SETS), tuple(args.apis or APIS)
    for given, known, name in ((sets, SETS, "sets"), (apis, APIS, "apis")):
        if unknown := [each for each in given if each not in known]:
            raise ConfigError(f"there is no {unknown[0]!r}", param=name, hint=f"there are {', '.join(known)}")
    if args.models and not (args.live or os.environ.get(LIVE_VARIABLE)):
        raise ConfigError("--models needs --live", param="models", hint="without it the ground truth is played")
    if args.budget_usd is not None:
        raise ConfigError("--budget-usd is not kept here", param="budget_usd", hint="--max-requests is")
    options = BfclOptions(
        wheel=find_wheel(args.wheel),
        sets=sets,
        apis=apis,
        models=tuple(args.models or (TRUTH,)),
        every=args.every,
        jobs=args.jobs or 4,
        requests_max=args.max_requests,
        settings=command.read_flags(args).settings,
        env=os.environ,
    )
    total = len(read_questions(options)) * len(options.models) * len(options.apis)
    print(f"{total} questions through {', '.join(apis)}, of {', '.join(options.models)}", file=sys.stderr)
    bar = Bar(total, sys.stderr)
    rows = asyncio.run(run_bfcl(options, bar.tell))
    bar.close()
    bad = [row for row in rows if row.outcome != "pass"]
    if args.out is not None:
        _keep(args, rows)
    for row in bad[:SHOWN]:
        print(clean(f"{row.outcome} {row.key}: {row.reason[:300]}"), file=sys.stderr)
    if args.json:
        import msgspec

        print(msgspec.json.format(msgspec.json.encode(summarise(rows)), indent=2).decode())
    else:
        print(clean(write_summary(rows)), end="")
    if len(rows) < total:
        return BUDGET
    if any(row.outcome == "broken" for row in rows) or not rows:
        return INVALID
    return command.ERROR if bad and not args.models else command.OK


def _keep(args: argparse.Namespace, rows: "list[Row]") -> None:
    from treadle.cli.evals.offline import write_reports
    from treadle.evals.results.fingerprint import code_fingerprints
    from treadle.evals.results.folder import RunFolder, RunInfo

    folder = RunFolder(args.out)
    folder.create(RunInfo(name="bfcl", mode="bfcl", fingerprints=code_fingerprints()))
    for row in rows:
        folder.add(row, None)
    write_reports(folder)
