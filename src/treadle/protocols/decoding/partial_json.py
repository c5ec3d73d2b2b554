"""A JSON object that is still growing: which part of its text may be passed on to a reader of partial JSON.

Such readers accept any beginning of valid JSON and break on anything else, so only text that stands on the boundary
of a token is passed on. The last brace waits for the end, because what follows it may spoil the whole: an object
that is not valid stays unfinished for its reader, never complete and wrong.
"""

import re

from treadle.core.json import DEPTH_MAX

_TEXT = re.compile(r'[^"\\\x00-\x1f]+')
_SPACE = re.compile(r"[ \t\r\n]+")
_SCALAR = re.compile(r"[-+.0-9A-Za-z]*")
_VALUE = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|true|false|null")
_HEX = "[0-9a-fA-F]"
_ESCAPE = re.compile(
    rf'\\(?:["\\/bfnrt]|u(?:[0-9a-ce-fA-CE-F]{_HEX}{{3}}|[dD][0-7]{_HEX}{{2}}'
    rf"|[dD][89abAB]{_HEX}{{2}}\\u[dD][c-fC-F]{_HEX}{{2}}))"
)
_ESCAPE_BEGUN = re.compile(rf"\\(?:u{_HEX}{{0,4}}(?:\\(?:u{_HEX}{{0,3}})?)?)?")
_LONE_HALF = re.compile(rf"\\u[dD][89a-fA-F]{_HEX}{{2}}")
_MENDED = r"\ufffd"
_SCALAR_CHARS_MAX = 4_096


class PartialObject:
    """The text of one JSON object, fed in pieces, in time linear in its length."""

    __slots__ = ("_expects", "_held", "_rest", "_stack", "has_passed", "is_broken")

    def __init__(self) -> None:
        self.has_passed = False
        self.is_broken = False
        self._expects = "object"
        self._stack: list[str] = []
        self._held = ""
        self._rest = ""

    @property
    def is_closed(self) -> bool:
        """Whether the object is complete, and nothing followed that broke it."""
        return self._expects == "end" and not self.is_broken

    def feed(self, text: str) -> str:
        """Add a piece and return what can be passed on now."""
        text, position = self._rest + text, 0
        passed: list[str] = []
        while not self.is_broken and position < len(text):
            expected = self._expects
            end = self._string(text, position) if expected in _INSIDE else self._token(text, position)
            if end < 0 or self.is_broken:
                break
            piece, position = text[position:end], end
            self._take(expected, _MENDED if _LONE_HALF.fullmatch(piece) else piece, passed)
        self._rest = text[position:]
        self.has_passed = self.has_passed or bool(passed)
        return "".join(passed)

    def finish(self) -> str:
        """Return what completes the object; nothing where it is empty, an open end where it is not whole."""
        held, self._held = self._held, ""
        is_due = self.is_closed or not (self.is_broken or self.has_passed)
        return held if is_due else ""

    def _take(self, expected: str, piece: str, passed: list[str]) -> None:
        """Pass a piece on, but neither a brace that may open nothing nor the last one."""
        if self._expects in ("object", "first key"):
            self._held = self._held or piece.strip()
        elif self._expects == "end":
            self._held = self._held if expected == "end" else ("" if expected == "first key" else "}")
        else:
            passed.append(self._held + piece)
            self._held = ""

    def _string(self, text: str, position: int) -> int:
        """Return where the string, or what is whole of it, ends; -1 where an escape is not whole."""
        if text[position] == '"':
            self._expects = "colon" if self._expects == "key text" else "comma"
            return position + 1
        if plain := _TEXT.match(text, position):
            return plain.end()
        if escape := _ESCAPE.match(text, position):
            return escape.end()
        if _ESCAPE_BEGUN.fullmatch(text, position):
            return -1
        lone = _LONE_HALF.match(text, position)
        self.is_broken = lone is None
        return lone.end() if lone else -1

    def _token(self, text: str, position: int) -> int:
        """Return where the token ends; -1 where it is not whole."""
        if space := _SPACE.match(text, position):
            return space.end()
        char = text[position]
        if char == '"' and self._expects in _STRINGS:
            self._expects = _STRINGS[self._expects]
        elif char in "{[" and self._expects in _OPENED:
            self._open(char)
        elif char in "}]" and self._expects in _CLOSED[char]:
            self._close(char)
        elif (self._expects, char) in _MARKS:
            self._expects = "value" if char == ":" else ("key" if self._stack[-1] == "{" else "value")
        elif self._expects in ("value", "first value"):
            return self._scalar(text, position)
        else:
            self.is_broken = True
        return position + 1

    def _scalar(self, text: str, position: int) -> int:
        found = _SCALAR.match(text, position)
        assert found is not None
        if found.end() == len(text):
            self.is_broken = found.end() - position > _SCALAR_CHARS_MAX
            return -1
        if not _VALUE.fullmatch(text, position, found.end()):
            self.is_broken = True
        self._expects = "comma"
        return found.end()

    def _open(self, char: str) -> None:
        if (self._expects == "object" and char != "{") or len(self._stack) >= DEPTH_MAX:
            self.is_broken = True
        nested = "key or end" if self._stack else "first key"
        self._stack.append(char)
        self._expects = nested if char == "{" else "first value"

    def _close(self, char: str) -> None:
        if self._stack[-1] != ("{" if char == "}" else "["):
            self.is_broken = True
        elif len(self._stack) == 1:
            self._expects = "end"
        else:
            self._stack.pop()
            self._expects = "comma"


_INSIDE = frozenset({"key text", "value text"})
_STRINGS = {
    "first key": "key text",
    "key or end": "key text",
    "key": "key text",
    "value": "value text",
    "first value": "value text",
}
_OPENED = frozenset({"object", "value", "first value"})
_CLOSED = {
    "}": frozenset({"first key", "key or end", "comma"}),
    "]": frozenset({"first value", "comma"}),
}
_MARKS = frozenset({("colon", ":"), ("comma", ",")})
