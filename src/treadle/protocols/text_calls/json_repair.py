"""Arguments that are nearly JSON, made JSON: read strictly, then with raw control characters, then tolerantly.

The tolerant reader goes through the text once. It takes single and typographic quotes, trailing commas, names of
Python, keys without quotes, escapes that JSON does not know, unescaped quotes inside strings, and closing
brackets too many. It completes nothing: text that ends inside a value is refused, and so is what is not finite.

What is taken for a quote inside a string, or for one comma too many, may also be where a piece of the text was lost or
came twice. With `is_sure` neither is repaired.
"""

import json
import math
import re
from typing import Any, cast

from treadle.core.json import DEPTH_MAX, BadJson, check_bounds

_SPACE = re.compile(r"\s*")
_NUMBER = re.compile(r"[+-]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_WORD = re.compile(r"[A-Za-z_$][\w$.-]*")
_PLAIN = {quote: re.compile(rf"[^{quote}\\]+") for quote in "\"'”’"}
_CLOSES = {'"': '"', "'": "'", "“": "”", "‘": "’"}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "/": "/", "\\": "\\", '"': '"', "'": "'", "\n": "\n"}
_HEX = re.compile(r"[0-9a-fA-F]{4}")
_WORDS = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None}
_EXTRA = re.compile(r"[\s}\])]*")


class RepairRefused(ValueError):
    """The text can not be made JSON without inventing something."""


def read_tolerant(text: str, *, is_sure: bool = False) -> Any:
    """Return the value that a text of JSON, or nearly JSON, means; with `is_sure` it can mean nothing else.

    Raises: Refused.
    """
    try:
        check_bounds(text.encode("utf-8", "surrogatepass"))
        return _finite(json.loads(text, parse_constant=_refuse))
    except (ValueError, BadJson, RecursionError):
        pass
    try:
        return _finite(json.loads(text, strict=False, parse_constant=_refuse))
    except (ValueError, RecursionError):
        return JsonRepair(text, is_sure=is_sure).read()


def _refuse(word: str) -> Any:
    raise RepairRefused(f"{word} is not a number that JSON has")


def _finite(value: Any) -> Any:
    """Return the value, unless a number in it is too large to be one.

    Raises: Refused.
    """
    waiting: list[Any] = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, float) and not math.isfinite(each):
            raise RepairRefused("a number is out of range")
        if isinstance(each, dict):
            waiting.extend(cast("dict[str, Any]", each).values())
        elif isinstance(each, list):
            waiting.extend(cast("list[Any]", each))
    return value


class JsonRepair:
    """Reads one value of a text, once through."""

    def __init__(self, text: str, *, is_sure: bool = False) -> None:
        self._text = text
        self._is_sure = is_sure
        self._at = 0
        self._depth = 0

    def read(self) -> Any:
        """Return the value; nothing but closing brackets may follow it.

        Raises: Refused.
        """
        value = self._value()
        extra = _EXTRA.match(self._text, self._at)
        assert extra is not None
        if extra.end() < len(self._text):
            raise RepairRefused("there is text behind the value")
        return _finite(value)

    def _peek(self) -> str:
        space = _SPACE.match(self._text, self._at)
        assert space is not None
        self._at = space.end()
        if self._at >= len(self._text):
            raise RepairRefused("the text ends inside a value")
        return self._text[self._at]

    def _value(self) -> Any:
        char = self._peek()
        if char in "{[":
            self._depth += 1
            if self._depth > DEPTH_MAX:
                raise RepairRefused("the value nests too deep")
            self._at += 1
            value = self._object() if char == "{" else self._list()
            self._depth -= 1
            return value
        if char in _CLOSES:
            return self._string(_CLOSES[char], ",}]")
        if number := _NUMBER.match(self._text, self._at):
            self._at = number.end()
            return self._number(number[0])
        return self._word()

    def _object(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while (char := self._peek()) != "}":
            if char == ",":
                self._comma()
                continue
            key = self._key(char)
            if self._peek() != ":":
                raise RepairRefused("a key has no value")
            self._at += 1
            found[key] = self._value()
            if self._peek() not in ",}":
                raise RepairRefused("a comma is missing")
        self._at += 1
        return found

    def _comma(self) -> None:
        """Pass a comma; two in a row stand around something that was lost."""
        self._at += 1
        if self._is_sure and self._peek() == ",":
            raise RepairRefused("something is missing between two commas")

    def _key(self, char: str) -> str:
        if char in _CLOSES:
            return self._string(_CLOSES[char], ":")
        word = _WORD.match(self._text, self._at)
        if word is None:
            raise RepairRefused("a key is missing")
        self._at = word.end()
        return word[0]

    def _list(self) -> list[Any]:
        found: list[Any] = []
        while (char := self._peek()) != "]":
            if char == ",":
                self._comma()
                continue
            found.append(self._value())
            if self._peek() not in ",]":
                raise RepairRefused("a comma is missing")
        self._at += 1
        return found

    def _number(self, text: str) -> Any:
        if self._at < len(self._text) and (self._text[self._at].isalnum() or self._text[self._at] in "_."):
            raise RepairRefused("a number goes on as a word")
        digits = text.replace("_", "").lstrip("+")
        try:
            return float(digits) if any(char in ".eE" for char in digits) else int(digits)
        except ValueError:
            raise RepairRefused("a number is none") from None

    def _word(self) -> Any:
        word = _WORD.match(self._text, self._at)
        if word is None or word[0] not in _WORDS:
            raise RepairRefused("a value is none that JSON has")
        self._at = word.end()
        return _WORDS[word[0]]

    def _string(self, close: str, enders: str) -> str:
        """Read a string; a quote that is not followed by what must follow does not end it."""
        self._at += 1
        parts: list[str] = []
        plain = _PLAIN[close]
        while self._at < len(self._text):
            if run := plain.match(self._text, self._at):
                parts.append(run[0])
                self._at = run.end()
            elif self._text[self._at] == "\\":
                parts.append(self._escape())
            elif self._ends(enders):
                self._at += 1
                return joined("".join(parts))
            elif self._is_sure:
                raise RepairRefused("there is a quote inside a string")
            else:
                parts.append(close)
                self._at += 1
        raise RepairRefused("the text ends inside a string")

    def _ends(self, enders: str) -> bool:
        after = _SPACE.match(self._text, self._at + 1)
        assert after is not None
        return after.end() >= len(self._text) or self._text[after.end()] in enders

    def _escape(self) -> str:
        char = self._text[self._at + 1 : self._at + 2]
        if char == "u" and (code := _HEX.match(self._text, self._at + 2)):
            self._at += 6
            return chr(int(code[0], 16))
        self._at += 1 + len(char)
        # A backslash before anything else was meant as one: regular expressions, paths.
        return _ESCAPES.get(char, f"\\{char}")


def joined(text: str) -> str:
    """Put the halves of characters together; a half without its other stays one, and is no character."""
    if text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text):
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
