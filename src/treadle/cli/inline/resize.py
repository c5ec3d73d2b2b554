"""The live part after the terminal has changed its width.

Most terminals break old lines anew when they become narrower. What was drawn then takes more rows than it did, and
whoever wants to draw over it must go up by as many: too few leave a piece behind, too many eat a finished line.
"""

import os
from collections.abc import Mapping

from prompt_toolkit.application import Application
from prompt_toolkit.layout.screen import Char

_VARIABLES = (
    *("TMUX", "VTE_VERSION", "KITTY_WINDOW_ID", "WEZTERM_PANE", "WT_SESSION", "ALACRITTY_WINDOW_ID"),
    *("GHOSTTY_RESOURCES_DIR", "KONSOLE_VERSION"),
)
_PROGRAMS = frozenset({"Apple_Terminal", "iTerm.app", "WezTerm", "ghostty", "vscode"})


def rewraps(env: Mapping[str, str]) -> bool:
    """Tell whether the terminal is one that breaks old lines anew when it changes its width."""
    if env.get("STY"):  # GNU screen cuts them, whatever it runs in
        return False
    return env.get("TERM_PROGRAM") in _PROGRAMS or any(name in env for name in _VARIABLES)


def rows_of(row: Mapping[int, Char], columns: int, upto: int | None = None) -> int:
    """Return how many rows a line takes at a width; of its beginning only, with `upto`. Wide characters are not cut."""
    last = max((column for column, cell in row.items() if cell.char.strip()), default=-1)
    rows, used = 1, 0
    for column in range(last + 1 if upto is None else upto):
        width = row[column].width if column in row else 1
        if used + width > columns:
            rows, used = rows + 1, 0
        used += width
    return rows


class InlineApplication(Application[None]):
    """An application that finds the top of what it has drawn again, also in a terminal of another width."""

    drawn_columns = 0

    def find_top(self) -> bool:
        """Put the cursor where it would be had no line been broken; tell whether the width has changed."""
        columns, before = self.output.get_size().columns, self.drawn_columns
        self.drawn_columns = columns
        screen = self.renderer.last_rendered_screen
        if screen is None or not before or columns == before:
            return False
        if columns < before and rewraps(os.environ):
            cursor = screen.get_cursor_position(self.layout.current_window)
            above = sum(rows_of(screen.data_buffer[row], columns) - 1 for row in range(cursor.y))
            own = rows_of(screen.data_buffer[cursor.y], columns, cursor.x + 1) - 1
            self.output.cursor_up(above + own)
        return True

    def _on_resize(self) -> None:
        self.find_top()
        super()._on_resize()
