"""One line that says that work goes on, while nothing else is written: for whom, how long, and how to stop it.

It is there only on a screen, and gone before anything else is written.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Generator
from typing import TextIO

from treadle.canon.events import RunEvent, ToolFinished, ToolStarted
from treadle.cli.terminal.clean import clean

SILENCE_S = 0.5
"""How long nothing must have been written before the line appears."""

TICK_S = 0.25
NAME_CHARS_MAX = 30
_ERASE = "\r\x1b[2K"


class Waiting:
    """The line itself. Whoever writes to the same screen calls `clear` first."""

    def __init__(self, out: TextIO, *, is_shown: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._out = out
        self._is_shown = is_shown
        self._clock = clock
        self._silent_since = clock()
        self._running: dict[str, str] = {}
        self._painted = ""

    def follow(self, event: RunEvent) -> None:
        """Learn from an event what is waited for."""
        match event:
            case ToolStarted():
                self._running[event.call.call_id] = event.call.name
            case ToolFinished():
                self._running.pop(event.call.call_id, None)
            case _:
                pass

    def tick(self) -> None:
        """Say how long the silence lasts, once it lasts."""
        silent_s = self._clock() - self._silent_since
        if not self._is_shown or silent_s < SILENCE_S:
            return
        text = f"… {self._awaited()}, {silent_s:.0f} s (Ctrl-C stops)"
        if text != self._painted:
            self._out.write(f"{_ERASE}{text}")
            self._out.flush()
            self._painted = text

    def clear(self) -> None:
        """Take the line away: something is about to be written."""
        if self._painted:
            self._out.write(_ERASE)
            self._out.flush()
            self._painted = ""
        self._silent_since = self._clock()

    def _awaited(self) -> str:
        names = list(self._running.values())
        if not names:
            return "waiting"
        name = clean(names[0]).replace("\n", "⏎")[:NAME_CHARS_MAX]
        return f"{name} runs" if len(names) == 1 else f"{len(names)} tools run"


@contextlib.contextmanager
def ticking(tick: Callable[[], None]) -> Generator[None]:
    """Call `tick` again and again on the running loop."""
    loop = asyncio.get_running_loop()

    def again() -> None:
        nonlocal timer
        tick()
        timer = loop.call_later(TICK_S, again)

    timer = loop.call_later(TICK_S, again)
    try:
        yield
    finally:
        timer.cancel()
