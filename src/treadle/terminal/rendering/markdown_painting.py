"""Renders Markdown blocks as styled lines of bounded width. Pure."""

import re
from collections.abc import Callable, Sequence
from typing import assert_never

from treadle.terminal.rendering.column_width import Line, Span, ansi_text, columns, fill, fold, line_columns
from treadle.terminal.rendering.markdown_blocks import (
    Align,
    Block,
    CodeBlock,
    Heading,
    HorizontalRule,
    List,
    Paragraph,
    Quote,
    Table,
)
from treadle.terminal.rendering.markdown_inline import read_inline

ROOM_MIN = 10
"""Where fewer columns are left, nothing is set in any more."""
CELL_MIN = 3
GAP = 2
_SGR = re.compile(r"\x1b\[([0-9;]*)m")
HEADINGS = {1: "1;4", 2: "1;35", 3: "35"}
QUOTED, BULLET, NUMBER, EDGE, HEAD = "35", "1", "36", "2", "1"

CodeLines = Callable[[str, Sequence[str]], list[str]]
"""Colours the lines of code of a language."""


class Painter:
    """Renders documents of one width as terminal text."""

    def __init__(self, width: int, *, code_style: str, has_colours: bool, code: CodeLines) -> None:
        self._width = max(width, 1)
        self._code_style = code_style
        self._has_colours = has_colours
        self._code = code

    def paint(self, blocks: Sequence[Block]) -> str:
        """Return a whole document, its blocks apart by an empty line."""
        lines = self._separated(blocks, self._width, is_tight=False)
        return "\n".join(ansi_text(line, has_colours=self._has_colours) for line in lines)

    def _separated(self, blocks: Sequence[Block], width: int, *, is_tight: bool) -> list[Line]:
        """Return blocks one below the other; in a tight place only paragraphs behind one another are stored apart."""
        lines: list[Line] = []
        last: Block | None = None
        for block in blocks:
            is_pair = isinstance(last, Paragraph) and isinstance(block, Paragraph)
            if last is not None and (not is_tight or is_pair):
                lines.append([])
            lines += self._lines(block, width)
            last = block
        return lines

    def _lines(self, block: Block, width: int) -> list[Line]:
        match block:
            case Heading():
                return _styled(fill(self._spans(block.text), width), HEADINGS.get(block.level, HEADINGS[3]))
            case Paragraph():
                return fill(self._spans(block.text), width)
            case HorizontalRule():
                return [[(EDGE, "─" * width)]]
            case CodeBlock():
                shown = self._code(block.language, block.lines)
                return _set_in([("", "  ")], [("", "  ")], width, lambda room: _folded(shown, room))
            case Quote():
                mark: Line = [(QUOTED, "▌ ")]
                inner = _set_in(mark, mark, width, lambda room: self._separated(block.blocks, room, is_tight=True))
                return _styled(inner, QUOTED)
            case List():
                return self._items(block, width)
            case Table():
                return self._table(block, width)
            case _:
                assert_never(block)

    def _spans(self, text: str) -> list[Span]:
        return read_inline(text, self._code_style)

    def _items(self, block: List, width: int) -> list[Line]:
        lines: list[Line] = []
        size = len(str((block.start or 0) + len(block.items) - 1))
        for place, item in enumerate(block.items):
            mark: Span = (BULLET, " • ") if block.start is None else (NUMBER, f" {block.start + place:>{size}} ")
            blank: Span = ("", " " * columns(mark[1]))

            def inner(room: int, item: Sequence[Block] = item) -> list[Line]:
                return self._separated(item, room, is_tight=True) or [[]]

            lines += _set_in([mark], [blank], width, inner)
        return lines

    def _table(self, block: Table, width: int) -> list[Line]:
        cells = [[self._spans(cell) for cell in row] for row in block.rows]
        wanted = [max(line_columns(row[place]) for row in cells) for place in range(len(block.aligns))]
        sizes = _fit(wanted, width - 1 - GAP * (len(wanted) - 1))
        if sizes is None:
            return [line for row in cells for line in fill(_joined(row), width)]
        lines: list[Line] = []
        for number, row in enumerate(cells):
            lines += _row(row, sizes, block.aligns, HEAD if number == 0 else "")
            if number == 0:
                lines.append([("", " "), (EDGE, "─" * (sum(sizes) + GAP * (len(sizes) - 1)))])
        return lines


def _set_in(first: Line, others: Line, width: int, inner: Callable[[int], list[Line]]) -> list[Line]:
    """Return lines behind a mark, as far as there is room for one."""
    room = width - line_columns(first)
    if room < ROOM_MIN:
        return inner(width)
    return [[*(others if number else first), *line] for number, line in enumerate(inner(room))]


def _styled(lines: list[Line], style: str) -> list[Line]:
    """Return lines in a style, what has one of its own in both."""
    return [[(f"{style};{own}" if own and own != style else style, text) for own, text in line] for line in lines]


def _folded(shown: Sequence[str], width: int) -> list[Line]:
    """Return painted lines broken wherever the width ends."""
    lines: list[Line] = []
    for line in shown:
        style, spans = "", list[Span]()
        for place, part in enumerate(_SGR.split(line)):
            if place % 2:
                style = "" if part in ("", "0") else part
            elif part:
                spans.append((style, part))
        lines += fold(spans, width)
    return lines


def _joined(row: Sequence[list[Span]]) -> list[Span]:
    joined: list[Span] = []
    for place, cell in enumerate(row):
        joined += [*([("", " | ")] if place else []), *cell]
    return joined


def _fit(wanted: Sequence[int], room: int) -> list[int] | None:
    """Return how wide columns are: as they want, or the widest narrower; nothing where there is no room at all."""
    sizes = [max(size, 1) for size in wanted]
    if sum(min(size, CELL_MIN) for size in sizes) > room:
        return None
    while (over := sum(sizes) - room) > 0:
        most = max(sizes)
        widest = [place for place, size in enumerate(sizes) if size == most]
        next_size = max((size for size in sizes if size < most), default=CELL_MIN)
        drop = min(most - max(next_size, CELL_MIN), -(-over // len(widest)))
        for place in widest:
            sizes[place] -= max(drop, 1)
    return sizes


def _row(row: Sequence[list[Span]], sizes: Sequence[int], aligns: Sequence[Align], style: str) -> list[Line]:
    filled = [fill(cell, size) for cell, size in zip(row, sizes, strict=True)]
    lines: list[Line] = []
    for number in range(max(map(len, filled))):
        line: Line = [("", " ")]
        for place, cell in enumerate(filled):
            part = cell[number] if number < len(cell) else []
            line += [("", " " * GAP)] if place else []
            line += _aligned(_styled([part], style)[0] if style else part, sizes[place], aligns[place])
        lines.append(line)
    return lines


def _aligned(part: Line, size: int, align: Align) -> Line:
    left = size - line_columns(part)
    before = {"left": 0, "right": left, "centre": left // 2}[align]
    return [("", " " * before), *part, ("", " " * (left - before))]
