"""The examples run as they are, against a real server on the demo model."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.server_process import Served, served

EXAMPLES = Path(__file__).parents[2] / "examples"
BOUND_S = 60


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Start the demo."""
    with served(tmp_path_factory.mktemp("examples")) as running:
        yield running


def run(server: Served, *command: str) -> str:
    """Run an example and return what it prints."""
    done = subprocess.run(
        command,
        env={**os.environ, "TREADLE_URL": server.url},
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_tool_call_is_streamed_with_the_sdk(server: Served) -> None:
    """The call begins, its arguments come, its result goes back, the answer comes."""
    printed = run(server, sys.executable, str(EXAMPLES / "streaming.py"))
    assert printed.startswith("call begins: get_population\n  arguments: ")
    assert "2100000" in printed.splitlines()[-1].replace(",", "").replace(" ", "").replace("_", "")


def test_two_turns_by_curl_alone(server: Served) -> None:
    """An empty assistant message before the call is one turn with it."""
    printed = run(server, "bash", str(EXAMPLES / "multi_turn.sh"))
    assert printed.startswith('the model calls: get_population {"city":"Oslo"}\nthe model answers: ')
    assert "720000" in printed.replace(",", "").replace("_", "")


def test_the_scenarios_all_pass(server: Served) -> None:
    """Every line says PASS."""
    printed = run(server, "bash", str(EXAMPLES / "scenarios.sh"))
    assert [line.split()[0] for line in printed.splitlines()] == ["PASS"] * 8
