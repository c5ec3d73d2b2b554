"""`python -m bench.measures.growth`: how cost grows with events, tools, turns, tool rounds and the journal's length.

Turns are measured in requests that only talk, and in the loop of a client that runs the tools itself, whose
conversation the journal knows.

Each curve is CPU over size on logarithmic axes. Its exponent is that of the last step, above what the smallest size
costs: 1 is linear, less is better, and what hardly grows is called flat. The journal is filled to its length and then
asked for single things.
"""

import asyncio
import http.client
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import NamedTuple

from bench.report.figures import MICRO, MILLI, Table, exponent, middle
from bench.report.plot import curves
from bench.report.results import Options, Plot, Result, main_of
from bench.rig.replies import TOOL
from bench.rig.targets import Stage, Target
from bench.rig.turns import in_turns
from treadle.core.events import RunEnded
from treadle.core.journal_entries import Entry
from treadle.journal.journal_interface import RunRow, Store
from treadle.journal.open_store import open_store
from treadle.runtime import RandomIds

EVENTS = (10, 100, 1_000, 10_000)
TOOLS = (1, 10, 100, 1_000)
TURNS = (1, 10, 100, 1_000)
ROUNDS = (5, 50, 500)
LOOPS = {"bench-tools": (10, 100, 1_000), "bench-thinks": (10, 50, 250)}
"""Turns of a client's loop, by model. Of one that thinks no more than 256 are brought back."""
LOOPED = 10
"""Over how many of the last requests of a client's loop the cost of one is taken."""
ENTRIES = (1_000, 10_000, 100_000, 1_000_000)
ENTRIES_QUICK = ENTRIES[:2]
ENTRIES_A_RUN = 100
ENTRIES_A_WRITE = 50
PROBES = 60
FLAT_FACTOR = 3.0
"""What costs less than this many times as much at its largest does not grow: its exponent would be that of noise."""


class Curve(NamedTuple):
    """A thing that grows: what is asked at each size, in which protocol."""

    name: str
    sizes: tuple[int, ...]
    protocol: str
    model: Callable[[int], str]
    asked: Callable[[int], Mapping[str, object]]
    stream: bool = False


ADD = {"type": "function", "function": {"name": TOOL, "parameters": {"type": "object"}}}
RESULT = "word " * 20
LOOP = "turns, client's loop"


def chat_tools(count: int) -> list[dict[str, object]]:
    """Return client tools in the spelling of chat completions."""
    fields = {"place": {"type": "string"}, "depth": {"type": "integer"}}
    schema = {"type": "object", "properties": fields, "required": ["place"]}
    return [
        {
            "type": "function",
            "function": {"name": f"look_{n}", "description": f"Look, manner {n}.", "parameters": schema},
        }
        for n in range(count)
    ]


def said(count: int) -> list[dict[str, str]]:
    """Return a history of so many turns, the user's last."""
    roles = ("user", "assistant")
    turns = [{"role": roles[n % 2], "content": f"turn {n}: " + "word " * 20} for n in range(count - count % 2)]
    return [*turns, {"role": "user", "content": "go"}]


CURVES = (
    Curve("events, same protocol", EVENTS, "chat", "bench-{}".format, lambda _: {}, True),
    Curve("events, translated", EVENTS, "messages", "bench-{}".format, lambda _: {}, True),
    Curve("client tools", TOOLS, "chat", lambda _: "bench-plain", lambda n: {"tools": chat_tools(n)}),
    Curve("turns, same protocol", TURNS, "chat", lambda _: "bench-plain", lambda n: {"messages": said(n)}),
    Curve("turns, translated", TURNS, "responses", lambda _: "bench-plain", lambda n: {"input": said(n)}),
    Curve("tool rounds of one run", ROUNDS, "chat", "bench-tools-{}".format, lambda _: {}, True),
)


