"""Differences between two JSON documents, and three-way differences between a base and two changes of it. Pure.

Objects are compared by member, arrays of equal length by element; any other changed array is one difference. So
setting every `after` and deleting paths without one turns the first document into the second, in any order.
"""

from collections.abc import Iterator

import msgspec
from msgspec import UNSET, UnsetType

from treadle.core.json import canonical_json
from treadle.workspace.json_pointer import Json, find_at, write_pointer


class Difference(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One path at which a value was added (no `before`), removed (no `after`) or replaced (both)."""

    path: str
    before: Json | UnsetType = UNSET
    after: Json | UnsetType = UNSET


class Triple(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One path in three versions: when the proposal was made, now, and as proposed.

    `is_clash` if both have changed it, and differently.
    """

    path: str
    base: Json | UnsetType = UNSET
    current: Json | UnsetType = UNSET
    proposed: Json | UnsetType = UNSET
    is_clash: bool = False


def compare(before: Json, after: Json) -> tuple[Difference, ...]:
    """Return the differences, in the order of the documents."""
    return tuple(_compared((), before, after))


def compare_three(base: Json, current: Json, proposed: Json) -> tuple[Triple, ...]:
    """Return every path that `proposed` changes, with all three values."""
    return tuple(_triple(each.path, base, current, proposed) for each in compare(base, proposed))


def is_inside(path: str, other: str) -> bool:
    """Return whether a path equals another one, or is inside it."""
    return path == other or path.startswith(f"{other}/")


def equal(one: Json | UnsetType, other: Json | UnsetType) -> bool:
    """Return whether two values are the same JSON: `true` is not 1, and the order of members does not count."""
    if one is UNSET or other is UNSET:
        return one is other
    return one is other or canonical_json(one) == canonical_json(other)


def _compared(path: tuple[str, ...], before: Json, after: Json) -> Iterator[Difference]:
    if before is after:
        return
    if isinstance(before, dict) and isinstance(after, dict):
        for name in [*before, *(name for name in after if name not in before)]:
            yield from _member((*path, name), before.get(name, UNSET), after.get(name, UNSET))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _compared((*path, str(index)), old, new)
    elif not equal(before, after):
        yield Difference(path=write_pointer(path), before=before, after=after)


def _member(path: tuple[str, ...], before: Json | UnsetType, after: Json | UnsetType) -> Iterator[Difference]:
    if before is UNSET or after is UNSET:
        yield Difference(path=write_pointer(path), before=before, after=after)
    else:
        yield from _compared(path, before, after)


def _triple(path: str, base: Json, current: Json, proposed: Json) -> Triple:
    first, second, third = find_at(base, path), find_at(current, path), find_at(proposed, path)
    is_clash = not equal(first, second) and not equal(first, third) and not equal(second, third)
    return Triple(path=path, base=first, current=second, proposed=third, is_clash=is_clash)
