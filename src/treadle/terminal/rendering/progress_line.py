"""The status line of a running turn while nothing else is written: what runs, for how long, and how to stop it.

It is there only on a screen, and gone before anything else is written.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Generator
from typing import TextIO

from treadle.core.events import (
    ApprovalDecided,
    ApprovalRequested,
    ReasoningDelta,
    RefusalDelta,
    RoundStarted,
    RunEnded,
    RunEvent,
    RunStarted,
    TextDelta,
    ToolFinished,
    ToolStarted,
)
from treadle.terminal.rendering.sanitize import clean

SILENCE_S = 0.5
"""How long nothing must have been written before the line appears."""

TICK_S = 0.25
NAME_CHARS_MAX = 40
_ERASE = "\r\x1b[2K"


class Activity:
    """The current activity of a run, in a few words."""

    def __init__(self) -> None:
        self._running: dict[str, str] = {}
        self._asked: dict[str, str] = {}
        self._progress = ""
        self._state = "waiting"

    def follow(self, event: RunEvent) -> None:
        """Update what the turn waits for."""
        match event:
            case RunStarted() | RunEnded():
                self._running.clear()
                self._asked.clear()
                self._progress, self._state = "", "waiting"
            case RoundStarted():
                self._state = "waiting"
            case TextDelta() | RefusalDelta():
                self._state = "answering"
            case ReasoningDelta():
                self._state = "thinking"
            case ToolStarted():
                self._running[event.call.call_id] = event.call.name
            case ToolFinished():
                self._running.pop(event.call.call_id, None)
                self._progress = ""
            case ApprovalRequested():
                self._asked[event.approval_id] = event.call.name
            case ApprovalDecided():
                self._asked.pop(event.approval_id, None)
            case _:
                pass

    def progress(self, text: str) -> None:
        """Set the progress text of a tool."""
        self._progress = _short(text)

    @property
    def words(self) -> str:
        """Return what the turn waits for."""
        if self._asked:
            return f"{_short(next(iter(self._asked.values())))} waits for your answer"
        names = list(self._running.values())
        if not names:
            return self._state
        text = f": {self._progress}" if self._progress else ""
        return f"{_short(names[0])} runs{text}" if len(names) == 1 else f"{len(names)} tools run{text}"


def _short(text: str) -> str:
    return clean(text).replace("\n", "⏎")[:NAME_CHARS_MAX]


class ProgressLine:
    """The line itself. Other writers to the same screen call `clear` first."""

    def __init__(self, out: TextIO, *, is_shown: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._out = out
        self._is_shown = is_shown
        self._clock = clock
        self._silent_since = clock()
        self.activity = Activity()
        self._painted = ""

    def follow(self, event: RunEvent) -> None:
        """Update what the turn waits for."""
        self.activity.follow(event)

    def tick(self) -> None:
        """Redraw the line once nothing was written for a while."""
        silent_s = self._clock() - self._silent_since
        if not self._is_shown or silent_s < SILENCE_S:
            return
        text = f"… {self.activity.words}, {silent_s:.0f} s (Ctrl-C stops)"
        if text != self._painted:
            self._out.write(f"{_ERASE}{text}")
            self._out.flush()
            self._painted = text

    def clear(self) -> None:
        """Erase the line before other output."""
        if self._painted:
            self._out.write(_ERASE)
            self._out.flush()
            self._painted = ""
        self._silent_since = self._clock()


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
