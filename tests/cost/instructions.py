"""`python -m cost.instructions` (with `tests` on the path): instructions of one request of each kind, by cachegrind.

What is counted is what the processor runs, so it is the same whatever else the machine does. Each kind runs twice, with
a few requests and with some more: the difference is what the requests cost, and all else falls out. `--json FILE` keeps
the counts, `--against FILE` compares with counts kept before and fails where one has grown beyond the margin.
"""

import argparse
import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from cost.rig import CASES, rig

MARGIN = 1.03
WARM, FEW, MORE = 4, 2, 12
INSIDE_S = 600
_COUNT = re.compile(r"I\s+refs:\s+([\d,]+)")


def main() -> int:
    """Count, show, and compare."""
    parser = argparse.ArgumentParser(prog="python -m cost.instructions", description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", help=f"of: {', '.join(CASES)} (default: all)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the counts")
    parser.add_argument("--against", type=Path, metavar="FILE", help="fail where a count has grown")
    parser.add_argument("--inside", type=int, metavar="REQUESTS", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside is not None:
        asyncio.run(ask(args.cases[0], args.inside))
        return 0
    if shutil.which("valgrind") is None:
        print("cachegrind is not here (package valgrind): nothing was counted")
        return 0
    if unknown := set(args.cases) - CASES.keys():
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    before = {} if args.against is None else json.loads(args.against.read_text())
    counts: dict[str, float] = {}
    for name in args.cases or CASES:
        kilo = counts[name] = count(name)
        ratio = f"  {kilo / before[name]:.3f} of before" if name in before else ""
        print(f"{name:<34}{kilo:>10,.0f} thousand instructions{ratio}", flush=True)
    if args.json is not None:
        args.json.write_text(json.dumps(counts, indent=2) + "\n")
    return int(any(kilo > before[name] * MARGIN for name, kilo in counts.items() if name in before))


def count(name: str) -> float:
    """Return the thousands of instructions of one request of this kind."""
    few, more = (_instructions(name, requests) for requests in (FEW, MORE))
    return round((more - few) / (MORE - FEW) / 1_000, 1)


def _instructions(name: str, requests: int) -> int:
    """Run this under cachegrind and return all that it counted."""
    valgrind = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
    command = [*valgrind, sys.executable, "-m", "cost.instructions", "--inside", str(requests), name]
    path = os.pathsep.join(filter(None, [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")]))
    env = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "0"}
    ran = subprocess.run(command, env=env, timeout=INSIDE_S, capture_output=True, text=True, check=False)
    counted = _COUNT.search(ran.stderr)
    if ran.returncode != 0 or counted is None:
        raise SystemExit(f"{name}: cachegrind counted nothing:\n{ran.stderr[-2_000:]}")
    return int(counted[1].replace(",", ""))


async def ask(name: str, requests: int) -> None:
    """Make some requests, after a few that every run makes."""
    with tempfile.TemporaryDirectory(prefix="treadle-cost-") as folder:
        async with rig(Path(folder), is_kept=False) as treadle:
            for _ in range(WARM + requests):
                await treadle.ask(CASES[name])


if __name__ == "__main__":
    sys.exit(main())
