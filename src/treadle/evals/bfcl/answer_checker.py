"""Judges calls by the accepted values of a question. Pure.

Names are exact, every argument must be accepted, none may be missing or too much, and calls may come in any order.
Text is compared whatever its case and spacing, and numbers by value; nothing else is stripped away.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from treadle.evals.bfcl.dataset import Accepted, BfclQuestion

Made = tuple[str, Any]
"""A call that was made: its name, and its arguments as a value."""


def check_calls(question: BfclQuestion, made: Sequence[Made]) -> str | None:
    """Return what is wrong with the calls of a single turn, or None."""
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
    """Pair what was wanted with what was made, as many as possible; return what has no partner."""
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
    """Tell whether a call is one that was wanted."""
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
    """Tell whether an argument may be left out: an empty text says so, and so does the lack of any option."""
    return isinstance(options, list) and (not options or "" in cast("list[Any]", options))


def _is_accepted(options: Any, value: Any) -> bool:
    """Tell whether a value is one of the options; what is not listed is an option itself."""
    choices = cast("list[Any]", options) if isinstance(options, list) else [options]
    if not choices:
        return value == []
    return any(is_alike(choice, value) for choice in choices)


def is_alike(wanted: Any, value: Any) -> bool:
    """Compare one accepted value with the one that was given."""
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
