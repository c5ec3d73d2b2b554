"""Blocks as lines: never wider than they may be, nothing lost, every kind as a person expects it."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.terminal.rendering.column_width import columns
from treadle.terminal.rendering.streaming_markdown import render
from treadle.terminal.rendering.styles import TextStyle

PLAIN = TextStyle(rich=True)
COLOURED = TextStyle(rich=True, colour=True)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("- one\n- two\n  - three that is long", [" • one", " • two", "    • three that", "      is long"]),
        ("9. a\n10. b", ["  9 a", " 10 b"]),
        ("> said\n>\n> - so", ["▌ said", "▌  • so"]),
        ("a\n\n---\n\nb", ["a", "", "─" * 18, "", "b"]),
        ("- a\n\n  b", [" • a", "", "   b"]),
        ("    code that is too long", ["  code that is too", "   long"]),
        ("| a | b |\n|--|-:|\n| 1 | 22 |", [" a   b", " ─────", " 1  22"]),
        (
            "| a | b |\n|--|--|\n| one two three | four five |",
            [" a        b", " ────────────────", " one two  four", " three    five"],
        ),
        (
            "|a|b|c|d|e|f|g|h|\n|-|-|-|-|-|-|-|-|\n|1|2|3|4|5|6|7|8|",
            ["a | b | c | d | e", "| f | g | h", "1 | 2 | 3 | 4 | 5", "| 6 | 7 | 8"],
        ),
        ("| 天 | b |\n|--|--|\n| 1 | 2 |", [" 天  b", " ─────", " 1   2"]),
        ("a  \nb", ["a", "b"]),
        ("", [""]),
    ],
)
def test_each_block_is_drawn(text: str, lines: list[str]) -> None:
    """Set in below its mark, and broken between words."""
    assert render(text, 18, PLAIN).split("\n") == lines


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("# T", "\x1b[1;4mT\x1b[0m"),
        ("## *T*", "\x1b[1;35;3mT\x1b[0m"),
        ("> a `b`", "\x1b[35m▌ a \x1b[0m\x1b[35;36mb\x1b[0m"),
        ("a **b c**", "a \x1b[1mb c\x1b[0m"),
        ("1. x", "\x1b[36m 1 \x1b[0mx"),
    ],
)
def test_marks_become_styles(text: str, shown: str) -> None:
    """Those inside others have both."""
    assert render(text, 40, COLOURED) == shown


_MARKED = st.text(alphabet="ab天é🙂 |:-#>*+1.)`~[]()_\n", max_size=120)


@given(_MARKED, st.integers(min_value=12, max_value=60))
def test_no_line_is_wider_than_it_may_be(text: str, width: int) -> None:
    """Also where it is nested, in tables, and with characters of two columns."""
    for look in (PLAIN, COLOURED):
        for line in render(text, width, look).split("\n"):
            bare = re.sub(r"\x1b\[[0-9;]*m", "", line)
            assert columns(bare) <= width
            assert bare == bare.rstrip(" ")


@given(_MARKED, st.integers(min_value=12, max_value=60))
def test_every_letter_is_shown(text: str, width: int) -> None:
    """In whatever block or mark it stands; only the language of a fence and of an address are not."""
    text = re.sub(r"[`~()\[\]]", "", text)
    shown = sorted(each for each in render(text, width, PLAIN) if each in "ab天é🙂")
    assert shown == sorted(each for each in text if each in "ab天é🙂")


@pytest.mark.parametrize("width", [1, 2, 3, 5])
def test_a_window_of_no_width_is_survived(width: int) -> None:
    """Somebody may drag it that far."""
    assert render("> - **天地** `x` word\n\n| a | b |\n|--|--|\n| 1 | 2 |\n\n# Head\n\n    code", width, COLOURED)
