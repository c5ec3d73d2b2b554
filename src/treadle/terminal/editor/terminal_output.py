"""Output of prompt_toolkit to the terminal, with whole frames and lines above the editor added."""

import re
from collections import deque
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import TextIO

from prompt_toolkit.data_structures import Size
from prompt_toolkit.output.color_depth import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.utils import get_cwidth

from treadle.terminal.rendering.drawing_surface import terminal_size

SYNC_BEGIN, SYNC_END = "\x1b[?2026h", "\x1b[?2026l"
"""Synchronized output (DEC 2026): terminals that know it show a frame at once, others ignore it."""

KEPT_LINES = 200
_SGR = re.compile(r"\x1b\[[0-9;]*m")


class FrameOutput(Vt100_Output):
    """Buffers output until the frame is complete. It never queries the cursor position."""

    def __init__(self, out: TextIO, *, term: str, has_colour: bool) -> None:
        depth = ColorDepth.DEPTH_4_BIT if has_colour else ColorDepth.DEPTH_1_BIT
        super().__init__(out, lambda: _size(out), term=term, default_color_depth=depth, enable_cpr=False)
        self._is_held = False
        self.recent_lines: deque[str] = deque(maxlen=KEPT_LINES)

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

    def erase_down(self) -> None:
        """Erase all below; never the whole screen at once: some terminals then copy it into the scrollback."""
        self.write_raw("\x1b[K\x1b7\x1b[B\x1b[J\x1b8")

    def erase_screen(self) -> None:
        """Erase line by line, for the same reason."""
        rows = self.get_size().rows
        self.write_raw("".join(f"\x1b[{row};1H\x1b[2K" for row in range(1, rows + 1)))

    def scroll_away(self) -> None:
        """Scroll the whole screen into the scrollback."""
        rows = self.get_size().rows
        self.write_raw(f"\x1b[{rows};1H" + "\n" * rows)

    def commit(self, text: str) -> None:
        """Write lines that stay; the cursor must stand where they belong."""
        self.write_raw(text.replace("\n", "\r\n"))
        self.recent_lines.extend(text.removesuffix("\n").split("\n"))


def last_lines(lines: Iterable[str], columns: int, rows: int) -> list[str]:
    """Return the last lines that fit into so many rows, broken as the terminal breaks them."""
    found: list[str] = []
    for line in reversed(list(lines)):
        width = get_cwidth(_SGR.sub("", line).expandtabs(8))
        rows -= max(1, -(-width // columns))
        if rows < 0:
            break
        found.append(line)
    return found[::-1]


def _size(out: TextIO) -> Size:
    columns, rows = terminal_size(out)
    return Size(rows=rows, columns=columns)
