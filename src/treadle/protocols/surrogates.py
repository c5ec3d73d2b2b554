r"""Halves of surrogate pairs: valid in JSON's `\u` notation, impossible in UTF-8.

Upstreams cut a pair over two deltas, and clients send a text cut inside an emoji. Halves that belong together are
joined, a lone one becomes U+FFFD, so that every text behind this module can be encoded.
"""

import json
import re
from typing import Any

import msgspec

from treadle.core.json import write_json

_HALF = re.compile("[\ud800-\udfff]")
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<lone>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)


class HalfJoiner(msgspec.Struct, gc=False):
    """Joins the halves in the pieces of one text; `half` is one that waits for the other.

    In JSON a lone one becomes the escape that it was, if it `is_json`: that cannot be taken for another character.
    """

    half: str = ""
    is_json: bool = False

    def feed(self, text: str) -> str:
        """Return the text that is complete now: a high half at the end waits for its low half."""
        if not self.half and (text.isascii() or not _HALF.search(text)):
            return text
        text = self.half + text
        self.half = text[-1] if "\ud800" <= text[-1:] <= "\udbff" else ""
        whole = text[:-1] if self.half else text
        return escape_halves(whole) if self.is_json else _joined(whole)

    def finish(self) -> str:
        """Return what a half that waits in vain becomes."""
        half, self.half = self.half, ""
        if not half:
            return ""
        return escape_halves(half) if self.is_json else "\ufffd"


def has_half_escapes(data: str) -> bool:
    """Return whether JSON may hold the escape of a half."""
    return "\\ud" in data or "\\uD" in data


def mend_escapes(raw: bytes) -> tuple[bytes, int]:
    r"""Return JSON with every lone half replaced by `\ufffd`, and how many there were."""
    if b"\\ud" not in raw and b"\\uD" not in raw:
        return raw, 0
    count = 0

    def mend(match: re.Match[bytes]) -> bytes:
        nonlocal count
        if match["lone"] is None:
            return match[0]
        count += 1
        return b"\\ufffd"

    return _ESCAPE.sub(mend, raw), count


def mend_text(text: str) -> str:
    """Return a text without halves: those that meet are joined, lone ones become U+FFFD."""
    return text if text.isascii() or not _HALF.search(text) else _joined(text)


def escape_halves(text: str) -> str:
    """Return JSON without halves: those that meet are joined, lone ones become their escape."""
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return _HALF.sub(lambda lone: f"\\u{ord(lone[0]):04x}", whole)


def write_halves(value: Any) -> bytes:
    """Encode a value whose texts may hold halves: those that meet are joined, lone ones become U+FFFD."""
    try:
        return write_json(value)
    except UnicodeEncodeError:
        return mend_escapes(json.dumps(value, separators=(",", ":")).encode())[0]


def _joined(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
