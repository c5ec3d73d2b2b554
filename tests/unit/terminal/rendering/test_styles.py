"""What a terminal can do is found out from itself and the environment."""

import io

import pytest

from treadle.terminal.rendering.styles import THEMES, TextStyle, detect_style


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """Say yes."""
        return True


@pytest.mark.parametrize(
    ("out", "env", "look"),
    [
        (Terminal(), {"TERM": "xterm-256color"}, TextStyle(rich=True, colour=True)),
        (Terminal(), {"TERM": "xterm", "NO_COLOR": "1"}, TextStyle(rich=True, colour=False)),
        (Terminal(), {"TERM": "xterm", "NO_COLOR": ""}, TextStyle(rich=True, colour=True)),
        (Terminal(), {"TERM": "dumb"}, TextStyle()),
        (Terminal(), {}, TextStyle()),
        (io.StringIO(), {"TERM": "xterm"}, TextStyle()),
    ],
)
def test_the_look_fits_the_terminal(out: io.StringIO, env: dict[str, str], look: TextStyle) -> None:
    """NO_COLOR, TERM=dumb and pipes are honoured."""
    assert detect_style(out, env) == look


def test_plain_wins_and_every_theme_has_every_style() -> None:
    """A screen reader's terminal is a terminal all the same."""
    assert detect_style(Terminal(), {"TERM": "xterm"}, is_plain=True) == TextStyle()
    assert {frozenset(theme) for theme in THEMES.values()} == {frozenset(THEMES["dark"])}
    assert TextStyle(colour=True, theme="none").style("error", "x") == "x"


def test_styles_need_colour() -> None:
    """Without colour, and for plain or empty text, nothing is added."""
    assert TextStyle(colour=True).style("dim", "x") == "\x1b[2mx\x1b[0m"
    assert [
        TextStyle().style("dim", "x"),
        TextStyle(colour=True).style("plain", "x"),
        TextStyle(colour=True).style("dim", ""),
    ] == [*("x", "x", "")]
