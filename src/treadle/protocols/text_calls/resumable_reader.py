"""The text of one attempt to recognise a call, read in pieces by coroutines that resume where they stopped.

A recogniser is a generator: it yields when it needs more text and returns what it found. It consumes what it has
looked at, so that a long value costs the same however finely it is cut. Consumed text is stored, because text that
turns out to be no call leaves as it came.
"""

import re
from collections.abc import Generator, Sequence
from typing import TypeVar

T = TypeVar("T")
Wait = Generator[None, None, T]
"""A coroutine that yields for more text and returns a T."""

_SPACE = re.compile(r"[\s\u0120\u010a]*")
"""White space, and the two letters as which some tokenizers spell a blank and a line feed."""
_JSON_TOKEN = re.compile(r"""["'{}\[\]<]""")
_PYTHON_TOKEN = re.compile(r"""["'{}\[\]()#`]""")
_INSIDE = {quote: re.compile(rf"[{quote}\\]") for quote in "\"'"}
_AFTER_QUOTE = re.compile(r"\s{0,64}")
_ENDERS = frozenset(",:}])")


class ResumableReader:
    """Text that grows at its end and is read from its start; `at` is the place in the window `text`."""

    __slots__ = ("_base", "_parts", "_peak", "at", "is_ended", "text")

    def __init__(self, text: str, *, is_ended: bool = False) -> None:
        self.text = text
        self.at = 0
        self.is_ended = is_ended
        self._base = 0
        self._peak = 0
        self._parts: list[str] = []

    @property
    def mark(self) -> int:
        """Return how many characters have been read."""
        return self._base + self.at

    @property
    def peak(self) -> int:
        """Return how many characters have ever been read."""
        return max(self._peak, self._base + self.at)

    @property
    def size(self) -> int:
        """Return how many characters are held, read or not."""
        return self._base + len(self.text)

    @property
    def has_more(self) -> bool:
        """Return whether there is text that was not read yet."""
        return self.at < len(self.text)

    def add(self, text: str) -> None:
        """Append text; the window forgets what has been read."""
        if self.at:
            self._parts.append(self.text[: self.at])
            self._base += self.at
            self.text = self.text[self.at :] + text
            self.at = 0
        else:
            self.text += text

    def back(self, mark: int) -> None:
        """Go back to a place read before."""
        self._peak = self.peak
        if mark < self._base:
            parts: list[str] = []
            while self._base > mark:
                parts.append(self._parts.pop())
                self._base -= len(parts[-1])
            joined = "".join(reversed(parts))
            self.text = joined + self.text
        self.at = mark - self._base

    def rest(self) -> str:
        """Return the text that was not read."""
        return self.text[self.at :]

    def since(self, mark: int) -> str:
        """Return what was read since a place."""
        missing = self._base - mark
        if missing <= 0:
            return self.text[-missing : self.at]
        parts = [self.text[: self.at]]
        for part in reversed(self._parts):
            parts.append(part[-missing:])
            missing -= len(part)
            if missing <= 0:
                break
        return "".join(reversed(parts))

    def space(self) -> Wait[None]:
        """Read white space."""
        while True:
            found = _SPACE.match(self.text, self.at)
            assert found is not None
            self.at = found.end()
            if self.has_more or self.is_ended:
                return
            yield

    def peek(self) -> Wait[str]:
        """Return the next character without reading it; nothing at the end."""
        while not self.has_more and not self.is_ended:
            yield
        return self.text[self.at : self.at + 1]

    def literal(self, word: str) -> Wait[bool]:
        """Read exactly this word, or nothing."""
        while True:
            if self.text.startswith(word, self.at):
                self.at += len(word)
                return True
            if self.is_ended or len(self.text) - self.at >= len(word) or not word.startswith(self.rest()):
                return False
            yield

    def any_of(self, words: Sequence[str]) -> Wait[str]:
        """Read the longest of these words that stands here, or nothing."""
        while True:
            rest_size = len(self.text) - self.at
            longest = max((word for word in words if self.text.startswith(word, self.at)), key=len, default="")
            begun = (word for word in words if len(word) > max(len(longest), rest_size))
            if self.is_ended or not any(word.startswith(self.rest()) for word in begun):
                self.at += len(longest)
                return longest
            yield

    def until(self, stops: str, chars_max: int) -> Wait[str | None]:
        """Read up to one of these characters, or to the end; None where that is too far."""
        size = 0
        while True:
            window = self.text[self.at + size : self.at + chars_max + 1]
            for char in window:
                if char in stops:
                    break
                size += 1
            else:
                if size > chars_max:
                    return None
                if not self.is_ended:
                    yield
                    continue
            self.at += size
            return self.text[self.at - size : self.at]

    def up_to(self, words: Sequence[str]) -> Wait[tuple[str, str] | None]:
        """Read to the first of these words and through it; return what was before it and the word."""
        first = re.compile("|".join(re.escape(word) for word in sorted(words, key=len, reverse=True)))
        longest = max(map(len, words))
        parts: list[str] = []
        while True:
            found = first.search(self.text, self.at)
            if found is not None:
                parts.append(self.text[self.at : found.start()])
                self.at = found.end()
                return "".join(parts), found[0]
            keep = len(self.text) if self.is_ended else max(self.at, len(self.text) - longest + 1)
            parts.append(self.text[self.at : keep])
            self.at = keep
            if self.is_ended:
                return None
            yield


