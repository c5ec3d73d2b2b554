"""The surface that a screen draws on: text that stays, and open lines below it that may still change."""

import contextlib
import os
import shutil
from collections.abc import Callable
from typing import Protocol, TextIO

Painter = Callable[[int, int], list[str]]
"""Makes the open lines for so many columns and rows."""


class DrawingSurface(Protocol):
    """Where a `Screen` draws."""

    def write(self, text: str) -> None:
        """Write what stays for good."""
        ...

    def paint(self, painter: Painter | None) -> None:
        """Show open lines below what stays, made anew whenever they are drawn; nothing with None."""
        ...

    def size(self) -> tuple[int, int]:
        """Return columns and rows."""
        ...


class Stream:
    """A stream that can not go back: a pipe, a dumb terminal, a screen reader. Open lines are not shown."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def write(self, text: str) -> None:
        """Write at once."""
        self._out.write(text)
        self._out.flush()

    def paint(self, painter: Painter | None) -> None:
        """Draw nothing: unfinished lines cannot be taken back here."""

    def size(self) -> tuple[int, int]:
        """Return the size of the terminal, or that of the environment."""
        return terminal_size(self._out)


def terminal_size(out: TextIO | None = None) -> tuple[int, int]:
    """Return columns and rows of the terminal behind a stream, else of the environment; never too few to draw on."""
    columns, rows = 0, 0
    with contextlib.suppress(OSError, ValueError, AttributeError):
        columns, rows = os.get_terminal_size(-1 if out is None else out.fileno())
    if not columns or not rows:
        columns, rows = shutil.get_terminal_size()
    return max(columns, 20), max(rows, 4)
