"""What a terminal can do, and how text looks on it."""

from collections.abc import Mapping
from typing import TextIO

import msgspec

_STYLES = {"call": "36", "dim": "2", "error": "31", "code": "36", "added": "32", "removed": "31", "plain": ""}


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What this terminal can do: `rich` paints and renders, `colour` uses colours."""

    rich: bool = False
    colour: bool = False

    def style(self, name: str, text: str) -> str:
        """Return the text in a style."""
        code = _STYLES[name]
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour and text and code else text


def look_of(out: TextIO, env: Mapping[str, str]) -> Look:
    """Find out what a terminal can do: NO_COLOR, TERM=dumb and anything that is no terminal are honoured."""
    is_screen = out.isatty() and env.get("TERM", "dumb") not in ("dumb", "")
    return Look(rich=is_screen, colour=is_screen and not env.get("NO_COLOR"))
