"""Patterns of paths, matched name by name while a directory is walked.

`*`, `?` and `[…]` stay within a name, `**` crosses names, `{a,b}` are alternatives. Matching never backtracks:
within a name each star is atomic, across names a set of positions moves on. Pure.
"""

import re
from collections.abc import Sequence
from functools import lru_cache

import msgspec

ALTERNATIVES_MAX = 64
SEGMENTS_MAX = 64
DEEP = "**"

_CLASSES = {
    "alnum": "a-zA-Z0-9",
    "alpha": "a-zA-Z",
    "digit": "0-9",
    "lower": "a-z",
    "punct": r"!-/:-@\[-`{-~",
    "space": r"\s",
    "upper": "A-Z",
    "xdigit": "0-9a-fA-F",
}
_BRACKET = re.compile(r"\[([!^]?)((?:\]|\[:\w+:\]|\\.|[^\]\\])(?:\[:\w+:\]|\\.|[^\]\\])*)\]", re.DOTALL)
_MEMBER = re.compile(r"\[:(\w+):\]|\\(.)|(.)", re.DOTALL)

States = frozenset[tuple[int, int]]


class BadPattern(ValueError):
    """The pattern cannot be one; the message says why."""


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """What one name must look like; `regex` is None for `**`. `is_dotted` when it asks for a leading dot itself."""

    regex: re.Pattern[str] | None
    is_dotted: bool = False


class Pattern:
    """One pattern as a machine: `start`, then `step` by each name of a path, then `accepts`."""

    def __init__(self, alternatives: list[list[str]], *, hidden: bool) -> None:
        self._alternatives = [[_segment(text) for text in names] for names in alternatives]
        self._hidden = hidden
        self.start: States = frozenset().union(*(self._reach(each, 0) for each in range(len(self._alternatives))))

    def step(self, states: States, name: str) -> States:
        """Return the positions after one more name; none when nothing below can match."""
        is_open = self._hidden or not name.startswith(".")
        reached: set[tuple[int, int]] = set()
        for which, at in states:
            names = self._alternatives[which]
            if at == len(names):
                continue
            segment = names[at]
            if segment.regex is None:
                if is_open:
                    reached.update(self._reach(which, at))
            elif (is_open or segment.is_dotted) and segment.regex.fullmatch(name):
                reached.update(self._reach(which, at + 1))
        return frozenset(reached)

    def accepts(self, states: States) -> bool:
        """Tell whether a path may end here."""
        return any(at == len(self._alternatives[which]) for which, at in states)

    def matches(self, names: Sequence[str]) -> bool:
        """Match a whole path."""
        states = self.start
        for name in names:
            states = self.step(states, name)
        return self.accepts(states)

    def _reach(self, which: int, at: int) -> set[tuple[int, int]]:
        """Return the position and those reached from it for free, since `**` may stand for no name at all."""
        names = self._alternatives[which]
        reached = {(which, at)}
        while at < len(names) and names[at].regex is None:
            at += 1
            reached.add((which, at))
        return reached


def glob_pattern(text: str, *, hidden: bool = False) -> Pattern:
    """Read a pattern as a model writes it.

    Raises: BadPattern.
    """
    alternatives = [_names(each) for each in expand_braces(text)]
    if any(not names for names in alternatives):
        raise BadPattern("the pattern is empty")
    if text.startswith("/") or any(".." in names for names in alternatives):
        raise BadPattern('the pattern must be relative and may not contain ".."; use the path argument')
    return Pattern(alternatives, hidden=hidden)


def path_pattern(names: list[str]) -> Pattern:
    """Make a pattern of segments that are already apart and hold no braces; it sees hidden names like others.

    Raises: BadPattern.
    """
    return Pattern([_settled(names)], hidden=True)


