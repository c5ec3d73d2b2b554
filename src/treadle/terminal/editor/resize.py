"""Redraws the live part after the terminal's width has changed.

Most terminals break old lines anew when they become narrower. What was drawn then takes more rows than it did, and
drawing over it must go up by as many: too few leave a piece behind, too many overwrite a finished line.
tmux also breaks the blanks where a longer line stood before (3.3a): a line is as long there as it ever was.
"""

import os
from collections.abc import Mapping
from types import MappingProxyType

from prompt_toolkit.application import Application
from prompt_toolkit.layout.screen import Char

_VARIABLES = (
    *("TMUX", "VTE_VERSION", "KITTY_WINDOW_ID", "WEZTERM_PANE", "WT_SESSION", "ALACRITTY_WINDOW_ID"),
    *("GHOSTTY_RESOURCES_DIR", "KONSOLE_VERSION"),
)
_PROGRAMS = frozenset({"Apple_Terminal", "iTerm.app", "WezTerm", "ghostty", "vscode"})


def rewraps(env: Mapping[str, str]) -> bool:
    """Return whether the terminal is one that breaks old lines anew when it changes its width."""
    if env.get("STY"):  # GNU screen cuts them, whatever it runs in
        return False
    return env.get("TERM_PROGRAM") in _PROGRAMS or any(name in env for name in _VARIABLES)


def wraps_blanks(env: Mapping[str, str]) -> bool:
    """Return whether the terminal is one where a line that has become shorter is broken as if it had not."""
    return "TMUX" in env and rewraps(env)


def length_of(row: Mapping[int, Char]) -> int:
    """Return how many columns of a line are written."""
    return max((column for column, cell in row.items() if cell.char.strip()), default=-1) + 1


def rows_of(row: Mapping[int, Char], columns: int, upto: int | None = None) -> int:
    """Return how many rows a line takes at a width; its first columns, with `upto`. Wide characters are not cut."""
    rows, used = 1, 0
    for column in range(length_of(row) if upto is None else upto):
        width = row[column].width if column in row else 1
        if used + width > columns:
            rows, used = rows + 1, 0
        used += width
    return rows


class InlineApplication(Application[None]):
    """An application that finds the top of its drawn part after the terminal's width has changed."""

    drawn_columns = 0
    lengths: Mapping[int, int] = MappingProxyType({})
    """How long each row has been since the live part was last erased, where the terminal goes by that."""

    def measure(self) -> None:
        """Record the lengths of the rows that were just drawn."""
        screen = self.renderer.last_rendered_screen
        if screen is not None and wraps_blanks(os.environ):
            rows, before = screen.data_buffer, self.lengths
            self.lengths = {row: max(length_of(rows[row]), before.get(row, 0)) for row in range(screen.height)}

    def find_top(self) -> bool:
        """Move the cursor to where it would be without rewrapped lines; return whether the width has changed."""
        columns, before = self.output.get_size().columns, self.drawn_columns
        self.drawn_columns = columns
        screen = self.renderer.last_rendered_screen
        if screen is None or not before or columns == before:
            return False
        if columns < before and rewraps(os.environ):
            cursor = screen.get_cursor_position(self.layout.current_window)
            above = sum(rows_of(screen.data_buffer[row], columns, self.lengths.get(row)) - 1 for row in range(cursor.y))
            own = rows_of(screen.data_buffer[cursor.y], columns, cursor.x + 1) - 1
            self.output.cursor_up(above + own)
        return True

    def _on_resize(self) -> None:
        self.find_top()
        super()._on_resize()
