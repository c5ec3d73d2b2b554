"""What is made of a history item by item, kept to be gone on with when the history has grown.

A model is sent the whole history in every round of a run. Whoever has to look at each item of it does so once: what it
made of the items so far stays with the plans of the run, and of the next plan it looks only at what is new.
"""

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar, cast

from treadle.core.items import AnyItem


class Fold(Protocol):
    """Something that is made of items, and can take more of them. To be made it needs nothing."""

    def add(self, items: Sequence[AnyItem], /) -> None:
        """Take the items that come behind those before."""
        ...


F = TypeVar("F", bound=Fold)


class Folds:
    """The folds over the history of one run, by their kind. It is no part of what a plan says, so all are equal."""

    __slots__ = ("_made",)

    def __init__(self) -> None:
        self._made: dict[type, tuple[tuple[AnyItem, ...], Any]] = {}

    def of(self, kind: type[F], items: tuple[AnyItem, ...]) -> F:
        """Return what this kind makes of the items: what it made of the first of them is gone on with.

        Where these are not the items that it has seen, it begins anew.
        """
        # Whoever fails with the items half taken is not asked again.
        seen, made = self._made.pop(kind, ((), None))
        fold = cast("F | None", made)
        if fold is None or items[: len(seen)] != seen:
            seen, fold = (), kind()
        if len(seen) < len(items):
            fold.add(items[len(seen) :] if seen else items)
        self._made[kind] = (items, fold)
        return fold

    def __eq__(self, other: object) -> bool:
        """Return that it is another of these."""
        return isinstance(other, Folds)

    def __hash__(self) -> int:
        """Return the same for all."""
        return hash(Folds)
