"""An event loop without time: nobody waits, the clock jumps to the next thing that is due. One thread, no surprises."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any

IDLE_MAX = 100_000


class _Jump(selectors.SelectSelector):
    """Waits for nothing: what would have been waited is added to the loop's time."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_000.0
        self._idle = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("the simulation stands still: everybody waits, and nothing is due")
        self.now += max(0.0, timeout)
        self._idle = self._idle + 1 if not timeout else 0
        if self._idle > IDLE_MAX:
            raise RuntimeError("the simulation turns without time going on")
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """Runs as any loop does, in virtual time."""

    def __init__(self) -> None:
        self._jump = _Jump()
        super().__init__(self._jump)
        # What dead processes leave unawaited is of no interest: they are dead.
        self.set_exception_handler(lambda loop, context: None)

    def time(self) -> float:
        return self._jump.now


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run a simulation to its end."""
    loop = VirtualLoop()
    try:
        loop.run_until_complete(main)
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(_settle())
        loop.close()


async def _settle() -> None:
    """Let what was cancelled end."""
    for _ in range(200):
        await asyncio.sleep(0)
