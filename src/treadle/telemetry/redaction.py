"""What must never be written: secrets by the name of their field, and known ones wherever they stand."""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import cast

REDACTED = "[redacted]"
_SECRET_NAME = re.compile(r"key|token|secret|passw|credential|authorization|cookie", re.IGNORECASE)
_HARMLESS = ("_tokens", "_env", "_id", "_name")
"""How the names of fields end that sound like a secret and only count or name one."""

_NUMBERS = frozenset({type(None), bool, int, float})
_CLIENT_KEY = re.compile(r"tr_[0-9a-f]{16}_[0-9a-f]{64}")


class Redactor:
    """Blanks out values whose name tells a secret, and every known secret value wherever it stands."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        found = sorted({secret for secret in secrets if len(secret) >= 6}, key=len, reverse=True)
        self._known = tuple(found)
        self._secrets = re.compile("|".join(map(re.escape, found))) if found else None
        self._shortest = len(found[-1]) if found else 0

    def text(self, text: str) -> str:
        """Return the text without the known secrets, and without clients' keys, which nobody can know beforehand."""
        text = _CLIENT_KEY.sub(REDACTED, text) if "tr_" in text else text
        return text if self._secrets is None or len(text) < self._shortest else self._secrets.sub(REDACTED, text)

    def fields(self, fields: Mapping[str, object]) -> dict[str, object]:
        """Return the fields with secret ones blanked, however deep they lie."""
        if self._are_harmless(fields):
            return dict(fields)
        return {name: self.value(name, value) for name, value in fields.items()}

    def _are_harmless(self, fields: Mapping[str, object]) -> bool:
        """Tell whether there is nothing to blank, as in most lines: all texts are looked through at once."""
        texts: list[str] = []
        for name, value in fields.items():
            if _is_secret(name):
                return False
            if type(value) is str:
                texts.append(value)
            elif type(value) not in _NUMBERS:
                return False
        whole = "\n".join(texts)
        for secret in self._known:
            if secret in whole:
                return False
        return "tr_" not in whole

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


@lru_cache(maxsize=1_024)
def _is_secret(name: str) -> bool:
    """Tell whether a field's name tells a secret; what is logged has few names."""
    return _SECRET_NAME.search(name) is not None and not name.endswith(_HARMLESS)
