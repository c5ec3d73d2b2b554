"""Statements whose arguments have names: `{run}` stands for `$1`, and for `$1` again where it comes again."""

from collections.abc import Mapping
from typing import Any


class Statement:
    """A text for the driver and the order in which it wants its arguments."""

    def __init__(self, template: str) -> None:
        places = _Places()
        self.text = template.format_map(places)
        self._names = tuple(places)

    def bind(self, values: Mapping[str, Any]) -> list[Any]:
        """Return the arguments in order."""
        return [*map(values.__getitem__, self._names)]


class _Places(dict[str, str]):
    def __missing__(self, name: str) -> str:
        self[name] = f"${len(self) + 1}"
        return self[name]
