"""The terminal as prompt_toolkit writes to it, with two things it lacks: whole frames, and lines above the editor."""

from collections import deque
from collections.abc import Generator
from contextlib import contextmanager
from typing import TextIO

from prompt_toolkit.data_structures import Size
from prompt_toolkit.output.color_depth import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output

from treadle.cli.terminal.surface import terminal_size

SYNC_BEGIN, SYNC_END = "\x1b[?2026h", "\x1b[?2026l"
"""Synchronized output (DEC 2026): terminals that know it show a frame at once, others ignore it."""

KEPT_LINES = 200


class FrameOutput(Vt100_Output):
    """Holds what is written back until the frame is whole. It never asks where the cursor is."""

    def __init__(self, out: TextIO, *, term: str, has_colour: bool) -> None:
        depth = ColorDepth.DEPTH_4_BIT if has_colour else ColorDepth.DEPTH_1_BIT
        super().__init__(out, lambda: _size(out), term=term, default_color_depth=depth, enable_cpr=False)
        self._is_held = False
        self.kept: deque[str] = deque(maxlen=KEPT_LINES)

    @contextmanager
    def frame(self) -> Generator[None]:
        """Write everything inside as one frame."""
        self.begin()
        try:
            yield
        finally:
            self.end()

    def begin(self) -> None:
        """Begin a frame."""
        if not self._is_held:
            self._is_held = True
            self.write_raw(SYNC_BEGIN)

    def end(self) -> None:
        """End the frame and show it."""
        if self._is_held:
            self._is_held = False
            self.write_raw(SYNC_END)
        self.flush()

    def flush(self) -> None:
        """Show what was written, unless a frame is open."""
        if not self._is_held:
            super().flush()

    def commit(self, text: str) -> None:
        """Write lines that stay; the cursor must stand where they belong."""
        self.write_raw(text.replace("\n", "\r\n"))
        self.kept.extend(text.removesuffix("\n").split("\n"))


def _size(out: TextIO) -> Size:
    columns, rows = terminal_size(out)
    return Size(rows=rows, columns=columns)
