"""Assembles the arguments of one call from whatever a provider sends.

Text is passed on as soon as it cannot change any more. Held back are only beginnings that may still turn out to be
nothing (`""`, `null`, `{}`), JSON wrapped in a JSON string, and what follows behind a complete object. Nothing is
ever completed: arguments that were cut stay cut.
"""

import re

import msgspec

from treadle.core.json import BadJson, members_of, read_json

_OUTSIDE = re.compile(r'["{}\[\]]')
_INSIDE = re.compile(r'["\\]')
# A possessive group would match the same, but until Python 3.11.5 it takes in what it only began to match (bpo 106052):
# seen 2026-11-19 with Debian's 3.11.2, where `{"city"` lost its brace.
_NOTHING = re.compile(r"\s*(?:\{\s*\}\s*)*")
_EMPTY = "{}"


class FinalArguments(msgspec.Struct, frozen=True, kw_only=True):
    """Complete arguments: `rest` was not passed on yet, `raw` is what the model wrote where `text` differs."""

    text: str
    rest: str
    raw: str | None = None
    repair: str | None = None


class Arguments(msgspec.Struct):
    """The text of one call's arguments, fed in pieces, in time linear in its length.

    `passed` was passed on; the `head` and the `tail` are held back, while the `state` of the object between them is
    not known, or once it is closed. `blanks` stand behind the brace with which the head ends.
    """

    size: int = 0
    state: str = "start"
    head: str = ""
    blanks: list[str] = []
    passed: list[str] = []
    tail: list[str] = []
    depth: int = 0
    in_string: bool = False
    skip_next: bool = False

    @property
    def is_closed(self) -> bool:
        """Whether a complete object has been read."""
        return self.state == "closed"

    @property
    def is_open(self) -> bool:
        """Whether something has started that is not complete yet."""
        return self.state in ("open", "quoted") or (self.state == "start" and self.head not in ("", "null", _EMPTY))

    @property
    def text(self) -> str:
        """Return what has been passed on so far."""
        return "".join(self.passed)

    def feed(self, text: str) -> str:
        """Add a piece and return what can be passed on now."""
        self.size += len(text) if text.isascii() else len(text.encode())
        if self.state == "start":
            text = self._begin(text)
        if not text:
            return ""
        if self.state != "open":
            self.tail.append(text)
            return ""
        if not self.passed and text[-1] == "}" and members_of(text.encode("utf-8", "surrogatepass")) is not None:
            # All of it at once, as most calls with few arguments come.
            self.state = "closed"
        else:
            text = self._until_closed(text)
        self.passed.append(text)
        return text

    def finish(self) -> FinalArguments:
        """Return the whole: nothing at all is an empty object."""
        if self.state == "start":
            text = "" if self.head == "null" else self.head.removeprefix(_EMPTY)
            text = text or _EMPTY
            return FinalArguments(text=text, rest=text)
        passed, tail = "".join(self.passed), "".join(self.tail)
        if self.state == "quoted":
            return _unquoted(tail)
        if not tail.strip():
            return FinalArguments(text=passed, rest="")
        if _repeats(passed, tail):
            return FinalArguments(text=passed, rest="", raw=passed + tail, repair="repeated_arguments")
        return FinalArguments(text=passed + tail, rest=tail)

    def _begin(self, text: str) -> str:
        """Return the text from where it is sure to be more than nothing."""
        head = self.head + text
        if self.blanks:
            if not text.strip():
                self.blanks.append(text)
                return ""
            head = "".join((self.head, *self.blanks, text))
            self.blanks.clear()
        found = _NOTHING.match(head)
        assert found is not None
        rest = head[found.end() :]
        # Some servers announce a call with `{}` and send the real object later.
        announced = _EMPTY if "}" in found[0] else ""
        if not rest or (rest[0] == "{" and not rest[1:].lstrip()):
            self.head = announced + rest[:1]
            if len(rest) > 1:
                self.blanks.append(rest[1:])
            return ""
        if rest[0] != "{":
            rest = announced + rest
        if "null".startswith(rest):
            self.head = rest
            return ""
        self.head = ""
        self.state = "quoted" if rest[0] == '"' else "open"
        return rest

    def _until_closed(self, text: str) -> str:
        """Return the text up to the end of the object; what is behind it is held."""
        position = 0
        if self.skip_next:
            self.skip_next, position = False, 1
        while True:
            found = (_INSIDE if self.in_string else _OUTSIDE).search(text, position)
            if found is None:
                return text
            position = found.end()
            char = found[0]
            if char == '"':
                self.in_string = not self.in_string
            elif char == "\\":
                if position == len(text):
                    self.skip_next = True
                position += 1
            else:
                self.depth += 1 if char in "{[" else -1
                if self.depth == 0:
                    self.state = "closed"
                    self.tail.append(text[position:])
                    return text[:position]


class FreeText(Arguments):
    """The input of a custom tool: any text, passed on as it comes."""

    def feed(self, text: str) -> str:
        """Add a piece and return it."""
        self.size += len(text) if text.isascii() else len(text.encode())
        self.passed.append(text)
        return text

    def finish(self) -> FinalArguments:
        """Return the whole."""
        return FinalArguments(text=self.text, rest="")

    @property
    def is_open(self) -> bool:
        """Never: free text has no end of its own, whatever is there may be all of it."""
        return False


def is_object(text: str) -> bool:
    """Whether a text is a JSON object."""
    try:
        return isinstance(read_json(text), dict)
    except BadJson:
        return False


def _unquoted(raw: str) -> FinalArguments:
    """Return the object inside a JSON string, if there is one."""
    try:
        inner = read_json(raw)
        if isinstance(inner, str) and isinstance(read_json(inner), dict):
            return FinalArguments(text=inner, rest=inner, raw=raw, repair="quoted_arguments")
    except BadJson:
        pass
    return FinalArguments(text=raw, rest=raw)


def _repeats(text: str, tail: str) -> bool:
    """Whether the tail is the same object again, once or more."""
    text, tail = text.strip(), tail.strip()
    return len(tail) % len(text) == 0 and tail == text * (len(tail) // len(text))
