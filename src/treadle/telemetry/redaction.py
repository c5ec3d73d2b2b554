"""Removes secrets from logs and events: fields with a secret name, and known secret values wherever they occur."""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import cast

from treadle.core.json import write_json

REDACTED = "[redacted]"
_SECRET_NAME = re.compile(r"key|token|secret|passw|credential|authorization|cookie", re.IGNORECASE)
_HARMLESS = ("_tokens", "_env", "_id", "_name")
"""Endings of field names that look like a secret but only count or name one."""

_NUMBERS = frozenset({type(None), bool, int, float})
_SIMPLE = _NUMBERS | {str}
_CLIENT_KEY = re.compile(r"tr_[0-9a-f]{16}_[0-9a-f]{64}|tr_person_[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")


class Redactor:
    """Replaces the values of fields with a secret name, and every known secret value."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        found = sorted({secret for secret in secrets if len(secret) >= 6}, key=len, reverse=True)
        self._as_json = (
            "tr_",
            *[write_json(secret)[1:-1].decode() for secret in found if _is_encodable(secret)],
        )
        self._secrets = re.compile("|".join(map(re.escape, found))) if found else None
        self._shortest = len(found[-1]) if found else 0

    def text(self, text: str) -> str:
        """Return the text without known secrets, and without client keys, which are found by their format."""
        text = _CLIENT_KEY.sub(REDACTED, text) if "tr_" in text else text
        return text if self._secrets is None or len(text) < self._shortest else self._secrets.sub(REDACTED, text)

    def json(self, fields: Mapping[str, object]) -> str:
        """Write fields as a JSON object, without secrets."""
        return self._write_unredacted(fields) or write_json(self.fields(fields)).decode()

    def _write_unredacted(self, fields: Mapping[str, object]) -> str | None:
        """Write fields if none has to be redacted, as in most lines; else None.

        The finished JSON is searched once, for secrets in the form that JSON encoding gives them.
        """
        if not _SIMPLE.issuperset(map(type, fields.values())) or _any_secret(tuple(fields)):
            return None
        try:
            written = write_json(fields).decode()
        except UnicodeEncodeError:
            return None  # `fields` handles what cannot be encoded; it may contain a secret
        for secret in self._as_json:
            if secret in written:
                return None
        return written

    def fields(self, fields: Mapping[str, object]) -> dict[str, object]:
        """Return the fields with secrets redacted at any depth."""
        return {name: self.value(name, value) for name, value in fields.items()}

    def value(self, name: str, value: object) -> object:
        """Return the value of a field, redacted if its name is secret."""
        if _is_secret(name):
            return REDACTED
        if type(value) is str:
            return self.text(value)
        return value if type(value) in _NUMBERS else self._plain(value)

    def _plain(self, value: object) -> object:
        match value:
            case str():
                return self.text(value)
            case bytes():
                return self.text(value.decode("utf-8", "replace"))
            case Mapping():
                inner = cast("Mapping[object, object]", value)
                return {str(name): self.value(str(name), each) for name, each in inner.items()}
            case list() | tuple() | set() | frozenset():
                return [self._plain(each) for each in cast("Iterable[object]", value)]
            case None | bool() | int() | float():
                return value
            case _:
                return self.text(repr(value))


def _is_encodable(text: str) -> bool:
    """Return whether a text can be encoded: an environment variable may hold invalid bytes as surrogates."""
    try:
        return bool(text.encode())
    except UnicodeEncodeError:
        return False


@lru_cache(maxsize=1_024)
def _is_secret(name: str) -> bool:
    """Return whether a field's name is secret. Cached, because logs use few names."""
    return _SECRET_NAME.search(name) is not None and not name.endswith(_HARMLESS)


@lru_cache(maxsize=256)
def _any_secret(names: tuple[str, ...]) -> bool:
    """Return whether any name is secret. Cached, because lines of one kind have the same names."""
    return any(map(_is_secret, names))
