"""`python -m bench.measures.plain`: requests a second at saturation and added latency at low load, not streamed.

A request has six messages and two tools, 1.9 KB. Thirty-two connections ask as fast as they are answered; then fifty
requests a second, far below what anything here can do. Every round visits every target in a random order. CPU is that
of the target's processes. Treadle with its journal is also asked with a call and its result among the six messages.
Its parts alone (`rig/floor.py`) show what a request costs before Treadle does anything for it.
"""

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

from bench.peers.gateways import start_all
from bench.report.figures import MICRO, Table, middle, ratio, spread
from bench.report.goals import OURS
from bench.report.plot import bars
from bench.report.results import Options, Plot, Result, main_of
from bench.rig.requests import CALLED, TALK
from bench.rig.targets import PARTS, Stage, Target
from bench.rig.turns import in_turns

CONNECTIONS = 32
RATE = 50.0
WITH_CALL = f"{OURS}, a call among the messages"
BOUND_SHARE = 0.85
"""When upstream and load generator use more than this share of their core, they and not the target are the limit."""


class Plain(NamedTuple):
    """One round of one target."""

    per_s: float
    cpu_s: float
    load_share: float
    p50_s: float
    p99_s: float


def one(stage: Stage, target: Target, seconds: float, asked: Mapping[str, object] = TALK["chat"]) -> Plain:
    """Flood a target, then ask it gently."""
    load, job = stage.load, partial(target.job, "chat", "bench-plain", stream=False, asked=asked)
    before, before_load = target.cpu_s(), stage.load_cpu_s()
    connections = min(CONNECTIONS, target.connections_max)
    flood = load.run(job(mode="closed", connections=connections, seconds=seconds))
    used, used_load = target.cpu_s() - before, stage.load_cpu_s() - before_load
    rate = min(RATE, target.rate_max)
    gentle = load.run(job(mode="paced", rate=rate, seconds=seconds * 2))
    took = gentle["took_s"]
    count, wall_s = flood["count"], flood["wall_s"]
    return Plain(count / wall_s, used / count, used_load / wall_s, took["p50"], took["p99"])


def measure(options: Options) -> Result:
    """Measure all targets in turns."""
    rounds, seconds = (2, 0.4) if options.is_quick else (5, 1.5)
    with tempfile.TemporaryDirectory(prefix="treadle-bench-") as folder, ExitStack() as stack:
        stage = Stage(Path(folder), stack)
        others, skipped = start_all(stage, with_peers=options.with_peers)
        own = [made(journal) for made in (stage.treadle, stage.parts) for journal in ("off", "SQLite")]
        targets = {each.name: each for each in [stage.upstream, *own, *others]}
        works: dict[str, partial[Plain]] = {}
        for name, target in targets.items():
            works[name] = partial(one, stage, target, seconds)
            if name == OURS:
                works[WITH_CALL] = partial(one, stage, target, seconds, CALLED)
        peers = [name for name, target in targets.items() if not target.is_own]
        seen, broken = in_turns(works, rounds, options.seed, may_fail=lambda name: name in peers)
    return report(seen, [*skipped, *broken], options)


def report(seen: dict[str, list[Plain]], skipped: Sequence[str], options: Options) -> Result:
    """Make the table: everything beside Treadle with its journal, round by round."""
    base = seen[OURS]
    direct = seen["direct"]
    rows: list[list[str]] = []
    for name, found in seen.items():
        if name == "direct":
            continue
        cpu = spread([each.cpu_s for each in found]).times(MICRO)
        added = [(own.p50_s - bare.p50_s, own.p99_s - bare.p99_s) for own, bare in zip(found, direct, strict=True)]
        p50, p99 = (middle([each[at] for each in added]) * MICRO for at in (0, 1))
        is_bound = middle([each.load_share for each in found]) > BOUND_SHARE
        rows.append(
            [
                name,
                f"{spread([each.per_s for each in found]):,.0f}{' ≥' if is_bound else ''}",
                f"{cpu:,.0f}",
                f"{MICRO / cpu.middle:,.0f}",
                f"{ratio([each.cpu_s for each in found], [each.cpu_s for each in base]).middle:.2f}",
                f"{p50:,.0f} / {p99:,.0f}",
            ]
        )
    head = ["gateway", "requests/s", "CPU µs a request", "so a core could", "CPU, × Treadle", "added p50 / p99 µs"]
    bare_us = middle([each.p50_s for each in direct]) * MICRO
    words = [
        "six messages and two tools, 1.9 KB",
        f"{CONNECTIONS} connections, then {RATE:.0f} requests/s (any-llm 8 and 10)",
        f"median [quartiles] of {len(base)} rounds in random order",
        "≥ means that the load generator was the limit",
        f"direct: p50 {bare_us:,.0f} µs",
    ]
    note = "; ".join([*words, *skipped])
    drawn = [name for name in seen if name not in ("direct", WITH_CALL) and not name.startswith(PARTS)]
    capacity = {name: 1 / middle([each.cpu_s for each in seen[name]]) for name in drawn}
    name = "plain-peers" if options.with_peers else "plain"
    picture = Plot(
        f"bench-{name}",
        "Requests a second that one core can answer, by gateway",
        bars(
            "Plain requests that one core answers",
            "a second, from CPU a request",
            dict(sorted(capacity.items(), key=lambda each: -each[1])),
        ),
    )
    figures = {name: [each._asdict() for each in found] for name, found in seen.items()}
    return Result(name, note, [Table("Requests of 1.9 KB that are not streamed", head, rows)], [picture], figures)


if __name__ == "__main__":
    main_of(measure, __doc__)
