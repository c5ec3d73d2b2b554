"""JSON values of an answer: leaves of any type as the type that is needed, and values that come in pieces."""

from typing import Any, cast

from treadle.core.json import DEPTH_MAX, BadJson, check_bounds
from treadle.protocols.surrogates import mend_text, write_halves

OBJECT: Any = dict
LIST: Any = list
"""The containers of JSON, typed so that what is in them stays Any."""

WHOLE = frozenset({"type", "index", "id", "format", "role", "name"})
"""Texts that a delta repeats rather than continues."""


class Growth:
    """One value in pieces: what deltas add to a field that Treadle itself does not read.

    It grows as in the SDKs: texts are appended, objects merged, lists merged by the `index` of their entries or else
    extended; everything else is replaced. Time is linear in what is added.
    """

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


def as_object(value: Any) -> dict[str, Any]:
    """Return an object; anything else is an empty one."""
    return value if isinstance(value, OBJECT) else {}


def as_list(value: Any) -> list[Any]:
    """Return a list; anything else is an empty one."""
    return value if isinstance(value, LIST) else []


def as_text(value: Any) -> str:
    """Return a text; anything else is an empty one."""
    return value if isinstance(value, str) else ""


def as_word(value: Any) -> str:
    """Return a text that is complete, such as an id or a name: lone halves of surrogate pairs are mended."""
    return mend_text(value) if isinstance(value, str) else ""


def json_text(value: Any) -> str:
    """Write a value as JSON; lone halves of surrogate pairs, which UTF-8 cannot encode, become U+FFFD."""
    return write_halves(value).decode()


def is_bounded(data: str) -> bool:
    """Whether JSON is within the bounds of depth and nodes."""
    try:
        check_bounds(data.encode())
    except BadJson:
        return False
    return True
