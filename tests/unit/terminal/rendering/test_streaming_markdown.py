"""Streaming markdown: the same blocks however the text is cut, code by lines, and nothing lost."""

import re

import pytest

from treadle.terminal.rendering.streaming_markdown import BLOCK_CHARS_MAX, Block, Blocks, render, wrap
from treadle.terminal.rendering.styles import TextStyle

TEXT = """# Title

A paragraph
of two lines.

- one

  still one
- two

```python
x = 1

y = "```"
```
after

~~~
~~~
1. a

2. b
"""


def cut(text: str, size: int) -> list[Block]:
    """Feed the text in pieces and return all blocks."""
    blocks = Blocks()
    done = [block for start in range(0, len(text), size) for block in blocks.feed(text[start : start + size])]
    return [*done, *blocks.finish()]


def test_blocks_end_at_blank_lines_and_code_at_every_line() -> None:
    """Paragraphs and lists are whole, indented continuations stay with their list, code comes line by line."""
    assert cut(TEXT, 10_000) == [
        Block(kind="markdown", text="# Title"),
        Block(kind="markdown", text="A paragraph\nof two lines."),
        Block(kind="markdown", text="- one\n\n  still one\n- two"),
        Block(kind="opened", text="```python"),
        *(Block(kind="code", text=line) for line in ("x = 1", "", 'y = "```"')),
        Block(kind="closed", text="```"),
        Block(kind="markdown", text="after"),
        Block(kind="opened", text="~~~"),
        Block(kind="closed", text="~~~"),
        Block(kind="markdown", text="1. a"),
        Block(kind="markdown", text="2. b"),
    ]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 11, 23, 64])
def test_how_the_stream_is_cut_does_not_matter(size: int) -> None:
    """Any chunk size gives the same blocks."""
    assert cut(TEXT, size) == cut(TEXT, 10_000)


def test_the_open_block_is_known() -> None:
    """What may still change can be painted."""
    blocks = Blocks()
    assert blocks.feed("done\n\nop") == []
    assert blocks.feed("en") == []
    assert blocks.open_text == "done\n\nopen"
    assert blocks.feed("ed\n```\nco") == [
        Block(kind="markdown", text="done"),
        Block(kind="markdown", text="opened"),
        Block(kind="opened", text="```"),
    ]
    assert (blocks.open_text, blocks.is_code) == ("co", True)


def test_a_fence_that_never_closes_still_ends() -> None:
    """A cut stream loses nothing."""
    assert cut("```\nx", 1) == [Block(kind="opened", text="```"), Block(kind="code", text="x")]


def test_an_endless_block_is_let_go() -> None:
    """A line without end does not grow the part that is painted again and again."""
    blocks = Blocks()
    done = blocks.feed("x" * (BLOCK_CHARS_MAX + 1))
    assert done == [Block(kind="markdown", text="x" * (BLOCK_CHARS_MAX + 1))]
    assert blocks.open_text == ""


def test_markdown_is_rendered_within_the_width() -> None:
    """Marks become looks, and lines are broken at the width."""
    text = "some **bold** words that are long"
    assert render(text, 14, TextStyle(rich=True, colour=True)) == "some \x1b[1mbold\x1b[0m\nwords that are\nlong"
    assert render(text, 14, TextStyle(rich=True)) == "some bold\nwords that are\nlong"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("short", ["short"]),
        ("  set in and too long", ["  set in and", "  too long"]),
        ("unbreakable" * 2, ["unbreakableunb", "reakable"]),
        ("天地玄黄宇宙洪荒", ["天地玄黄宇宙洪", "荒"]),
        ("", [""]),
    ],
)
def test_lines_are_broken_between_words(text: str, lines: list[str]) -> None:
    """By columns, not characters; a word longer than the line is broken where it must be."""
    assert wrap(text, 14) == lines


def test_tags_stay_visible() -> None:
    """Markup that is no markdown is shown, not swallowed: it may be a stray tool call."""
    shown = render("<tool_call>{}</tool_call>\n<div>x</div>", 80, TextStyle(rich=True))
    assert "<tool_call>{}</tool_call>" in shown
    assert "<div>x</div>" in shown


def test_links_show_where_they_lead() -> None:
    """No link hides its address behind a text."""
    shown = render("[bank](http://evil.example/x)", 80, TextStyle(rich=True))
    assert "http://evil.example/x" in shown
    assert "\x1b]8" not in shown


def test_nothing_ends_in_blanks() -> None:
    """Painted blanks would be copied along, and become lines of their own in a narrower window."""
    text = "> quote\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n# Head"
    for line in render(text, 40, TextStyle(rich=True, colour=True)).split("\n"):
        assert re.sub(r"\x1b\[[0-9;]*m", "", line) == re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip()
        assert not line or "\x1b[" not in line or line.endswith("\x1b[0m")


def test_code_in_a_list_looks_like_code() -> None:
    """Set in and painted, without a box around it."""
    text = "1. first\n\n    ```python\n    x = 1\n    ```\n\n2. second"
    assert render(text, 40, TextStyle(rich=True)).split("\n") == [" 1 first", "     x = 1", " 2 second"]
    assert "\x1b[33m1\x1b[0m" in render(text, 40, TextStyle(rich=True, colour=True))


@pytest.mark.parametrize(("theme", "style"), [("dark", "36"), ("light", "34"), ("contrast", "1;96"), ("none", "")])
def test_a_theme_is_for_markdown_too(theme: str, style: str) -> None:
    """No black boxes on white paper, and no colour at all where none is wanted."""
    shown = render("`code`", 40, TextStyle(rich=True, colour=True, theme=theme))
    assert shown == (f"\x1b[{style}mcode\x1b[0m" if style else "code")


def test_a_fence_of_tildes_may_name_backticks() -> None:
    """One of backticks may not: that is code in a line."""
    assert [block.kind for block in cut("~~~ a`b\nx\n~~~\n", 100)] == ["opened", "code", "closed"]
    assert [block.kind for block in cut("``` a`b\n", 100)] == ["markdown"]
