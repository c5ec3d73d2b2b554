"""What all tests share: how hard hypothesis tries, and an environment in which no real key or setting leaks in."""

import functools
import gc
import itertools
import os
from typing import Any

import httpcore2
import pytest
from hypothesis import HealthCheck, settings

from left_out import left_out
from person import VARIABLE
from spread import ByFile, long_first

settings.register_profile("default", deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", parent=settings.get_profile("default"), max_examples=100)
settings.register_profile("fuzz", deadline=None, max_examples=5_000, suppress_health_check=list(HealthCheck))
settings.load_profile(os.environ.get("TREADLE_HYPOTHESIS", "default"))

# Every client that a test makes would read all certificates again, 20 ms each, to speak to loopback without TLS.
httpcore2.default_ssl_context = functools.cache(httpcore2.default_ssl_context)

gc.disable()  # until everything is collected: nothing of that is garbage

_FOREIGN = ("TREADLE_", "OPENAI_", "ANTHROPIC_", "GEMINI_", "OPENROUTER_", "ENABLE_TOOLS")
_homes = itertools.count(1)
_OURS = (VARIABLE, "TREADLE_HYPOTHESIS", "TREADLE_REQUIRE_BROWSER", "TREADLE_CHROMIUM")


def pytest_xdist_auto_num_workers() -> int:
    """Use two workers for each core: half of the tests wait for processes, browsers and databases."""
    return 2 * (os.cpu_count() or 1)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile | None:
    """Spread the whole suite as `spread` says; a part of it may be torn as it comes."""
    is_whole = config.args_source == pytest.Config.ArgsSource.TESTPATHS and config.option.markexpr == "not exhaustive"
    return ByFile(config, log) if is_whole else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put what takes long before what does not."""
    items[:] = long_first(items, lambda item: item.nodeid)


def pytest_collection_finish() -> None:
    """Look for garbage from now on, but not among the tests and modules, which are there to stay."""
    gc.freeze()
    gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which tests were left out and why."""
    skipped = terminalreporter.stats.get("skipped", [])
    lines = list(left_out((report.nodeid, report.longrepr[2]) for report in skipped))
    if lines:
        terminalreporter.ensure_newline()
    for line in lines:
        terminalreporter.write_line(line)


@pytest.fixture(autouse=True)
def _no_foreign_environment(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Take keys and settings of the person who runs the tests out of the environment, and give them another home."""
    for name in list(os.environ):
        if name.startswith(_FOREIGN) and name not in _OURS:
            monkeypatch.delenv(name)
    # Named but not made: few tests need one, and a folder of thousands is slow to look through.
    home = tmp_path_factory.getbasetemp() / f"home-{next(_homes)}"
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "data"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
