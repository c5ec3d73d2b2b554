"""`python -m bench`: what Treadle adds per request, per streamed event and per tool round. Ratios within one run.

An upstream that costs nothing and the load generator share one core, `treadle serve` has the other. Two servers run,
with and without the journal; every round measures every case on every target in a random order, so that whatever
else the machine does hits all of them alike.
"""

import argparse
import json
import random
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from bench.processes import Load, cores, cpu_s, process, read_port, write_config
from bench.report import Measure, Rounds, row_against_direct, row_of_tool_rounds, write_json, write_table
from bench.upstream import EVENTS, TOOL_ROUNDS

JOURNALS = ("off", "on")
ROUNDS_MIN = 3


class Case(NamedTuple):
    """One kind of request; `count` of them are made in one go."""

    model: str
    stream: bool
    count: int
    targets: tuple[str, ...] = ("direct", *JOURNALS)


class Target(NamedTuple):
    port: int
    pid: int | None


CASES = {
    "plain": Case("bench-plain", False, 60),
    "short": Case("bench-short", True, 60),
    "100": Case("bench-100", True, 20),
    "1000": Case("bench-1000", True, 5),
    "tools": Case("bench-tools", True, 12, JOURNALS),
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds: at most about 15 s instead of 60")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures as JSON")
    parser.add_argument("--seed", type=int, default=1, help="of the order within the rounds")
    args = parser.parse_args()
    rounds_max, budget_s = (4, 8.0) if args.quick else (20, 40.0)
    with tempfile.TemporaryDirectory(prefix="treadle-bench-") as folder, ExitStack() as stack:
        load, targets = start(Path(folder), stack)
        rounds = measure(load, targets, rounds_max, budget_s, random.Random(args.seed))
    show(rounds, args.json)


def start(folder: Path, stack: ExitStack) -> tuple[Load, dict[str, Target]]:
    """Start all processes and return the load generator and what it can be pointed at."""
    here, there = cores()

    def run(name: str, arguments: list[str], where: set[int]) -> tuple:
        log = folder / f"{name}.log"
        return stack.enter_context(process(arguments, where, folder=folder, log=log)), log

    upstream_port = read_port(*run("upstream", ["-m", "bench.upstream"], here))
    targets = {"direct": Target(upstream_port, None)}
    for journal in JOURNALS:
        config = write_config(folder, upstream_port, journal)
        child, log = run(f"serve-{journal}", ["-m", "treadle.cli.main", "serve", "--config", str(config)], there)
        targets[journal] = Target(read_port(child, log), child.pid)
    return Load(run("load", ["-m", "bench.load"], here)[0]), targets


def measure(load: Load, targets: dict[str, Target], rounds_max: int, budget_s: float, order: random.Random) -> Rounds:
    """Warm everything up, then measure round by round until the time is used up."""
    jobs = [(name, target) for name, case in CASES.items() for target in case.targets]
    for name, target in jobs:
        run_batch(load, CASES[name], targets[target], count=5)
    rounds: Rounds = {job: [] for job in jobs}
    started = time.monotonic()
    for number in range(rounds_max):
        if number >= ROUNDS_MIN and time.monotonic() - started > budget_s:
            break
        order.shuffle(jobs)
        for name, target in jobs:
            rounds[name, target].append(run_batch(load, CASES[name], targets[target], CASES[name].count))
    return rounds


def run_batch(load: Load, case: Case, target: Target, count: int) -> Measure:
    """Make the requests of one case and return what one of them took."""
    body = {"model": case.model, "stream": case.stream, "messages": [{"role": "user", "content": "go"}]}
    before = None if target.pid is None else cpu_s(target.pid)
    wall_s = load.run(target.port, body, count, EVENTS[case.model] if case.stream else 0)
    used = None if before is None or target.pid is None else (cpu_s(target.pid) - before) / count
    return Measure(wall_s / count, used)


def show(rounds: Rounds, file: Path | None) -> None:
    against = [
        ("plain", 1, "request"),
        ("short", 1, "streamed request"),
        ("100", 100, "event (100)"),
        ("1000", 1000, "event (1,000)"),
    ]
    rows = [row_against_direct(rounds, case, each, units, title) for case, units, title in against for each in JOURNALS]
    rows += [row_of_tool_rounds(rounds, each, TOOL_ROUNDS) for each in JOURNALS]
    directs = {title: [each.wall_s for each in rounds[case, "direct"]] for case, _, title in against}
    taken = len(rounds["plain", "direct"])
    apart = "apart from" if len(set.union(*cores())) > 1 else "on the same core as"
    note = f"median [quartiles] of {taken} rounds, one request at a time; server {apart} upstream and load"
    print(write_table(rows, directs, note))
    if file is not None:
        file.write_text(json.dumps(write_json(rows, directs, note), indent=2) + "\n")


if __name__ == "__main__":
    main()
