"""Try faults: each in a process of its own, against the tests that pass its line.

`Warm` stands in a pytest that has loaded every test; a child gets the fault put into the functions in memory, so that a
fault costs only the tests it is asked of. A fault in what runs at import is tried cold: the child loads all anew.
"""

import ast
import contextlib
import gc
import os
import re
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, NoReturn

import pytest

from mutants.operators import Mutant
from mutants.swap import Loaded, Pairs, differences, replace_source
from mutants.walks import QUIET, Steady, Walks

MISSED, KILLED, OVER, COLD = "MISSED", "killed", "timeout", "cold"
MEMORY_BYTES = 4 << 30
ASKED_S = 20.0
"""How much work of tests one fault is worth, beyond those of its own module."""
WAITED_S = 30.0
"""After how long, by the clock on the wall, no further test is asked."""
HANGS_S = 60.0
"""After how long a child that neither works nor ends is given up."""
SPARE_S = 6
"""How much more work than four times its own a test may do."""
_PASSED, _FAILED, _NOT_WHOLE = 0, 1, 71


class Fault(NamedTuple):
    """One fault of one module."""

    module: str
    """Its path below the package."""
    scope: str
    mutant: Mutant

    @property
    def key(self) -> str:
        """Say which it is in words that stay when lines move."""
        return f"{self.module}  {self.scope}  {self.mutant.what}"


class Verdict(NamedTuple):
    """What the tests said of a fault, which of them, and what it cost."""

    word: str
    test: str
    asked: int
    seconds: float


def ask(fault: Fault, walks: Walks) -> list[str]:
    """Return the tests that could notice a fault, the likeliest and cheapest first."""
    line = fault.mutant.line
    found = set(walks.past(fault.module, line))
    if not fault.scope:
        mirror = f"tests/unit/{fault.module.rpartition('/')[0]}/"
        found |= _users(fault, walks) | {test for test in walks.seconds if test.startswith(mirror)}
    own = (
        f"tests/unit/{Path(fault.module).with_suffix('').as_posix().rpartition('/')[0]}/test_{Path(fault.module).stem}"
    )
    room = f"tests/unit/{fault.module.partition('/')[0]}/"
    ranked = sorted(found, key=lambda test: (not test.startswith(own), not test.startswith(room), walks.seconds[test]))
    chosen: list[str] = []
    spent = 0.0
    for test in ranked:
        spent += walks.seconds[test]
        if spent < ASKED_S or test.startswith(own):
            chosen.append(test)
    return chosen


def _users(fault: Fault, walks: Walks) -> set[str]:
    """Return the tests that pass a line with a name that a module's own line makes, or any line of that module."""
    root = Path.cwd() / "src" / "treadle"
    names = _names((root / fault.module).read_text(), fault.mutant.line)
    pattern = re.compile(rf"\b(?:{'|'.join(map(re.escape, names))})\b") if names else None
    found = {test for _, _, mark in walks.spans.get(fault.module, []) for test in walks.tests.get(mark, [])}
    for module in walks.spans if pattern else ():
        for number, line in enumerate((root / module).read_text().splitlines(), 1):
            if pattern and pattern.search(line):
                found.update(walks.past(module, number))
    return found


def _names(source: str, line: int) -> list[str]:
    """Return what a line outside functions makes: a variable, a function, a class and its field."""
    names: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.stmt) or not node.lineno <= line <= (node.end_lineno or 0):
            continue
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                names.append(name)
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                names.append(name)
            case _:
                pass
    return names


