"""Display width of text, line breaking, and conversion of styled text to ANSI codes. Pure."""

import re
from collections.abc import Iterable, Sequence

Span = tuple[str, str]
"""A style, as the parameters of SGR, and a piece of text in it."""
Line = list[Span]

_PARTS = re.compile(r" +|[^ ]+")


def columns(text: str) -> int:
    """Return how many columns a text takes."""
    if text.isascii():
        return len(text)
    from wcwidth import wcswidth, wcwidth

    whole = wcswidth(text)
    return whole if whole >= 0 else sum(max(wcwidth(each), 0) for each in text)


def chop(text: str, width: int) -> list[str]:
    """Break a text wherever the width ends; characters that belong together stay so."""
    if text.isascii():
        return [text[start : start + width] for start in range(0, len(text), width)] or [""]
    from wcwidth import iter_graphemes

    lines, left = [""], width
    for each in iter_graphemes(text):
        taken = columns(each)
        if taken > left and lines[-1]:
            lines.append("")
            left = width
        lines[-1] += each
        left -= taken
    return lines


def fold(spans: Iterable[Span], width: int) -> list[Line]:
    """Break spans wherever the width ends, as code is."""
    lines: list[Line] = [[]]
    left = width
    for style, text in spans:
        while columns(text) > left:
            head = chop(text, left)[0] if left > 0 else ""
            if columns(head) > left:
                head = ""
            if not head and left == width:
                head = text[0]
            lines[-1].append((style, head))
            lines.append([])
            text, left = text[len(head) :], width
        lines[-1].append((style, text))
        left -= columns(text)
    return lines


def fill(spans: Sequence[Span], width: int) -> list[Line]:
    """Break spans between words; a newline in them breaks too, a word that is too long is broken where it must be."""
    lines: list[Line] = []
    for hard in _split_lines(spans):
        lines += _fill_line(hard, width)
    return lines or [[]]


def _split_lines(spans: Sequence[Span]) -> list[list[Span]]:
    lines: list[list[Span]] = [[]]
    for style, text in spans:
        first, *others = text.split("\n")
        lines[-1].append((style, first))
        lines += [[(style, other)] for other in others]
    return lines


def _fill_line(spans: Sequence[Span], width: int) -> list[Line]:
    lines: list[Line] = [[]]
    left = width
    gap: list[Span] = []
    for word in _words(spans):
        if word[0][1].startswith(" "):
            gap = word
            continue
        taken, blank = _columns_of(word), _columns_of(gap)
        if taken + blank <= left:
            lines[-1] += [*gap, *word]
            left -= taken + blank
        elif taken <= width:
            lines.append(list(word))
            left = width - taken
        else:
            pieces = fold(word, width)
            lines += pieces
            left = width - _columns_of(pieces[-1])
        gap = []
    return lines if lines[0] or len(lines) == 1 else lines[1:]


def _words(spans: Sequence[Span]) -> Iterable[list[Span]]:
    """Yield words and the blanks between them; a word may have several styles."""
    word: list[Span] = []
    for style, text in spans:
        for part in _PARTS.findall(text):
            if word and (part[0] == " ") != (word[0][1][0] == " "):
                yield word
                word = []
            word.append((style, part))
    if word:
        yield word


def _columns_of(spans: Iterable[Span]) -> int:
    return sum(columns(text) for _, text in spans)


def line_columns(line: Line) -> int:
    """Return how many columns a line takes."""
    return _columns_of(line)


def ansi_text(line: Line, *, has_colours: bool) -> str:
    """Return a line as it is written to a terminal, without blanks at its end: they would be copied along."""
    spans = [span for span in line if span[1]]
    while spans and not spans[-1][1].rstrip(" "):
        spans.pop()
    if spans:
        spans[-1] = (spans[-1][0], spans[-1][1].rstrip(" "))
    if not has_colours:
        return "".join(text for _, text in spans)
    merged: Line = []
    for style, text in spans:
        if merged and merged[-1][0] == style:
            merged[-1] = (style, merged[-1][1] + text)
        else:
            merged.append((style, text))
    return "".join(f"\x1b[{style}m{text}\x1b[0m" if style else text for style, text in merged)
