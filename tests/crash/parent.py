"""The test's end of `worker.py`: starts it, gives it jobs, and reads what it found."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from crash.worker import Finding, Job

NEVER = 1_000_000
"""A point that no scene comes to: the process lives to its end."""
TESTS = Path(__file__).parents[1]


class Worker:
    """A running program, at work in a folder; `store` is the address of its stores, `{name}` being each point's own."""

    def __init__(self, process: "subprocess.Popen[str]", folder: Path, store: str = "") -> None:
        self._process = process
        self._folder = folder
        self._store = store

    def places(self, scene: str) -> list[str]:
        """Live through a scene unharmed and return all places it came by."""
        [finding] = self.die(scene, [NEVER])
        assert finding.problems == []
        return (self._folder / f"{scene}-{NEVER}-0" / "points").read_text().splitlines()

    def die(self, scene: str, points: list[int], again: int | None = None) -> Iterator[Finding]:
        """Die at each of the points and yield what came of it."""
        job = Job(scene=scene, points=points, folder=str(self._folder), store=self._store, again=again)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(msgspec.json.encode(job).decode() + "\n")
        self._process.stdin.flush()
        while (line := self._process.stdout.readline()) != "done\n":
            assert line, "the worker itself died"
            yield msgspec.json.decode(line, type=Finding)


@contextmanager
def program(change: str = "") -> "Iterator[subprocess.Popen[str]]":
    """Start the program that workers are: it does one job after the other. `change` is done to Treadle before."""
    paths = [str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    process = subprocess.Popen(
        [sys.executable, "-c", f"{change}\nfrom crash.worker import main; main()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@contextmanager
def worker(folder: Path, store: str = "") -> Iterator[Worker]:
    """Start a worker of one's own."""
    with program() as process:
        yield Worker(process, folder, store)


def broken(
    crash: Worker, scene: str, places: list[str], points: Iterable[int], again: int | None = None
) -> dict[str, list[str]]:
    """Die at these points and return the promises that were broken, by the place of the death."""
    found = list(crash.die(scene, list(points), again))
    assert found, "no point was tried"
    return {f"{finding.point} {places[finding.point - 1]}": finding.problems for finding in found if finding.problems}


@contextmanager
def quick_folder(fallback: Path) -> Iterator[Path]:
    """Return a folder in memory, where there is one: what a killed process wrote stays there as on a disk."""
    if not os.access("/dev/shm", os.W_OK):
        yield fallback
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="treadle-crash-") as folder:
        yield Path(folder)
