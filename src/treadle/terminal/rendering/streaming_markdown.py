"""Renders Markdown while it streams: finished blocks are final, only the open one is redrawn.

`Blocks` cuts the stream and knows nothing of a screen; `render` and `wrap` make lines of it.
Text must be clean before it comes here.
"""

import re
from collections.abc import Sequence
from typing import Literal

import msgspec

from treadle.terminal.rendering import column_width as cells
from treadle.terminal.rendering.code_highlighting import HighlightedCode
from treadle.terminal.rendering.markdown_blocks import read_document
from treadle.terminal.rendering.markdown_painting import Painter
from treadle.terminal.rendering.styles import TextStyle

_FENCE = re.compile(r"^ {0,3}(`{3,}(?=[^`]*$)|~{3,})")
INLINE_CODE = {"light": "34", "contrast": "1;96"}
BLOCK_CHARS_MAX = 65_536
"""A block longer than this is let go where it stands, so that repainting it stays cheap."""


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """A finished piece: markdown to render, one line of code to print as it is, or a fence around code."""

    kind: Literal["markdown", "code", "opened", "closed"]
    text: str


class Blocks:
    """Cuts streamed markdown at blank lines outside code, and code at every line."""

    def __init__(self) -> None:
        self._line = ""
        self._lines: list[str] = []
        self._chars = 0
        self._fence = ""
        self._is_after_blank = False

    @property
    def open_text(self) -> str:
        """Return what has come but may still change: the open markdown block, or the open line of code."""
        return "\n".join([*self._lines, self._line])

    @property
    def is_code(self) -> bool:
        """Return whether the open text is inside a fence."""
        return bool(self._fence)

    def feed(self, text: str) -> list[Block]:
        """Take in more text and return the blocks it finished."""
        *complete, self._line = (self._line + text).split("\n")
        done: list[Block] = []
        for line in complete:
            done.extend(self._take(line))
        if self._chars + len(self._line) > BLOCK_CHARS_MAX:
            done.extend(self.finish())
        return done

    def finish(self) -> list[Block]:
        """Return what is left; the stream may continue after it."""
        line, self._line = self._line, ""
        return [*(self._take(line) if line else []), *self._flush()]

    def _take(self, line: str) -> list[Block]:
        mark = _FENCE.match(line)
        if self._fence:
            if mark and line.strip().startswith(self._fence) and not line.strip().strip(self._fence[0]):
                self._fence = ""
                return [Block(kind="closed", text=line)]
            return [Block(kind="code", text=line)]
        done: list[Block] = []
        if mark:
            self._fence = mark[1]
            return [*self._flush(), Block(kind="opened", text=line)]
        if self._is_after_blank and line.strip() and not line[0].isspace():
            done = self._flush()
        # A blank line ends a block only if what follows is not indented: that may be part of the same list item.
        self._is_after_blank = not line.strip()
        if line.strip() or self._lines:
            self._lines.append(line)
            self._chars += len(line) + 1
        return done

    def _flush(self) -> list[Block]:
        text = "\n".join(self._lines).strip("\n")
        self._lines, self._chars, self._is_after_blank = [], 0, False
        return [Block(kind="markdown", text=text)] if text else []


def render(text: str, width: int, text_style: TextStyle) -> str:
    """Render clean markdown to lines of at most `width` columns, without a newline at the end."""

    def code(language: str, lines: Sequence[str]) -> list[str]:
        painting = HighlightedCode(language, text_style)
        return [painting.line(line) for line in lines]

    style = INLINE_CODE.get(text_style.theme, "36")
    painter = Painter(width, code_style=style, has_colours=text_style.has_colours, code=code)
    return painter.paint(read_document(text)).strip("\n")


def warm() -> None:
    """Load what rendering needs, before the first answer has to wait for it."""
    render("*warm* ´\n\n- a list", 80, TextStyle(rich=True))


def wrap(text: str, width: int) -> list[str]:
    """Break one clean line between words; what follows is set in like its beginning."""
    if len(text) < width and text.isascii():
        return [text]
    body = text.lstrip(" ")
    indent = text[: len(text) - len(body)][: width // 2]
    lines = cells.fill([("", body)], width - len(indent))
    return [f"{indent}{cells.ansi_text(line, has_colours=False)}" for line in lines]


def chop(text: str, width: int) -> list[str]:
    """Break one clean line wherever the width ends, as a terminal does; tabs go to every eighth column."""
    return cells.chop(text.expandtabs(8), width)
