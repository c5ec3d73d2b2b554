"""`python -m bench.tools`: searches against ripgrep, commands by level, and reads of 200 ms that one turn asks for.

Every round measures every case, one after the other, so that whatever else the machine does hits all of them alike.
"""

import argparse
import asyncio
import os
import subprocess
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median

from treadle import tool
from treadle.config import Settings, StoreSection
from treadle.core.events import Finished, ItemAdded, ItemDone, ModelEvent
from treadle.core.items import CallItem, ResultItem, text_message
from treadle.core.plan import Plan
from treadle.runtime import Parts, Runtime
from treadle.tools import ToolContext
from treadle.tools.local.glob_tool import make_glob
from treadle.tools.local.grep_tool import find_ripgrep, make_grep
from treadle.tools.local.safe_open import Root
from treadle.tools.sandbox import CommandSandbox, FoundLevel, choose_level, find_level

FILES, FOLDERS = 50_000, 500
PATTERN = "needle_[0-9]+"
MILLI = 1_000.0
READ_S = 0.2
CONTEXT = ToolContext(run_id="bench")

Case = Callable[[], Awaitable[object]]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.tools", description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=FILES, help="files in the tree")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one round over a small tree: to see that it works")
    args = parser.parse_args()
    if args.quick:
        args.files, args.rounds = 2_000, 1
    with tempfile.TemporaryDirectory(prefix="treadle-bench-") as folder:
        make_tree(Path(folder), args.files)
        asyncio.run(measure(Path(folder), args.rounds))


def make_tree(folder: Path, files: int) -> None:
    """Write a tree of small files, some of which hold what is looked for."""
    line = "def function_of_some_length(argument, another_argument):\n    return argument\n" * 12
    for number in range(files):
        place = folder / f"d{number % FOLDERS}"
        place.mkdir(exist_ok=True)
        text = line + (f"needle_{number}\n" if number % 1_000 == 0 else "")
        (place / f"f{number}.{'py' if number % 2 else 'txt'}").write_text(text)


async def measure(folder: Path, rounds: int) -> None:
    best = find_level()
    boxes = {level: CommandSandbox(found=choose_level(f"L{level}", best)) for level in range(best.level + 1)}
    times: dict[str, list[float]] = {}
    async with turn_cases() as turns:
        cases = {**search_cases(folder, boxes[best.level]), **command_cases(folder, boxes), **turns}
        for name in [*cases] * (rounds + 1):
            began = time.perf_counter()
            await cases[name]()
            times.setdefault(name, []).append((time.perf_counter() - began) * MILLI)
    for box in boxes.values():
        box.close()
    print(f"median of {rounds} rounds, ms; x is against the first of its group; best level {best.name}")
    base = 0.0
    for name, values in times.items():
        middle = median(values[1:])
        base = middle if name.endswith("(base)") else base
        print(f"  {name:<42}{middle:>9.1f}{middle / base:>8.1f}x")


def search_cases(folder: Path, box: CommandSandbox) -> dict[str, Case]:
    root, ripgrep = Root(folder), find_ripgrep()
    glob, worker_box = make_glob(root), CommandSandbox(found=FoundLevel(level=0))
    by_ripgrep, by_worker = make_grep(root, box, ripgrep), make_grep(root, worker_box, None)

    async def bare(*options: str) -> None:
        command = [ripgrep or "rg", "--no-config", *options]
        await asyncio.to_thread(subprocess.run, command, cwd=folder, capture_output=True, check=False)

    async def find() -> None:
        await asyncio.to_thread(glob, CONTEXT, "**/*.py")

    return {
        "grep: rg itself (base)": lambda: bare("-n", PATTERN, "./"),
        "grep: tool with rg": lambda: by_ripgrep(CONTEXT, PATTERN),
        "grep: tool with Python worker": lambda: by_worker(CONTEXT, PATTERN),
        "glob: rg --files (base)": lambda: bare("--files", "-g", "*.py"),
        "glob: tool": find,
    }


def command_cases(folder: Path, boxes: dict[int, CommandSandbox]) -> dict[str, Case]:
    async def bare() -> None:
        await asyncio.to_thread(subprocess.run, ["/bin/bash", "-c", ":"], check=False)

    here = os.path.realpath(folder)

    def boxed(box: CommandSandbox) -> Case:
        async def run() -> None:
            place = box.scratch("bench")
            order = box.command(["/bin/bash", "-c", ":"], cwd=here, write=[here], place=place, timeout_s=10)
            await box.run(order, lambda _: True)

        return run

    return {"bash: subprocess (base)": bare, **{f"bash: L{level}": boxed(box) for level, box in boxes.items()}}


@tool(name="slow_read", effect="read", parallel=True)
async def slow_read(n: int) -> int:
    """Take 200 ms."""
    await asyncio.sleep(READ_S)
    return n


@tool(name="quick_read", effect="read", parallel=True)
async def quick_read(n: int) -> int:
    """Take no time."""
    return n


class Turns:
    """A model that asks for reads, the last of them after a pause, and answers when it has their results."""

    def __init__(self, names: tuple[str, ...], pause_s: float = 0.0) -> None:
        self._names = names
        self._pause_s = pause_s
        self._made = 0

    async def stream(self, plan: Plan, run_id: str) -> AsyncGenerator[list[ModelEvent], None]:
        """Say the calls one after the other, then the answer."""
        if isinstance(plan.items[-1], ResultItem):
            said = text_message("assistant", "done")
            yield [ItemAdded(index=0, item=said), ItemDone(index=0, item=said), Finished(stop="done")]
            return
        for index, name in enumerate(self._names):
            if index == len(self._names) - 1:
                await asyncio.sleep(self._pause_s)
            self._made += 1
            call = CallItem(call_id=f"call_{self._made}", name=name, arguments=f'{{"n":{self._made}}}')
            yield [ItemAdded(index=index, item=call), ItemDone(index=index, item=call)]
        yield [Finished(stop="calls")]


@asynccontextmanager
async def turn_cases() -> AsyncIterator[dict[str, Case]]:
    """Whole runs through the engine, on a journal in memory."""
    models = {
        "turn: one read of 200 ms (base)": Turns(("slow_read",)),
        "turn: two side by side": Turns(("slow_read", "slow_read")),
        "turn: 200 ms, then one said 200 ms later": Turns(("slow_read", "quick_read"), READ_S),
    }
    settings = Settings(store=StoreSection(persistence="off"))
    parts = Parts(models={str(number): model for number, model in enumerate(models.values())})
    async with Runtime(settings, tools=(slow_read, quick_read), parts=parts) as runtime:

        def run(model: str) -> Case:
            async def turn() -> None:
                async for _ in runtime.run("go", model=model):
                    pass

            return turn

        yield {name: run(str(number)) for number, name in enumerate(models)}


if __name__ == "__main__":
    main()
