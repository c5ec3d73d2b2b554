"""Glob patterns for paths, matched one name at a time while a directory is walked. Does no I/O.

`*`, `?` and `[…]` match within a name, `**` crosses names, `{a,b}` are alternatives. Matching takes linear time: within
a name each star is atomic, and across names a set of states advances as in an NFA.
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
    """The pattern is invalid; the message is the reason."""


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """The pattern of one name; `regex` is None for `**`. `is_dotted` when the pattern itself starts with a dot."""

    regex: re.Pattern[str] | None
    is_dotted: bool = False


class Pattern:
    """A pattern as an NFA: begin with `start`, call `step` for each name of a path, then `accepts`."""

    def __init__(self, alternatives: list[list[str]], *, hidden: bool) -> None:
        self._alternatives = [[_segment(text) for text in names] for names in alternatives]
        self._hidden = hidden
        self.start: States = frozenset().union(*(self._closure(each, 0) for each in range(len(self._alternatives))))

    def step(self, states: States, name: str) -> States:
        """Return the states after one more name; empty when nothing below can match."""
        is_open = self._hidden or not name.startswith(".")
        reached: set[tuple[int, int]] = set()
        for which, at in states:
            names = self._alternatives[which]
            if at == len(names):
                continue
            segment = names[at]
            if segment.regex is None:
                if is_open:
                    reached.update(self._closure(which, at))
            elif (is_open or segment.is_dotted) and segment.regex.fullmatch(name):
                reached.update(self._closure(which, at + 1))
        return frozenset(reached)

    def accepts(self, states: States) -> bool:
        """Return whether a path that ends in these states matches."""
        return any(at == len(self._alternatives[which]) for which, at in states)

    def matches(self, names: Sequence[str]) -> bool:
        """Return whether a whole path matches."""
        states = self.start
        for name in names:
            states = self.step(states, name)
        return self.accepts(states)

    def _closure(self, which: int, at: int) -> set[tuple[int, int]]:
        """Return the state and those reachable from it without a name, since `**` may match zero names."""
        names = self._alternatives[which]
        reached = {(which, at)}
        while at < len(names) and names[at].regex is None:
            at += 1
            reached.add((which, at))
        return reached


def glob_pattern(text: str, *, hidden: bool = False) -> Pattern:
    """Parse a pattern.

    Raises: BadPattern.
    """
    alternatives = [_names(each) for each in expand_braces(text)]
    if any(not names for names in alternatives):
        raise BadPattern("the pattern is empty")
    if text.startswith("/") or any(".." in names for names in alternatives):
        raise BadPattern('the pattern must be relative and may not contain ".."; use the path argument')
    return Pattern(alternatives, hidden=hidden)


def path_pattern(names: list[str]) -> Pattern:
    """Build a pattern of separate segments without braces; it matches hidden names like others.

    Raises: BadPattern.
    """
    return Pattern([_normalize_segments(names)], hidden=True)


def expand_braces(text: str) -> list[str]:
    """Expand `a{b,c}d` into its alternatives; a brace without a comma or an end is literal.

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
    """Translate the pattern of one name to a regular expression.

    Raises: BadPattern.
    """
    chunks, at = [""], 0
    while at < len(text):
        char = text[at]
        if char == "*":
            chunks.append("")
            at += 1
            continue
        piece, at = _translate_token(text, at)
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
    return _normalize_segments([name for name in text.split("/") if name not in ("", ".")])


def _normalize_segments(names: list[str]) -> list[str]:
    if len(names) > SEGMENTS_MAX:
        raise BadPattern(f"the pattern has more than {SEGMENTS_MAX} parts")
    # `a/**` matches everything below a at any depth, but not a itself.
    return [*names, "*"] if names and names[-1] == DEEP else names


def _translate_token(text: str, at: int) -> tuple[str, int]:
    """Translate the token at this position, which is not a star."""
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
        return f"[{'^' if found[1] else ''}{_translate_bracket(found[2])}]", found.end()
    return re.escape(char), at + 1


def _translate_bracket(inside: str) -> str:
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
    """Find the first brace group with a comma at its own level; return its start, end and options."""
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
