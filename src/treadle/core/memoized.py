"""Memoizes values derived from immutable objects, by object identity.

Every request of a process has the same tools, so what is derived from them is computed once for the same object. No
comparison or hash of the value is needed, so a lookup takes constant time.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Memo(Generic[K, V]):
    """Caches the results of `make` for at most `most` objects."""

    __slots__ = ("_known", "_make", "_most")

    def __init__(self, make: Callable[[K], V], most: int = 64) -> None:
        self._make = make
        self._most = most
        self._known: dict[int, tuple[K, V]] = {}

    def of(self, key: K) -> V:
        """Return the value derived from an object, which must be immutable."""
        found = self._known.get(id(key))
        if found is not None:
            # The cache holds a reference to the key, so no other object can have its id.
            return found[1]
        value = self._make(key)
        if len(self._known) >= self._most:
            self._known.clear()
        self._known[id(key)] = (key, value)
        return value
