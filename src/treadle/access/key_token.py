"""The text of a key, `tr_<lookup>_<secret>`: how it is made, read and proved.

The secret has 256 bits, so one keyed hash is enough to keep it by: nobody can try them all, and a slow hash would only
help who wants to keep the server busy.
"""

import hashlib
import hmac
import re
import secrets

import msgspec

PREFIX = "tr"
LOOKUP_BYTES = 8
SECRET_BYTES = 32
PEPPER_BYTES_MIN = 16
_TOKEN = re.compile(rf"{PREFIX}_([0-9a-f]{{{LOOKUP_BYTES * 2}}})_([0-9a-f]{{{SECRET_BYTES * 2}}})")
_NOBODY = bytes(32)


class Token(msgspec.Struct, frozen=True):
    """A key taken apart. It does not show its secret."""

    lookup: str
    secret: str

    def __repr__(self) -> str:
        return f"Token({self.lookup})"

    @property
    def text(self) -> str:
        """Return the key as its owner keeps it."""
        return f"{PREFIX}_{self.lookup}_{self.secret}"


def new_token() -> Token:
    """Return a key that nobody has."""
    return Token(secrets.token_hex(LOOKUP_BYTES), secrets.token_hex(SECRET_BYTES))


def read_token(text: str) -> Token | None:
    """Return what a client sent as a key; None where it cannot be one. Takes no longer for a long text."""
    found = _TOKEN.fullmatch(text)
    return None if found is None else Token(found[1], found[2])


def mac_of(token: Token, pepper: bytes) -> bytes:
    """Return what is kept of a key."""
    return hmac.digest(pepper, f"{token.lookup}:{token.secret}".encode(), hashlib.sha256)


def is_proved(token: Token, mac: bytes | None, pepper: bytes) -> bool:
    """Return whether a key is the one that was kept; it takes as long where there is none."""
    is_equal = hmac.compare_digest(mac_of(token, pepper), mac or _NOBODY)
    return is_equal and mac is not None
