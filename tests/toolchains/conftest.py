"""A clean folder with a command line of its own, and the compilers."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from clients.cache import NotInstalled
from toolchains import compilers

STEP_S = 600
Treadle = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def python_tools() -> Path:
    """Return the folder of the compilers that pip brings, installing them once."""
    try:
        return compilers.install_python()
    except NotInstalled as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def node_tools() -> Path:
    """Return the folder of the compilers that npm brings, installing them once."""
    try:
        return compilers.install_node()
    except NotInstalled as reason:
        pytest.skip(str(reason))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Make a clean folder."""
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


@pytest.fixture
def treadle(home: Path, python_tools: Path, node_tools: Path) -> Treadle:
    """Return a function that runs the command line in the clean folder, and fails where it does."""
    env = compilers.environment(home, python_tools / "bin", node_tools)

    def run(*arguments: str, code: int = 0) -> "subprocess.CompletedProcess[str]":
        done = subprocess.run(
            [sys.executable, "-m", "treadle.cli.main", *arguments],
            cwd=home,
            env={**env, "PYTHONPATH": str(python_tools)},
            capture_output=True,
            text=True,
            timeout=STEP_S,
            check=False,
        )
        assert done.returncode == code, f"{arguments}: {done.stdout}{done.stderr}"
        return done

    return run
