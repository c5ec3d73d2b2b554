"""Treadle broken on purpose, one promise at a time: the simulator must notice each within a few hundred worlds."""

import logging

import pytest

from sim.mutations import MUTATIONS
from sim.world import simulate

SEEDS_MAX = 500
EXPECTED = {
    "no fence": "an old owner wrote after a new one",
    "no start mark": "without a start mark",
    "blind retry": "was started",
    "sequence from memory": "the entries are numbered",
    "told before commit": "a reader saw",
    "numbers given twice": "a client that went on after a crash",
    "ahead is another": "was told that",
    "digest ignored": "and the answer is",
    "older ids forgotten": "and the answer is",
    "own clocks": "it began at",
    "entries taken back": "another program read",
}
SEEN = {
    "no fence": 121,
    "no start mark": 0,
    "blind retry": 3,
    "sequence from memory": 69,
    "told before commit": 3,
    "numbers given twice": 235,
    "ahead is another": 207,
    "digest ignored": 272,
    "older ids forgotten": 207,
    "own clocks": 0,
    "entries taken back": 1,
}
"""A world that noticed it, tried first to save time; any other will do where worlds have changed."""


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTATIONS)
def test_every_mutation_is_caught(name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
    """With the promise taken out, some world of the first few hundred breaks, and the checker says how."""
    caplog.set_level(logging.CRITICAL)
    MUTATIONS[name](monkeypatch)
    for seed in (SEEN[name], *range(SEEDS_MAX)):
        if any(EXPECTED[name] in problem for problem in simulate(seed).problems):
            return
    pytest.fail(f"{SEEDS_MAX} worlds with {name!r}, and nobody noticed")