def cost(stage: Stage, target: Target, curve: Curve, size: int, seconds: float) -> float:
    """Return the CPU seconds of one request at a size."""
    job = target.job(
        curve.protocol,
        curve.model(size),
        stream=curve.stream,
        asked=curve.asked(size),
        mode="closed",
        seconds=seconds,
    )
    before = target.cpu_s()
    done = stage.load.run(job)
    return (target.cpu_s() - before) / done["count"]


def measure_requests(options: Options) -> dict[str, list[tuple[float, float]]]:
    """Return a curve of CPU milliseconds for each thing that a request can have more of."""
    rounds, seconds = (1, 0.15) if options.is_quick else (5, 0.4)
    with tempfile.TemporaryDirectory(prefix="treadle-bench-") as folder, ExitStack() as stack:
        stage = Stage(Path(folder), stack)
        target = stage.treadle("SQLite")
        works = {
            (curve.name, size): partial(cost, stage, target, curve, size, seconds)
            for curve in CURVES
            for size in curve.sizes
        }
        seen, _ = in_turns(works, rounds, options.seed)
    return {curve.name: [(size, middle(seen[curve.name, size]) * MILLI) for size in curve.sizes] for curve in CURVES}


def measure_server_tools(options: Options) -> list[tuple[float, float]]:
    """Return the curve of servers that offer more and more tools of their own to the model."""
    found: list[tuple[float, float]] = []
    plain = Curve("", (), "chat", lambda _: "bench-plain", lambda _: {})
    for count in TOOLS:
        with tempfile.TemporaryDirectory(prefix="treadle-bench-") as folder, ExitStack() as stack:
            stage = Stage(Path(folder), stack)
            target = stage.treadle("SQLite", tools=count)
            cost(stage, target, plain, 1, 0.3)
            tries = [cost(stage, target, plain, 1, 0.3) for _ in range(1 if options.is_quick else 5)]
            found.append((count, middle(tries) * MILLI))
    return found


def client_loop(target: Target, model: str, turns: int) -> Iterator[float]:
    """Make the requests of a client that runs the tools itself, and yield the CPU time before each that was made."""
    job = target.job("chat", f"{model}-{turns + 1}", stream=False)
    asked = {**json.loads(str(job["body"])), "tools": [ADD], "messages": [{"role": "user", "content": "go"}]}
    with closing(http.client.HTTPConnection("127.0.0.1", target.port)) as client:
        for _ in range(turns):
            before = target.cpu_s()
            client.request("POST", str(job["path"]), json.dumps(asked), {"content-type": "application/json"})
            said = json.load(client.getresponse())["choices"][0]["message"]
            yield before
            results = [{"role": "tool", "tool_call_id": call["id"], "content": RESULT} for call in said["tool_calls"]]
            asked["messages"] += [said, *results]


def measure_client_loop(model: str, sizes: Sequence[int]) -> list[tuple[float, float]]:
    """Return the curve of one conversation in which the client runs the tools, and sends all of it every time.

    Another one comes first, so that nothing is done for the first time.
    """
    found: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory(prefix="treadle-bench-") as folder, ExitStack() as stack:
        stage = Stage(Path(folder), stack)
        target = stage.treadle("SQLite", tools=None)
        for _ in client_loop(target, model, LOOPED):
            pass
        used: list[float] = []
        for turn, before in enumerate(client_loop(target, model, sizes[-1]), 1):
            used.append(target.cpu_s() - before)
            if turn in sizes:
                found.append((turn, middle(used[-LOOPED:]) * MILLI))
    return found


