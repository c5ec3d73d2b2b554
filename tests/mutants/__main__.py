"""`make mutants`: put small faults into the core rooms, one at a time, and list those that no test notices.

The tree is copied once, and its tests are run once to see which of them pass which lines; then each fault is tried
against the tests that pass its line, nearest and quickest first. `--folder` keeps the copy and what was seen.
"""

import argparse
import ast
import itertools
import os
import pickle
import random
import shutil
import sys
import tempfile
import tomllib
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from mutants.operators import mutants
from mutants.trials import COLD, MISSED, Cold, Fault, Verdict, Warm, to_line, tree_arguments
from mutants.walks import QUIET, Walks, load, record

ROOT = Path(__file__).parents[2]
KNOWN = Path(__file__).with_name("known.toml")
ROOMS = ("core", "engine", "protocols")
NEAR = ("tests/unit/core", "tests/unit/engine", "tests/unit/protocols", "tests/stream", "tests/dialects")
OUTSIDE = ("tests/unit/runs", "tests/unit/upstream", "tests/sim", "tests/gateway")
HEAVY = ("hypothesis", "msgspec", "openai", "anthropic", "google.genai", "httpx2", "aiohttp", "pydantic")
_NAMED = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
NOT_COPIED = ("__pycache__", ".venv", ".git", ".hypothesis", "build", ".*cache")


def main() -> int:
    """Return 0 if no fault was missed."""
    parser = argparse.ArgumentParser(prog="make mutants ARGS=…", description=__doc__)
    parser.add_argument("--room", action="append", help="core, engine, protocols or a path below (may be repeated)")
    parser.add_argument("--each", type=int, default=3, help="faults to try in each module (%(default)s); 0: all")
    parser.add_argument("--seed", type=int, default=1, help="which ones: another number, others (%(default)s)")
    parser.add_argument("--near", action="store_true", help="only the tests of the three rooms, not those from outside")
    parser.add_argument("--again", type=Path, help="a list that was printed earlier: try what it calls MISSED")
    parser.add_argument("--folder", type=Path, help="where the copy of the tree is, or is to be, kept")
    asked = parser.parse_args()
    again = asked.again and asked.again.read_text()
    with tempfile.TemporaryDirectory(prefix="treadle-mutants-") as scratch:
        folder = (asked.folder or Path(scratch)).resolve()
        walks = _prepare(folder, [*NEAR, *(() if asked.near else OUTSIDE)])
        faults = _pick(asked.room or list(ROOMS), asked.each, asked.seed, again)
        print(f"{len(faults)} faults, {len(walks.seconds)} tests", flush=True)
        for fault in sorted(_known() - {fault.key for fault in _every(ROOMS)}):
            print(f"known, and not there any more: {fault}", file=sys.stderr)
        verdicts = _try_all(faults, walks, folder)
    counts = Counter(verdict.word for verdict in verdicts)
    print(", ".join(f"{count} {word}" for word, count in counts.most_common()), flush=True)
    return 1 if counts[MISSED] else 0


