"""`python -m bench.measures.streams`: CPU for each streamed event and time to the first one; translated or not.

The upstream speaks chat completions. "chat" is asked and answered in that protocol, "messages" in that of Anthropic, so
every event is translated; each request has six messages and two tools. First bursts: 16 streams at once of 100 and of
1 000 events, each of which the upstream writes by itself and without a pause. Then 100 streams at once whose events
come 20 ms apart, as people see them, and how long each took on its way; and single streams whose first event comes
alone, and how long that took. A peer that cannot bear so many gets fewer, and the note below the tables says so.
"""

import tempfile
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

from bench.measures.plain import BOUND_SHARE
from bench.peers.gateways import start_all
from bench.report.figures import MICRO, MILLI, Table, middle, ratio, spread
from bench.report.goals import OURS
from bench.report.plot import bars
from bench.report.results import Options, Plot, Result, main_of
from bench.rig.requests import TALK
from bench.rig.targets import BURSTS, STREAMS, Stage, Target
from bench.rig.turns import in_turns
from bench.rig.upstream import PACED_EVENTS

SIZES = (100, 1000)
PROTOCOLS = ("chat", "messages")
TITLES = {"chat": "same protocol", "messages": "translated"}


class Burst(NamedTuple):
    """One round of bursts: CPU of one event, how many a second, and how busy upstream and load generator were."""

    cpu_s: float
    per_s: float
    load_share: float


class Paced(NamedTuple):
    """One round of streams whose events come apart: CPU of one, and how late they arrive."""

    cpu_s: float
    p50_s: float
    p99_s: float
    first_s: float


Seen = dict[tuple[str, str, int], list[Burst]]


def burst(stage: Stage, target: Target, protocol: str, events: int, seconds: float) -> Burst:
    """Ask for several streams at once, each again when it has ended."""
    before, before_load = target.cpu_s(), stage.load_cpu_s()
    asked = target.job(
        protocol,
        f"bench-burst-{events}",
        stream=True,
        asked=TALK[protocol],
        mode="closed",
        seconds=seconds,
        connections=target.bursts_max,
        events_min=events,
    )
    done = stage.load.run(asked)
    used, used_load = target.cpu_s() - before, stage.load_cpu_s() - before_load
    count, wall_s = done["count"] * events, done["wall_s"]
    return Burst(used / count, count / wall_s, used_load / wall_s)


def paced(stage: Stage, target: Target, protocol: str) -> Paced:
    """Ask for many streams at once whose events come apart, then for some one by one, for the first event."""
    before, streams = target.cpu_s(), target.streams_max
    asked = target.job(
        protocol,
        "bench-paced",
        stream=True,
        asked=TALK[protocol],
        mode="closed",
        seconds=5.0,
        connections=streams,
        count=streams,
        stamped=True,
    )
    done = stage.load.run(asked)
    used = (target.cpu_s() - before) / done["count"] / PACED_EVENTS
    single = target.job(protocol, "bench-first", stream=True, asked=TALK[protocol], mode="closed", seconds=0.6)
    alone = stage.load.run(single)
    return Paced(used, done["late_s"]["p50"], done["late_s"]["p99"], alone["first_s"]["p50"])


class Visit(NamedTuple):
    """One round of one target in one protocol."""

    bursts: dict[int, Burst]
    paced: Paced


def visit(stage: Stage, target: Target, protocol: str, seconds: float) -> Visit:
    """Measure one target in one protocol."""
    bursts = {events: burst(stage, target, protocol, events, seconds) for events in SIZES}
    return Visit(bursts, paced(stage, target, protocol))


def measure(options: Options) -> Result:
    """Measure all targets in turns."""
    rounds, seconds = (2, 0.3) if options.is_quick else (5, 0.8)
    with tempfile.TemporaryDirectory(prefix="treadle-bench-") as folder, ExitStack() as stack:
        stage = Stage(Path(folder), stack)
        others, skipped = start_all(stage, with_peers=options.with_peers)
        targets = {each.name: each for each in [stage.upstream, stage.treadle("off"), stage.treadle("SQLite"), *others]}
        works = {
            (name, protocol): partial(visit, stage, target, protocol, seconds)
            for name, target in targets.items()
            for protocol in PROTOCOLS
            if speaks(target, protocol)
        }
        seen, broken = in_turns(works, rounds, options.seed, may_fail=lambda key: not targets[key[0]].is_own)
    bursts = {(*key, size): [each.bursts[size] for each in found] for key, found in seen.items() for size in SIZES}
    drips = {key: [each.paced for each in found] for key, found in seen.items()}
    return report(bursts, drips, [*fewer(targets.values()), *skipped, *broken], options)


