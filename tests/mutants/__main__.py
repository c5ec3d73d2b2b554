"""`make mutants`: put faults into a room, one at a time, run the tests that stand near, and list what none noticed.

A fault is killed by the module's own tests, else by those of its room, else by those that judge the room from outside.
Each is tried in a process of its own, forked from one that has loaded the libraries already.
"""

import argparse
import compileall
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import NoReturn

import pytest

from mutants.operators import Mutant, mutants

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "treadle"
OUTSIDE = {
    "canon": ("tests/store", "tests/stream", "tests/gateway"),
    "engine": ("tests/unit/runs", "tests/sim", "tests/gateway"),
    "wire": ("tests/stream", "tests/dialects", "tests/gateway"),
}
"""Which tests judge a room from outside, besides its own."""

HEAVY = ("hypothesis", "msgspec", "openai", "anthropic", "google.genai", "httpx2", "aiohttp", "pydantic")
PASSED = 0
NO_TESTS = 5
NO_VERDICT = 70


def main() -> int:
    """Return 0 if no fault was missed."""
    parser = argparse.ArgumentParser(prog="make mutants ARGS=…", description=__doc__)
    parser.add_argument("--room", action="append", help="canon, engine, wire or a file below them (may be repeated)")
    parser.add_argument("--count", type=int, default=30, help="faults to try in each (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="which ones: another number, others (%(default)s)")
    parser.add_argument("--seconds", type=float, default=300, help="bound for one fault's tests (%(default)s)")
    parser.add_argument("--near", action="store_true", help="only the tests of the room itself")
    asked = parser.parse_args()
    missed = 0
    os.chdir(ROOT)
    with tempfile.TemporaryDirectory(prefix="treadle-mutants-") as folder:
        copy = Path(folder) / "treadle"
        shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
        compileall.compile_dir(copy, quiet=2)
        _load(Path(folder))
        for room in asked.room or list(OUTSIDE):
            missed += _try_room(room, copy, asked)
    return 1 if missed else 0


def _load(folder: Path) -> None:
    """Put the copy first, for this process and those it starts, and load what every child would load again."""
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(folder))
    os.environ |= {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    for name in HEAVY:
        try:
            __import__(name)
        except ImportError:
            print(f"without {name}", file=sys.stderr)


def _try_room(room: str, copy: Path, asked: argparse.Namespace) -> int:
    files = [path for path in sorted(copy.rglob("*.py")) if str(path.relative_to(copy)).startswith(room)]
    every = [(path, mutant) for path in files for mutant in mutants(path.read_text())]
    picked = random.Random(asked.seed).sample(every, min(asked.count, len(every)))
    print(f"{room}: {len(picked)} of {len(every)} faults in {len(files)} modules", flush=True)
    missed = 0
    for path, mutant in picked:
        began = time.monotonic()
        verdict = _try(path, copy, mutant, asked)
        missed += verdict == "MISSED"
        where = f"{path.relative_to(copy)}:{mutant.line}"
        print(f"  {verdict:8} {time.monotonic() - began:5.1f} s  {where}  {mutant.what}", flush=True)
    print(f"{room}: {missed} of {len(picked)} missed", flush=True)
    return missed


def _try(path: Path, copy: Path, mutant: Mutant, asked: argparse.Namespace) -> str:
    """Return what the tests say of one fault."""
    before = path.read_text()
    path.write_text(mutant.text)
    cached = list((path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"))
    for pyc in cached:
        pyc.unlink()
    try:
        for tests in _tiers(path.relative_to(copy), is_near=asked.near):
            code = _run(tests, asked.seconds)
            if code is None:
                return "timeout"
            if code == NO_VERDICT:
                return "broken"
            if code not in {PASSED, NO_TESTS}:
                return "killed"
        return "MISSED"
    finally:
        path.write_text(before)


def _tiers(module: Path, *, is_near: bool) -> list[list[str]]:
    """Return the tests to ask, nearest first."""
    room = module.parts[0]
    mirror = ROOT / "tests" / "unit" / module.parent
    own = sorted(str(path) for path in mirror.glob(f"test_{module.stem}*.py"))
    tiers = [own, [str(mirror)] if mirror.is_dir() else [], [str(ROOT / "tests" / "unit" / room)]]
    outside = [] if is_near else [[str(ROOT / folder)] for folder in OUTSIDE.get(room, ())]
    return [tests for tests in (*tiers, *outside) if tests]


def _run(tests: list[str], seconds: float) -> int | None:
    """Run tests in a child; return pytest's word, or None when the time is over."""
    child = os.fork()
    if not child:
        _be_child(tests)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def _be_child(tests: list[str]) -> NoReturn:
    """Run pytest and end; nothing is shown, and hypothesis remembers nothing."""
    code = NO_VERDICT
    try:
        os.setpgid(0, 0)
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        code = int(pytest.main(["-x", "-q", "-n0", "-p", "no:cacheprovider", "--assert=plain", *tests]))
    finally:
        os._exit(code)  # what the parent holds is not the child's to tidy up


if __name__ == "__main__":
    sys.exit(main())