def expand_braces(text: str) -> list[str]:
    """Write `a{b,c}d` out as its alternatives; a brace without a comma or an end stands for itself.

    Raises: BadPattern, when there are too many.
    """
    done: list[str] = []
    pending = [text]
    while pending:
        each = pending.pop()
        found = _first_braces(each)
        if found is None:
            done.append(each)
        else:
            start, end, options = found
            pending.extend(each[:start] + option + each[end:] for option in reversed(options))
        if len(done) + len(pending) > ALTERNATIVES_MAX:
            raise BadPattern(f"the pattern has more than {ALTERNATIVES_MAX} alternatives")
    return done


@lru_cache(maxsize=1024)
def name_regex(text: str) -> re.Pattern[str]:
    """Translate the pattern of one name.

    Raises: BadPattern.
    """
    chunks, at = [""], 0
    while at < len(text):
        char = text[at]
        if char == "*":
            chunks.append("")
            at += 1
            continue
        piece, at = _piece(text, at)
        chunks[-1] += piece
    first, *rest = chunks
    middle = "".join(f"(?>.*?{chunk})" for chunk in rest[:-1] if chunk)
    end = f".*{rest[-1]}" if rest else ""
    try:
        return re.compile(first + middle + end, re.DOTALL)
    except re.error as error:
        raise BadPattern(f"the pattern {text!r} is wrong: {error}") from None


def _segment(text: str) -> Segment:
    return Segment(regex=None if text == DEEP else name_regex(text), is_dotted=text.startswith("."))


def _names(text: str) -> list[str]:
    return _settled([name for name in text.split("/") if name not in ("", ".")])


def _settled(names: list[str]) -> list[str]:
    if len(names) > SEGMENTS_MAX:
        raise BadPattern(f"the pattern has more than {SEGMENTS_MAX} parts")
    # `a/**` means what is in a, at any depth, and not a itself.
    return [*names, "*"] if names and names[-1] == DEEP else names


def _piece(text: str, at: int) -> tuple[str, int]:
    """Translate what stands at this place and is not a star."""
    char = text[at]
    if char == "?":
        return ".", at + 1
    if char == "\\":
        if at + 1 == len(text):
            raise BadPattern("the pattern ends in a backslash")
        return re.escape(text[at + 1]), at + 2
    if char == "[":
        found = _BRACKET.match(text, at)
        if found is None:
            raise BadPattern('a "[" in the pattern is never closed')
        return f"[{'^' if found[1] else ''}{_members(found[2])}]", found.end()
    return re.escape(char), at + 1


def _members(inside: str) -> str:
    tokens = [(named, escaped or plain) for named, escaped, plain in _MEMBER.findall(inside)]
    pieces: list[str] = []
    while tokens:
        named, char = tokens.pop(0)
        if named:
            if named not in _CLASSES:
                raise BadPattern(f'there is no character class "{named}"')
            pieces.append(_CLASSES[named])
        elif len(tokens) > 1 and tokens[0][1] == "-" and tokens[1][1]:
            last = tokens[1][1]
            if last < char:
                raise BadPattern(f'the range "{char}-{last}" is empty')
            pieces.append(f"{re.escape(char)}-{re.escape(last)}")
            del tokens[:2]
        else:
            pieces.append(re.escape(char))
    return "".join(pieces)


def _first_braces(text: str) -> tuple[int, int, list[str]] | None:
    """Find the first brace group with a comma at its own level: where it is and what it offers."""
    at = 0
    while (start := text.find("{", at)) >= 0:
        if start and text[start - 1] == "\\":
            at = start + 1
            continue
        group = _braces_at(text, start)
        if group is not None:
            return group
        at = start + 1
    return None


def _braces_at(text: str, start: int) -> tuple[int, int, list[str]] | None:
    depth, options, last = 0, [], start + 1
    for at in range(start, len(text)):
        char = text[at]
        if char == "{":
            depth += 1
        elif char == "," and depth == 1:
            options.append(text[last:at])
            last = at + 1
        elif char == "}":
            depth -= 1
            if depth == 0:
                return (start, at + 1, [*options, text[last:at]]) if options else None
    return None
