"""Groups the calls of one round into waves that run concurrently, and finds which calls depend on which.

Sequential by default. Adjacent calls share a wave if their effects and resources allow it: reads that may run in
parallel, and writes that name disjoint resources. A call that runs a program, works on everything (`*`) or names no
resource runs alone. Results are always in call order.
"""

import posixpath
import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any, cast

import msgspec

from treadle.core.json import BadJson, read_json
from treadle.core.tool_definitions import ToolPolicy

EVERYTHING = "*"
SINGLE_CALL = [[0]], [list[int]()]
"""The schedule of a single call."""
_OUTSIDE = ("/", "..")
_FIELD = re.compile(r"\{(\w+)\}")


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """What one call accesses; `resources` is None when that is not known."""

    is_alone: bool
    is_read: bool
    resources: frozenset[str] | None


def schedule(calls: Sequence[tuple[ToolPolicy, str]]) -> tuple[list[list[int]], list[list[int]]]:
    """Return the waves of calls (policy, arguments) as positions, and for each call the ones it depends on."""
    claims = [claim_of(policy, arguments) for policy, arguments in calls]
    return waves(claims), prerequisites(claims)


def claim_of(policy: ToolPolicy, arguments: str = "") -> Claim:
    """Return what a call with these arguments accesses."""
    resources = _resources(policy, arguments)
    is_read = policy.effect == "read" and not policy.exec
    shares = policy.parallel if is_read else resources is not None
    is_alone = policy.exec or EVERYTHING in policy.resources or not shares
    return Claim(is_alone=is_alone, is_read=is_read, resources=resources)


def waves(claims: Sequence[Claim]) -> list[list[int]]:
    """Group the positions of the calls into waves; a wave starts when the one before it has ended."""
    grouped: list[list[int]] = []
    for position, claim in enumerate(claims):
        wave = grouped[-1] if grouped else []
        if wave and not any(_conflicts(claims[other], claim) for other in wave):
            wave.append(position)
        else:
            grouped.append([position])
    return grouped


def prerequisites(claims: Sequence[Claim]) -> list[list[int]]:
    """Return for each call the earlier ones that change a resource it names: if one fails, the call is skipped."""
    return [
        [
            earlier
            for earlier in range(position)
            if not claims[earlier].is_read and _depends_on(claims[earlier].resources or (), claim.resources or ())
        ]
        for position, claim in enumerate(claims)
    ]


def _conflicts(one: Claim, other: Claim) -> bool:
    if one.is_alone or other.is_alone:
        return True
    if one.is_read and other.is_read:
        return False
    if one.resources is None or other.resources is None:
        return True
    return _overlaps(one.resources, other.resources)


def _overlaps(some: Iterable[str], others: Collection[str]) -> bool:
    return any(_touches(one, other) for one in some for other in others)


def _depends_on(some: Iterable[str], others: Collection[str]) -> bool:
    """Return whether two calls certainly name the same resource; for the order a possible overlap is enough."""
    return any(_is_same(one, other) for one in some for other in others)


def _is_same(one: str, other: str) -> bool:
    """Return whether two resources are equal or one contains the other; the root contains everything."""
    (scheme, _, path), (other_scheme, _, other_path) = one.partition(":"), other.partition(":")
    if scheme != other_scheme or not (path and other_path):
        return one == other
    if path.startswith("/") == other_path.startswith("/"):
        return path == other_path or path.startswith(f"{other_path}/") or other_path.startswith(f"{path}/")
    full, inner = (path, other_path) if path.startswith("/") else (other_path, path)
    # Only the tool knows the root, so an absolute path may equal a relative one that matches its end or its middle.
    names = inner.split("/")
    ends = ("/".join(names[:count]) for count in range(1, len(names) + 1))
    return any(full.endswith(f"/{end}") for end in ends) or f"/{inner}/" in full


def _touches(one: str, other: str) -> bool:
    """Return whether two resources are equal, one contains the other, or that cannot be ruled out."""
    (scheme, _, path), (other_scheme, _, other_path) = one.partition(":"), other.partition(":")
    if scheme != other_scheme:
        return False
    if path.startswith(_OUTSIDE) != other_path.startswith(_OUTSIDE):
        # One path is absolute, the other relative to a root that only the tool knows.
        return True
    return path == other_path or _is_below(path, other_path) or _is_below(other_path, path)


def _is_below(path: str, folder: str) -> bool:
    return not folder or path.startswith(f"{folder}/")


def _resources(policy: ToolPolicy, arguments: str) -> frozenset[str] | None:
    """Return the resources with the arguments filled in; None when there are none or one is unknown."""
    if not policy.resources or EVERYTHING in policy.resources:
        return None
    try:
        values: Any = read_json(arguments) if arguments.strip() else {}
    except BadJson:
        return None
    fields = cast("dict[str, Any]", values) if isinstance(values, dict) else {}
    named: set[str] = set()
    for pattern in policy.resources:
        if not all(isinstance(fields.get(name), str) for name in _FIELD.findall(pattern)):
            return None
        named.add(_normalised(_FIELD.sub(lambda found: fields[found[1]], pattern)))
    return frozenset(named)


def _normalised(resource: str) -> str:
    """Normalise a path; the root is empty."""
    scheme, colon, path = resource.partition(":")
    if not colon:
        return resource
    normal = posixpath.normpath(path)
    return f"{scheme}:{'' if normal == '.' else normal}"
