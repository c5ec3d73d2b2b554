"""What the loop programs share: a line on stdin names a model, a line on stdout says how long its run took.

Stands alone, because every program runs in the environment of its framework.
"""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable

DONE = "bench-done"


async def serve(run: Callable[[str], Awaitable[str]]) -> None:
    """Make the runs that are asked for; a wrong answer ends the program."""
    loop = asyncio.get_running_loop()
    print("ready", flush=True)
    while line := (await loop.run_in_executor(None, sys.stdin.readline)).strip():
        began = time.perf_counter()
        answer = await run(line)
        if DONE not in answer:
            sys.exit(f"{line}: answered {answer[:200]!r}")
        print(time.perf_counter() - began, flush=True)
