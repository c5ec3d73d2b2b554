"""The live part in a terminal of another width."""

import pytest
from prompt_toolkit.layout.screen import Char

from treadle.terminal.editor.resize import rewraps, rows_of, wraps_blanks


def row(text: str) -> dict[int, Char]:
    """Return a line as it was drawn, with the blanks that fill it up."""
    cells: dict[int, Char] = {}
    for each in text:
        cell = Char(each)
        cells[len(cells)] = cell
        if cell.width == 2:
            cells[len(cells)] = Char("")
    return cells


@pytest.mark.parametrize(
    ("text", "columns", "rows"),
    [
        ("", 10, 1),
        ("abc", 10, 1),
        ("abcdefghij", 10, 1),
        ("abcdefghijk", 10, 2),
        ("abc" + " " * 30, 10, 1),
        ("漢字漢字漢", 10, 1),
        ("漢字漢字漢", 9, 2),
        ("漢字漢字漢", 3, 5),
        ("a" * 31, 10, 4),
    ],
)
def test_a_line_takes_as_many_rows_as_the_terminal_gives_it(text: str, columns: int, rows: int) -> None:
    """Blanks at the end are not drawn; a wide character is never cut in two."""
    assert rows_of(row(text), columns) == rows


def test_the_cursor_is_in_the_row_of_its_own_part_of_the_line() -> None:
    """What stands behind it does not count."""
    assert [rows_of(row("a" * 35), 10, upto) for upto in (1, 10, 11, 25)] == [1, 1, 2, 3]


@pytest.mark.parametrize(
    ("env", "is_so"),
    [
        ({}, False),
        ({"TMUX": "x"}, True),
        ({"TERM_PROGRAM": "iTerm.app"}, True),
        ({"TERM_PROGRAM": "other"}, False),
        ({"ALACRITTY_WINDOW_ID": "1"}, True),
        ({"TMUX": "x", "STY": "1"}, False),
    ],
)
def test_terminals_are_known_by_what_they_say_of_themselves(env: dict[str, str], is_so: bool) -> None:
    """One that is not known is taken for one that cuts lines: then nothing finished is ever eaten."""
    assert rewraps(env) is is_so


@pytest.mark.parametrize(("env", "is_so"), [({"TMUX": "x"}, True), ({"VTE_VERSION": "7"}, False), ({}, False)])
def test_only_tmux_breaks_blanks_where_a_longer_line_stood(env: dict[str, str], is_so: bool) -> None:
    """The others go by what stands there now."""
    assert wraps_blanks(env) is is_so


def test_a_line_that_was_longer_takes_the_rows_that_it_took_then() -> None:
    """Blanks count where they are asked for."""
    assert [rows_of(row("漢字"), 10, upto) for upto in (4, 10, 11, 25)] == [1, 1, 2, 3]
