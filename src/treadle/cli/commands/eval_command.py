"""`treadle eval`: its flags, and the table of its actions. Playing and grading are in `treadle.evals`."""

import argparse
import importlib
from pathlib import Path
from typing import Protocol, cast

from treadle.cli import command_base as command
from treadle.cli.eval_flags import amount, is_live, positive, share, words
from treadle.core.errors import ConfigError

EPILOG = """\
Without an action the scenarios are played: offline, deterministic, without a key, on every upstream protocol. All must
pass. With --live (or TREADLE_EVAL_LIVE=1) real models play those tagged "live"; what that can cost is printed first.

actions:
  compare RUN RUN         what was gained and lost, and whether that is more than chance
  regrade RUN             grade the transcripts again, by the graders and scenarios of today
  report RUN              write report.html and junit.xml again
  promote RUN/SAMPLE      a sample of a live run as an offline scenario (-o FILE)
  history [FOLDER]        the trend of the runs in a folder
  quirks PATH...          what recorded streams show of an endpoint, and what to configure
  export RUN              logs for Inspect (-o FOLDER)
  bfcl                    the data of bfcl-eval through the gateway (--wheel FILE)
  list, schema            the scenarios there are; the JSON Schema of their files

examples:
  treadle eval                                      the scenarios that come with Treadle
  treadle eval my_scenarios/ --json                 your own, for a program to read
  treadle eval -o eval-runs/today --junit out.xml   keep everything, and report to CI
  OPENROUTER_API_KEY=… OPENROUTER_MODEL=… treadle eval --live --trials 10 --budget-usd 2
  treadle eval compare eval-runs/a eval-runs/b

exit codes: 0 passed, 1 failed or worse than the baseline, 2 could not be judged, 3 the budget was reached"""

ACTIONS: dict[str, str] = {
    "compare": "treadle.cli.eval_stored_runs:compare",
    "regrade": "treadle.cli.eval_stored_runs:regrade",
    "report": "treadle.cli.eval_stored_runs:report",
    "promote": "treadle.cli.eval_stored_runs:promote",
    "history": "treadle.cli.eval_stored_runs:history",
    "quirks": "treadle.cli.eval_stored_runs:quirks",
    "export": "treadle.cli.eval_stored_runs:export",
    "list": "treadle.cli.eval_offline:list_scenarios",
    "schema": "treadle.cli.eval_offline:print_schema",
    "bfcl": "treadle.cli.eval_bfcl:play_bfcl",
}
"""The module and the function of each action."""


class Action(Protocol):
    """The function of an action."""

    def __call__(self, args: argparse.Namespace) -> int:
        """Run the action and return the exit code."""
        ...


def describe(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.epilog = EPILOG
    parser.add_argument("paths", nargs="*", metavar="ACTION or PATH", help="scenario files or folders, or an action")
    parser.add_argument("--scenarios", metavar="PATTERNS", type=words, help="only ids like these (*), or these tags")
    parser.add_argument("-o", "--out", type=Path, metavar="PATH", help="keep the run in this folder; where to write to")
    parser.add_argument("--junit", type=Path, metavar="FILE", help="also write a JUnit report")
    parser.add_argument("--jobs", type=positive, metavar="N", help="processes (offline), or samples at once (live)")
    command.add_json_flag(parser)
    command.add_file_flag(parser)
    offline = parser.add_argument_group("offline")
    offline.add_argument("--protocols", type=words, metavar="NAMES", help="upstream protocols (default: all four)")
    offline.add_argument("--cuts", type=words, metavar="SIZES", help="sizes of network reads: 1,7,whole")
    _describe_live(parser.add_argument_group("live"))
    compare = parser.add_argument_group("compare")
    compare.add_argument("--regrade", action="store_true", help="grade both runs again first")
    bfcl = parser.add_argument_group("bfcl")
    bfcl.add_argument("--wheel", type=Path, metavar="FILE", help="the wheel of bfcl-eval (default: TREADLE_BFCL)")
    bfcl.add_argument("--sets", type=words, metavar="NAMES", help="such as simple_python,multi_turn_base")
    bfcl.add_argument("--apis", type=words, metavar="NAMES", help="chat, responses (default: both)")
    bfcl.add_argument("--every", type=positive, default=1, metavar="N", help="only every n-th question")


def _describe_live(live: argparse._ArgumentGroup) -> None:  # pyright: ignore[reportPrivateUsage]
    live.add_argument("--live", action="store_true", help="ask real models")
    live.add_argument("--models", type=words, metavar="NAMES", help="models, as the configuration routes them")
    live.add_argument("--trials", type=positive, metavar="N", help="samples of each scenario (default: 5)")
    live.add_argument("--strategies", type=words, metavar="NAMES", help="bare, repair, full (default: full)")
    live.add_argument("--budget-usd", type=amount, metavar="USD", help="stop before more is spent")
    live.add_argument("--max-requests", type=positive, metavar="N", help="stop before more requests are made")
    live.add_argument("--price", action="append", default=[], metavar="MODEL=IN/OUT", help="USD for a million tokens")
    live.add_argument("--max-tokens", type=positive, metavar="N", help="bound on one answer (default: 2048)")
    live.add_argument("--temperature", type=float, metavar="T", help="sampling temperature")
    live.add_argument("--seed", type=int, metavar="N", help="sampling seed")
    live.add_argument("--judge", default="", metavar="MODEL", help="let this model judge rubrics; never in the rate")
    live.add_argument("--name", default="live", help="the name of the run")
    live.add_argument("--resume", type=Path, metavar="RUN", help="go on with a run that was interrupted")
    live.add_argument("--baseline", type=Path, metavar="RUN", help="exit 1 when a rate is lower than in this run")
    live.add_argument("--allow-drop", type=share, default=0.0, metavar="RATE", help="how much lower it may be (0)")
    live.add_argument(
        "--at-least", type=share, metavar="RATE", help="exit 1 when a rate is below this (default: all pass)"
    )
    live.add_argument("--dry-run", action="store_true", help="print the plan and its bound, and ask nobody")


def run(args: argparse.Namespace) -> int:
    """Run the action that the first argument names, else play scenarios."""
    import os

    command.quiet_logs()
    action = args.paths[0] if args.paths else ""
    if action in ACTIONS:
        args.paths = args.paths[1:]
        module, _, function = ACTIONS[action].partition(":")
        return cast("Action", getattr(importlib.import_module(module), function))(args)
    args.paths = [Path(path) for path in args.paths]
    if args.live or args.resume or is_live(os.environ):
        from treadle.cli.eval_live import play_live

        return play_live(args)
    if args.models:
        raise ConfigError("--models needs --live", param="models", hint="offline the model is scripted")
    from treadle.cli.eval_offline import play_offline

    return play_offline(args)
