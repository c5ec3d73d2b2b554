"""`python -m bench.measures.streams`: CPU for each streamed event and time to the first one; translated or not.

The upstream speaks chat completions. "chat" is asked and answered in that protocol, "messages" in that of Anthropic, so
every event is translated. First whole streams of 100 and 1 000 events that arrive at once, one after the other; then
streams whose events come 20 ms apart, as people see them, and how long each took on its way; and single streams whose
first event comes alone, and how long that took.
"""

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

from bench.peers.gateways import start_all
from bench.report.figures import MICRO, MILLI, Table, middle, ratio, spread
from bench.report.plot import bars
from bench.report.results import Options, Plot, Result, main_of
from bench.rig.targets import Stage, Target
from bench.rig.turns import in_turns
from bench.rig.upstream import PACED_EVENTS

SIZES = (100, 1000)
PROTOCOLS = ("chat", "messages")
TITLES = {"chat": "same protocol", "messages": "translated"}


class Burst(NamedTuple):
    """One round of whole streams: for one event, and until the first."""

    cpu_s: float
    first_s: float
    wall_s: float


class Paced(NamedTuple):
    """One round of streams whose events come apart: CPU of one, and how late they arrive."""

    cpu_s: float
    p50_s: float
    p99_s: float
    first_s: float


Seen = dict[tuple[str, str, int], list[Burst]]


def burst(stage: Stage, target: Target, protocol: str, events: int, seconds: float) -> Burst:
    """Ask for whole streams, one after the other."""
    before = target.cpu_s()
    asked = target.job(protocol, f"bench-{events}", stream=True, mode="closed", seconds=seconds, events_min=events)
    done = stage.load.run(asked)
    each = (target.cpu_s() - before) / done["count"] / events
    return Burst(each, done["first_s"]["p50"], done["took_s"]["p50"])


def paced(stage: Stage, target: Target, protocol: str) -> Paced:
    """Ask for many streams at once whose events come apart, then for some one by one, for the first event."""
    before, streams = target.cpu_s(), target.streams_max
    asked = target.job(
        protocol,
        "bench-paced",
        stream=True,
        mode="closed",
        seconds=5.0,
        connections=streams,
        count=streams,
        stamped=True,
    )
    done = stage.load.run(asked)
    used = (target.cpu_s() - before) / done["count"] / PACED_EVENTS
    alone = stage.load.run(target.job(protocol, "bench-first", stream=True, mode="closed", seconds=0.6))
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
    return report(bursts, drips, [*skipped, *broken], options)


def speaks(target: Target, protocol: str) -> bool:
    """Say whether a target can be asked; what copies bytes and the upstream itself know only one protocol."""
    return protocol in target.protocols and not (target.name == "nginx" and protocol != "chat")


def report(bursts: Seen, drips: dict[tuple[str, str], list[Paced]], skipped: Sequence[str], options: Options) -> Result:
    """Make one table for the bursts and one for the paced streams."""
    tables = [_bursts(bursts, protocol) for protocol in PROTOCOLS] + [_paced(drips)]
    rounds = len(next(iter(bursts.values())))
    note = "; ".join([f"median [quartiles] of {rounds} rounds in random order", *skipped])
    name = "streams-peers" if options.with_peers else "streams"
    values = {
        f"{gateway}, {TITLES[protocol]}": middle([each.cpu_s for each in found]) * MICRO
        for (gateway, protocol, events), found in bursts.items()
        if events == SIZES[-1] and gateway != "direct"
    }
    drawn = bars(
        "CPU for each streamed event, 1 000 events", "µs", dict(sorted(values.items(), key=lambda each: each[1]))
    )
    figures = {
        "bursts": {" ".join(map(str, key)): [each._asdict() for each in found] for key, found in bursts.items()},
        "paced": {" ".join(key): [each._asdict() for each in found] for key, found in drips.items()},
    }
    return Result(
        name, note, tables, [Plot(f"bench-{name}", "CPU for each streamed event, by gateway", drawn)], figures
    )


def _bursts(seen: Seen, protocol: str) -> Table:
    head = ["gateway"]
    for events in SIZES:
        head += [f"{events:,}: CPU µs an event", "× Treadle", "first event ms"]
    rows: list[list[str]] = []
    for name in dict.fromkeys(name for name, spoken, _ in seen if spoken == protocol and name != "direct"):
        row = [name]
        for events in SIZES:
            found, base = seen[name, protocol, events], seen["Treadle, SQLite", protocol, events]
            first = spread([each.first_s for each in found]).times(MILLI)
            row += [
                f"{spread([each.cpu_s for each in found]).times(MICRO):,.1f}",
                f"{ratio([each.cpu_s for each in found], [each.cpu_s for each in base]).middle:.2f}",
                f"{first:.1f}",
            ]
        rows.append(row)
    return Table(f"Streams that arrive at once, {TITLES[protocol]}", head, rows)


def _paced(seen: dict[tuple[str, str], list[Paced]]) -> Table:
    head = ["gateway", "CPU µs an event", "first event ms", "event late p50 ms", "event late p99 ms"]
    rows: list[list[str]] = []
    for (name, protocol), found in seen.items():
        cpu = spread([each.cpu_s for each in found]).times(MICRO)
        p50, p99, first = (spread([each[at] for each in found]).times(MILLI) for at in (1, 2, 3))
        title = "direct" if name == "direct" else f"{name}, {TITLES[protocol]}"
        rows.append([title, "" if name == "direct" else f"{cpu:,.0f}", f"{first:.1f}", f"{p50:.1f}", f"{p99:.1f}"])
    return Table("Streams whose events come 20 ms apart", head, rows)


if __name__ == "__main__":
    main_of(measure, __doc__)
