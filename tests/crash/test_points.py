"""Every place where a process can die, killed there once: somebody else goes on, and no promise is broken."""

from pathlib import Path

import pytest

from crash.parent import broken, quick_folder, worker
from crash.scenes import SCENES
from postgres import postgres_server

PLACES_MIN = {"tools": 100, "mixed": 30, "limit": 30}
"""How many places a scene has at least: a scene that ends early would prove nothing."""
SAMPLE = 11
"""On PostgreSQL every so many places are tried here, and all of them in `make chaos`."""


@pytest.mark.slow
@pytest.mark.parametrize("scene", SCENES)
def test_no_promise_is_broken_wherever_the_process_dies(scene: str, tmp_path: Path):
    """SIGKILL before and after every write, effect and batch of the model; then another process goes on (SQLite)."""
    with quick_folder(tmp_path) as folder, worker(folder) as crash:
        places = crash.places(scene)
        assert len(places) >= PLACES_MIN.get(scene, 10)
        assert broken(crash, scene, places, range(1, len(places) + 1)) == {}


@pytest.mark.slow
@pytest.mark.parametrize("scene", ["tools", "mixed", "session"])
def test_on_postgresql_too(scene: str, tmp_path: Path):
    """The same with a real PostgreSQL, at some of the places."""
    with worker(tmp_path, postgres_server().url("{name}")) as crash:
        places = crash.places(scene)
        assert broken(crash, scene, places, range(2, len(places) + 1, SAMPLE)) == {}


@pytest.mark.slow
def test_the_process_that_goes_on_may_die_too(tmp_path: Path):
    """Killed in the scene, and again at each of some places of the recovery: a third process ends the run."""
    with quick_folder(tmp_path) as folder, worker(folder) as crash:
        places = crash.places("tools")
        for again in range(1, 60, 7):
            assert broken(crash, "tools", places, range(12 + again, len(places), 45), again) == {}
