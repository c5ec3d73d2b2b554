"""`python -m bench.measures.start`: seconds from the start of a process to its first answer, and what is installed.

Wall and CPU until the first request is answered through the gateway, in turns. Install size counts files of the
environment without bytecode and without the installer; Treadle's is what its base install asks for.
"""

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import NamedTuple

from bench.peers.gateways import GATEWAYS, sizes
from bench.report.figures import Table, spread
from bench.report.results import Options, Result, main_of
from bench.rig.processes import ROOT, clean_env
from bench.rig.targets import Broken, Stage, Target
from clients.cache import NotInstalled

_NAME = re.compile(r"[A-Za-z0-9._-]+")


class Begun(NamedTuple):
    """Seconds until the first answer."""

    wall_s: float
    cpu_s: float


def one(stage: Stage, start: Callable[[Stage], Target]) -> Begun:
    """Start a gateway and ask it once."""
    began = time.perf_counter()
    target = start(stage)
    stage.load.run(target.job("chat", "bench-plain", stream=False, mode="closed", seconds=60.0, count=1))
    return Begun(time.perf_counter() - began, target.cpu_s())


def commands(rounds: int) -> dict[str, list[float]]:
    """Return the CPU seconds of commands that do nothing much, beside a bare interpreter."""
    program = [sys.executable, "-m", "treadle.cli.main"]
    cases = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "treadle --version": [*program, "--version"],
        "treadle --help": [*program, "--help"],
        "import treadle": [sys.executable, "-c", "from treadle import Runtime"],
    }
    found: dict[str, list[float]] = {name: [] for name in cases}
    for command in cases.values():
        _cpu_of(command)
    for _ in range(rounds):
        for name, command in cases.items():
            found[name].append(_cpu_of(command))
    return found


def _cpu_of(command: list[str]) -> float:
    import resource

    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True, timeout=60, cwd=ROOT, env=clean_env(ROOT))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(options: Options) -> Result:
    """Start everything in turns."""
    rounds = 2 if options.is_quick else 3 if options.with_peers else 5
    starts: dict[str, Callable[[Stage], Target]] = {
        "Treadle, SQLite": lambda stage: stage.treadle("SQLite"),
        **{each.name: each.start for each in (GATEWAYS if options.with_peers else GATEWAYS[:1])},
    }
    seen: dict[str, list[Begun]] = {}
    skipped: list[str] = []
    for name, start in starts.items():
        # The first start writes bytecode, and perhaps installs; it does not count.
        try:
            _fresh(start)
            seen[name] = []
        except (NotInstalled, RuntimeError, Broken) as error:
            if name.startswith("Treadle"):
                raise
            skipped.append(f"{name} is left out: {str(error).strip().splitlines()[-1][:200]}")
    for _ in range(rounds):
        for name, found in seen.items():
            found.append(_fresh(starts[name]))
    return report(seen, commands(rounds), skipped, options)


def _fresh(start: Callable[[Stage], Target]) -> Begun:
    with tempfile.TemporaryDirectory(prefix="treadle-bench-") as folder, ExitStack() as stack:
        return one(Stage(Path(folder), stack), start)


def own_size() -> tuple[int, int]:
    """Return bytes and packages of Treadle's base install, from what is installed here."""
    found: dict[str, Distribution] = {}
    waiting = ["treadle"]
    while waiting:
        name = waiting.pop().lower().replace("_", "-")
        if name in found:
            continue
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:
            continue
        waiting += [_NAME.match(each)[0] for each in found[name].requires or [] if _is_wanted(each)]
    source = sum(path.stat().st_size for path in (ROOT / "src").rglob("*") if path.is_file() and path.suffix != ".pyc")
    others = [each for name, each in found.items() if name != "treadle"]
    return source + sum(_size(each) for each in others), len(found)


def _is_wanted(requirement: str) -> bool:
    from packaging.requirements import Requirement

    marker = Requirement(requirement).marker
    return marker is None or marker.evaluate({"extra": ""})


def _size(package: Distribution) -> int:
    paths = [Path(str(package.locate_file(file))) for file in package.files or [] if file.suffix != ".pyc"]
    return sum(path.stat().st_size for path in paths if path.is_file())


def report(seen: dict[str, list[Begun]], ran: dict[str, list[float]], skipped: list[str], options: Options) -> Result:
    """Make the tables."""
    installed = {"Treadle, SQLite": own_size(), **(sizes() if options.with_peers else {})}
    rows: list[list[str]] = []
    for name, found in seen.items():
        wall, cpu = (spread([each[at] for each in found]) for at in (0, 1))
        size = installed.get(name)
        shown = ["", ""] if size is None else [f"{size[0] / 1e6:.0f}", str(size[1])]
        rows.append([name, f"{wall:.2f}", f"{cpu:.2f}", *shown])
    bare = spread(ran["python -c pass"])
    lines = [[name, f"{spread(found):.3f}", f"{spread(found).middle / bare.middle:.1f}"] for name, found in ran.items()]
    tables = [
        Table("Start to the first answer", ["gateway", "wall s", "CPU s", "installed MB", "packages"], rows),
        Table("Commands", ["command", "CPU s", "× bare Python"], lines),
    ]
    name = "start-peers" if options.with_peers else "start"
    words = [f"median [quartiles] of {len(seen['Treadle, SQLite'])} starts", *skipped]
    figures = {name: [each._asdict() for each in found] for name, found in seen.items()}
    return Result(name, "; ".join(words), tables, [], {"starts": figures, "commands": ran, "installed": installed})


if __name__ == "__main__":
    main_of(measure, __doc__)
