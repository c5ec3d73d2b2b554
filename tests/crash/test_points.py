"""The places where a process can die, killed there once: somebody else goes on, and no promise is broken.

Some of the places are tried with every change, and all of them by `make test-exhaustive`.
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from crash.parent import Worker, broken, program, quick_folder
from crash.scenes import SCENES
from postgres import postgres_server

PLACES_MIN = {"tools": 100, "mixed": 30, "limit": 30, "answer": 6, "whole": 8}
"""How many places a scene has at least: a scene that ends early would prove nothing."""
STEPS = [pytest.param(5, id="some"), pytest.param(1, id="all", marks=pytest.mark.exhaustive)]
"""Every so many places are tried. An odd number meets those before something happens and those after it."""
SAMPLE = 23
"""The same on PostgreSQL, where all places are left to `make chaos`."""

Program = subprocess.Popen[str]


@pytest.fixture(scope="module")
def process() -> Iterator[Program]:
    """One program for all scenes."""
    with program() as running:
        yield running


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("scene", SCENES)
def test_no_promise_is_broken_wherever_the_process_dies(scene: str, step: int, tmp_path: Path, process: Program):
    """SIGKILL before and after every write, effect and batch of the model; then another process goes on (SQLite)."""
    with quick_folder(tmp_path) as folder:
        crash = Worker(process, folder)
        places = crash.places(scene)
        assert len(places) >= PLACES_MIN.get(scene, 10)
        assert broken(crash, scene, places, range(1, len(places) + 1, step)) == {}


@pytest.mark.slow
@pytest.mark.parametrize("scene", ["tools", "mixed", "session"])
def test_on_postgresql_too(scene: str, tmp_path: Path, process: Program):
    """The same with a real PostgreSQL, at some of the places."""
    crash = Worker(process, tmp_path, postgres_server().url("{name}"))
    places = crash.places(scene)
    assert broken(crash, scene, places, range(2, len(places) + 1, SAMPLE)) == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    "step", [pytest.param(19, id="some"), pytest.param(7, id="more", marks=pytest.mark.exhaustive)]
)
def test_the_process_that_goes_on_may_die_too(step: int, tmp_path: Path, process: Program):
    """Killed in the scene, and again at each of some places of the recovery: a third process ends the run."""
    with quick_folder(tmp_path) as folder:
        crash = Worker(process, folder)
        places = crash.places("tools")
        for again in range(1, 60, step):
            assert broken(crash, "tools", places, range(12 + again, len(places), 45), again) == {}
