"""The progress of a slow command: one redrawn line on stderr if it is a terminal, else nothing.

A command that is done at once never shows it. It has no colour, so `NO_COLOR` has nothing to change.
"""

import os
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TextIO

WAIT_S = 0.5
"""How long a command may run before its progress is shown."""
EVERY_S = 0.1
_WIDTH = 24
_WHEEL = "-\\|/"


class Progress:
    """Shows progress. `update(done, total)` is the callback for long-running functions; a total of 0 means unknown."""

    def __init__(self, what: str, out: TextIO, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._what = what
        self._out = out
        self._clock = clock
        self._is_drawn = out.isatty() and os.environ.get("TERM", "") not in ("dumb", "")
        self._began = clock()
        self._next = self._began + WAIT_S
        self._turns = 0
        self._has_drawn = False

    def update(self, done: int, total: int) -> None:
        """Record progress, and draw it if it is time to."""
        now = self._clock()
        if not self._is_drawn or now < self._next:
            return
        self._next = now + EVERY_S
        self._turns += 1
        self._has_drawn = True
        self._out.write(f"\r{self._line(done, total, now - self._began)}\x1b[K")
        self._out.flush()

    def close(self) -> None:
        """Erase the line before the result is printed."""
        if self._has_drawn:
            self._out.write("\r\x1b[K")
            self._out.flush()

    def _line(self, done: int, total: int, passed_s: float) -> str:
        if total <= 0:
            return f"{self._what} {_WHEEL[self._turns % len(_WHEEL)]} {passed_s:.0f} s"
        filled = min(_WIDTH, _WIDTH * done // total)
        left_s = passed_s * (total - done) / done if done else 0.0
        left = f", about {left_s:.0f} s left" if done and done < total else ""
        return f"{self._what} [{'#' * filled}{'.' * (_WIDTH - filled)}] {100 * done // total} %{left}"


@contextmanager
def show_progress(what: str, out: TextIO | None = None) -> Generator[Callable[[int, int], None], None, None]:
    """Show the progress of a block through the callback that it gets."""
    progress = Progress(what, out or sys.stderr)
    try:
        yield progress.update
    finally:
        progress.close()
