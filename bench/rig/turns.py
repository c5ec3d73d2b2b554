"""Measuring in turns: every round visits everything in a random order, so that what the machine does hits all alike."""

import random
from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

from bench.rig.targets import Broken

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")


def in_turns(
    works: Mapping[K, Callable[[], R]], rounds: int, seed: int, *, may_fail: Callable[[K], bool] = lambda _: False
) -> tuple[dict[K, list[R]], list[str]]:
    """Return what every work gave in every round, and a word about each that broke and was left out.

    One more round goes before them, to warm up, and does not count.

    Raises: Broken, when it is one that may not fail.
    """
    order = random.Random(seed)
    seen: dict[K, list[R]] = {key: [] for key in works}
    words: list[str] = []
    for _ in range(rounds + 1):
        for key in order.sample(list(seen), len(seen)):
            try:
                seen[key].append(works[key]())
            except Broken as error:
                if not may_fail(key):
                    raise
                del seen[key]
                words.append(f"{_shown(key)} is left out: {str(error)[:160]}")
    return {key: found[1:] for key, found in seen.items()}, words


def _shown(key: Hashable) -> str:
    return " ".join(map(str, key)) if isinstance(key, tuple) else str(key)
