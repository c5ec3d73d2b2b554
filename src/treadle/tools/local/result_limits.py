"""Shared result format of the local tools: size limits, JSON bodies that fit, and warnings about what is missing.

Every truncation is stated in the result, by `truncated` or a warning. All local tools build their results here.
"""

import codecs
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from treadle.core.json import write_json
from treadle.core.tool_definitions import Envelope, Fault
from treadle.tools.result_rendering import ToolAnswer

_MARK = "\ud800"
"""Marks undecodable bytes; unambiguous, since no decoder returns a lone surrogate by itself."""
_REPLACED = "\ufffd"
_UNDECODABLE = "treadle.undecodable"
codecs.register_error(_UNDECODABLE, lambda error: (_MARK, error.end))  # type: ignore[attr-defined]


class LocalCaps(msgspec.Struct, frozen=True, kw_only=True):
    """Size limits of the local tools' results. `limits.max_tool_output_bytes` applies as well."""

    file_read_bytes_max: int = 51_200
    file_read_lines_max: int = 2_000
    line_chars_max: int = 2_000
    listed_max: int = 10_000
    bash_bytes_max: int = 32_768
    kept_bytes_max: int = 1_048_576
    output_read_bytes_max: int = 49_152
    grep_matches_max: int = 1_000
    grep_per_file_max: int = 20
    grep_line_chars_max: int = 300
    glob_paths_max: int = 2_000
    outline_symbols_max: int = 400
    diff_lines_max: int = 80


DEFAULT_CAPS = LocalCaps()


def answer(
    body: dict[str, Any], summary: str, *, warnings: Sequence[str] = (), fault: Fault | None = None
) -> ToolAnswer:
    """Build a tool's result; with a fault it is a failure that still includes the body."""
    envelope = Envelope(
        ok=fault is None,
        data=msgspec.Raw(write_json(body)),
        warnings=tuple(warnings),
        errors=() if fault is None else (fault,),
    )
    return ToolAnswer(envelope=envelope, summary=summary, is_cut=body.get("truncated") is True)


def fitting(lines: Iterable[str], room: int) -> list[str]:
    """Return the first lines that fit in `room` bytes of JSON."""
    shown: list[str] = []
    for line in lines:
        room -= len(write_json(line))
        if room < 0:
            break
        shown.append(line)
    return shown


def decoder(encoding: str = "utf-8") -> codecs.IncrementalDecoder:
    """Return a decoder that marks undecodable bytes for `readable`."""
    return codecs.getincrementaldecoder(encoding)(_UNDECODABLE)


def decoded(data: bytes) -> str:
    """Decode UTF-8, marking undecodable bytes for `readable`."""
    return data.decode("utf-8", _UNDECODABLE)


def readable(text: str) -> tuple[str, int]:
    """Return the text with marks replaced by U+FFFD, and the number of replacements."""
    count = text.count(_MARK)
    return (text.replace(_MARK, _REPLACED), count) if count else (text, 0)


def replaced_words(count: int, encoding: str = "UTF-8") -> tuple[str, ...]:
    """Return the warning about replaced bytes, if any."""
    if not count:
        return ()
    return (f"Not valid {encoding}: bytes that could not be decoded were replaced by U+FFFD, {_times(count)}.",)


def odd_names_words(names: Iterable[str]) -> tuple[str, ...]:
    """Return the warning about file names that are not UTF-8, if any."""
    count = sum(any("\udc80" <= char <= "\udcff" for char in name) for name in names)
    if not count:
        return ()
    return (f"Names that are not UTF-8, with U+FFFD for bytes that could not be decoded: {count}.",)


def unread_words(count: int, what: str, first: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the warning about unreadable files or folders, if any."""
    if not count:
        return ()
    named = f": {', '.join(first)}{' and others' if count > len(first) else ''}" if first else ""
    return (f"{count} {what}{'' if count == 1 else 's'} could not be read{named}.",)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
