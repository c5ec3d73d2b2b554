"""Merges the pieces of a JSON value: what deltas add to a field that Treadle itself does not read.

Grown as the SDKs grow it: texts are appended, objects merged, lists merged by the `index` of their entries or else
extended; everything else is replaced. Time is linear in what is added.
"""

from typing import Any, cast

from treadle.core.json import DEPTH_MAX

WHOLE = frozenset({"type", "index", "id", "format", "role", "name"})
"""Texts that a delta repeats rather than continues."""


class Growth:
    """One value in the making."""

    __slots__ = ("_depth", "_entries", "_fields", "_last", "_pieces")

    def __init__(self, depth: int = 0) -> None:
        self._depth = depth
        self._last: Any = None
        self._pieces: list[str] | None = None
        self._fields: dict[str, Growth] | None = None
        self._entries: dict[Any, Growth] | None = None

    def add(self, value: Any, name: str = "") -> None:
        """Add a piece; `name` is that of the field it belongs to."""
        if isinstance(value, str) and name not in WHOLE:
            self._pieces = self._pieces if self._pieces is not None else []
            self._pieces.append(value)
        elif isinstance(value, dict) and self._depth < DEPTH_MAX:
            self._add_fields(cast("dict[str, Any]", value))
        elif isinstance(value, list) and self._depth < DEPTH_MAX:
            self._add_entries(cast("list[Any]", value))
        elif value is not None:
            self._last = value

    def value(self) -> Any:
        """Return what the pieces amount to."""
        if self._fields is not None:
            return {name: field.value() for name, field in self._fields.items()}
        if self._entries is not None:
            return [entry.value() for entry in self._entries.values()]
        return self._last if self._pieces is None else "".join(self._pieces)

    def _add_fields(self, fields: dict[str, Any]) -> None:
        self._fields = self._fields if self._fields is not None else {}
        for name, value in fields.items():
            if name not in self._fields:
                self._fields[name] = Growth(self._depth + 1)
            self._fields[name].add(value, name)

    def _add_entries(self, entries: list[Any]) -> None:
        self._entries = self._entries if self._entries is not None else {}
        for entry in entries:
            index = cast("dict[str, Any]", entry).get("index") if isinstance(entry, dict) else None
            key = index if isinstance(index, int) else ("next", len(self._entries))
            if key not in self._entries:
                self._entries[key] = Growth(self._depth + 1)
            self._entries[key].add(entry)
