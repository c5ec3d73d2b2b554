"""Damages recorded streams of all protocols, every frame and every byte, with new seeds until the time is up.

`make fuzz` runs it: `python -m fuzz.damage SECONDS [SEED]`. It prints how many damaged streams were tried, by protocol.
"""

import random
import sys
import time
from collections import Counter
from itertools import count

from stream.damage import byte_damages, frame_damages, recorded, wrong

SECONDS = 120.0
PLACES = 100
"""How many bytes of a stream are damaged before the next stream has its turn."""


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
                what = wrong(stream, damaged, dice.choice((1, 7, 64, 1 << 30)))
                if what:
                    print(f"{stream.protocol} {stream.name}, seed {seed}: {damaged.kind} at {damaged.place}: {what}")
                    return 1
            if time.monotonic() > until:
                print(f"{tried.total()} damaged streams, nothing invented: {dict(tried)}; seeds {first} to {seed}")
                return 0
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
