"""Parses Markdown into blocks: headings, paragraphs, lists, quotes, tables, code. Pure, and linear in the text.

What nests deeper than a screen can show is a paragraph.
"""

import re
from collections.abc import Sequence
from typing import Literal

import msgspec

DEPTH_MAX = 10
COLUMNS_MAX = 64
Align = Literal["left", "centre", "right"]

_HEADING = re.compile(r" {0,3}(#{1,6})(?:[ ]+(.*?))??(?:[ ]+#+)?[ ]*$")
_UNDERLINE = re.compile(r" {0,3}(=+|-+) *$")
_RULE = re.compile(r" {0,3}([-*_])(?: *\1){2,} *$")
_FENCE = re.compile(r"( {0,3})(`{3,}(?=[^`]*$)|~{3,})(.*)$")
_QUOTE = re.compile(r" {0,3}> ?")
_ITEM = re.compile(r"( {0,3})([-+*]|[0-9]{1,9}[.)])( +|$)")
_DASHES = re.compile(r" {0,3}\|? *:?-+:? *(?:\| *:?-+:? *)*\|? *$")
_CELL_END = re.compile(r"(?<!\\)\|")


class Heading(msgspec.Struct, frozen=True):
    """A heading."""

    level: int
    text: str


class Paragraph(msgspec.Struct, frozen=True):
    """Text."""

    text: str


class HorizontalRule(msgspec.Struct, frozen=True):
    """A thematic break."""


class CodeBlock(msgspec.Struct, frozen=True):
    """Code, as it is."""

    language: str
    lines: tuple[str, ...]


class Quote(msgspec.Struct, frozen=True):
    """The blocks of a quote."""

    blocks: "tuple[Block, ...]"


class List(msgspec.Struct, frozen=True):
    """Items, each of blocks; `start` is the first number, none where there are bullets."""

    items: "tuple[tuple[Block, ...], ...]"
    start: int | None


class Table(msgspec.Struct, frozen=True):
    """Rows of cells; the first row is the head."""

    rows: tuple[tuple[str, ...], ...]
    aligns: tuple[Align, ...]


Block = Heading | Paragraph | HorizontalRule | CodeBlock | Quote | List | Table


def read_document(text: str) -> tuple[Block, ...]:
    """Read Markdown."""
    return _read([line.expandtabs(4) for line in text.split("\n")], 0)


def _read(lines: Sequence[str], depth: int) -> tuple[Block, ...]:
    blocks: list[Block] = []
    place = 0
    while place < len(lines):
        if not lines[place].strip():
            place += 1
            continue
        block, place = _read_block(lines, place, depth)
        blocks.append(block)
    return tuple(blocks)


def _read_block(lines: Sequence[str], place: int, depth: int) -> tuple[Block, int]:
    """Parse the block that starts at a line; return it and the line after it."""
    line = lines[place]
    if line.startswith("    "):
        return _indented(lines, place)
    if found := _FENCE.match(line):
        return _fenced(lines, place, found)
    if found := _HEADING.match(line):
        return Heading(len(found[1]), found[2] or ""), place + 1
    if _RULE.match(line):
        return HorizontalRule(), place + 1
    if depth < DEPTH_MAX and _QUOTE.match(line):
        return _quote(lines, place, depth)
    if depth < DEPTH_MAX and (found := _ITEM.match(line)):
        return _list(lines, place, depth, found)
    if table := _table(lines, place):
        return table
    return _paragraph(lines, place)


def _indented(lines: Sequence[str], place: int) -> tuple[Block, int]:
    end = place
    while end < len(lines) and (lines[end].startswith("    ") or not lines[end].strip()):
        end += 1
    taken = [line[4:] for line in lines[place:end]]
    while taken and not taken[-1].strip():
        taken.pop()
    return CodeBlock("", tuple(taken)), end


def _fenced(lines: Sequence[str], place: int, found: "re.Match[str]") -> tuple[Block, int]:
    inset, fence = len(found[1]), found[2]
    end = place + 1
    while end < len(lines):
        line = lines[end].strip()
        if line.startswith(fence) and not line.strip(fence[0]):
            break
        end += 1
    words = found[3].split()
    taken = tuple(line[min(inset, len(line) - len(line.lstrip(" "))) :] for line in lines[place + 1 : end])
    return CodeBlock(words[0].lower() if words else "", taken), end + 1


