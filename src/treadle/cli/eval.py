"""`treadle eval`: play the offline scenarios and report. Playing and grading are in `treadle.evals`."""

import argparse
import asyncio
from pathlib import Path

from treadle.canon.errors import ConfigError
from treadle.cli import command
from treadle.cli.terminal.clean import clean

EPILOG = """\
Offline and deterministic: a scripted model plays its part through the real runtime, no key is needed. Each scenario
is played several times, its replies cut at different sizes; all must pass.

examples:
  treadle eval                              the scenarios that come with Treadle
  treadle eval my_scenarios/ --json         your own, for a program to read
  treadle eval --junit report.xml           for CI

exit codes: 0 all passed, 1 something failed, 2 something could not be judged"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    parser.epilog = EPILOG
    parser.add_argument("paths", nargs="*", type=Path, metavar="PATH", help="scenario files or folders")
    parser.add_argument("--junit", type=Path, metavar="FILE", help="also write a JUnit report")
    command.add_json_flag(parser)


def run(args: argparse.Namespace) -> int:
    """Play, print and return how it went."""
    from treadle.evals.report import write_json, write_junit, write_table
    from treadle.evals.runner import run_suite

    command.quiet_logs()
    result = asyncio.run(run_suite(args.paths or None))
    if args.junit is not None:
        _write(args.junit, write_junit(result))
    print(write_json(result).decode() if args.json else clean(write_table(result)), end="")
    return result.exit_code


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"can not write {file}: {error.strerror or error}", param="junit") from None
