"""`python -m bench.measures.rounds`: CPU and added time of one tool round: no journal, on SQLite, on PostgreSQL.

A tool round is a model call, a tool and its result. Each request asks for ten rounds and then an answer; what the same
request without tools takes is taken off. The database's own CPU is not counted, its waiting is.
"""

import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

from bench.report.figures import MICRO, Table, ratio, spread
from bench.report.results import Options, Result, main_of
from bench.rig.targets import JOURNALS, Stage, Target
from bench.rig.turns import in_turns

ROUNDS_EACH = 10


class Round(NamedTuple):
    """One tool round: CPU of the server, and seconds of the client."""

    cpu_s: float
    wall_s: float


def ask(stage: Stage, target: Target, model: str, seconds: float) -> Round:
    """Ask one after the other and return what one request took."""
    before = target.cpu_s()
    done = stage.load.run(target.job("chat", model, stream=True, mode="closed", seconds=seconds))
    return Round((target.cpu_s() - before) / done["count"], done["took_s"]["p50"])


def one(stage: Stage, target: Target, seconds: float) -> Round:
    """Return one tool round: a request with ten of them, less one with none."""
    bare = ask(stage, target, "bench-1", seconds / 2)
    tools = ask(stage, target, f"bench-tools-{ROUNDS_EACH}", seconds)
    return Round((tools.cpu_s - bare.cpu_s) / ROUNDS_EACH, (tools.wall_s - bare.wall_s) / ROUNDS_EACH)


def measure(options: Options) -> Result:
    """Measure the three journals in turns."""
    rounds, seconds = (2, 0.4) if options.is_quick else (9, 1.0)
    with tempfile.TemporaryDirectory(prefix="treadle-bench-") as folder, ExitStack() as stack:
        stage = Stage(Path(folder), stack)
        works = {journal: partial(one, stage, stage.treadle(journal), seconds) for journal in JOURNALS}
        works["direct"] = partial(ask, stage, stage.upstream, "bench-1", 0.2)
        seen, _ = in_turns(works, rounds, options.seed)
    direct = [each.wall_s for each in seen.pop("direct")]
    return report(seen, direct)


def report(seen: dict[str, list[Round]], direct: list[float]) -> Result:
    """Make the table: added time is over the same model call made directly."""
    rows: list[list[str]] = []
    for journal, found in seen.items():
        added = [own.wall_s - bare for own, bare in zip(found, direct, strict=True)]
        against = ratio([each.cpu_s for each in found], [each.cpu_s for each in seen["off"]])
        rows.append(
            [
                journal,
                f"{spread([each.cpu_s for each in found]).times(MICRO):,.0f}",
                f"{against:.2f}",
                f"{spread(added).times(MICRO):,.0f}",
            ]
        )
    head = ["journal", "CPU µs a round", "× journal off", "added µs a round"]
    note = f"{ROUNDS_EACH} rounds a request; median [quartiles] of {len(direct)} rounds in random order"
    figures = {journal: [each._asdict() for each in found] for journal, found in seen.items()}
    return Result("rounds", note, [Table("One tool round through the gateway", head, rows)], [], figures)


if __name__ == "__main__":
    main_of(measure, __doc__)
