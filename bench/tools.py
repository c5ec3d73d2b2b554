"""The tool of the benchmark's tool rounds, and `python -m bench.tools`: searches against ripgrep, commands by level.

Every round measures every case, one after the other, so that whatever else the machine does hits all of them alike.
"""

import argparse
import asyncio
import os
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median

from treadle import tool
from treadle.tools import ToolContext
from treadle.tools.local.glob import make_glob
from treadle.tools.local.grep import find_ripgrep, make_grep
from treadle.tools.local.opener import Root
from treadle.tools.sandbox import Found, Sandbox, choose_level, find_level

FILES, FOLDERS = 50_000, 500
PATTERN = "needle_[0-9]+"
MILLI = 1_000.0
CONTEXT = ToolContext(run_id="bench")

Case = Callable[[], Awaitable[object]]


@tool(name="bench_add", effect="read")
async def bench_add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.tools", description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=FILES, help="files in the tree")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
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
    boxes = {level: Sandbox(found=choose_level(f"L{level}", best)) for level in range(best.level + 1)}
    cases = {**search_cases(folder, boxes[best.level]), **command_cases(folder, boxes)}
    times: dict[str, list[float]] = {name: [] for name in cases}
    for name in [*cases] * (rounds + 1):
        began = time.perf_counter()
        await cases[name]()
        times[name].append((time.perf_counter() - began) * MILLI)
    for box in boxes.values():
        box.close()
    print(f"median of {rounds} rounds, ms; x is against the first of its group; best level {best.name}")
    base = 0.0
    for name, values in times.items():
        middle = median(values[1:])
        base = middle if name.endswith("(base)") else base
        print(f"  {name:<34}{middle:>9.1f}{middle / base:>8.1f}x")


def search_cases(folder: Path, box: Sandbox) -> dict[str, Case]:
    root, ripgrep = Root(folder), find_ripgrep()
    glob, worker_box = make_glob(root), Sandbox(found=Found(level=0))
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


def command_cases(folder: Path, boxes: dict[int, Sandbox]) -> dict[str, Case]:
    async def bare() -> None:
        await asyncio.to_thread(subprocess.run, ["/bin/bash", "-c", ":"], check=False)

    here = os.path.realpath(folder)

    def boxed(box: Sandbox) -> Case:
        async def run() -> None:
            place = box.scratch("bench")
            order = box.command(["/bin/bash", "-c", ":"], cwd=here, write=[here], place=place, timeout_s=10)
            await box.run(order, lambda _: True)

        return run

    return {"bash: subprocess (base)": bare, **{f"bash: L{level}": boxed(box) for level, box in boxes.items()}}


if __name__ == "__main__":
    main()
