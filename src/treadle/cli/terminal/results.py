"""Results of tools as lines for a person, and what is left of one that was not shown whole."""

from typing import Any, cast

import msgspec

from treadle.canon.items import CallItem
from treadle.canon.json import BadJson, read_json, write_json

LINE_CHARS_MAX = 2_000


class Folds(msgspec.Struct, frozen=True, kw_only=True):
    """How many lines of a result are shown at once, and how many more each time they are asked for."""

    preview_lines: int = 20
    full_lines: int = 200


class Folded(msgspec.Struct, frozen=True, kw_only=True):
    """What is left of a result that was not shown whole."""

    call: CallItem
    lines: list[str]
    style: str


def bounded(line: str) -> str:
    """Cut a line that nobody would read to its end."""
    return line if len(line) <= LINE_CHARS_MAX else f"{line[:LINE_CHARS_MAX]} …"


def result_lines(text: str) -> list[str]:
    """Return a result for people: the `output` of an envelope as lines with the other fields below, else the text."""
    try:
        value: Any = read_json(text) if text.lstrip().startswith("{") else None
    except BadJson:
        value = None
    if isinstance(value, dict) and isinstance(cast("dict[str, Any]", value).get("output"), str):
        fields = cast("dict[str, Any]", value)
        rest = [f"{key}: {write_json(inner).decode()}" for key, inner in fields.items() if key != "output"]
        text = "\n".join([fields["output"].rstrip("\n"), *rest])
    return [bounded(line) for line in text.split("\n")] if text else ["(empty)"]
