"""`treadle plan`: print the exact request of a model call, its fingerprint, and what changed since the last call.

A plan is rebuilt from the journal and verified against its stored fingerprint.
"""

import argparse
import re
from typing import TYPE_CHECKING, Any

import msgspec

from treadle.cli import command_base as command
from treadle.cli import open_journal as opened
from treadle.core.errors import NotFound, RequestError
from treadle.core.plan import plan_json
from treadle.terminal.rendering.sanitize import clean

if TYPE_CHECKING:
    from treadle.journal.journal_interface import Store
    from treadle.runs.views.plan_history import EqualCall, PlanDifference

EQUAL_MAX = 20
EPILOG = """\
RUN is the id of a run or response, or `last`. Without #ROUND the model calls of the run are listed. With a
fingerprint the model calls of all runs that sent this very plan are.

examples:
  treadle plan last
  treadle plan RUN#2
  treadle plan RUN#2 --json | jq .plan.tools
  treadle plan 5d1f0c…"""
_FINGERPRINT = re.compile(r"[0-9a-f]{64}")


def describe(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.epilog = EPILOG
    parser.add_argument("run", metavar="RUN[#ROUND]", help="which model call; rounds are counted from 1")
    command.add_journal_flags(parser)


def run(args: argparse.Namespace) -> int:
    """Show the plans of a run, one of them, or who sent one."""
    if _FINGERPRINT.fullmatch(args.run):
        return opened.with_store(args, lambda store: _equal(store, args.run, args))
    name, number = read_place(args.run)
    if number is None:
        return opened.with_store(args, lambda store: _list(store, name, args))
    return opened.with_store(args, lambda store: _show(store, name, number, args))


def read_place(text: str) -> tuple[str, int | None]:
    """Read `RUN` or `RUN#ROUND`.

    Raises: RequestError.
    """
    name, sign, number = text.partition("#")
    if not sign:
        return name, None
    if not (number.isascii() and number.isdigit() and len(number) <= 9 and int(number) >= 1):
        raise RequestError(f"{number!r} is no round", param="run", hint="rounds are counted from 1: RUN#1")
    return name, int(number)


async def _list(store: "Store", name: str, args: argparse.Namespace) -> int:
    from treadle.runs.views.plan_history import list_plans

    lines = await list_plans(store, await opened.find_run(store, name))
    if args.json:
        command.print_json(lines)
        return command.OK
    cells = [("round", "items", "tools", "model", "fingerprint")]
    cells += [
        (
            str(line.round),
            str(line.items),
            str(line.tools),
            line.model,
            _with_origin(line.fingerprint, line.cached_from),
        )
        for line in lines
    ]
    _print_lines(opened.aligned(cells))
    return command.OK


async def _show(store: "Store", name: str, number: int, args: argparse.Namespace) -> int:
    from treadle.runs.views.plan_history import read_plan

    row = await opened.find_run(store, name)
    line, plan, diff = await read_plan(store, row, number)
    calls = [call for call in await _calls(store, plan.fingerprint) if (call.run_id, call.round) != (row.id, number)]
    if args.json:
        document: dict[str, Any] = {"run_id": row.id, **msgspec.structs.asdict(line), "diff": diff, "equal": calls}
        command.print_json({**document, "plan": msgspec.Raw(plan_json(plan))})
        return command.OK
    lines = [f"{row.id}#{number}  sha256 {_with_origin(plan.fingerprint, line.cached_from)}"]
    lines += [] if diff is None else [f"since round {number - 1}: {_words(diff)}"]
    lines += [msgspec.json.format(plan_json(plan)).decode()]
    lines += [f"the same was sent in {', '.join(f'{call.run_id}#{call.round}' for call in calls)}"] if calls else []
    _print_lines(lines)
    return command.OK


async def _equal(store: "Store", fingerprint: str, args: argparse.Namespace) -> int:
    calls = await _calls(store, fingerprint)
    if not calls:
        raise NotFound(f"no model call sent the plan {fingerprint}", param="run")
    if args.json:
        command.print_json(calls)
    else:
        _print_lines([f"{call.run_id}#{call.round}  {_with_origin(call.status, call.cached_from)}" for call in calls])
    return command.OK


async def _calls(store: "Store", fingerprint: str) -> "list[EqualCall]":
    from treadle.runs.views.plan_history import equal_calls

    rows = await store.list_runs(limit=EQUAL_MAX, fingerprint=fingerprint)
    return await equal_calls(store, fingerprint, rows)


def _words(diff: "PlanDifference") -> str:
    """Return a difference in one line."""
    added, removed = len(diff.items_added), len(diff.items_removed)
    words = [f"items +{added} -{removed}"] if added or removed else []
    marks = (("+", diff.tools_added), ("-", diff.tools_removed), ("~", diff.tools_changed))
    words += [f"tool {mark}{name}" for mark, names in marks for name in names]
    words += [f"{each.name} {_value(each.before)} → {_value(each.after)}" for each in diff.options]
    return ", ".join(words) or "nothing changed"


def _value(raw: msgspec.Raw | None) -> str:
    return "-" if raw is None else bytes(raw).decode()


def _with_origin(text: str, cached_from: str | None) -> str:
    return text if cached_from is None else f"{text}  answered from {cached_from}"


def _print_lines(lines: list[str]) -> None:
    for line in lines:
        print(clean(line))
