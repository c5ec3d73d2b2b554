"""`python -m bench.scale_model`: how far several processes on one PostgreSQL would go. A model, not a measurement.

What one process costs is measured elsewhere (`make bench`) and given here as `Costs`; what many machines do together is
computed by a seeded simulation of queues. Each process is one core that serves in order of arrival, the database is one
queue whose commits are grouped, models and tools are time that passes. Nothing is said about networks, failing machines
or a database with replicas.
"""

import argparse
import heapq
import random
from collections.abc import Callable, Iterator
from statistics import median
from typing import NamedTuple

RUNS_MIN = 400
P99_S_MAX = 0.25
CPU_SHARE_MAX = 0.75
DB_SHARE_MAX = 0.9
CHUNKS = 12
"""In how many pieces the CPU of a streamed answer is spent."""


class Costs(NamedTuple):
    """What one process costs, in seconds, and the database; measured on one machine, see docs/scale.md."""

    run_cpu_s: float = 0.001
    round_cpu_s: float = 0.001
    event_cpu_s: float = 0.00006
    commit_s: float = 0.00037
    entry_s: float = 0.00028
    stream_kb: float = 60.0
    idle_mb: float = 90.0
    pool: int = 16


class Load(NamedTuple):
    """What one run does: tool rounds before its answer, events of each model call, and the time of others."""

    name: str
    rounds: int
    events: int
    first_s: float
    answer_s: float
    tool_s: float


LOADS = (
    Load("chat: one answer of 200 events", 0, 200, 0.6, 4.0, 0.0),
    Load("agent: 4 tool rounds, 60 events each", 4, 60, 0.6, 1.5, 0.4),
    Load("short: one answer of 5 events", 0, 5, 0.2, 0.2, 0.0),
)


class Seen(NamedTuple):
    """What a simulation saw: time added to a run, how busy cores and database were, and runs at once."""

    added_p50_s: float
    added_p99_s: float
    cpu_share: float
    db_share: float
    live: float

    @property
    def holds(self) -> bool:
        """Tell whether people would call this fine."""
        is_quick = self.added_p99_s <= P99_S_MAX
        return is_quick and self.cpu_share <= CPU_SHARE_MAX and self.db_share <= DB_SHARE_MAX


class Database:
    """One queue: whoever waits when a commit begins is part of it, so that only the entries themselves add up."""

    def __init__(self, costs: Costs) -> None:
        self._costs = costs
        self._waiting: list[Callable[[float], None]] = []
        self._is_busy = False
        self.busy_s = 0.0

    def commit(self, world: "World", done: Callable[[float], None]) -> None:
        """Wait for a place in a commit."""
        self._waiting.append(done)
        if not self._is_busy:
            self._begin(world)

    def _begin(self, world: "World") -> None:
        group, self._waiting = self._waiting, []
        took_s = self._costs.commit_s + self._costs.entry_s * len(group)
        self._is_busy = True
        self.busy_s += self._costs.entry_s * len(group)

        def end(now: float) -> None:
            self._is_busy = False
            for each in group:
                each(now)
            if self._waiting and not self._is_busy:
                self._begin(world)

        world.at(world.now + took_s, end)


class World:
    """Virtual time: what happens when, in order."""

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, int, Callable[[float], None]]] = []
        self._count = 0

    def at(self, when: float, what: Callable[[float], None]) -> None:
        """Let something happen."""
        self._count += 1
        heapq.heappush(self._heap, (when, self._count, what))

    def run(self) -> None:
        """Let everything happen."""
        while self._heap:
            self.now, _, what = heapq.heappop(self._heap)
            what(self.now)


class Core:
    """A process: one core, in order of arrival."""

    def __init__(self) -> None:
        self._free_at = 0.0
        self.busy_s = 0.0

    def work(self, world: World, seconds: float, done: Callable[[float], None]) -> None:
        """Do some work when its turn comes."""
        self._free_at = max(self._free_at, world.now) + seconds
        self.busy_s += seconds
        world.at(self._free_at, done)


Step = tuple[str, float]


