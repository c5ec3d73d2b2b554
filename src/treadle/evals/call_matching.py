"""Compares the calls that were made with those that were expected, as a list or as sets. Pure.

A value is compared as JSON unless a comparator says otherwise; nothing is ever normalised away.
"""

import re
from collections.abc import Callable, Container, Sequence
from datetime import datetime
from posixpath import normpath
from typing import Any, cast

from treadle.core.json import BadJson, canonical_json, read_json
from treadle.evals.scenario_file import Comparator, ExpectedCall, Mode
from treadle.evals.transcript import MadeCall


def compare_calls(
    mode: Mode, expected: Sequence[ExpectedCall], made: Sequence[MadeCall], free: Container[str]
) -> str | None:
    """Return what differs, or None. A call of a tool in `free` (it only reads) is never one too many.

    `exact` wants all of them in order, `any_order` all of them, `superset` at least the expected ones, and `subset`
    none but the expected ones.
    """
    match mode:
        case "exact":
            return _in_order(expected, made, free)
        case "any_order":
            missing, extra = _matched(expected, made)
            extra = [call for call in extra if call.name not in free]
        case "superset":
            missing, extra = _matched(expected, made)[0], []
        case "subset":
            missing, extra = [], [call for call in _matched(expected, made)[1] if call.name not in free]
    return _difference(missing, extra)


def _in_order(expected: Sequence[ExpectedCall], made: Sequence[MadeCall], free: Container[str]) -> str | None:
    waiting = list(expected)
    for call in made:
        if waiting and _fits(waiting[0], call):
            waiting.pop(0)
        elif call.name not in free:
            wanted = _shown(waiting[0]) if waiting else "no more calls"
            return f"expected {wanted}, got {show_call(call)}"
    return _difference(waiting, [])


def _matched(expected: Sequence[ExpectedCall], made: Sequence[MadeCall]) -> tuple[list[ExpectedCall], list[MadeCall]]:
    """Pair as many as possible, each once; return what is left of both.

    Pairs are given up again where that lets more be made (Kuhn's algorithm), so that a loose expectation never
    takes the only call that a stricter one could have had.
    """
    owner: dict[int, int] = {}

    def claim(position: int, tried: set[int]) -> bool:
        for candidate, call in enumerate(made):
            if candidate in tried or not _fits(expected[position], call):
                continue
            tried.add(candidate)
            if candidate not in owner or claim(owner[candidate], tried):
                owner[candidate] = position
                return True
        return False

    missing = [call for position, call in enumerate(expected) if not claim(position, set())]
    return missing, [call for candidate, call in enumerate(made) if candidate not in owner]


def _difference(missing: Sequence[ExpectedCall], extra: Sequence[MadeCall]) -> str | None:
    parts = [f"missing {_shown(call)}" for call in missing] + [f"unexpected {show_call(call)}" for call in extra]
    return "; ".join(parts) or None


def _fits(expected: ExpectedCall, made: MadeCall) -> bool:
    if expected.name != made.name:
        return False
    arguments = arguments_of(made)
    if arguments is None:
        return False
    accepted = {**{name: (value,) for name, value in expected.args.items()}, **expected.one_of}
    missing = accepted.keys() - arguments.keys() - set(expected.optional)
    extra = arguments.keys() - accepted.keys() - set(expected.optional)
    if missing or extra:
        return False
    return all(
        any(COMPARATORS[expected.compare.get(name, "exact")](value, arguments[name]) for value in values)
        for name, values in accepted.items()
        if name in arguments
    )


def arguments_of(made: MadeCall) -> dict[str, Any] | None:
    """Return the arguments of a call; None where they are not a JSON object. No text at all is an empty one."""
    try:
        value = read_json(made.arguments or "{}")
    except BadJson:
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def is_same(expected: Any, actual: Any) -> bool:
    """Compare as JSON does, where true is not 1 and 1 is not 1.0."""
    return canonical_json(expected) == canonical_json(actual)


def _is_same_number(expected: Any, actual: Any) -> bool:
    numbers = [value for value in (expected, actual) if isinstance(value, int | float) and not isinstance(value, bool)]
    return len(numbers) == 2 and numbers[0] == numbers[1]


def _is_same_text(expected: Any, actual: Any) -> bool:
    return isinstance(expected, str) and isinstance(actual, str) and expected.casefold() == actual.casefold()


def _is_match(expected: Any, actual: Any) -> bool:
    return isinstance(expected, str) and isinstance(actual, str) and re.fullmatch(expected, actual) is not None


def _is_same_path(expected: Any, actual: Any) -> bool:
    """Compare as paths: `./a//b/` is `a/b`; nothing is followed, and `/a` is not `a`."""
    return isinstance(expected, str) and isinstance(actual, str) and normpath(expected) == normpath(actual)


def _is_same_time(expected: Any, actual: Any) -> bool:
    """Compare as moments: two spellings of one in ISO 8601 are the same; without a zone only with one without."""
    moments = [_moment(value) for value in (expected, actual)]
    return None not in moments and moments[0] == moments[1]


def _moment(value: Any) -> datetime | None:
    try:
        return datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None


COMPARATORS: dict[Comparator, Callable[[Any, Any], bool]] = {
    "exact": is_same,
    "number": _is_same_number,
    "casefold": _is_same_text,
    "regex": _is_match,
    "path": _is_same_path,
    "datetime": _is_same_time,
}


def show_call(call: MadeCall) -> str:
    """Write a call for a person, within bounds."""
    return f"{call.name}({call.arguments[:200]})"


def _shown(call: ExpectedCall) -> str:
    return f"{call.name}({canonical_json({**call.args, **call.one_of}).decode()[:500]})"
