"""What a measurement hands over: printed, kept as JSON outside the tree, and from there put into the document."""

import argparse
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from bench.report.figures import Table
from bench.report.machine import describe, versions
from bench.rig.processes import hurry
from bench.rig.targets import Broken


class Plot(NamedTuple):
    """A picture, by the name of its file."""

    name: str
    alt: str
    svg: str


class Result(NamedTuple):
    """The outcome of one measurement."""

    name: str
    note: str
    tables: list[Table]
    plots: list[Plot]
    figures: dict[str, Any]


class Options(NamedTuple):
    """What every measurement can be told."""

    is_quick: bool
    with_peers: bool
    seed: int


def folder() -> Path:
    """Return where results are kept between a run and its document."""
    place = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "treadle" / "bench-results"
    place.mkdir(parents=True, exist_ok=True)
    return place


def show(result: Result) -> None:
    """Print a result."""
    print(f"\n{result.name}: {result.note}")
    for table in result.tables:
        print(f"\n{table.text()}")


def keep(result: Result, machine: str) -> Path:
    """Keep a result for the document."""
    file = folder() / f"{result.name}.json"
    value = {"machine": machine, "versions": versions(), **result._asdict()}
    value["tables"] = [table._asdict() for table in result.tables]
    value["plots"] = [plot._asdict() for plot in result.plots]
    file.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return file


def read(file: Path) -> tuple[Result, str, str]:
    """Return a kept result, the machine it was taken on and the versions."""
    value = json.loads(file.read_text(encoding="utf-8"))
    tables = [Table(**table) for table in value["tables"]]
    plots = [Plot(**plot) for plot in value["plots"]]
    result = Result(value["name"], value["note"], tables, plots, value["figures"])
    return result, value["machine"], value["versions"]


def main_of(measure: Callable[[Options], Result], doc: str | None) -> None:
    """Be the command of one measurement: read its options, measure, show and keep."""
    parser = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few and short rounds: to see that it works")
    parser.add_argument("--peers", action="store_true", help="also measure what people would pick instead")
    parser.add_argument("--urgent", action="store_true", help="before everything else on a shared machine (as root)")
    parser.add_argument("--seed", type=int, default=1, help="of the order within the rounds")
    args = parser.parse_args()
    machine = describe()
    if args.urgent:
        hurry()
    try:
        result = measure(Options(args.quick, args.peers, args.seed))
    except Broken as error:
        raise SystemExit(f"bench: {error}") from None
    except KeyboardInterrupt:
        raise SystemExit("bench: interrupted") from None
    show(result)
    print(f"\n{machine}")
    if not args.quick:
        print(f"kept as {keep(result, machine).name}")
