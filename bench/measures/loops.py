"""`python -m bench.measures.loops`: CPU of one tool round inside a program, beside the loops of agent frameworks.

Every framework is a process that makes runs when it is told to: so many rounds of one tool, then an answer. Short and
long runs show whether a round costs more the longer the history is. CPU is that of the process; PostgreSQL's own is not
counted. The frameworks keep no journal, so the row to compare them with is Treadle's without one. Treadle's program
runs on uvloop, which is installed with it, the frameworks' on the event loop that theirs bring: asyncio's, and Node's.
"""

import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

from bench.peers.loops import ENV, FRAMEWORKS, Loop, treadle
from bench.report.figures import MILLI, Table, middle, ratio, spread
from bench.report.results import Options, Result, main_of
from bench.rig.processes import cpu_s, memory_bytes
from bench.rig.targets import JOURNALS, Stage
from bench.rig.turns import in_turns
from clients.cache import NotInstalled

LENGTHS = (10, 50)


class Seen(NamedTuple):
    """One tool round of one loop at one length."""

    cpu_s: float
    wall_s: float


class Running(NamedTuple):
    """A loop that waits for orders."""

    name: str
    child: subprocess.Popen[str]
    log: Path

    def run(self, rounds: int) -> Seen:
        """Let it make one run; return its CPU and wall seconds for one round."""
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        before = cpu_s(self.child.pid)
        self.child.stdin.write(f"bench-tools-{rounds}\n")
        self.child.stdin.flush()
        line = self.child.stdout.readline()
        if not line:
            raise RuntimeError(self.log.read_text(errors="replace")[-400:])
        return Seen((cpu_s(self.child.pid) - before) / rounds, float(line) / rounds)


def begin(stage: Stage, loop: Loop) -> Running:
    """Start a loop.

    Raises: NotInstalled, RuntimeError.
    """
    command = loop.command(f"http://127.0.0.1:{stage.upstream.port}/v1")
    child, log = stage.start(f"loop-{loop.name.replace(' ', '-')}", command, env=ENV)
    assert child.stdout is not None
    while (line := child.stdout.readline().strip()) != "ready":
        if not line and child.poll() is not None:
            raise RuntimeError(log.read_text(errors="replace")[-400:])
    return Running(loop.name, child, log)


def own(stage: Stage) -> list[Loop]:
    """Return Treadle's loops: without a journal, and with each kind of it."""
    kept = [Loop(f"Treadle, {each}", treadle(stage.store(each))) for each in JOURNALS if each != "off"]
    return [Loop("Treadle, no journal", treadle("off")), *kept]


def begin_all(stage: Stage, options: Options) -> tuple[list[Running], list[str]]:
    """Start Treadle's loops and, where wanted, the frameworks; return a word about each that does not run."""
    found: list[Running] = []
    skipped: list[str] = []
    for loop in [*own(stage), *(FRAMEWORKS if options.with_peers else ())]:
        try:
            found.append(begin(stage, loop))
        except (NotInstalled, RuntimeError) as error:
            skipped.append(f"{loop.name} is left out: {str(error).strip().splitlines()[-1][:200]}")
    return found, skipped


def measure(options: Options) -> Result:
    """Measure all loops in turns."""
    rounds = 2 if options.is_quick else 7
    with tempfile.TemporaryDirectory(prefix="treadle-bench-") as folder, ExitStack() as stack:
        stage = Stage(Path(folder), stack)
        running, skipped = begin_all(stage, options)
        works = {(each.name, length): partial(each.run, length) for each in running for length in LENGTHS}
        seen, _ = in_turns(works, rounds, options.seed)
        held = {each.name: memory_bytes(each.child.pid) for each in running}
    return report(seen, held, skipped, options)


def report(
    seen: dict[tuple[str, int], list[Seen]], held: dict[str, int], skipped: Sequence[str], options: Options
) -> Result:
    """Make the table: what a round costs, and how that grows with the run."""
    short, long = LENGTHS
    base = [each.cpu_s for each in seen["Treadle, no journal", long]]
    rows: list[list[str]] = []
    for name, held_bytes in held.items():
        few, many = ([each.cpu_s for each in seen[name, length]] for length in LENGTHS)
        rows.append(
            [
                name,
                f"{spread(few).times(MILLI):.2f}",
                f"{spread(many).times(MILLI):.2f}",
                f"{middle(many) / middle(few):.2f}",
                f"{ratio(many, base).middle:.2f}",
                f"{spread([each.wall_s for each in seen[name, long]]).times(MILLI):.2f}",
                f"{held_bytes / 2**20:.0f}",
            ]
        )
    head = [
        "loop",
        f"CPU ms a round, {short}",
        f"CPU ms a round, {long}",
        "growth",
        "× Treadle",
        "wall ms a round",
        "MB",
    ]
    rounds = len(base)
    note = "; ".join(
        [f"runs of {short} and {long} tool rounds; median [quartiles] of {rounds} rounds in random order", *skipped]
    )
    name = "loops-peers" if options.with_peers else "loops"
    figures = {f"{key[0]} {key[1]}": [each._asdict() for each in found] for key, found in seen.items()}
    return Result(name, note, [Table("One tool round inside a program", head, rows)], [], figures)


if __name__ == "__main__":
    main_of(measure, __doc__)
