"""Calls as Python writes them, read without Python: names, keyword arguments, literals. Nothing is evaluated."""

import re
from typing import Any

import msgspec

from treadle.core.json import DEPTH_MAX
from treadle.protocols.text_calls.json_repair import RepairRefused, joined

_SPACE = re.compile(r"\s*")
_NAME = re.compile(r"[^\W\d][\w.:-]*")
_KEYWORD = re.compile(r"[^\W\d][\w-]*")
_NUMBER = re.compile(r"[+-]?(?:0[xX][0-9a-fA-F]+|(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)")
_PREFIX = re.compile(r"[rRbBuUfF]{0,2}(?=['\"])")
_WORDS = {"True": True, "False": False, "None": None, "true": True, "false": False, "null": None}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v", "0": "\0"}
_ITSELF = "\\'\""
_CODES = {"x": 2, "u": 4, "U": 8}
_CLOSES = {"[": "]", "(": ")"}


class PythonCall(msgspec.Struct, frozen=True, kw_only=True):
    """A name and its keyword arguments."""

    name: str
    arguments: dict[str, Any]


class PythonReader:
    """Reads calls from a text, once through.

    Raises: Refused, from every method.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def calls(self) -> list[PythonCall]:
        """Return the calls of a bracketed list, which is all of the text."""
        self._take("[")
        found: list[PythonCall] = []
        while self._peek() != "]":
            found.append(self.call())
            if self._peek() == ",":
                self._at += 1
            elif self._peek() != "]":
                raise RepairRefused("a comma is missing")
        self._at += 1
        self._end()
        return found

    def one(self) -> PythonCall:
        """Return the one call that is all of the text, also in a `print(…)`."""
        if self._text.lstrip().startswith("print("):
            self._take("print(")
            call = self.call()
            self._take(")")
        else:
            call = self.call()
        self._end()
        return call

    def call(self) -> PythonCall:
        """Return the call that stands here."""
        self._peek()
        name = _NAME.match(self._text, self._at)
        if name is None:
            raise RepairRefused("a name is missing")
        self._at = name.end()
        self._take("(")
        arguments: dict[str, Any] = {}
        while self._peek() != ")":
            keyword = _KEYWORD.match(self._text, self._at)
            if keyword is None or keyword[0] in arguments:
                raise RepairRefused("an argument has no name, or the name of another")
            self._at = keyword.end()
            self._take("=")
            arguments[keyword[0]] = self._value()
            if self._peek() == ",":
                self._at += 1
            elif self._peek() != ")":
                raise RepairRefused("a comma is missing")
        self._at += 1
        return PythonCall(name=name[0], arguments=arguments)

    def _peek(self) -> str:
        space = _SPACE.match(self._text, self._at)
        assert space is not None
        self._at = space.end()
        if self._at >= len(self._text):
            raise RepairRefused("the text ends inside a call")
        return self._text[self._at]

    def _take(self, word: str) -> None:
        self._peek()
        if not self._text.startswith(word, self._at):
            raise RepairRefused(f"{word} is missing")
        self._at += len(word)

    def _end(self) -> None:
        if self._text[self._at :].strip(" \t\r\n;"):
            raise RepairRefused("there is text behind the calls")

    def _value(self) -> Any:
        char = self._peek()
        if char in "[({":
            self._depth += 1
            if self._depth > DEPTH_MAX:
                raise RepairRefused("the value nests too deep")
            self._at += 1
            value = self._dict() if char == "{" else self._list(_CLOSES[char])
            self._depth -= 1
            return value
        if prefix := _PREFIX.match(self._text, self._at):
            return self._string(prefix[0].lower())
        if number := _NUMBER.match(self._text, self._at):
            self._at = number.end()
            return _number(number[0])
        word = _KEYWORD.match(self._text, self._at)
        if word is None or word[0] not in _WORDS:
            raise RepairRefused("a value is no literal")
        self._at = word.end()
        return _WORDS[word[0]]

    def _list(self, close: str) -> list[Any]:
        found: list[Any] = []
        while self._peek() != close:
            found.append(self._value())
            if self._peek() == ",":
                self._at += 1
            elif self._peek() != close:
                raise RepairRefused("a comma is missing")
        self._at += 1
        return found

    def _dict(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while self._peek() != "}":
            key = self._value()
            self._take(":")
            if not isinstance(key, str | int | float):
                raise RepairRefused("a key is no text")
            found[key if isinstance(key, str) else str(key)] = self._value()
            if self._peek() == ",":
                self._at += 1
            elif self._peek() != "}":
                raise RepairRefused("a comma is missing")
        self._at += 1
        return found

    def _string(self, prefix: str) -> str:
        if "f" in prefix or "b" in prefix:
            raise RepairRefused("a string is no plain text")
        self._at += len(prefix)
        char = self._text[self._at]
        quote = char * 3 if self._text.startswith(char * 3, self._at) else char
        self._at += len(quote)
        plain = re.compile(rf"[^{char}\\]+")
        parts: list[str] = []
        while self._at < len(self._text):
            if run := plain.match(self._text, self._at):
                parts.append(run[0])
                self._at = run.end()
            elif self._text[self._at] == "\\":
                parts.append(self._escape(is_raw="r" in prefix))
            elif self._ends(quote):
                self._at += len(quote)
                return joined("".join(parts))
            else:
                parts.append(char)
                self._at += 1
        raise RepairRefused("the text ends inside a string")

    def _ends(self, quote: str) -> bool:
        if len(quote) == 3:
            return self._text.startswith(quote, self._at)
        after = _SPACE.match(self._text, self._at + 1)
        assert after is not None
        return after.end() >= len(self._text) or self._text[after.end()] in ",:}])"

    def _escape(self, *, is_raw: bool) -> str:
        char = self._text[self._at + 1 : self._at + 2]
        start, self._at = self._at, self._at + 1 + len(char)
        if is_raw:
            return self._text[start : self._at]
        if char in _CODES:
            digits = self._text[self._at : self._at + _CODES[char]]
            try:
                value = chr(int(digits, 16)) if len(digits) == _CODES[char] else ""
            except (ValueError, OverflowError):
                value = ""
            if value:
                self._at += len(digits)
                return value
        if char and char in _ITSELF:
            return char
        return "" if char == "\n" else _ESCAPES.get(char, f"\\{char}")


def _number(text: str) -> Any:
    digits = text.replace("_", "").lstrip("+")
    try:
        if digits.lower().lstrip("-").startswith("0x"):
            return int(digits, 16)
        value = float(digits) if any(char in ".eE" for char in digits) else int(digits)
    except ValueError:
        raise RepairRefused("a number is none, or too long") from None
    if value in (float("inf"), float("-inf")):
        raise RepairRefused("a number is out of range")
    return value