def steps_of(load: Load, costs: Costs) -> Iterator[Step]:
    """Yield what a run does: `cpu`, `commit` or `wait`, as often as Treadle does it (see ARCHITECTURE.md)."""
    yield "cpu", costs.run_cpu_s / 2
    yield "commit", 0.0
    for number in range(load.rounds + 1):
        yield "wait", load.first_s
        for _ in range(CHUNKS):
            yield "wait", load.answer_s / CHUNKS
            yield "cpu", load.events * costs.event_cpu_s / CHUNKS
        if number < load.rounds:
            yield "cpu", costs.round_cpu_s / 2
            yield "commit", 0.0
            yield "wait", load.tool_s
            yield "cpu", costs.round_cpu_s / 2
            yield "commit", 0.0
    yield "cpu", costs.run_cpu_s / 2
    yield "commit", 0.0


def simulate(costs: Costs, load: Load, processes: int, runs_per_s: float, *, seed: int = 1) -> Seen:
    """Let runs arrive at random, each at a random process, and see what queues add."""
    world, database, dice = World(), Database(costs), random.Random(seed)
    cores = [Core() for _ in range(processes)]
    added: list[float] = []
    waits = sum(seconds for kind, seconds in steps_of(load, costs) if kind == "wait")
    count = max(RUNS_MIN, int(runs_per_s * 4))

    def start(core: Core) -> Callable[[float], None]:
        def begin(began: float) -> None:
            steps = steps_of(load, costs)
            waited = 0.0

            def go_on(now: float) -> None:
                nonlocal waited
                kind, seconds = next(steps, ("end", 0.0))
                if kind == "cpu":
                    core.work(world, seconds, go_on)
                elif kind == "commit":
                    database.commit(world, go_on)
                elif kind == "wait":
                    took_s = seconds * dice.uniform(0.5, 1.5)
                    waited += took_s
                    world.at(now + took_s, go_on)
                else:
                    added.append(now - began - waited)

            go_on(began)

        return begin

    when = 0.0
    for _ in range(count):
        when += dice.expovariate(runs_per_s)
        world.at(when, start(dice.choice(cores)))
    world.run()
    added.sort()
    return Seen(
        added_p50_s=median(added),
        added_p99_s=added[int(len(added) * 0.99) - 1],
        cpu_share=sum(core.busy_s for core in cores) / (processes * when),
        db_share=database.busy_s / when,
        live=runs_per_s * waits,
    )


def capacity(costs: Costs, load: Load, processes: int) -> tuple[float, Seen]:
    """Return the highest rate of runs that holds, and what it looks like."""
    cpu_s = sum(seconds for kind, seconds in steps_of(load, costs) if kind == "cpu")
    low, high = 0.0, 1.1 * CPU_SHARE_MAX * processes / cpu_s
    seen = simulate(costs, load, processes, high / 100)
    for _ in range(8):
        rate = (low + high) / 2
        found = simulate(costs, load, processes, rate)
        low, high, seen = (rate, high, found) if found.holds else (low, rate, seen)
    return low, seen


def bottleneck(seen: Seen) -> str:
    """Name what is used up first."""
    return "CPU" if seen.cpu_share >= seen.db_share else "database"


def rows(costs: Costs, counts: tuple[int, ...]) -> list[list[str]]:
    """Return the table: for each load and number of processes what would hold."""
    found: list[list[str]] = []
    for load in LOADS:
        for processes in counts:
            rate, seen = capacity(costs, load, processes)
            memory = costs.idle_mb * processes + costs.stream_kb * seen.live / 1024
            found.append(
                [
                    load.name,
                    str(processes),
                    f"{rate:,.0f}",
                    f"{seen.live:,.0f}",
                    f"{seen.added_p50_s * 1e3:.0f}",
                    f"{100 * seen.cpu_share:.0f}",
                    f"{100 * seen.db_share:.0f}",
                    bottleneck(seen),
                    f"{memory / 1024:.1f}",
                    str(processes * costs.pool),
                ]
            )
    return found


HEAD = [
    *("load", "processes", "runs/s", "runs at once", "added ms (p50)"),
    *("CPU %", "database %", "first used up", "GB", "connections"),
]


def markdown(table: list[list[str]]) -> str:
    """Return the table for a document."""
    lines = [HEAD, ["---", *["---:"] * (len(HEAD) - 1)], *table]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", default="1,2,4,8,16", help="numbers of processes, with commas between")
    for name, value in Costs()._asdict().items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value)
    args = parser.parse_args()
    costs = Costs(**{name: getattr(args, name) for name in Costs._fields})
    print("a model, not a measurement: python -m bench.scale_model")
    print(markdown(rows(costs, tuple(int(word) for word in args.processes.split(",")))))


if __name__ == "__main__":
    main()