def fewer(targets: Iterable[Target]) -> list[str]:
    """Say who was asked for fewer streams at once than the others."""
    return [
        f"{each.name}: {each.bursts_max} bursts and {each.streams_max} paced streams at once"
        for each in targets
        if (each.bursts_max, each.streams_max) != (BURSTS, STREAMS)
    ]


def speaks(target: Target, protocol: str) -> bool:
    """Say whether a target can be asked; what copies bytes and the upstream itself know only one protocol."""
    return protocol in target.protocols and not (target.name == "nginx" and protocol != "chat")


def report(bursts: Seen, drips: dict[tuple[str, str], list[Paced]], skipped: Sequence[str], options: Options) -> Result:
    """Make one table for the bursts and one for the paced streams."""
    tables = [_bursts(bursts, protocol) for protocol in PROTOCOLS] + [_paced(drips)]
    rounds = len(next(iter(bursts.values())))
    words = [
        "requests with six messages and two tools, 1.9 KB",
        f"{BURSTS} bursts and {STREAMS} paced streams at once",
        f"median [quartiles] of {rounds} rounds in random order",
        "≥ means that upstream and load generator were the limit",
        f"direct: {middle([each.per_s for each in bursts['direct', 'chat', SIZES[0]]]):,.0f} events/s in bursts of 100",
    ]
    note = "; ".join([*words, *skipped])
    name = "streams-peers" if options.with_peers else "streams"
    values = {
        f"{gateway}, {TITLES[protocol]}": middle([each.cpu_s for each in found]) * MICRO
        for (gateway, protocol, events), found in bursts.items()
        if events == SIZES[-1] and gateway != "direct"
    }
    drawn = bars(
        "CPU for each event of a burst, 1 000 events", "µs", dict(sorted(values.items(), key=lambda each: each[1]))
    )
    figures = {
        "bursts": {" ".join(map(str, key)): [each._asdict() for each in found] for key, found in bursts.items()},
        "paced": {" ".join(key): [each._asdict() for each in found] for key, found in drips.items()},
    }
    return Result(
        name, note, tables, [Plot(f"bench-{name}", "CPU for each event of a burst, by gateway", drawn)], figures
    )


def _bursts(seen: Seen, protocol: str) -> Table:
    head = ["gateway"]
    for events in SIZES:
        head += [f"{events:,}: CPU µs an event", "× Treadle", "events/s"]
    rows: list[list[str]] = []
    for name in dict.fromkeys(name for name, spoken, _ in seen if spoken == protocol and name != "direct"):
        row = [name]
        for events in SIZES:
            found, base = seen[name, protocol, events], seen[OURS, protocol, events]
            is_bound = middle([each.load_share for each in found]) > BOUND_SHARE
            row += [
                f"{spread([each.cpu_s for each in found]).times(MICRO):,.1f}",
                f"{ratio([each.cpu_s for each in found], [each.cpu_s for each in base]).middle:.2f}",
                f"{middle([each.per_s for each in found]):,.0f}{' ≥' if is_bound else ''}",
            ]
        rows.append(row)
    return Table(f"Bursts, each event a write of its own, {TITLES[protocol]}", head, rows)


def _paced(seen: dict[tuple[str, str], list[Paced]]) -> Table:
    head = ["gateway", "CPU µs an event", "first event ms", "event late p50 ms", "event late p99 ms"]
    rows: list[list[str]] = []
    for (name, protocol), found in seen.items():
        cpu = spread([each.cpu_s for each in found]).times(MICRO)
        p50, p99, first = (spread([each[at] for each in found]).times(MILLI) for at in (1, 2, 3))
        title = "direct" if name == "direct" else f"{name}, {TITLES[protocol]}"
        rows.append([title, "" if name == "direct" else f"{cpu:,.0f}", f"{first:.1f}", f"{p50:.1f}", f"{p99:.1f}"])
    return Table("Paced streams, an event each 20 ms", head, rows)


if __name__ == "__main__":
    main_of(measure, __doc__)
