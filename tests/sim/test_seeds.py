"""The simulator: small worlds in which processes die and freeze.

A hundred of them with every change, hundreds in `make test-exhaustive`, thousands in `make chaos`.
"""

import logging

import pytest

from sim.world import simulate

SEEDS = 300
GROUP = 50
FIRSTS = [
    pytest.param(first, marks=() if first < 2 * GROUP else pytest.mark.exhaustive) for first in range(0, SEEDS, GROUP)
]


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """What dying processes log is of no interest."""
    caplog.set_level(logging.CRITICAL)


@pytest.mark.slow
@pytest.mark.parametrize("first", FIRSTS)
def test_no_promise_is_broken_in_any_world(first: int):
    """Every run ends and keeps every promise. A failing seed is shown; `simulate(seed)` plays it again."""
    results = [simulate(seed) for seed in range(first, first + GROUP)]
    assert {result.seed: result.problems for result in results if result.problems} == {}
    assert sum(result.runs for result in results) > GROUP
    assert sum(result.takeovers for result in results) > 1


def test_the_same_seed_is_the_same_world():
    """Nothing but the seed decides what happens: the journals of two plays have the same hashes."""
    seeds = range(10)
    first = [simulate(seed) for seed in seeds]
    assert [simulate(seed) for seed in seeds] == first
    assert len({result.trace for result in first}) > len(seeds) // 2
