"""`python -m bench.journal`: what durability costs. Ratios within one run, against a raw write and fdatasync.

First durable appends by 1, 64 and 256 writers on SQLite and PostgreSQL, beside the floor of the same disk and beside
the plain use of a driver, an insert and a commit for each; then whole tool rounds of a run, with the journal on each
store and without one. Everything is interleaved, round by round. The processor's time is that of this process alone.
"""

import argparse
import asyncio
import os
import sqlite3
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from pathlib import Path
from statistics import median
from typing import NamedTuple

import asyncpg

from bench.report import results
from bench.report.machine import describe
from treadle.core.ids import CountingIds
from treadle.core.items import text_message
from treadle.core.journal_entries import Entry
from treadle.core.request import Request
from treadle.engine.limits import Limits
from treadle.journal.journal_interface import RunRow, Store
from treadle.journal.open_store import open_store
from treadle.journal.store_url import PostgresAddress
from treadle.runs import RunDependencies, Runs, RunsOptions
from treadle.runtime import RandomIds, SystemClock
from treadle.telemetry import Metrics

TEXT = "x" * 600
ENTRY = Entry(kind="note", at=1.0, content=TEXT)
WRITERS = (1, 64, 256)
APPENDS = {1: 200, 64: 20, 256: 6}
PLAIN_APPENDS = {1: 100, 64: 3, 256: 1}
PLAIN_CONNECTIONS = 8
TOOL_ROUNDS = 20
ids = RandomIds()

Append = Callable[[], Awaitable[object]]
"""Makes one append durable."""


class Rate(NamedTuple):
    """Durable appends a second, and the processor's seconds for each."""

    a_second: float
    cpu_s: float


def floor_s(folder: Path, count: int) -> float:
    """Return the seconds that one raw durable write takes."""
    with (folder / "floor").open("ab", buffering=0) as file:
        begun = time.perf_counter()
        for _ in range(count):
            file.write(TEXT.encode())
            os.fdatasync(file.fileno())
        return (time.perf_counter() - begun) / count


async def rate_of(appends: list[Append], count: int) -> Rate:
    """Let every writer append so often, one after the other, and all of them at the same time."""

    async def write(append: Append) -> None:
        for _ in range(count):
            await append()

    begun, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*map(write, appends))
    total = len(appends) * count
    return Rate(total / (time.perf_counter() - begun), (time.process_time() - cpu) / total)


async def append_rate(store: Store, writers: int) -> Rate:
    """Measure appends to the journal, of so many writers with a run each."""
    appends: list[Append] = []
    for _ in range(writers):
        row = RunRow(
            id=ids.new("run"),
            response_id=ids.new("resp"),
            conversation_id=ids.new("conv"),
            protocol="treadle",
            model="m",
            created_at=1.0,
        )
        journal = await store.start_run(row, [], owner="bench", lease_s=600.0)
        appends.append(lambda journal=journal: journal.append([ENTRY]))
    return await rate_of(appends, APPENDS[writers])


class PlainSqlite:
    """The standard driver in a thread: an insert, then a commit, each handed over by itself."""

    title = "SQLite"

    def __init__(self, path: Path) -> None:
        self._numbers = count()
        self._thread = ThreadPoolExecutor(1)
        self._turn = asyncio.Lock()
        self._connection = self._thread.submit(self._open, path).result()

    def _open(self, path: Path) -> sqlite3.Connection:
        connection = sqlite3.connect(path)
        connection.execute("PRAGMA journal_mode = wal")
        connection.execute("PRAGMA synchronous = full")
        connection.execute("CREATE TABLE entries (run TEXT, seq INTEGER, content TEXT, PRIMARY KEY (run, seq))")
        return connection

    async def append(self) -> None:
        """Insert a row and commit it."""
        loop = asyncio.get_running_loop()
        row = ("run_1", next(self._numbers), TEXT)
        async with self._turn:
            insert = self._connection.execute
            await loop.run_in_executor(self._thread, insert, "INSERT INTO entries VALUES (?, ?, ?)", row)
            await loop.run_in_executor(self._thread, self._connection.commit)

    async def close(self) -> None:
        """Close the database."""
        self._thread.submit(self._connection.close).result()
        self._thread.shutdown()


class PlainPostgres:
    """The driver's own pool: an insert for each, which PostgreSQL commits by itself."""

    title = "PostgreSQL"

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._numbers = count()
        self._pool = pool

    @classmethod
    async def open(cls, dsn: str) -> "PlainPostgres":
        """Connect, and make a table."""
        pool = await asyncpg.create_pool(dsn, min_size=PLAIN_CONNECTIONS, max_size=PLAIN_CONNECTIONS)
        await pool.execute("CREATE TABLE bench_entries (run text, seq bigint, content text, PRIMARY KEY (run, seq))")
        return cls(pool)

    async def append(self) -> None:
        """Insert a row."""
        await self._pool.execute("INSERT INTO bench_entries VALUES ($1, $2, $3)", "run_1", next(self._numbers), TEXT)

    async def close(self) -> None:
        """Disconnect."""
        await self._pool.close()


