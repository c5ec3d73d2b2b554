"""Long pastes stand in the editor as one word and are sent whole."""

import re

LINES_MAX = 20
CHARS_MAX = 2_000
_MARK = re.compile(r"\[pasted #(\d+), [^\]]*\]")


class Pastes:
    """What was pasted into this conversation, by the number in its word."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def fold(self, text: str) -> str:
        """Return what stands in the editor for a paste: itself when it is short, else a word for it."""
        plain = text.replace("\r\n", "\n").replace("\r", "\n")
        lines = plain.removesuffix("\n").count("\n") + 1
        if lines <= LINES_MAX and len(plain) <= CHARS_MAX:
            return plain
        self._texts.append(plain)
        size = f"{lines} lines" if lines > LINES_MAX else f"{len(plain)} characters"
        return f"[pasted #{len(self._texts)}, {size}]"

    def unfold(self, text: str) -> str:
        """Put the pastes back where their words stand."""

        def whole(match: re.Match[str]) -> str:
            number = int(match[1])
            return self._texts[number - 1] if 1 <= number <= len(self._texts) else match[0]

        return _MARK.sub(whole, text)
