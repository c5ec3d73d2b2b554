"""Assembles arguments that Gemini streams value by value, each with its JSON path, to an object."""

import itertools
import re
from typing import Any, cast

from treadle.core.json import DEPTH_MAX
from treadle.protocols.decoding.json_values import as_list, as_object, as_text, as_word
from treadle.protocols.gemini.field_spelling import pick

LIST_GAP_MAX = 16
"""How far behind the end of a list a value may stand: values come about in order."""

_STEP = re.compile(r"""\.([^.\[\]]+)|\[(\d{1,9})\]|\['((?:[^'\\]|\\.)*)'\]|\["((?:[^"\\]|\\.)*)"\]""")
_CONTAINERS: dict[type, type] = {int: list, str: dict}


class PartialArguments:
    """Arguments that are streamed value by value, each with the path where it belongs."""

    def __init__(self) -> None:
        self.size = 0
        self._values: dict[str, Any] = {}

    def add(self, pieces: list[Any]) -> None:
        """Add pieces; texts of one path are one text."""
        for each in pieces:
            piece = as_object(each)
            path = as_text(pick(piece, "jsonPath"))
            value = _value(piece)
            self.size += len(path) + (len(value.encode("utf-8", "replace")) if isinstance(value, str) else 8)
            if isinstance(value, str):
                texts = self._values.get(path)
                if not isinstance(texts, list):
                    texts = self._values[path] = []
                cast("list[str]", texts).append(value)
            else:
                self._values[path] = value

    def value(self) -> dict[str, Any]:
        """Return the object that the pieces amount to; what fits nowhere is left out."""
        root: dict[str, Any] = {}
        for path, value in self._values.items():
            whole = as_word("".join(cast("list[str]", value))) if isinstance(value, list) else value
            _place(root, _steps(path), whole)
        return root


def _value(piece: dict[str, Any]) -> Any:
    for name in ("stringValue", "numberValue", "boolValue"):
        value = pick(piece, name)
        if isinstance(value, str | int | float):
            return int(value) if isinstance(value, float) and value.is_integer() else value
    return None


def _steps(path: str) -> list[str | int]:
    """Return the steps of a JSON path; none where it cannot be followed."""
    rest = path.removeprefix("$")
    rest = rest if rest.startswith((".", "[")) else f".{rest}"
    steps: list[str | int] = []
    position = 0
    while position < len(rest):
        found = _STEP.match(rest, position)
        if found is None or len(steps) >= DEPTH_MAX:
            return []
        plain, place, single, double = found.groups()
        steps.append(int(place) if place else plain or re.sub(r"\\(.)", r"\1", single or double or ""))
        position = found.end()
    return steps


def _place(root: dict[str, Any], steps: list[str | int], value: Any) -> None:
    """Put a value where the steps lead, making what is on the way."""
    here: Any = root
    for step, following in itertools.zip_longest(steps, steps[1:]):
        made: Any = value if following is None else _CONTAINERS[type(following)]()
        here = _enter(here, step, made, is_last=following is None)
        if here is None:
            return


def _enter(here: Any, step: str | int, made: Any, *, is_last: bool) -> Any:
    """Return what stands one step further, making it if need be; None where the path contradicts an earlier one."""
    items = as_list(here)
    if isinstance(here, list) and isinstance(step, int) and step - len(items) < LIST_GAP_MAX:
        items += [None] * (step + 1 - len(items))
        if is_last or items[step] is None:
            items[step] = made
        return items[step]
    if isinstance(here, dict) and isinstance(step, str):
        fields = cast("dict[str, Any]", here)
        if is_last or step not in fields:
            fields[step] = made
        return fields[step]
    return None
