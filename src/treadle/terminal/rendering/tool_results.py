"""Renders tool results as a few lines, and keeps the rest of long ones for later."""

from typing import Any, cast

import msgspec

from treadle.core.items import CallItem
from treadle.core.json import BadJson, read_json, write_json
from treadle.terminal.rendering.approval_card import Line, styled_diff

LINE_CHARS_MAX = 2_000
_SAID = frozenset({"output", "diff", "added", "removed"})
"""Fields of an envelope that are shown as text and not as fields."""


class FoldedResults(msgspec.Struct, frozen=True, kw_only=True):
    """How many lines of a result are shown at once, and how many more each time they are asked for."""

    preview_lines: int = 200
    full_lines: int = 200


class Folded(msgspec.Struct, frozen=True, kw_only=True):
    """The rest of a result that was not shown whole."""

    call: CallItem
    lines: list[Line]


def bounded(line: str) -> str:
    """Cut a line that is too long to be read."""
    return line if len(line) <= LINE_CHARS_MAX else f"{line[:LINE_CHARS_MAX]} …"


def result_lines(text: str, style: str = "dim") -> list[Line]:
    """Return a result for people: the `output` of an envelope as lines, a diff as one, the other fields below."""
    try:
        value: Any = read_json(text) if text.lstrip().startswith("{") else None
    except BadJson:
        value = None
    if not isinstance(value, dict) or not isinstance(cast("dict[str, Any]", value).get("output"), str):
        return _plain(text, style) if text else [(style, "(empty)")]
    fields = cast("dict[str, Any]", value)
    lines = _plain(fields["output"].rstrip("\n"), style) if fields["output"].strip() else []
    if isinstance(fields.get("diff"), str):
        diff = [bounded(line) for line in fields["diff"].split("\n")]
        lines += [(kind, line.strip("\n")) for kind, line in styled_diff(diff)]
        lines.append((style, f"+{fields.get('added', 0)} -{fields.get('removed', 0)}"))
    lines += [
        (style, bounded(f"{key}: {write_json(inner).decode()}")) for key, inner in fields.items() if key not in _SAID
    ]
    return lines or [(style, "(empty)")]


def _plain(text: str, style: str) -> list[Line]:
    return [(style, bounded(line)) for line in text.split("\n")]
