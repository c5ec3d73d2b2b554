"""`python -m bench.measures.memory`: what a gateway holds when idle, for each open stream, and for each stored run.

Memory is the proportional share (PSS) of all its processes. Streams are open and quiet; a stored run is a question, an
answer and two tool rounds, kept on SQLite, as what the database grew by.
"""

import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from bench.peers.gateways import start_all
from bench.report.figures import Table
from bench.report.results import Options, Result, main_of
from bench.rig.processes import memory_bytes
from bench.rig.targets import Broken, Stage, Target

SETTLE_S = 1.0
STREAMS, STREAMS_QUICK = 1_000, 100
RUNS, RUNS_QUICK = 400, 60


class Held(NamedTuple):
    """Bytes: after the first answer, with streams open, after they are gone; how many there were."""

    idle: int
    full: int
    after: int
    streams: int


def one(stage: Stage, target: Target, streams: int) -> Held:
    """Open streams to a target and look at what it holds."""
    assert target.pid is not None
    plain = target.job("chat", "bench-plain", stream=False, mode="closed", seconds=2.0, count=20)
    stage.load.run(plain)
    time.sleep(SETTLE_S)
    idle = memory_bytes(target.pid)
    job = target.job("chat", "bench-drip", stream=True, connections=streams, seconds=60.0)
    opened = stage.load.hold(job)
    time.sleep(SETTLE_S)
    full = memory_bytes(target.pid)
    stage.load.release()
    time.sleep(SETTLE_S)
    return Held(idle, full, memory_bytes(target.pid), opened)


def stored_bytes(stage: Stage, target: Target, runs: int) -> tuple[float, float]:
    """Return what one more stored run takes in the database and in the process, once both are warm."""
    assert target.pid is not None
    job = target.job("chat", "bench-tools-2", stream=True, mode="closed", seconds=120.0, connections=4, count=runs)
    stage.load.run(job)
    kept, held = _kept(stage.folder), memory_bytes(target.pid)
    stage.load.run(job)
    return (_kept(stage.folder) - kept) / runs, (memory_bytes(target.pid) - held) / runs


def _kept(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("bench-SQLite.db*"))


def measure(options: Options) -> Result:
    """Look at one target after the other; memory does not care what else the machine does."""
    streams, runs = (STREAMS_QUICK, RUNS_QUICK) if options.is_quick else (STREAMS, RUNS)
    with tempfile.TemporaryDirectory(prefix="treadle-bench-") as folder, ExitStack() as stack:
        stage = Stage(Path(folder), stack)
        others, skipped = start_all(stage, with_peers=options.with_peers)
        kept = stage.treadle("SQLite")
        targets = [stage.treadle("off"), kept, *others]
        held: dict[str, Held] = {}
        for target in targets:
            try:
                held[target.name] = one(stage, target, _most(target, streams))
            except Broken as error:
                if target.is_own:
                    raise
                skipped.append(f"{target.name} is left out: {str(error)[:160]}")
        stored, process = stored_bytes(stage, kept, runs)
    rows = [
        [
            name,
            f"{each.idle / 2**20:.0f}",
            f"{each.streams:,}",
            f"{(each.full - each.idle) / max(each.streams, 1) / 1024:.0f}",
            f"{each.after / 2**20:.0f}",
        ]
        for name, each in held.items()
    ]
    tables = [
        Table("Memory", ["gateway", "idle MB", "open streams", "KB a stream", "MB afterwards"], rows),
        Table(
            "A stored run (a question, two tool rounds, an answer)",
            ["", "KB in the database", "KB in the process"],
            [["Treadle, SQLite", f"{stored / 1024:.1f}", f"{process / 1024:.2f}"]],
        ),
    ]
    name = "memory-peers" if options.with_peers else "memory"
    note = "; ".join(["proportional share of all processes; one look each", *skipped])
    figures = {
        **{name: each._asdict() for name, each in held.items()},
        "stored_bytes": stored,
        "process_bytes": process,
    }
    return Result(name, note, tables, [], figures)


def _most(target: Target, streams: int) -> int:
    """Return how many streams a target can be asked for: one that is overloaded would be measured as something else."""
    return min(streams if target.streams_max >= 50 else max(streams // 5, 20), target.connections_max)


if __name__ == "__main__":
    main_of(measure, __doc__)
