"""The long versions of what the default suite proves in short: every point on PostgreSQL, and thousands of worlds."""

import logging
from pathlib import Path

import pytest

from crash.parent import broken, quick_folder, worker
from crash.scenes import SCENES
from postgres import postgres_server
from sim.world import simulate

FIRST_SEED, SEEDS, GROUP = 10_000, 5_000, 500


@pytest.mark.parametrize("scene", SCENES)
def test_every_point_on_postgresql(scene: str, tmp_path: Path):
    """SIGKILL at every point with a real PostgreSQL."""
    with worker(tmp_path, postgres_server().url("{name}")) as crash:
        places = crash.places(scene)
        assert broken(crash, scene, places, range(1, len(places) + 1)) == {}


@pytest.mark.parametrize("again", range(1, 100, 6))
def test_dying_twice(again: int, tmp_path: Path):
    """Killed in the scene and again in the recovery."""
    with quick_folder(tmp_path) as folder, worker(folder) as crash:
        places = crash.places("tools")
        assert broken(crash, "tools", places, range(1, len(places) + 1, 5), again) == {}


@pytest.mark.parametrize("first", range(FIRST_SEED, FIRST_SEED + SEEDS, GROUP))
def test_thousands_of_worlds(first: int, caplog: pytest.LogCaptureFixture):
    """No promise is broken. A failing seed is shown; `simulate(seed)` plays it again."""
    caplog.set_level(logging.CRITICAL)
    results = [simulate(seed) for seed in range(first, first + GROUP)]
    assert {result.seed: result.problems for result in results if result.problems} == {}
