"""`python -m cost.instructions` (with `tests` on the path): instructions of one request of each kind, by callgrind.

What is counted is what the processor runs, so it is the same whatever else the machine does. `--json FILE` keeps the
counts, `--against FILE` compares with counts kept before and fails where one has grown beyond the margin.
"""

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from cost.rig import CASES, rig

MARGIN = 1.03
REQUESTS = 10
INSIDE_S = 900


def main() -> int:
    """Count, show, and compare."""
    parser = argparse.ArgumentParser(prog="python -m cost.instructions", description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", help=f"of: {', '.join(CASES)} (default: all)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the counts")
    parser.add_argument("--against", type=Path, metavar="FILE", help="fail where a count has grown")
    parser.add_argument("--inside", type=Path, metavar="FOLDER", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside is not None:
        asyncio.run(count(args.inside, args.cases or list(CASES)))
        return 0
    if shutil.which("valgrind") is None:
        print("callgrind is not here (package valgrind): nothing was counted")
        return 0
    if unknown := set(args.cases) - CASES.keys():
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    counts = run_inside(args.cases)
    before = {} if args.against is None else json.loads(args.against.read_text())
    for name, kilo in counts.items():
        ratio = f"  {kilo / before[name]:.3f} of before" if name in before else ""
        print(f"{name:<34}{kilo:>10,.0f} thousand instructions{ratio}")
    if args.json is not None:
        args.json.write_text(json.dumps(counts, indent=2) + "\n")
    return int(any(kilo > before[name] * MARGIN for name, kilo in counts.items() if name in before))


def run_inside(cases: list[str]) -> dict[str, float]:
    """Run this under callgrind, which counts only while it is told to."""
    with tempfile.TemporaryDirectory(prefix="treadle-cost-") as folder:
        outcome = f"{folder}/callgrind.%p"
        valgrind = ["valgrind", "--quiet", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={outcome}"]
        command = [*valgrind, sys.executable, "-m", "cost.instructions", "--inside", folder, *cases]
        path = os.pathsep.join(filter(None, [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")]))
        env = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "0"}
        subprocess.run(command, check=True, env=env, timeout=INSIDE_S)
        return json.loads((Path(folder) / "counts.json").read_text())


async def count(folder: Path, cases: list[str]) -> None:
    """Make the requests of each kind and write down what one of them took, in thousands."""
    counts: dict[str, float] = {}
    async with rig(folder, is_kept=False) as treadle:
        for name in cases:
            case = CASES[name]
            await treadle.ask(case)
            _control("-i", "on")
            _control("-z")
            for _ in range(REQUESTS):
                await treadle.ask(case)
            _control("-d", "counted")
            _control("-i", "off")
            counts[name] = round(_totals(folder) / REQUESTS / 1000, 1)
    (folder / "counts.json").write_text(json.dumps(counts))


def _control(*words: str) -> None:
    subprocess.run(["callgrind_control", *words, str(os.getpid())], check=True, capture_output=True, timeout=60)


def _totals(folder: Path) -> int:
    total = 0
    for file in folder.glob("callgrind.*.*"):
        total += sum(int(line.split()[1]) for line in file.read_text().splitlines() if line.startswith("totals:"))
        file.unlink()
    return total


if __name__ == "__main__":
    sys.exit(main())