class Warm(Steady):
    """A pytest that loads every test, and then tries faults in place of running them."""

    def __init__(self, faults: list[Fault], walks: Walks, tell: Callable[[Fault, Verdict], None]) -> None:
        self._faults = faults
        self._walks = walks
        self._tell = tell
        self._sound: dict[str, bool] = {}

    def pytest_internalerror(self, excrepr: object) -> None:
        """Say what went wrong here: pytest's own words are not shown."""
        print(excrepr, file=sys.stderr)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Try all faults."""
        items = {item.nodeid: item for item in session.items}
        root = Path.cwd() / "src" / "treadle"
        gc.unfreeze()  # what is frozen is not found
        loaded = Loaded(Path.cwd())
        gc.freeze()
        for fault in self._faults:
            self._tell(fault, self._try(fault, root, loaded, items, session))
        return True

    def _try(
        self, fault: Fault, root: Path, loaded: Loaded, items: dict[str, pytest.Item], session: pytest.Session
    ) -> Verdict:
        began = time.monotonic()
        path = root / fault.module
        pairs = differences(path, path.read_text(), fault.mutant.text)
        if pairs is None:
            return Verdict(COLD, "", 0, 0)
        tests = [test for test in ask(fault, self._walks) if test in items and self._sound.get(test, True)]
        while True:
            chosen = [items[test] for test in tests]
            code, test = _fork(HANGS_S, _play, session, chosen, self._walks.seconds, (loaded, pairs))
            word = {_PASSED: MISSED, _NOT_WHOLE: COLD, None: OVER}.get(code, KILLED)
            if word != KILLED or test not in items or self._is_sound(test, items[test], session):
                break
            tests.remove(test)
        if word == MISSED and self._walks.is_early(fault.module, fault.mutant.line):
            word = COLD
        return Verdict(word, test, len(tests), time.monotonic() - began)

    def _is_sound(self, test: str, item: pytest.Item, session: pytest.Session) -> bool:
        """Say whether a test that failed succeeds without the fault, alone and in a child as well."""
        if test not in self._sound:
            code, _ = _fork(HANGS_S, _play, session, [item], self._walks.seconds)
            self._sound[test] = code == _PASSED
            if code != _PASSED:
                print(f"not asked any more, it fails by itself ({code}): {test}", file=sys.stderr)
        return self._sound[test]


def _play(
    write: int,
    session: pytest.Session,
    items: list[pytest.Item],
    seconds: dict[str, float],
    fault: tuple[Loaded, Pairs] | None = None,
) -> Iterator[int]:
    """Run some of the tests that are loaded; tell the one that fails."""
    if fault and not fault[0].put(fault[1]):
        yield _NOT_WHOLE
    deadline = time.monotonic() + WAITED_S
    for item, following in zip(items, [*items, None][1:], strict=True):
        if time.monotonic() > deadline:
            break
        os.ftruncate(write, 0)
        os.pwrite(write, item.nodeid.encode(), 0)
        over = int(time.process_time() + SPARE_S + 4 * seconds.get(item.nodeid, 0)) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (over, resource.RLIM_INFINITY))
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.testsfailed:
            yield _FAILED
    yield _PASSED


class Cold:
    """Tries a fault in a child that loads everything anew."""

    def __init__(self, walks: Walks) -> None:
        self._walks = walks
        self._sound: dict[str, bool] = {}

    def attempt(self, fault: Fault) -> Verdict:
        """Try a fault."""
        began = time.monotonic()
        tests = [test for test in ask(fault, self._walks) if self._sound.get(test, True)]
        while True:
            word, test = self._load(tests, fault)
            if word == KILLED and test and test not in self._sound:
                self._sound[test] = self._load([test], None)[0] == MISSED
            if word != KILLED or self._sound.get(test, True):
                return Verdict(word, test, len(tests), time.monotonic() - began)
            tests.remove(test)

    def _load(self, tests: list[str], fault: Fault | None) -> tuple[str, str]:
        if not tests:
            return MISSED, ""
        code, test = _fork(3 * HANGS_S, _load_and_play, tests, fault)
        return {int(pytest.ExitCode.OK): MISSED, int(pytest.ExitCode.NO_TESTS_COLLECTED): MISSED, None: OVER}.get(
            code, KILLED
        ), test


class _Chosen(Steady):
    def __init__(self, tests: list[str], write: int) -> None:
        self._order = {test: number for number, test in enumerate(tests)}
        self._write = write

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted((i for i in items if i.nodeid in self._order), key=lambda item: self._order[item.nodeid])

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        os.ftruncate(self._write, 0)
        os.pwrite(self._write, nodeid.encode(), 0)


def _load_and_play(write: int, tests: list[str], fault: Fault | None) -> Iterator[int]:
    if fault is not None:
        replace_source(Path.cwd() / "src" / "treadle" / fault.module, fault.mutant.text)
    files = sorted({test.partition("::")[0] for test in tests})
    yield int(pytest.main([*QUIET, "-x", *tree_arguments(), *files], plugins=[_Chosen(tests, write)]))


def tree_arguments() -> list[str]:
    """Return what tells pytest to stay in the copy."""
    return ["--rootdir", str(Path.cwd()), "-c", str(Path.cwd() / "pyproject.toml")]


def _fork(seconds: float, work: Callable[..., Iterator[int]], *given: object) -> tuple[int | None, str]:
    """Do a work in a child; return the code that it yields, None when its time is over, and what it wrote last."""
    note = os.memfd_create("note")
    child = os.fork()
    if not child:
        _be_child(note, work, given)
    deadline = time.monotonic() + seconds
    code: int | None = None
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            break
        time.sleep(0.005)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if code is None:
        os.waitpid(child, 0)
    text = os.pread(note, 4096, 0).decode()
    os.close(note)
    return (None if code == -signal.SIGXCPU else code), text


def _be_child(note: int, work: Callable[..., Iterator[int]], given: tuple[object, ...]) -> NoReturn:
    """Work and end; nothing is shown, and memory is not without bound."""
    code = _FAILED
    try:
        os.setpgid(0, 0)
        quiet = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(quiet, number)
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
        code = next(work(note, *given))
    finally:
        os._exit(code)  # what the parent holds is not the child's to tidy up


def to_line(fault: Fault, verdict: Verdict) -> str:
    """Write a verdict for people and for `--again`."""
    where = f"{fault.module}:{fault.mutant.line}"
    said = verdict.test if verdict.word == KILLED else f"{verdict.asked} tests"
    return f"{verdict.word:8} {verdict.seconds:5.1f} s  {where}  {fault.scope or '-'}  {fault.mutant.what}   [{said}]"