def _prepare(folder: Path, suites: list[str]) -> Walks:
    """Make the copy and the knowledge of who passes what, unless they are there; go into the copy."""
    tree, walks = folder / "tree", folder / "walks.pickle"
    if not tree.exists():
        shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(*NOT_COPIED), symlinks=True)
    os.chdir(tree)
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(tree / "src"))
    os.environ |= {"PYTHONPATH": str(tree / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    for name in HEAVY:
        try:
            __import__(name)
        except ImportError:
            print(f"without {name}", file=sys.stderr)
    if not walks.exists():
        _apart(lambda: record(tree, suites, walks))
    return load(walks)


def _pick(rooms: list[str], each: int, seed: int, again: str | None) -> list[Fault]:
    """Return the faults to try: some of each module, or those that were missed earlier."""
    known = _known()
    every = [fault for fault in _every(rooms) if fault.key not in known]
    if again is not None:
        missed = {_without_line(line) for line in again.splitlines() if line.startswith(MISSED)}
        return [fault for fault in every if fault.key in missed]
    picked: list[Fault] = []
    for module, group in itertools.groupby(every, key=lambda fault: fault.module):
        faults = list(group)
        picked += random.Random(f"{seed} {module}").sample(faults, min(each or len(faults), len(faults)))
    return picked


def _known() -> set[str]:
    return {entry["fault"] for entry in tomllib.loads(KNOWN.read_text())["known"]}


def _every(rooms: Sequence[str]) -> list[Fault]:
    package = Path.cwd() / "src" / "treadle"
    modules = [path.relative_to(package).as_posix() for path in sorted(package.rglob("*.py"))]
    chosen = [module for module in modules if module.startswith(tuple(rooms))]
    return [fault for module in chosen for fault in faults_of(module, (package / module).read_text())]


def _without_line(told: str) -> str:
    """Return the name of a fault from the line that told of it."""
    where, scope, what = told.split("s  ", 1)[1].rpartition("   [")[0].split("  ", 2)
    return f"{where.partition(':')[0]}  {scope.strip('-')}  {what}"


def faults_of(module: str, source: str) -> list[Fault]:
    """Return every fault of a module, each under a name of its own."""
    scopes = list(_scopes(ast.parse(source), ""))
    found: dict[str, Fault] = {}
    for mutant in mutants(source):
        around = [(start, name) for start, end, name in scopes if start <= mutant.line <= end]
        fault = Fault(module, max(around)[1] if around else "", mutant)
        twins = itertools.count(2)
        while fault.key in found:
            fault = fault._replace(mutant=mutant._replace(what=f"{mutant.what}  #{next(twins)}"))
        found[fault.key] = fault
    return list(found.values())


def _scopes(node: ast.AST, outer: str) -> Iterator[tuple[int, int, str]]:
    """Yield the first and the last line of every function's body, and its name with those of what it stands in."""
    for child in ast.iter_child_nodes(node):
        name = f"{outer}{child.name}" if isinstance(child, _NAMED) else ""
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield child.body[0].lineno, child.end_lineno or 0, name
        yield from _scopes(child, f"{name}." if name else outer)


def _try_all(faults: list[Fault], walks: Walks, folder: Path) -> list[Verdict]:
    """Try what can be tried warm, then the rest."""
    kept = folder / "warm.pickle"
    _apart(lambda: kept.write_bytes(pickle.dumps(_try_warm(faults, walks))))
    warm: list[tuple[int, Verdict]] = pickle.loads(kept.read_bytes())
    verdicts = [verdict for _, verdict in warm if verdict.word != COLD]
    cold = Cold(walks)
    for number, verdict in warm:
        if verdict.word == COLD:
            verdicts.append(cold.attempt(faults[number]))
            print(to_line(faults[number], verdicts[-1]), flush=True)
    return verdicts


def _try_warm(faults: list[Fault], walks: Walks) -> list[tuple[int, Verdict]]:
    verdicts: list[tuple[int, Verdict]] = []
    out = os.fdopen(os.dup(1), "w", buffering=1)

    def tell(fault: Fault, verdict: Verdict) -> None:
        verdicts.append((len(verdicts), verdict))
        if verdict.word != COLD:
            print(to_line(fault, verdict), file=out)

    files = sorted({test.partition("::")[0] for test in walks.seconds})
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    pytest.main([*QUIET, "-s", *tree_arguments(), *files], plugins=[Warm(faults, walks, tell)])
    if len(verdicts) < len(faults):
        raise RuntimeError("the tests could not be loaded")
    return verdicts


def _apart(work: Callable[[], object]) -> None:
    """Work in a child, so that this process stays without the package and its tests."""
    child = os.fork()
    if not child:
        code = 1
        try:
            work()
            code = 0
        finally:
            sys.stdout.flush()
            traceback.print_exc() if code else None
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if status:
        sys.exit("the tests could not be run; see above")


if __name__ == "__main__":
    sys.exit(main())
