"""Names as Gemini's clients spell them: camelCase as documented, snake_case from several SDKs, often mixed in one body.

Both mean the same. Everything behind this module knows only camelCase; keys inside arguments, results and schemas are
data and are not touched here.
"""

import re
from functools import cache
from typing import Any

import msgspec

from treadle.protocols.field_reader import Fields
from treadle.protocols.protocol_registry import GEMINI

PROTOCOL = GEMINI

_UNDERSCORE = re.compile(r"(?<=[a-z0-9])_([a-z0-9])")
_CAPITAL = re.compile(r"(?<=[a-z0-9])([A-Z])")


def camel(name: str) -> str:
    """Return the name in camelCase."""
    return _UNDERSCORE.sub(lambda found: found[1].upper(), name) if "_" in name else name


@cache
def snake(name: str) -> str:
    """Return the name in snake_case."""
    return _CAPITAL.sub(lambda found: f"_{found[1].lower()}", name)


def pick(value: dict[str, Any], name: str) -> Any:
    """Return the value of a field in either spelling, or None; `name` comes from a closed set."""
    found = value.get(name)
    return value.get(snake(name)) if found is None else found


def documented(value: dict[str, Any]) -> dict[str, Any]:
    """Return an object with its fields as `pick` finds them; the same one where all of them are documented."""
    if "_" not in "".join(value):
        return value
    other = {camel(name): found for name, found in value.items() if "_" in name}
    return {**value, **{name: found for name, found in other.items() if value.get(name) is None}}


class CamelFields(Fields):
    """One JSON object whose fields may come in either spelling; where both are given the documented one counts."""

    __slots__ = ()

    def __init__(self, raw: msgspec.Raw | bytes, path: str, members: dict[str, msgspec.Raw] | None = None) -> None:
        super().__init__(raw, path, members)
        given = self._values
        self._values = {
            camel(name): value for name, value in given.items() if "_" not in name or camel(name) not in given
        }

    def object(self, name: str) -> "CamelFields | None":
        """Take a field that is an object itself.

        Raises: ProtocolError.
        """
        value = self.raw(name)
        return None if value is None else CamelFields(value, self.at(name))
