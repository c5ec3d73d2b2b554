"""Damages recorded answers of all protocols, every frame and every byte, with new seeds until the time is up.

Each damaged answer, a stream or a document, is decoded; then it goes through the engine, to its tools or to a client of
one of the protocols. `make fuzz` runs it: `python -m fuzz.damage SECONDS [SEED]`. It prints how many were tried, by
protocol and by what was looked at.
"""

import random
import sys
import time
from collections import Counter
from itertools import count

from stream.damage import Damaged, Recorded, byte_damages, frame_damages, recorded, wrong
from stream.damage_runs import CLIENTS, delivered, executed

SECONDS = 120.0
PLACES = 100
"""How many bytes of a stream are damaged before the next stream has its turn."""


GOALS = ("the engine's tools", *(f"{client} clients" for client in CLIENTS))
"""Where damaged answers go behind their decoder."""


def _run(stream: Recorded, damaged: Damaged, size: int, goal: str) -> str:
    """Say what is wrong about what becomes of a damaged answer; nothing where all is as it must be."""
    client = goal.removesuffix(" clients")
    what = delivered(stream, damaged, size, client) if client in CLIENTS else executed(stream, damaged, size)
    return what and f"{goal}: {what}"


def main() -> int:
    """Damage until the time is up; return 1 where anything was invented."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS
    first = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(1 << 30)
    until, tried, streams = time.monotonic() + seconds, Counter[str](), recorded()
    for seed in count(first):
        dice = random.Random(seed)
        for stream in streams:
            places = dice.sample(range(len(stream.body)), PLACES)
            for damaged in (*frame_damages(stream.body, dice), *byte_damages(stream.body, places, dice)):
                tried[stream.protocol] += 1
                size = dice.choice((1, 7, 64, 1 << 30))
                goal = dice.choice(GOALS)
                tried[goal] += 1
                what = wrong(stream, damaged, size) or _run(stream, damaged, size, goal)
                if what:
                    print(f"{stream.protocol} {stream.name}, seed {seed}: {damaged.kind} at {damaged.place}: {what}")
                    return 1
            if time.monotonic() > until:
                total = sum(tried[goal] for goal in GOALS)
                print(f"{total} damaged answers, nothing invented: {dict(tried)}; seeds {first} to {seed}")
                return 0
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
