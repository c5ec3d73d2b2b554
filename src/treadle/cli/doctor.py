"""`treadle doctor`: look at everything Treadle needs, say what works, and what to do about what does not.

It changes nothing: no file is made, no run started. The checks themselves are in `checks.py`.
"""

import argparse
import os
import sys
from typing import TYPE_CHECKING

import msgspec

from treadle.canon.errors import ConfigError
from treadle.cli import command
from treadle.cli.terminal.clean import clean

if TYPE_CHECKING:
    from treadle.cli.checks import Check

EPILOG = """\
✓ works, ! worth knowing, ✗ broken. The exit code is 1 when something is broken.

examples:
  treadle doctor
  treadle doctor --offline      do not ask the upstreams
  treadle doctor --json"""
_MARKS = {"ok": "✓", "note": "!", "broken": "✗"}


def describe(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    parser.epilog = EPILOG
    parser.add_argument("--offline", action="store_true", help="do not ask the upstreams")
    command.add_config_flags(parser)
    command.add_json_flag(parser)


def run(args: argparse.Namespace) -> int:
    """Check everything and report."""
    from treadle.cli.checks import Check, check_machine, check_settings

    try:
        loaded = command.read_flags(args)
        config = Check(name="config", state="ok", detail=loaded.file or "no treadle.toml here: the defaults")
        others = check_settings(loaded.settings, os.environ, is_offline=args.offline)
    except ConfigError as error:
        config = Check(name="config", state="broken", detail=error.message, advice=error.hint or "")
        detail = "store, upstreams, tools and port are looked at when the configuration has no mistakes"
        others = [Check(name="others", state="note", detail=detail)]
    checks = [config, *check_machine(), *others]
    is_broken = any(check.state == "broken" for check in checks)
    if args.json:
        document = {"ok": not is_broken, "checks": checks}
        print(msgspec.json.format(msgspec.json.encode(document)).decode())
    else:
        _print(checks)
    return command.ERROR if is_broken else command.OK


def _print(checks: "list[Check]") -> None:
    marks = (
        _MARKS if (sys.stdout.encoding or "").lower().startswith("utf") else {"ok": "ok", "note": "!", "broken": "X"}
    )
    width = max(len(check.name) for check in checks)
    for check in checks:
        first, *more = clean(check.detail).split("\n")
        print(f"{marks[check.state]} {check.name:<{width}}  {first}")
        for line in more:
            print(f"  {'':<{width}}  {line}")
        for line in clean(check.advice).splitlines():
            print(f"  {'':<{width}}  → {line}")