def json_span(reader: ResumableReader) -> Wait[str | None]:
    """Read one object or list with everything in it; None where it does not close, or where a tag comes first.

    A quote inside a string that is followed by neither `,` nor `:` nor a bracket does not end it.
    """
    return (yield from _span(reader, _JSON_TOKEN))


def python_span(reader: ResumableReader) -> Wait[str | None]:
    """Read one bracketed Python expression; None where it does not close, or where a comment or a backtick comes."""
    return (yield from _span(reader, _PYTHON_TOKEN))


def _span(reader: ResumableReader, tokens: "re.Pattern[str]") -> Wait[str | None]:
    parts: list[str] = []
    state = _Nesting()
    while True:
        start = reader.at
        end = state.step(reader.text, start, tokens, is_ended=reader.is_ended)
        parts.append(reader.text[start:end])
        reader.at = end
        if state.is_closed:
            return "".join(parts)
        if state.is_broken or reader.is_ended:
            return None
        yield


class _Nesting:
    """How deep in brackets and in which string a place is."""

    __slots__ = ("depth", "is_broken", "is_closed", "quote")

    def __init__(self) -> None:
        self.depth = 0
        self.quote = ""
        self.is_closed = False
        self.is_broken = False

    def step(self, text: str, at: int, tokens: "re.Pattern[str]", *, is_ended: bool) -> int:
        """Continue from a place; return the end of what is decided."""
        while not (self.is_closed or self.is_broken):
            if self.quote:
                end = self._inside(text, at, is_ended=is_ended)
                if end < 0:
                    return -end - 1
                at = end
                continue
            found = tokens.search(text, at)
            if found is None:
                return len(text)
            if found[0] in "\"'" and len(text) - found.start() < 3 and not is_ended:
                return found.start()
            at = self._outside(text, found.start())
        return at

    def _outside(self, text: str, at: int) -> int:
        char = text[at]
        if char in "\"'":
            triple = char * 3
            # Two quotes and no third are an empty string.
            self.quote = triple if text.startswith(triple, at) else char
            return at + len(self.quote)
        if char in "{[(":
            self.depth += 1
        elif char in "}])":
            self.depth -= 1
            self.is_closed = self.depth == 0
        else:
            self.is_broken = True
        return at + 1

    def _inside(self, text: str, at: int, *, is_ended: bool) -> int:
        """Return where to continue in the string, or `-place - 1` where more text is needed from a place on."""
        found = _INSIDE[self.quote[0]].search(text, at)
        if found is None:
            return -len(text) - 1
        place = found.start()
        if found[0] == "\\":
            return place + 2 if place + 2 <= len(text) else -place - 1
        if len(self.quote) == 3:
            return self._triple(text, place, is_ended=is_ended)
        after = _AFTER_QUOTE.match(text, place + 1)
        assert after is not None
        if after.end() == len(text) and not is_ended and after.end() - place <= 64:
            return -place - 1
        if after.end() == len(text) or text[after.end()] in _ENDERS or after.end() - place > 64:
            self.quote = ""
        return place + 1

    def _triple(self, text: str, place: int, *, is_ended: bool) -> int:
        if len(text) - place < 3 and not is_ended:
            return -place - 1
        if text.startswith(self.quote, place):
            self.quote = ""
            return place + 3
        return place + 1