def _quote(lines: Sequence[str], place: int, depth: int) -> tuple[Block, int]:
    taken: list[str] = []
    while place < len(lines):
        found = _QUOTE.match(lines[place])
        if found:
            taken.append(lines[place][found.end() :])
        elif taken and taken[-1].strip() and _continues_paragraph(lines[place]):
            taken.append(lines[place])
        else:
            break
        place += 1
    return Quote(_read(taken, depth + 1)), place


def _list(lines: Sequence[str], place: int, depth: int, first: "re.Match[str]") -> tuple[Block, int]:
    """Read the items of a list: all that begin with the same kind of mark."""
    items: list[tuple[Block, ...]] = []
    kind = first[2][-1]
    while place < len(lines):
        found = _ITEM.match(lines[place])
        if found is None or found[2][-1] != kind or _RULE.match(lines[place]):
            break
        taken, place = _item(lines, place, found)
        items.append(_read(taken, depth + 1))
    return List(tuple(items), int(first[2][:-1]) if first[2][:-1] else None), place


def _item(lines: Sequence[str], place: int, found: "re.Match[str]") -> tuple[list[str], int]:
    """Return the lines of an item without what sets them in, and where the next thing begins."""
    blanks = len(found[3])
    inset = len(found[1]) + len(found[2]) + (blanks if 1 <= blanks <= 4 else 1)
    taken = [lines[place][inset:]]
    place += 1
    while place < len(lines):
        line = lines[place]
        if not line.strip():
            taken.append("")
        elif line[:inset].isspace() or (taken[-1].strip() and _continues_paragraph(line) and not _ITEM.match(line)):
            taken.append(line[inset:] if line[:inset].isspace() else line.lstrip(" "))
        else:
            break
        place += 1
    return taken, place


def _table(lines: Sequence[str], place: int) -> tuple[Block, int] | None:
    if place + 1 >= len(lines) or "|" not in lines[place] + lines[place + 1] or not _DASHES.match(lines[place + 1]):
        return None
    head, dashes = _cells(lines[place]), _cells(lines[place + 1])
    if len(head) != len(dashes) or len(head) > COLUMNS_MAX:
        return None
    rows = [head]
    place += 2
    while place < len(lines) and lines[place].strip() and _continues_paragraph(lines[place]):
        row = _cells(lines[place])
        # What is too much for the head stays in the last cell.
        kept, more = row[: len(head) - 1], row[len(head) - 1 :]
        rows.append([*kept, *[""] * (len(head) - 1 - len(kept)), " | ".join(more)])
        place += 1
    return Table(tuple(tuple(row) for row in rows), tuple(_align(each) for each in dashes)), place


def _cells(line: str) -> list[str]:
    text = line.strip()
    text = text.removeprefix("|")
    if text.endswith("|") and not text.endswith("\\|"):
        text = text[:-1]
    return [cell.strip().replace("\\|", "|") for cell in _CELL_END.split(text)]


def _align(dashes: str) -> Align:
    match dashes.startswith(":"), dashes.endswith(":"):
        case True, True:
            return "centre"
        case False, True:
            return "right"
        case _:
            return "left"


def _paragraph(lines: Sequence[str], place: int) -> tuple[Block, int]:
    taken = [lines[place].lstrip(" ")]
    place += 1
    while place < len(lines) and lines[place].strip():
        if found := _UNDERLINE.match(lines[place]):
            return Heading(1 if found[1][0] == "=" else 2, "\n".join(taken)), place + 1
        if not _continues_paragraph(lines[place]):
            break
        taken.append(lines[place].lstrip(" "))
        place += 1
    return Paragraph("\n".join(taken)), place


def _continues_paragraph(line: str) -> bool:
    """Return whether a line can belong to the paragraph above it: it begins nothing else."""
    if not line.strip() or _FENCE.match(line) or _HEADING.match(line) or _RULE.match(line) or _QUOTE.match(line):
        return False
    item = _ITEM.match(line)
    # Only a list that starts with 1 may interrupt a paragraph, and only one whose first item is not empty.
    return item is None or not item[3] or (item[2][0].isdigit() and item[2][:-1] != "1")
