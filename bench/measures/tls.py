"""`python -m bench.measures.tls`: what TLS to the upstream adds, beside the same upstream without.

Two servers that differ in nothing but the scheme of their upstream are asked in turns: plain requests as fast as they
are answered, plain requests at fifty a second, and streams whose events come 20 ms apart.
"""

import shutil
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

from bench.measures import plain, streams
from bench.report.figures import MICRO, Table, middle, ratio, spread
from bench.report.results import Options, Result, main_of
from bench.rig.targets import Stage, Target
from bench.rig.turns import in_turns

CLEAR, TLS = "clear", "TLS"


class Visit(NamedTuple):
    """One round: CPU of a plain request and of a lone event, and how long a plain request takes."""

    plain_s: float
    event_s: float
    p50_s: float


def one(stage: Stage, target: Target, seconds: float) -> Visit:
    """Ask one server in all three ways."""
    flood = plain.one(stage, target, seconds)
    return Visit(flood.cpu_s, streams.paced(stage, target, "chat").cpu_s, flood.p50_s)


def measure(options: Options) -> Result:
    """Measure both in turns."""
    if shutil.which("openssl") is None:
        return Result("tls", "not measured: openssl is not here to make a certificate", [], [], {})
    rounds, seconds = (2, 0.4) if options.is_quick else (5, 1.5)
    with tempfile.TemporaryDirectory(prefix="treadle-bench-") as folder, ExitStack() as stack:
        stage = Stage(Path(folder), stack)
        targets = {CLEAR: stage.treadle("off"), TLS: stage.treadle_over_tls()}
        works = {name: partial(one, stage, target, seconds) for name, target in targets.items()}
        seen, _ = in_turns(works, rounds, options.seed)
    return report(seen)


def report(seen: dict[str, list[Visit]]) -> Result:
    """Make the table: what is the same, side by side."""
    words = {"plain_s": "CPU µs of a plain request", "event_s": "CPU µs of a lone event", "p50_s": "p50 µs at 50/s"}
    rows: list[list[str]] = []
    for field, word in words.items():
        clear, tls = ([getattr(each, field) for each in seen[name]] for name in (CLEAR, TLS))
        rows.append(
            [
                word,
                f"{spread(clear).times(MICRO):,.0f}",
                f"{spread(tls).times(MICRO):,.0f}",
                f"{ratio(tls, clear).middle:.2f}",
                f"{(middle(tls) - middle(clear)) * MICRO:,.0f}",
            ]
        )
    note = f"Treadle, no journal; median [quartiles] of {len(seen[CLEAR])} rounds in random order"
    figures = {name: [each._asdict() for each in found] for name, found in seen.items()}
    table = Table("TLS to the upstream", ["", "clear", "TLS", "× clear", "added"], rows)
    return Result("tls", note, [table], [], figures)


if __name__ == "__main__":
    main_of(measure, __doc__)
