"""The text of an API key, `tr_<lookup>_<secret>`: generation, parsing and verification.

The secret has 256 random bits, so a single keyed hash is enough to store it: it cannot be guessed, and a slow hash
would only help a denial of service.
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
_NO_MAC = bytes(32)


class Token(msgspec.Struct, frozen=True):
    """A parsed key. Its repr does not show the secret."""

    lookup: str
    secret: str

    def __repr__(self) -> str:
        return f"Token({self.lookup})"

    @property
    def text(self) -> str:
        """Return the text of the key, which its owner stores."""
        return f"{PREFIX}_{self.lookup}_{self.secret}"


def new_token() -> Token:
    """Return a new random key."""
    return Token(secrets.token_hex(LOOKUP_BYTES), secrets.token_hex(SECRET_BYTES))


def read_token(text: str) -> Token | None:
    """Parse a key that a client sent; None if it is malformed. The time does not grow with the length of the text."""
    found = _TOKEN.fullmatch(text)
    return None if found is None else Token(found[1], found[2])


def mac_of(token: Token, pepper: bytes) -> bytes:
    """Return the hash of a key that is stored."""
    return hmac.digest(pepper, f"{token.lookup}:{token.secret}".encode(), hashlib.sha256)


def is_proved(token: Token, mac: bytes | None, pepper: bytes) -> bool:
    """Return whether a key matches the stored hash, in constant time even if there is none."""
    is_equal = hmac.compare_digest(mac_of(token, pepper), mac or _NO_MAC)
    return is_equal and mac is not None
