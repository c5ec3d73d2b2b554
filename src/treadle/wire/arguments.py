"""The arguments of one call, put together from whatever an upstream sends.

Text is passed on as soon as it cannot change any more. Held back are only beginnings that may still turn out to be
nothing (`""`, `null`, `{}`), JSON wrapped in a JSON string, and what follows behind a complete object. Nothing is
ever completed: arguments that were cut stay cut.
"""

import re

import msgspec

from treadle.canon.json import BadJson, read_json

_OUTSIDE = re.compile(r'["{}\[\]]')
_INSIDE = re.compile(r'["\\]')
_NOTHING = re.compile(r"\s*+(?:\{\s*+\}\s*+)*+")
_EMPTY = "{}"


class FinalArguments(msgspec.Struct, frozen=True, kw_only=True):
    """Complete arguments: `rest` was not passed on yet, `raw` is what the model wrote where `text` differs."""

    text: str
    rest: str
    raw: str | None = None
    repair: str | None = None


class Arguments:
    """The text of one call's arguments, fed in pieces, in time linear in its length."""

    __slots__ = ("_depth", "_head", "_in_string", "_passed", "_skip_next", "_state", "_tail", "size")

    def __init__(self) -> None:
        self.size = 0
        self._state = "start"
        self._head: str = ""
        self._passed: list[str] = []
        self._tail: list[str] = []
        self._depth = 0
        self._in_string = False
        self._skip_next = False

    @property
    def is_closed(self) -> bool:
        """Tell whether a complete object has been read."""
        return self._state == "closed"

    @property
    def text(self) -> str:
        """Return what has been passed on so far."""
        return "".join(self._passed)

    def feed(self, text: str) -> str:
        """Add a piece and return what can be passed on now."""
        self.size += len(text) if text.isascii() else len(text.encode())
        if self._state == "start":
            text = self._begin(text)
        if not text:
            return ""
        if self._state != "open":
            self._tail.append(text)
            return ""
        text = self._until_closed(text)
        self._passed.append(text)
        return text

    def finish(self) -> FinalArguments:
        """Return the whole: nothing at all is an empty object."""
        if self._state == "start":
            text = "" if self._head == "null" else self._head.removeprefix(_EMPTY)
            text = text or _EMPTY
            return FinalArguments(text=text, rest=text)
        passed, tail = self.text, "".join(self._tail)
        if self._state == "quoted":
            return _unquoted(tail)
        if not tail.strip():
            return FinalArguments(text=passed, rest="")
        if _repeats(passed, tail):
            return FinalArguments(text=passed, rest="", raw=passed + tail, repair="repeated_arguments")
        return FinalArguments(text=passed + tail, rest=tail)

    def _begin(self, text: str) -> str:
        """Return the text from where it is sure to be more than nothing."""
        head = self._head + text
        found = _NOTHING.match(head)
        assert found is not None
        rest = head[found.end() :]
        # Some servers announce a call with `{}` and send the real object later.
        announced = _EMPTY if "}" in found[0] else ""
        if not rest or (rest[0] == "{" and not rest[1:].lstrip()):
            self._head = announced + rest.rstrip()
            return ""
        if rest[0] != "{":
            rest = announced + rest
        if "null".startswith(rest):
            self._head = rest
            return ""
        self._head = ""
        self._state = "quoted" if rest[0] == '"' else "open"
        return rest

    def _until_closed(self, text: str) -> str:
        """Return the text up to the end of the object; what is behind it is held."""
        position = 0
        if self._skip_next:
            self._skip_next, position = False, 1
        while True:
            found = (_INSIDE if self._in_string else _OUTSIDE).search(text, position)
            if found is None:
                return text
            position = found.end()
            char = found[0]
            if char == '"':
                self._in_string = not self._in_string
            elif char == "\\":
                if position == len(text):
                    self._skip_next = True
                position += 1
            else:
                self._depth += 1 if char in "{[" else -1
                if self._depth == 0:
                    self._state = "closed"
                    self._tail.append(text[position:])
                    return text[:position]


class FreeText(Arguments):
    """The input of a custom tool: any text, passed on as it comes."""

    __slots__ = ()

    def feed(self, text: str) -> str:
        """Add a piece and return it."""
        self.size += len(text) if text.isascii() else len(text.encode())
        self._passed.append(text)
        return text

    def finish(self) -> FinalArguments:
        """Return the whole."""
        return FinalArguments(text=self.text, rest="")


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
    """Tell whether the tail is the same object again, once or more."""
    text, tail = text.strip(), tail.strip()
    return len(tail) % len(text) == 0 and tail == text * (len(tail) // len(text))