async def fill(store: Store, entries: int) -> str:
    """Add runs until so many entries were written; return the last run's id."""
    ids, row_id = RandomIds(), ""
    entry = Entry(kind="note", at=1.0, content="x" * 200)

    async def one() -> str:
        row = new_row(ids)
        journal = await store.start_run(row, [], owner="bench", lease_s=600.0)
        for _ in range(ENTRIES_A_RUN // ENTRIES_A_WRITE):
            await journal.append([entry] * ENTRIES_A_WRITE)
        await journal.finish([], RunEnded(status="completed"))
        return row.id

    for _ in range(max(1, entries // ENTRIES_A_RUN // 20)):
        row_id = (await asyncio.gather(*(one() for _ in range(min(20, max(1, entries // ENTRIES_A_RUN))))))[-1]
    return row_id


def new_row(ids: RandomIds) -> RunRow:
    """Return the row of a new run."""
    return RunRow(
        id=ids.new("run"),
        response_id=ids.new("resp"),
        conversation_id=ids.new("conv"),
        protocol="treadle",
        model="m",
        created_at=time.time(),
    )


async def probe(store: Store, run_id: str) -> dict[str, float]:
    """Return the CPU milliseconds of single things that are asked of a journal."""
    ids = RandomIds()
    entry = Entry(kind="note", at=1.0, content="x" * 200)

    async def append() -> None:
        journal = await store.start_run(new_row(ids), [], owner="bench", lease_s=600.0)
        await journal.append([entry])
        await journal.finish([], RunEnded(status="completed"))

    async def read() -> None:
        await store.entries(run_id)

    async def page() -> None:
        await store.list_runs(limit=20)

    found: dict[str, float] = {}
    for name, work in {"start, append, end": append, "read a run": read, "newest 20 runs": page}.items():
        await work()
        before = time.process_time()
        for _ in range(PROBES):
            await work()
        found[name] = (time.process_time() - before) / PROBES * MILLI
    return found


async def measure_journal(options: Options) -> dict[str, list[tuple[float, float]]]:
    """Fill a journal to each length and ask it for single things."""
    lengths = ENTRIES_QUICK if options.is_quick else ENTRIES
    found: dict[str, list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory(prefix="treadle-bench-") as folder:
        store = open_store(f"{folder}/journal.db")
        await store.open()
        try:
            filled = 0
            for length in lengths:
                run_id = await fill(store, length - filled)
                filled = length
                for name, value in (await probe(store, run_id)).items():
                    found.setdefault(f"journal: {name}", []).append((length, value))
        finally:
            await store.close()
    return found


def measure(options: Options) -> Result:
    """Measure every curve."""
    asked = measure_requests(options)
    asked["server tools"] = measure_server_tools(options)
    for model, name in (("bench-tools", LOOP), ("bench-thinks", f"{LOOP}, thinking")):
        asked[name] = measure_client_loop(model, LOOPS[model][:2] if options.is_quick else LOOPS[model])
    kept = asyncio.run(measure_journal(options))
    return report(asked, kept)


def report(asked: dict[str, Sequence[tuple[float, float]]], kept: dict[str, Sequence[tuple[float, float]]]) -> Result:
    """Make a row for each curve, and a picture of each family."""
    rows: list[list[str]] = []
    for name, points in {**asked, **kept}.items():
        (x0, y0), (xn, yn) = points[0], points[-1]
        each = (yn - y0) / (xn - x0) * MICRO / MILLI
        shown = " → ".join(f"{y:.2f}" for _, y in points)
        power = f"{exponent(points):.2f}" if yn > FLAT_FACTOR * y0 else f"flat (×{yn / y0:.1f})"
        rows.append([name, f"{x0:,.0f} → {xn:,.0f}", shown, f"{each:,.2f}", power])
    head = ["what grows", "from → to", "CPU ms", "µs each more", "exponent"]
    plots = [
        Plot("bench-growth", "CPU of a request over its size", curves("CPU of one request", "how many", "ms", asked)),
        Plot("bench-journal", "CPU of a request over the journal", curves("Asked of a journal", "entries", "ms", kept)),
    ]
    note = "CPU of the server, SQLite; medians; exponent 1 is linear, less is better"
    return Result("growth", note, [Table("Growth", head, rows)], plots, {"asked": asked, "journal": kept})


if __name__ == "__main__":
    main_of(measure, __doc__)
