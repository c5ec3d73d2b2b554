"""What a terminal can display, and the styles and themes of text."""

from collections.abc import Mapping
from typing import TextIO

import msgspec

_DARK = {
    "call": "36",
    "dim": "2",
    "error": "31",
    "code": "36",
    "added": "32",
    "removed": "31",
    "ask": "1;33",
    "person": "1",
    "keyword": "35",
    "string": "32",
    "number": "33",
    "comment": "2",
    "name": "36",
    "plain": "",
}
THEMES: dict[str, dict[str, str]] = {
    "dark": _DARK,
    "light": {**_DARK, "call": "34", "code": "34", "dim": "90", "ask": "1;35", "comment": "90", "name": "34"},
    "contrast": {
        **_DARK,
        "call": "1;96",
        "code": "1;96",
        "dim": "",
        "added": "1;92",
        "removed": "1;91",
        "error": "1;91",
        "keyword": "1;95",
        "string": "92",
        "number": "93",
        "comment": "",
        "name": "1;96",
    },
    "none": dict.fromkeys(_DARK, ""),
}
"""How each kind of line is painted."""


class TextStyle(msgspec.Struct, frozen=True, kw_only=True):
    """What a terminal can display: `rich` redraws and renders Markdown, `colour` uses colours."""

    rich: bool = False
    colour: bool = False
    theme: str = "dark"

    @property
    def has_colours(self) -> bool:
        """Return whether anything is painted at all."""
        return self.colour and self.theme != "none"

    def style(self, name: str, text: str) -> str:
        """Return the text in a style."""
        code = THEMES[self.theme][name]
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour and text and code else text


def detect_style(out: TextIO, env: Mapping[str, str], *, theme: str = "dark", is_plain: bool = False) -> TextStyle:
    """Detect what a terminal can display; NO_COLOR, TERM=dumb and streams that are no terminal are honoured."""
    is_screen = out.isatty() and not is_plain and env.get("TERM", "dumb") not in ("dumb", "")
    return TextStyle(rich=is_screen, colour=is_screen and not env.get("NO_COLOR"), theme=theme)
