"""What the answers of the local tools have in common: caps, a JSON object that fits, words for what is missing.

What is left out of an answer is said in it: `truncated`, or a warning. No tool makes its answer in another way.
"""

import codecs
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from treadle.core.json import write_json
from treadle.core.tool_definitions import Envelope, Fault
from treadle.tools.result_rendering import ToolAnswer

_MARK = "\ud800"
"""Stands for bytes that could not be decoded; no decoder gives half a surrogate pair by itself."""
_REPLACED = "\ufffd"
_UNDECODABLE = "treadle.undecodable"
codecs.register_error(_UNDECODABLE, lambda error: (_MARK, error.end))  # type: ignore[attr-defined]


class LocalCaps(msgspec.Struct, frozen=True, kw_only=True):
    """How much the local tools give at once. `limits.max_tool_output_bytes` holds beside these."""

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
    """Return a tool's answer; with a fault it is a failure that still shows the body."""
    envelope = Envelope(
        ok=fault is None,
        data=msgspec.Raw(write_json(body)),
        warnings=tuple(warnings),
        errors=() if fault is None else (fault,),
    )
    return ToolAnswer(envelope=envelope, summary=summary, is_cut=body.get("truncated") is True)


def fitting(lines: Iterable[str], room: int) -> list[str]:
    """Return the lines from the first on that fit into so many bytes of JSON."""
    shown: list[str] = []
    for line in lines:
        room -= len(write_json(line))
        if room < 0:
            break
        shown.append(line)
    return shown


def decoder(encoding: str = "utf-8") -> codecs.IncrementalDecoder:
    """Return a decoder whose text `readable` can count the undecodable bytes of."""
    return codecs.getincrementaldecoder(encoding)(_UNDECODABLE)


def decoded(data: bytes) -> str:
    """Decode UTF-8, undecodable bytes marked for `readable`."""
    return data.decode("utf-8", _UNDECODABLE)


def readable(text: str) -> tuple[str, int]:
    """Return decoded text as it can be shown, and how often bytes of it had to be replaced."""
    count = text.count(_MARK)
    return (text.replace(_MARK, _REPLACED), count) if count else (text, 0)


def replaced_words(count: int, encoding: str = "UTF-8") -> tuple[str, ...]:
    """Return the warning about bytes that were replaced, if any were."""
    if not count:
        return ()
    return (f"Not valid {encoding}: bytes that could not be decoded were replaced by U+FFFD, {_times(count)}.",)


def odd_names_words(names: Iterable[str]) -> tuple[str, ...]:
    """Return the warning about file names that are not UTF-8, if there are any."""
    count = sum(any("\udc80" <= char <= "\udcff" for char in name) for name in names)
    if not count:
        return ()
    return (f"Names that are not UTF-8, with U+FFFD for bytes that could not be decoded: {count}.",)


def unread_words(count: int, what: str, first: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the warning about files or folders that could not be read, if there are any."""
    if not count:
        return ()
    named = f": {', '.join(first)}{' and others' if count > len(first) else ''}" if first else ""
    return (f"{count} {what}{'' if count == 1 else 's'} could not be read{named}.",)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
