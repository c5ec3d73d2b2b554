"""Texts for the terminal: errors, limits, notes, counts and time spans. Writes nothing."""

import textwrap

from treadle.core.errors import ErrorInfo
from treadle.core.request import Note
from treadle.terminal.rendering.sanitize import clean

ANSWERS_ANEW = (
    "the model call was cut off when its process died, and answers differently now: "
    "what it had said, just above, does not count"
)
MEANING_COLUMNS_MIN = 24
_LIMIT_KEYS = {
    "max_iterations": "terminal.max_tool_turns",
    "max_total_tool_calls": "terminal.max_tool_calls",
    "wall_time": "terminal.wall_s",
    "identical_repeats": "limits.identical_repeats_max",
}
"""What a run calls its limits, and the key that moves each of them here."""

_NOTE_WORDS = {
    "bad_frame": "the upstream sent something that can not be read; it was left out",
    "call_cut": "a call was cut off before it was whole; it was left out",
}
"""Plainer texts for notes whose own text needs knowledge of the protocol."""


def error_lines(error: ErrorInfo) -> list[str]:
    """Return the lines of an error: what is wrong, then the hint."""
    wait_s = error.retry_after_s
    first = clean(error.message) if wait_s is None else f"{clean(error.message)} (retry in {wait_s:.0f} s)"
    return [first, *(f"  hint: {clean(line)}" for line in (error.hint or "").splitlines())]


def limit_text(limit: str) -> str:
    """Return a limit with the key that sets it."""
    key = _LIMIT_KEYS.get(limit)
    return f"{limit} (the key {key})" if key else limit


def note_text(note: Note) -> str:
    """Return a note on one line."""
    return clean(_NOTE_WORDS.get(note.code, note.message)).replace("\n", "⏎")


def short_span(seconds: float) -> str:
    """Return a span of time in its two largest units: 45s, 14m 59s, 3h 20m, 12d 4h."""
    whole = max(0, int(seconds))
    parts = ((whole // 86_400, "d"), (whole // 3_600 % 24, "h"), (whole // 60 % 60, "m"), (whole % 60, "s"))
    first = next((place for place, (count, _) in enumerate(parts) if count), len(parts) - 1)
    return " ".join(f"{count}{unit}" for count, unit in parts[first : first + 2])


def in_columns(rows: list[tuple[str, str]], width: int | None) -> list[str]:
    """Write names and what they mean side by side, or below one another where that leaves no room; None has no end."""
    first = max(len(name) for name, _ in rows) + 4
    if width is None:
        return [f"  {name:<{first - 4}}  {meaning}" for name, meaning in rows]
    if width - first < MEANING_COLUMNS_MIN:
        return [line for name, meaning in rows for line in (f"  {name}", f"      {meaning}")]
    lines: list[str] = []
    for name, meaning in rows:
        head, *rest = textwrap.wrap(meaning, width - first)
        lines += [f"  {name:<{first - 4}}  {head}", *(" " * first + line for line in rest)]
    return lines


def plural(count: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless it is one."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