async def round_s(store: Store, *, is_kept: bool) -> float:
    """Return the seconds of one tool round (model call, tool, result) of a model and a tool that cost nothing."""
    from treadle.core.tool_definitions import ServerTool, ToolPolicy, ToolSpec
    from unit.engine.fakes import FakeModel, FakeToolbox, ask_for, call, ok, say

    class Ports:
        def model_for(self, name: str) -> FakeModel:
            calls = [ask_for(call("look", arguments=f"[{n}]", call_id=f"c{n}")) for n in range(TOOL_ROUNDS)]
            return FakeModel(*calls, say("done"))

        def tools(self) -> list[ServerTool]:
            return [ServerTool(spec=ToolSpec(name="look"), policy=ToolPolicy(effect="read"))]

    ports = Ports()
    rooms = RunDependencies(
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


class Cast(NamedTuple):
    """What is measured: the stores by kind, and the plain use of the same engines."""

    stores: dict[str, Store]
    plain: tuple[PlainSqlite | PlainPostgres, ...]


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[Cast]:
    """Open everything; PostgreSQL is the one that the tests start, on the disk too: syncing memory costs nothing."""
    from postgres import PostgresServer

    async with AsyncExitStack() as stack:
        database = PostgresServer(on_disk=True)
        stack.callback(database.remove)
        database.start()
        places = {"memory": ":memory:", "SQLite": str(folder / "bench.db"), "PostgreSQL": database.url("bench")}
        stores: dict[str, Store] = {}
        for name, place in places.items():
            stores[name] = open_store(place)
            await stores[name].open()
            stack.push_async_callback(stores[name].close)
        dsn = PostgresAddress(database.url("plain")).dsn
        plain = (PlainSqlite(folder / "plain.db"), await PlainPostgres.open(dsn))
        for each in plain:
            stack.push_async_callback(each.close)
        yield Cast(stores, plain)


Rates = Mapping[tuple[str, int], list[Rate]]


async def measure(rounds: int) -> results.Result:
    """Measure everything so often, show it and return what can be kept."""
    with tempfile.TemporaryDirectory(prefix="treadle-bench-", dir=Path.cwd()) as name:
        folder = Path(name)
        async with opened(folder) as cast:
            durable = {kind: store for kind, store in cast.stores.items() if kind != "memory"}
            rates: dict[tuple[str, int], list[Rate]] = {(kind, w): [] for kind in durable for w in WRITERS}
            plain: dict[tuple[str, int], list[Rate]] = {key: [] for key in rates}
            turns: dict[str, list[float]] = {kind: [] for kind in cast.stores}
            floors: list[float] = []
            for _ in range(rounds):
                floors.append(floor_s(folder, 200))
                for (kind, writers), found in rates.items():
                    found.append(await append_rate(durable[kind], writers))
                for each in cast.plain:
                    for writers in WRITERS:
                        found = await rate_of([each.append] * writers, PLAIN_APPENDS[writers])
                        plain[each.title, writers].append(found)
                for kind, store in cast.stores.items():
                    turns[kind].append(await round_s(store, is_kept=kind != "memory"))
    show(floors, rates, plain, turns)
    figures = {"floor_s": floors, "journal": figures_of(rates), "plain": figures_of(plain), "round_s": turns}
    return results.Result("journal", f"median of {rounds} rounds", [], [], figures)


def figures_of(rates: Rates) -> dict[str, list[dict[str, float]]]:
    """Return rates as they are kept, by engine and writers."""
    return {f"{kind} {writers}": [each._asdict() for each in found] for (kind, writers), found in rates.items()}


def show(floors: list[float], rates: Rates, plain: Rates, turns: dict[str, list[float]]) -> None:
    floor = 1 / median(floors)
    print(
        f"median of {len(floors)} rounds; raw write + fdatasync: {floor:,.0f}/s ({1e3 * median(floors):.2f} ms each)\n"
    )
    print(
        f"{'durable appends':<18}{'writers':>8}{'a second':>12}{'x floor':>10}{'x plain':>10}{'CPU us':>10}{'plain':>8}"
    )
    for key, found in rates.items():
        rate, beside = median(each.a_second for each in found), median(each.a_second for each in plain[key])
        cpu, cpu_beside = (1e6 * median(each.cpu_s for each in some) for some in (found, plain[key]))
        figures = f"{rate:>12,.0f}{rate / floor:>10.2f}{rate / beside:>10.1f}{cpu:>10.0f}{cpu_beside:>8.0f}"
        print(f"{key[0]:<18}{key[1]:>8}{figures}")
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
    machine = describe()
    result = asyncio.run(measure(2 if args.quick else args.rounds))
    if not args.quick:
        print(f"kept as {results.keep(result, machine).name}")


if __name__ == "__main__":
    main()
