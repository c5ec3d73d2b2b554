"""Asks whether a treadle.toml found in the working directory may be used, after showing what it would do."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.core.errors import ConfigError
from treadle.terminal.rendering.sanitize import one_line, reveal

if TYPE_CHECKING:
    from treadle.config.loader import Examined
    from treadle.config.trusted_files import Doubt

LINES_MAX = 40
"""Lines of a question: what stands above them is out of sight when it is answered."""
LINE_CHARS_MAX = 400
_HEADS = {
    "new": "{path} was found here, and has not been used before. It would",
    "changed": "{path} has changed since you agreed to it. It would now",
    "trusted": "{path} is trusted. It may",
}


def agree(file: Path) -> bool:
    """Ask whether a file may be used and remember a yes; without a terminal the answer is no.

    Raises: ConfigError, when the file has mistakes or the answer cannot be stored.
    """
    from treadle.config.loader import examine_file

    if not _can_ask():
        return False
    found = examine_file(file, env=os.environ)
    lines = describe_file(found)
    shown = [_shortened(line) for line in lines[:LINES_MAX]]
    if len(lines) > len(shown):
        shown.append(f"  … and {len(lines) - len(shown)} lines more: `treadle trust --show` prints them all")
    print("\n".join(shown), "Use it? [y/N] ", sep="\n", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        return False
    remember(found.doubt)
    return True


def _can_ask() -> bool:
    """Return whether a person can answer: a job in the background would only be stopped by reading."""
    try:
        return sys.stdin.isatty() and sys.stderr.isatty() and os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (OSError, ValueError):
        return False


def describe_file(found: "Examined") -> list[str]:
    """Return what a file would do, after a line that names it."""
    from treadle.config.trust_summary import list_effects
    from treadle.config.trusted_content import MISSING
    from treadle.config.trusted_files import trust_message

    doubt = found.doubt
    head = _HEADS[doubt.state].format(path=_safe(doubt.path))
    if [path for path in doubt.changed if path != doubt.path]:
        head = f"{_safe(trust_message(doubt))} It would now"
    deeds = list_effects(found.settings, found.keys)
    there = [path for path, digest in doubt.files.items() if digest != MISSING]
    bound = [f"with the file {path}{' (changed)' if path in doubt.changed else ''}" for path in there]
    return [head, *(f"  {_safe(line)}" for line in [*(deeds or ["change nothing"]), *bound])]


def remember(doubt: "Doubt") -> None:
    """Store trust in a file with the content that was read.

    Raises: ConfigError, when it cannot be stored.
    """
    from treadle.config.loader import data_directory
    from treadle.config.trusted_files import Trust

    folder = data_directory(os.environ)
    try:
        Trust(folder).add(doubt)
    except OSError as error:
        hint = f"--config {os.path.basename(doubt.path)} uses the file without asking"
        raise ConfigError(f"{folder}: the answer can not be kept: {error.strerror}", hint=hint) from None


def _safe(text: str) -> str:
    """Return a line in which everything can be seen."""
    return one_line(reveal(text))


def _shortened(line: str) -> str:
    if len(line) <= LINE_CHARS_MAX:
        return line
    return f"{line[:LINE_CHARS_MAX]}… ({len(line) - LINE_CHARS_MAX} more characters)"
