"""Leaves out of a script what only its readers need: comments, indents, blanks and most ends of lines.

Strings, templates and regular expressions stay as they are, but for the indents inside `html` templates, which the
pages' templates drop anyway. No name is changed and no line is moved. Pure.
"""

import re
from collections.abc import Iterator

_TOKEN = re.compile(
    r"""
    (?P<blank>(?:\s|//[^\n]*|/\*.*?\*/)+)
  | (?P<string>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
  | (?P<word>[\w$]+)
  | (?P<tick>`)
  | (?P<sign>=>|\?\.|\+\+|--|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_REGEX = re.compile(r"/(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\[\n])+/[a-z]*")
_TEXT = re.compile(r"(?:\\.|\$(?!\{)|[^`\\$])*", re.DOTALL)
"""What stands in a template until it ends or a value begins."""

_INDENT = re.compile(r"\s*\n\s*")
_EDGE = re.compile(r"(?<=>)\n(?=<|\$\{$)|(?<=^\})\n(?=<)")
"""An end of a line between two elements, or between one and a value: the templates make nothing of it."""

_BEFORE_REGEX = frozenset({"return", "typeof", "case", "in", "of", "new", "delete", "void", "throw", "else", "do"})
"""Words behind which a slash begins a regular expression; behind any other it divides."""

_CONTINUES = frozenset("{([,;:?=&|!<*%^~.") | {"=>", "?."}
"""Signs behind which no statement ends, so that the end of the line can go."""

_CONTINUES_BEFORE = frozenset(")]},;:?=&|*%^.") | {"?."}
"""Tokens that cannot begin a statement, so the previous one continues."""

_ALIKE = frozenset("+-/")


def minify(source: str) -> str:
    """Return the script with the same meaning and fewer bytes."""
    pieces: list[str] = []
    gap = ""
    for kind, text in _tokens(source):
        if kind == "blank":
            gap = "\n" if "\n" in text else " "
            continue
        if gap and pieces:
            pieces.append(_between(pieces[-1], text, gap))
        pieces.append(text)
        gap = ""
    return "".join(pieces)


def _between(before: str, after: str, gap: str) -> str:
    """Return what must stay between two tokens that had a gap between them."""
    if gap == "\n":
        return "" if before in _CONTINUES or before.endswith("${") or after in _CONTINUES_BEFORE else gap
    is_words = _is_word(before[-1]) and _is_word(after[0])
    return gap if is_words or (before[-1] == after[0] and after[0] in _ALIKE) else ""


def _is_word(char: str) -> bool:
    return char.isalnum() or char in "_$"


def _tokens(source: str) -> Iterator[tuple[str, str]]:
    """Yield what a script consists of, each with its kind; a template comes in pieces, and its values as tokens."""
    at, last = 0, ("sign", ";")
    depths: list[tuple[int, bool]] = []
    depth = 0
    while at < len(source):
        found = _TOKEN.match(source, at)
        assert found is not None
        kind, text = found.lastgroup or "", found[0]
        if text == "/" and _begins_regex(last):
            found = _REGEX.match(source, at)
            assert found is not None, f"an open regular expression at {at}"
            kind, text = "regex", found[0]
        elif kind == "tick" or (text == "}" and depths and depths[-1][0] == depth):
            is_html = depths.pop()[1] if text == "}" else last == ("word", "html")
            kind, text = "template", _template(source, at)
            if text.endswith("${"):
                depths.append((depth, is_html))
            yield kind, _EDGE.sub("", _INDENT.sub("\n", text)) if is_html else text
            at, last = at + len(text), ("sign", "(") if text.endswith("${") else (kind, "`")
            continue
        depth += {"{": 1, "}": -1}.get(text, 0)
        if kind != "blank":
            last = (kind, text)
        yield kind, text
        at += len(text)


def _template(source: str, at: int) -> str:
    """Return a template from its tick, or from the end of a value, up to its next value or its end."""
    found = _TEXT.match(source, at + 1)
    assert found is not None
    end = found.end()
    return source[at : end + (1 if source[end : end + 1] == "`" else 2)]


def _begins_regex(last: tuple[str, str]) -> bool:
    kind, text = last
    if kind == "word":
        return text in _BEFORE_REGEX
    return kind == "sign" and text not in (")", "]", "}", "++", "--")
