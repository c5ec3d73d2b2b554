"""`treadle plan`: the exact request surface of a model call, with its fingerprint, and the runs that made an equal one.

A plan is made again from the journal and proved by the fingerprint that was journalled with it.
"""

import argparse
from typing import TYPE_CHECKING, Any

import msgspec

from treadle.canon.errors import NotFound, RequestError
from treadle.canon.plan import plan_json
from treadle.cli import command
from treadle.cli.journal import opened
from treadle.cli.terminal.clean import clean

if TYPE_CHECKING:
    from treadle.canon.plan import Plan
    from treadle.store.journal import Store

EQUAL_MAX = 20
EPILOG = """\
RUN is the id of a run or response, or `last`. Without #ROUND the model calls of the run are listed.

examples:
  treadle plan last
  treadle plan RUN#2
  treadle plan RUN#2 --json | jq .plan.tools"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    parser.epilog = EPILOG
    parser.add_argument("run", metavar="RUN[#ROUND]", help="which model call; rounds are counted from 1")
    command.add_store_flags(parser)
    command.add_json_flag(parser)


def run(args: argparse.Namespace) -> int:
    """Show the plans of a run, or one of them."""
    name, number = read_place(args.run)
    work = _list if number is None else _show
    return opened.with_store(args, lambda store: work(store, name, number or 0, args))


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


async def _list(store: "Store", name: str, number: int, args: argparse.Namespace) -> int:
    plans = await _plans(store, name)
    if args.json:
        _print_json([_row(each, place) for place, each in enumerate(plans, 1)])
        return command.OK
    cells = [("round", "items", "tools", "model", "fingerprint")]
    cells += [
        (str(place), str(len(each.items)), str(len(each.tools)), each.model, each.fingerprint)
        for place, each in enumerate(plans, 1)
    ]
    for line in opened.aligned(cells):
        print(clean(line))
    return command.OK


async def _show(store: "Store", name: str, number: int, args: argparse.Namespace) -> int:
    plans = await _plans(store, name)
    if number > len(plans):
        raise NotFound(f"the run has {len(plans)} rounds, not {number}", param="run")
    plan = plans[number - 1]
    row = await opened.find_run(store, name)
    equal = await store.list_runs(limit=EQUAL_MAX + 1, fingerprint=plan.fingerprint)
    others = [each.id for each in equal if each.id != row.id][:EQUAL_MAX]
    if args.json:
        _print_json({**_row(plan, number), "equal_in": others, "plan": msgspec.Raw(plan_json(plan))})
        return command.OK
    print(clean(f"{row.id}#{number}  sha256 {plan.fingerprint}"))
    print(clean(msgspec.json.format(plan_json(plan)).decode()))
    if others:
        print(clean(f"the same was sent in {', '.join(others)}"))
    return command.OK


async def _plans(store: "Store", name: str) -> "list[Plan]":
    from treadle.runs.record.rounds import read_run

    row = await opened.find_run(store, name)
    return [call.plan for call in (await read_run(store, row)).calls]


def _row(plan: "Plan", number: int) -> dict[str, Any]:
    return {
        "round": number,
        "fingerprint": plan.fingerprint,
        "tools_sha256": plan.tools_sha256,
        "model": plan.model,
        "items": len(plan.items),
        "tools": len(plan.tools),
    }


def _print_json(value: object) -> None:
    print(msgspec.json.format(msgspec.json.encode(value)).decode())
