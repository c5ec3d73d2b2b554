"""Which tests pass which places: run them once over a package that has marks, and keep what each passed."""

import pickle
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import Phase, settings

from mutants.blocks import Atlas, Span, mark_of

QUIET = ("-q", "-n0", "-p", "no:cacheprovider", "--assert=plain", "--tb=no")


class Walks(NamedTuple):
    """What the tests passed when nothing was wrong."""

    spans: dict[str, list[Span]]
    seconds: dict[str, float]
    """How long each test took that succeeded."""
    tests: dict[int, list[str]]
    """Who passed a mark."""
    early: frozenset[int]
    """The marks that were passed before any test: by imports, and by tests that make their cases when loaded."""

    def past(self, module: str, line: int) -> list[str]:
        """Return the tests that pass a line."""
        mark = mark_of(self.spans.get(module, []), line)
        return [] if mark is None else self.tests.get(mark, [])

    def is_early(self, module: str, line: int) -> bool:
        """Say whether a line of a function runs before any test."""
        return mark_of(self.spans.get(module, []), line) in self.early


class Steady:
    """Hypothesis remembers nothing, shrinks nothing, and tries the same examples each time."""

    def pytest_sessionstart(self) -> None:
        """Load what holds for all tests, before they are loaded themselves."""
        phases = (Phase.explicit, Phase.generate)
        settings.register_profile("mutants", settings.default, database=None, derandomize=True, phases=phases)
        settings.load_profile("mutants")


class _Recorder(Steady):
    def __init__(self, atlas: Atlas) -> None:
        self._atlas = atlas
        self._failed: set[str] = set()
        self.seconds: dict[str, float] = {}
        self.tests: dict[int, list[str]] = {}
        self.early: frozenset[int] = frozenset()

    def pytest_collection_finish(self) -> None:
        self.early = self._atlas.take()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:
            self._failed.add(report.nodeid)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        began = time.monotonic()
        result = yield
        passed = self._atlas.take()
        if item.nodeid not in self._failed:
            self.seconds[item.nodeid] = time.monotonic() - began
            for mark in passed:
                self.tests.setdefault(mark, []).append(item.nodeid)
        return result


def record(root: Path, suites: list[str], out: Path) -> None:
    """Run the tests over the marked package of a tree and keep what they passed in a file."""
    atlas = Atlas(root / "src" / "treadle")
    atlas.install()
    recorder = _Recorder(atlas)
    pytest.main([*QUIET, "--rootdir", str(root), "-c", str(root / "pyproject.toml"), *suites], plugins=[recorder])
    walks = Walks(atlas.spans, recorder.seconds, recorder.tests, recorder.early)
    out.write_bytes(pickle.dumps(tuple(walks)))


def load(path: Path) -> Walks:
    """Read what `record` kept."""
    return Walks(*pickle.loads(path.read_bytes()))
