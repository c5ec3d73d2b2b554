"""What must never be written: secrets by the name of their field, and known ones wherever they stand."""

import re
from collections.abc import Iterable, Mapping
from typing import cast

REDACTED = "[redacted]"
_SECRET_NAME = re.compile(r"key|token|secret|passw|credential|authorization|cookie", re.IGNORECASE)
_HARMLESS = ("_tokens", "_env", "_id", "_name")
"""How the names of fields end that sound like a secret and only count or name one."""

_CLIENT_KEY = re.compile(r"tr_[0-9a-f]{16}_[0-9a-f]{64}")


class Redactor:
    """Blanks out values whose name tells a secret, and every known secret value wherever it stands."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        found = sorted({secret for secret in secrets if len(secret) >= 6}, key=len, reverse=True)
        self._secrets = re.compile("|".join(map(re.escape, found))) if found else None

    def text(self, text: str) -> str:
        """Return the text without the known secrets, and without clients' keys, which nobody can know beforehand."""
        text = _CLIENT_KEY.sub(REDACTED, text) if "tr_" in text else text
        return text if self._secrets is None else self._secrets.sub(REDACTED, text)

    def fields(self, fields: Mapping[str, object]) -> dict[str, object]:
        """Return the fields with secret ones blanked, however deep they lie."""
        return {name: self._value(name, value) for name, value in fields.items()}

    def _value(self, name: str, value: object) -> object:
        if _SECRET_NAME.search(name) and not name.endswith(_HARMLESS):
            return REDACTED
        return self._plain(value)

    def _plain(self, value: object) -> object:
        match value:
            case str():
                return self.text(value)
            case bytes():
                return self.text(value.decode("utf-8", "replace"))
            case Mapping():
                inner = cast("Mapping[object, object]", value)
                return {str(name): self._value(str(name), each) for name, each in inner.items()}
            case list() | tuple() | set() | frozenset():
                return [self._plain(each) for each in cast("Iterable[object]", value)]
            case None | bool() | int() | float():
                return value
            case _:
                return self.text(repr(value))
