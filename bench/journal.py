"""`python -m bench.journal`: what durability costs. Ratios within one run, against a raw write and fdatasync.

First durable appends by 1, 32 and 256 writers on SQLite and PostgreSQL beside the floor of the same disk; then whole
tool rounds of a run, with the journal on each store and without one. Everything is interleaved, round by round.
"""

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median

from treadle.canon.ids import CountingIds
from treadle.canon.items import text_message
from treadle.canon.messages import Entry
from treadle.canon.request import Request
from treadle.engine.limits import Limits
from treadle.runs import Rooms, Runs, RunsOptions
from treadle.runtime import RandomIds, SystemClock
from treadle.store.journal import RunRow, Store
from treadle.store.open import open_store
from treadle.telemetry import Metrics

ENTRY = Entry(kind="note", at=1.0, content="x" * 600)
WRITERS = (1, 32, 256)
APPENDS = {1: 200, 32: 20, 256: 6}
TOOL_ROUNDS = 20
ids = RandomIds()


def floor_s(folder: Path, count: int) -> float:
    """Return the seconds that one raw durable write takes."""
    with (folder / "floor").open("ab", buffering=0) as file:
        begun = time.perf_counter()
        for _ in range(count):
            file.write(b"x" * 600)
            os.fdatasync(file.fileno())
        return (time.perf_counter() - begun) / count


async def append_rate(store: Store, writers: int) -> float:
    """Return the durable appends a second of so many writers, each with a run of its own."""
    journals = [
        await store.start_run(
            RunRow(
                id=ids.new("run"),
                response_id=ids.new("resp"),
                conversation_id=ids.new("conv"),
                protocol="treadle",
                model="m",
                created_at=1.0,
            ),
            [],
            owner="bench",
            lease_s=600.0,
        )
        for _ in range(writers)
    ]
    count = APPENDS[writers]

    async def write(number: int) -> None:
        for _ in range(count):
            await journals[number].append([ENTRY])

    begun = time.perf_counter()
    await asyncio.gather(*(write(number) for number in range(writers)))
    return writers * count / (time.perf_counter() - begun)


async def round_s(store: Store, *, is_kept: bool) -> float:
    """Return the seconds of one tool round (model call, tool, result) of a model and a tool that cost nothing."""
    from treadle.canon.tools import ServerTool, ToolPolicy, ToolSpec
    from unit.engine.fakes import FakeModel, FakeToolbox, ask_for, call, ok, say

    class Ports:
        def model_for(self, name: str) -> FakeModel:
            calls = [ask_for(call("look", arguments=f"[{n}]", call_id=f"c{n}")) for n in range(TOOL_ROUNDS)]
            return FakeModel(*calls, say("done"))

        def tools(self) -> list[ServerTool]:
            return [ServerTool(spec=ToolSpec(name="look"), policy=ToolPolicy(effect="read"))]

    ports = Ports()
    rooms = Rooms(
        store=store,
        models=ports,
        tools=ports,
        toolbox=FakeToolbox(look=ok()),
        clock=SystemClock(),
        ids=CountingIds(namespace=ids.new("b")),
        metrics=Metrics(),
    )
    runs = Runs(rooms, RunsOptions(persistence=is_kept, limits=Limits(max_iterations=50, max_total_tool_calls=50)))
    begun = time.perf_counter()
    handle = await runs.start(Request(protocol="treadle", model="m", items=(text_message("user", "go"),)))
    ended = await handle.wait()
    if ended.status != "completed" or ended.rounds != TOOL_ROUNDS + 1:
        raise SystemExit(f"bench: the run ended as {ended}")
    return (time.perf_counter() - begun) / TOOL_ROUNDS


@asynccontextmanager
async def stores(folder: Path) -> AsyncIterator[dict[str, Store]]:
    """Open one store of each kind; PostgreSQL is the one that the tests start."""
    from postgres import PostgresServer

    database = PostgresServer()
    opened: dict[str, Store] = {}
    try:
        database.start()
        places = {"memory": ":memory:", "SQLite": str(folder / "bench.db"), "PostgreSQL": database.url("bench")}
        for name, place in places.items():
            store = open_store(place)
            await store.open()
            opened[name] = store
        yield opened
    finally:
        for store in opened.values():
            await store.close()
        database.remove()


async def measure(rounds: int) -> None:
    with tempfile.TemporaryDirectory(prefix="treadle-bench-", dir=Path.cwd()) as name:
        folder = Path(name)
        async with stores(folder) as opened:
            durable = {kind: store for kind, store in opened.items() if kind != "memory"}
            rates: dict[tuple[str, int], list[float]] = {(kind, w): [] for kind in durable for w in WRITERS}
            turns: dict[str, list[float]] = {kind: [] for kind in opened}
            floors: list[float] = []
            for _ in range(rounds):
                floors.append(floor_s(folder, 200))
                for (kind, writers), found in rates.items():
                    found.append(await append_rate(durable[kind], writers))
                for kind, store in opened.items():
                    turns[kind].append(await round_s(store, is_kept=kind != "memory"))
    show(floors, rates, turns, rounds)


def show(
    floors: list[float], rates: dict[tuple[str, int], list[float]], turns: dict[str, list[float]], rounds: int
) -> None:
    floor = 1 / median(floors)
    print(f"median of {rounds} rounds; raw write + fdatasync: {floor:,.0f}/s ({1e3 * median(floors):.2f} ms each)\n")
    print(f"{'durable appends':<18}{'writers':>8}{'a second':>12}{'x floor':>10}")
    for (kind, writers), found in rates.items():
        print(f"{kind:<18}{writers:>8}{median(found):>12,.0f}{median(found) / floor:>10.2f}")
    print(f"\n{'tool round':<18}{'ms':>8}{'added ms':>12}")
    base = median(turns["memory"])
    for kind, found in turns.items():
        title = "no journal kept" if kind == "memory" else kind
        print(f"{title:<18}{1e3 * median(found):>8.2f}{1e3 * (median(found) - base):>12.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.journal", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7, help="how often everything is measured")
    parser.add_argument("--quick", action="store_true", help="two rounds: to see that it works")
    args = parser.parse_args()
    asyncio.run(measure(2 if args.quick else args.rounds))


if __name__ == "__main__":
    main()
