"""In which order, and beside which others, the calls of one turn run.

Sequential by default. Neighbours share a wave where their effects and the resources they name allow it: reads that may
run side by side, writes that each name what they work on, none of it twice. What runs a program, works on everything
(`*`) or names nothing is alone. Results go back in call order whatever the waves.
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
"""The order of a call that no other stands beside."""
_OUTSIDE = ("/", "..")
_FIELD = re.compile(r"\{(\w+)\}")


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """What one call needs: `resources` are what it names, None when that is not known."""

    is_alone: bool
    is_read: bool
    resources: frozenset[str] | None


def schedule(calls: Sequence[tuple[ToolPolicy, str]]) -> tuple[list[list[int]], list[list[int]]]:
    """Return the positions of calls, each a policy and its arguments, in waves, and what each of them builds on."""
    claims = [claim_of(policy, arguments) for policy, arguments in calls]
    return waves(claims), prerequisites(claims)


def claim_of(policy: ToolPolicy, arguments: str = "") -> Claim:
    """Return what a call with these arguments needs."""
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
    """Return for each call the earlier ones that change something it names: if one fails, it is not run."""
    return [
        [
            earlier
            for earlier in range(position)
            if not claims[earlier].is_read and _is_built_on(claims[earlier].resources or (), claim.resources or ())
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


def _is_built_on(some: Iterable[str], others: Collection[str]) -> bool:
    """Tell whether two calls name the same thing; unlike for their order, a mere possibility does not count."""
    return any(_is_same(one, other) for one in some for other in others)


def _is_same(one: str, other: str) -> bool:
    """Tell whether a resource is another one, or one lies below the other; below the root lies everything."""
    (scheme, _, path), (other_scheme, _, other_path) = one.partition(":"), other.partition(":")
    if scheme != other_scheme or not (path and other_path):
        return one == other
    if path.startswith("/") == other_path.startswith("/"):
        return path == other_path or path.startswith(f"{other_path}/") or other_path.startswith(f"{path}/")
    full, inner = (path, other_path) if path.startswith("/") else (other_path, path)
    # Only the tool knows the root: a path from the top may be the other one if it ends as that begins, or has it all.
    names = inner.split("/")
    ends = ("/".join(names[:count]) for count in range(1, len(names) + 1))
    return any(full.endswith(f"/{end}") for end in ends) or f"/{inner}/" in full


def _touches(one: str, other: str) -> bool:
    """Tell whether two resources are the same, one lies below the other, or that can not be told."""
    (scheme, _, path), (other_scheme, _, other_path) = one.partition(":"), other.partition(":")
    if scheme != other_scheme:
        return False
    if path.startswith(_OUTSIDE) != other_path.startswith(_OUTSIDE):
        # One is written from the top, the other from a root that only the tool knows.
        return True
    return path == other_path or _is_below(path, other_path) or _is_below(other_path, path)


def _is_below(path: str, folder: str) -> bool:
    return not folder or path.startswith(f"{folder}/")


def _resources(policy: ToolPolicy, arguments: str) -> frozenset[str] | None:
    """Return the resources with the arguments filled in; None when there are none or one can not be told."""
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
        named.add(_plain(_FIELD.sub(lambda found: fields[found[1]], pattern)))
    return frozenset(named)


def _plain(resource: str) -> str:
    """Spell a path in one way; the root of all of them is empty."""
    scheme, colon, path = resource.partition(":")
    if not colon:
        return resource
    normal = posixpath.normpath(path)
    return f"{scheme}:{'' if normal == '.' else normal}"
