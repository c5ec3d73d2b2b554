"""What must never be written: secrets by the name of their field, and known ones wherever they stand."""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import cast

from treadle.core.json import write_json

REDACTED = "[redacted]"
_SECRET_NAME = re.compile(r"key|token|secret|passw|credential|authorization|cookie", re.IGNORECASE)
_HARMLESS = ("_tokens", "_env", "_id", "_name")
"""How the names of fields end that sound like a secret and only count or name one."""

_NUMBERS = frozenset({type(None), bool, int, float})
_SIMPLE = _NUMBERS | {str}
_CLIENT_KEY = re.compile(r"tr_[0-9a-f]{16}_[0-9a-f]{64}|tr_person_[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")


class Redactor:
    """Blanks out values whose name tells a secret, and every known secret value wherever it stands."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        found = sorted({secret for secret in secrets if len(secret) >= 6}, key=len, reverse=True)
        self._spelled = ("tr_", *[write_json(secret)[1:-1].decode() for secret in found if _is_sound(secret)])
        self._secrets = re.compile("|".join(map(re.escape, found))) if found else None
        self._shortest = len(found[-1]) if found else 0

    def text(self, text: str) -> str:
        """Return the text without the known secrets, and without clients' keys, which nobody can know beforehand."""
        text = _CLIENT_KEY.sub(REDACTED, text) if "tr_" in text else text
        return text if self._secrets is None or len(text) < self._shortest else self._secrets.sub(REDACTED, text)

    def json(self, fields: Mapping[str, object]) -> str:
        """Write fields as a JSON object, without secrets."""
        return self._as_they_are(fields) or write_json(self.fields(fields)).decode()

    def _as_they_are(self, fields: Mapping[str, object]) -> str | None:
        """Write fields of which none has to be blanked, as in most lines; None for others.

        They are looked through at once: a text with a secret in it has the secret in it as JSON spells it.
        """
        if not _SIMPLE.issuperset(map(type, fields.values())) or _tell_secrets(tuple(fields)):
            return None
        try:
            written = write_json(fields).decode()
        except UnicodeEncodeError:
            return None  # perhaps it is a secret that cannot be written
        for spelled in self._spelled:
            if spelled in written:
                return None
        return written

    def fields(self, fields: Mapping[str, object]) -> dict[str, object]:
        """Return the fields with secret ones blanked, however deep they lie."""
        return {name: self.value(name, value) for name, value in fields.items()}

    def value(self, name: str, value: object) -> object:
        """Return the value of a field, blanked if its name tells a secret."""
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


def _is_sound(text: str) -> bool:
    """Tell whether a text can be written; what stands in the environment may be no text at all."""
    try:
        return bool(text.encode())
    except UnicodeEncodeError:
        return False


@lru_cache(maxsize=1_024)
def _is_secret(name: str) -> bool:
    """Tell whether a field's name tells a secret; what is logged has few names."""
    return _SECRET_NAME.search(name) is not None and not name.endswith(_HARMLESS)


@lru_cache(maxsize=256)
def _tell_secrets(names: tuple[str, ...]) -> bool:
    """Tell whether any of the names of a line does; lines of one kind have the same."""
    return any(map(_is_secret, names))
