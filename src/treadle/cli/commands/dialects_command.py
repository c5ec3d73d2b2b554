"""`treadle dialects`: list the known dialects of tool calls in text, and try them on a file."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any, cast

import msgspec

from treadle.cli import command_base as command
from treadle.core.errors import ConfigError
from treadle.terminal.rendering.event_messages import plural
from treadle.terminal.rendering.sanitize import clean

EPILOG = """\
examples:
  treadle dialects                                   every dialect, its form and its models
  treadle dialects --model qwen3-coder               which of them are that model's own
  treadle dialects try answer.txt --tools tools.json what would be recovered from a text, and why not
  treadle dialects try - --tools tools.json < answer.txt"""
_SHOWN_CHARS = 100


class DialectRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the list of dialects."""

    id: str
    tier: str
    form: str
    models: tuple[str, ...]


class Recovered(msgspec.Struct, frozen=True, kw_only=True):
    """The text and calls recovered from a model's text."""

    content: str
    calls: list[dict[str, Any]]
    reasons: list[str]


def describe(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.epilog = EPILOG
    parser.add_argument("action", nargs="?", choices=("list", "try"), default="list", help="list them, or try a file")
    parser.add_argument("file", nargs="?", metavar="FILE", help="a text to try, - for standard input")
    parser.add_argument("--tools", metavar="FILE", help="a JSON list of tools, as in a request of the Chat API")
    parser.add_argument("--model", metavar="NAME", default="", help="the model whose own dialects are native")
    parser.add_argument(
        "--tiers", metavar="LIST", default="native,marked", help="tiers to try (default: native,marked; or all)"
    )
    command.add_json_flag(parser)


def run(args: argparse.Namespace) -> int:
    """List the dialects, or try them."""
    return _try(args) if args.action == "try" else _list(args)


def rows(model: str = "") -> list[DialectRow]:
    """Return every dialect as a row."""
    from treadle.cli.dialect_rendering import render
    from treadle.protocols.text_calls.dialect_table import DIALECTS

    sample = [("NAME", {"KEY": "VALUE"})]
    return [
        DialectRow(id=each.id, tier=each.tier(model), form=render(each, sample).replace("\n", "⏎"), models=each.models)
        for each in DIALECTS
    ]


def _list(args: argparse.Namespace) -> int:
    found = rows(args.model)
    if args.json:
        command.print_json(found)
        return command.OK
    width = max(len(row.id) for row in found)
    for row in found:
        models = ", ".join(row.models) or "-"
        print(f"{row.id:<{width}}  {row.tier:<10}  {models}\n{'':<{width}}  {row.form}")
    print(f"{plural(len(found), 'dialect')}; those without a marker are off unless repair.tiers names them")
    return command.OK


def _try(args: argparse.Namespace) -> int:
    if not args.file or not args.tools:
        raise ConfigError("try needs a FILE and --tools", param="file", hint="treadle dialects try FILE --tools T")
    text = sys.stdin.read() if args.file == "-" else Path(args.file).read_text(encoding="utf-8", errors="replace")
    found = recover(text, _tools(args.tools), args.model, args.tiers)
    if args.json:
        command.print_json(found)
        return command.OK
    for call in found.calls:
        print(clean(f"{call['dialect']} ({call['tier']}): {call['name']} {call['arguments']}"))
    for reason in found.reasons:
        print(clean(f"not recovered: {reason}"))
    print(f"{plural(len(found.calls), 'call')}; the text that stays:")
    print(clean(found.content))
    return command.OK


def recover(text: str, tools: list[Any], model: str, tiers: str) -> Recovered:
    """Return what would be recovered from a text, and why other markup would not."""
    from treadle.config.settings import TIERS, Tier
    from treadle.protocols.text_calls import read_tools
    from treadle.protocols.text_calls.dialect_table import BY_ID
    from treadle.protocols.text_calls.scanner import FoundCalls, TextScanner
    from treadle.protocols.text_calls.text_call_recovery import RepairRules, chosen_dialects

    names = TIERS if tiers == "all" else tiers.split(",")
    wanted: tuple[Tier, ...] = tuple(tier for tier in TIERS if names.count(tier))
    if not wanted:
        raise ConfigError(f"{tiers!r} names no tier", param="tiers", hint=f"there are {', '.join(TIERS)} and all")
    dialects, natives = chosen_dialects(RepairRules(tiers=wanted), model)
    reasons: list[str] = []
    scanner = TextScanner(read_tools(tools), dialects, natives=natives, refused=reasons.append)
    content: list[str] = []
    calls: list[dict[str, Any]] = []
    for piece in [*scanner.feed(text), *scanner.finish()]:
        if not isinstance(piece, FoundCalls):
            content.append(piece)
            continue
        tier = BY_ID[piece.dialect].tier(model)
        calls += [
            {"dialect": piece.dialect, "tier": tier, "name": call.name, "arguments": call.arguments, "raw": piece.raw}
            for call in piece.calls
        ]
    return Recovered(content="".join(content), calls=calls, reasons=reasons)


def _tools(path: str) -> list[Any]:
    """Read a file of tools. Raises: ConfigError."""
    try:
        value = json.loads(Path(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not JSON: {error}", param="tools") from None
    tools = cast("dict[str, Any]", value).get("tools") if isinstance(value, dict) else value
    if not isinstance(tools, list):
        raise ConfigError(f"{path} is no list of tools", param="tools", hint='[{"type": "function", "function": {…}}]')
    for number, tool in enumerate(cast("list[Any]", tools)):
        inner = cast("dict[str, Any]", tool).get("function", tool) if isinstance(tool, dict) else None
        if not isinstance(inner, dict) or not isinstance(cast("dict[str, Any]", inner).get("name"), str):
            raise ConfigError(f"{path}: tool {number} has no name", param=f"tools[{number}]")
    return cast("list[Any]", tools)
