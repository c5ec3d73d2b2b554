"""Caches values computed from a growing history, so that each round processes only the new items.

A model is sent the whole history in every round of a run. A fold (such as the encoded request body) is stored with the
plans of the run, and the next plan adds only its new items to it.
"""

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar, cast

from treadle.core.items import AnyItem


class Fold(Protocol):
    """A value computed from items to which more items can be added. Constructed without arguments."""

    def add(self, items: Sequence[AnyItem], /) -> None:
        """Add the items that follow those added before."""
        ...


F = TypeVar("F", bound=Fold)


class Folds:
    """The folds of one run by class. They are a cache and not part of a plan's value, so all instances are equal."""

    __slots__ = ("_made",)

    def __init__(self) -> None:
        self._made: dict[type, tuple[tuple[AnyItem, ...], Any]] = {}

    def of(self, kind: type[F], items: tuple[AnyItem, ...]) -> F:
        """Return the fold of these items, extending the cached one if its items are a prefix of these."""
        # Popped first: a fold that raises half way must not be reused.
        seen, made = self._made.pop(kind, ((), None))
        fold = cast("F | None", made)
        if fold is None or items[: len(seen)] != seen:
            seen, fold = (), kind()
        if len(seen) < len(items):
            fold.add(items[len(seen) :] if seen else items)
        self._made[kind] = (items, fold)
        return fold

    def __eq__(self, other: object) -> bool:
        """Compare equal to every other instance."""
        return isinstance(other, Folds)

    def __hash__(self) -> int:
        """Return the same hash for all instances."""
        return hash(Folds)
