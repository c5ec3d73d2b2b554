"""`treadle doctor`: check the machine and the configuration, report what works, and suggest fixes.

It creates no file and starts no run. `cli/doctor/` has the checks, `check_list.py` their order.
"""

import argparse
import os
import shutil
import sys
import textwrap
from typing import TYPE_CHECKING

import msgspec

from treadle.cli import command_base as command
from treadle.core.errors import ConfigError
from treadle.terminal.rendering.sanitize import clean

if TYPE_CHECKING:
    from treadle.cli.doctor.check_result import Check
    from treadle.config import Settings

EPILOG = """\
✓ works, ! worth knowing, ✗ broken; below, what to do about it. It starts nothing and writes nothing. Upstreams on this
machine and the database are asked; those elsewhere only with --online, which sends them their key and nothing else.

examples:
  treadle doctor
  treadle doctor --config /etc/treadle/treadle.toml     as the service would run
  treadle doctor --online                               ask every upstream for its models
  treadle doctor --offline                              ask nobody, not even the database
  CLIENT_KEY=tr_… treadle doctor --key-env CLIENT_KEY   why a client's key is refused
  treadle doctor --json

exit codes: 0 nothing is broken, 1 something is, 2 usage"""
_MARKS = {"ok": "✓", "note": "!", "broken": "✗"}


def describe(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.epilog = EPILOG
    asked = parser.add_mutually_exclusive_group()
    asked.add_argument("--online", action="store_true", help="ask upstreams elsewhere too")
    asked.add_argument("--offline", action="store_true", help="ask nobody")
    parser.add_argument("--key-env", metavar="NAME", help="also try the client's key in this variable")
    command.add_config_flags(parser)
    command.add_json_flag(parser)


def run(args: argparse.Namespace) -> int:
    """Check everything and report."""
    from treadle.cli.doctor.check_list import check_client_key, check_machine, check_settings

    command.quiet_logs()
    config, settings = _read(args)
    checks = [config, *check_machine()]
    if settings is not None:
        asking = "all" if args.online else "none" if args.offline else "local"
        checks += check_settings(settings, os.environ, asking=asking)
        if args.key_env:
            checks.append(check_client_key(settings, os.environ.get(args.key_env, "").strip(), os.environ))
    is_broken = any(check.state == "broken" for check in checks)
    if args.json:
        document = {"ok": not is_broken, "checks": checks}
        print(msgspec.json.format(msgspec.json.encode(document)).decode())
    else:
        _print(checks)
    return command.ERROR if is_broken else command.OK


def _read(args: argparse.Namespace) -> "tuple[Check, Settings | None]":
    """Read the settings as far as they are right, so that one mistake does not hide the others.

    The settings of an untrusted file are not tried.
    """
    from treadle.cli.doctor.check_result import Check, broken
    from treadle.config import inspect_settings
    from treadle.config.error_messages import raise_problems
    from treadle.config.trusted_files import Untrusted

    try:
        loaded, problems = inspect_settings(
            vars(args).get("config"), env=os.environ, overrides=command.overrides_of(args)
        )
    except ConfigError as error:
        return broken("config", error, "correct the file; `treadle config example` prints a whole one"), None
    try:
        raise_problems(problems)
    except ConfigError as error:
        found = broken("config", error, "`treadle config example` prints every key; the rest is looked at below")
        return found, loaded.settings if loaded.doubt is None else None
    if loaded.doubt is not None:
        return broken("config", Untrusted(loaded.doubt)), None
    detail = loaded.file or "no treadle.toml here: the defaults"
    if loaded.warnings:
        return Check(name="config", state="note", detail="\n".join((detail, *loaded.warnings))), loaded.settings
    return Check(name="config", state="ok", detail=detail), loaded.settings


def _print(checks: "list[Check]") -> None:
    marks = (
        _MARKS if (sys.stdout.encoding or "").lower().startswith("utf") else {"ok": "ok", "note": "!", "broken": "X"}
    )
    width = max(len(check.name) for check in checks)
    for check in checks:
        first, *more = _fit(clean(check.detail), width + 4)
        print(f"{marks[check.state]} {check.name:<{width}}  {first}")
        for line in more:
            print(f"  {'':<{width}}  {line}")
        for line in clean(check.advice).splitlines():
            head, *rest = _fit(line, width + 6)
            print(f"  {'':<{width}}  → {head}")
            for part in rest:
                print(f"  {'':<{width}}    {part}")


def _fit(text: str, margin: int) -> list[str]:
    """Return the lines of a text; on a terminal those that are too long for it are broken between words."""
    lines = text.split("\n")
    if not sys.stdout.isatty():
        return lines
    width = max(shutil.get_terminal_size().columns - margin, 20)
    return [
        part
        for line in lines
        for part in textwrap.wrap(line, width, break_long_words=False, break_on_hyphens=False) or [""]
    ]
