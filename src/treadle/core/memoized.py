"""Values made of objects that never change, remembered by the objects themselves.

The same tools come with every request: what is made of them is made once for as long as it is the same object. No
value is compared and no hash taken, so to find one costs nothing that grows.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Memo(Generic[K, V]):
    """Remembers what `make` made of the last so many objects."""

    __slots__ = ("_known", "_make", "_most")

    def __init__(self, make: Callable[[K], V], most: int = 64) -> None:
        self._make = make
        self._most = most
        self._known: dict[int, tuple[K, V]] = {}

    def of(self, key: K) -> V:
        """Return what is made of an object, which must never change."""
        found = self._known.get(id(key))
        if found is not None:
            # Whoever is remembered is held by what was found, so that nothing else has its id.
            return found[1]
        value = self._make(key)
        if len(self._known) >= self._most:
            self._known.clear()
        self._known[id(key)] = (key, value)
        return value
