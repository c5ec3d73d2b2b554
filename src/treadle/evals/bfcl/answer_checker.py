"""Checks the calls of a model against the accepted values of a BFCL question. Does no I/O.

Names must match exactly, every argument must have an accepted value, none may be missing or extra, and calls may come
in any order. Text is compared without case and spacing, numbers by value; nothing else is normalized.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from treadle.evals.bfcl.dataset import Accepted, BfclQuestion

Made = tuple[str, Any]
"""A call by the model: its name, and its decoded arguments."""


def check_calls(question: BfclQuestion, made: Sequence[Made]) -> str | None:
    """Return the difference between the calls of a turn and the accepted ones, or None."""
    if question.set.endswith("irrelevance"):
        return f"expected no call, got {_shown(made)}" if made else None
    if question.set.endswith("relevance"):
        return None if made else "expected some call"
    wanted = [(name, accepted) for call in question.answers for name, accepted in call.items()]
    if len(made) != len(wanted):
        return f"expected {len(wanted)} calls, got {_shown(made)}"
    left = _unmatched(wanted, made)
    return f"no call fits {left[0][0]}({left[0][1]}); got {_shown(made)}" if left else None


def _unmatched(wanted: Sequence[tuple[str, Accepted]], made: Sequence[Made]) -> list[tuple[str, Accepted]]:
    """Match as many expected and actual calls as possible; return the unmatched ones."""
    owner: dict[int, int] = {}

    def claim(position: int, tried: set[int]) -> bool:
        for candidate, call in enumerate(made):
            if candidate in tried or not fits(wanted[position], call):
                continue
            tried.add(candidate)
            if candidate not in owner or claim(owner[candidate], tried):
                owner[candidate] = position
                return True
        return False

    return [each for position, each in enumerate(wanted) if not claim(position, set())]


def fits(wanted: tuple[str, Accepted], made: Made) -> bool:
    """Return whether a call matches an expected one."""
    name, arguments = made
    return name == wanted[0] and _fits_object(wanted[1], arguments)


def _fits_object(accepted: Mapping[str, Any], value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    given = cast("dict[str, Any]", value)
    if given.keys() - accepted.keys():
        return False
    return all(
        _is_accepted(options, given[name]) if name in given else _may_be_missing(options)
        for name, options in accepted.items()
    )


def _may_be_missing(options: Any) -> bool:
    """Return whether an argument is optional: its options are empty or include an empty text."""
    return isinstance(options, list) and (not options or "" in cast("list[Any]", options))


def _is_accepted(options: Any, value: Any) -> bool:
    """Return whether a value is one of the options; options that are not a list count as one option."""
    choices = cast("list[Any]", options) if isinstance(options, list) else [options]
    if not choices:
        return value == []
    return any(is_alike(choice, value) for choice in choices)


def is_alike(wanted: Any, value: Any) -> bool:
    """Compare an accepted value with the actual one."""
    if isinstance(wanted, dict):
        return _fits_object(cast("dict[str, Any]", wanted), value)
    if isinstance(wanted, list):
        if not isinstance(value, list):
            return False
        left, right = cast("list[Any]", wanted), cast("list[Any]", value)
        return len(left) == len(right) and all(is_alike(one, other) for one, other in zip(left, right, strict=True))
    if isinstance(wanted, bool) or isinstance(value, bool):
        return wanted is value
    if isinstance(wanted, int | float) and isinstance(value, int | float):
        return wanted == value
    if isinstance(wanted, str) and isinstance(value, str):
        return _flat(wanted) == _flat(value)
    return bool(wanted == value)


def _flat(text: str) -> str:
    return " ".join(text.casefold().split())


def _shown(made: Sequence[Made]) -> str:
    return ", ".join(f"{name}({arguments})"[:200] for name, arguments in made) or "none"
