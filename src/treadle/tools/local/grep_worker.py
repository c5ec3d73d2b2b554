"""Python implementation of the search of `grep`, for systems without ripgrep. Runs as a process of its own, since a
pattern may backtrack without end and only a process can be killed.

It reads one JSON argument and writes ripgrep's format: `path NUL line:text`. Imports are limited to what the walk
needs, for a fast start.
"""

import json
import os
import re
import sys
from collections.abc import Iterator
from typing import Any

from treadle.core.errors import ToolError
from treadle.tools.local.directory_walk import Walk, printable
from treadle.tools.local.glob_pattern import glob_pattern
from treadle.tools.local.safe_open import Root

FILE_BYTES_MAX = 10_485_760
SNIFFED_BYTES = 8_192
BAD_PATTERN_CODE = 2
_UNREADABLE = ("permission_denied", "io_error")
_CUT = " [... omitted end of long line]"
"""Ripgrep's own text."""


def main() -> None:
    """Run the search that the JSON argument describes."""
    wanted: dict[str, Any] = json.loads(sys.argv[1])
    source = re.escape(wanted["pattern"]) if wanted["fixed"] else wanted["pattern"]
    try:
        regex = re.compile(source, re.MULTILINE | (re.IGNORECASE if wanted["ignore_case"] else 0))
    except (re.error, OverflowError, RecursionError) as error:
        sys.stdout.write(f"{error}\n")
        sys.exit(BAD_PATTERN_CODE)
    root = Root(wanted["root"], allow=wanted["allow"], hidden=wanted.get("hidden", ()))
    for path in _paths(root, wanted["path"], wanted["include"]):
        _search(root, path, regex, wanted)


def _paths(root: Root, path: str, include: str) -> list[str]:
    pattern = glob_pattern(include if "/" in include else f"**/{include}")
    opened = root.open(path)
    os.close(opened.fd)
    walk = Walk(root, pattern, lambda: False)
    try:
        walk.run(() if opened.name == "." else tuple(opened.name.split("/")))
    except ToolError:
        # The path is a file, not a folder.
        return [opened.name]
    if walk.unread:
        _write_note(f"{walk.unread} folder{'' if walk.unread == 1 else 's'} could not be read.")
    if not walk.is_complete:
        _write_note(f"There are too many files: only {len(walk.found)} were searched.")
    return sorted(name for name, _ in walk.found)


def _search(root: Root, path: str, regex: re.Pattern[str], wanted: dict[str, Any]) -> None:
    text = _text(root, path)
    if text is None or regex.search(text) is None:
        return
    lines = text.split("\n")
    hits = [at for at, line in enumerate(lines) if regex.search(line) and (line or at + 1 < len(lines))]
    name = os.fsencode(path)
    if not hits:
        return
    if wanted["mode"] != "content":
        _write(name + b"\0%d" % len(hits))
        return
    for at, is_hit in _with_context(hits, wanted["context"], len(lines)):
        whole = lines[at].rstrip("\r")
        line = whole[: wanted["columns"]] + (_CUT if len(whole) > wanted["columns"] else "")
        _write(name + b"\0%d%s" % (at + 1, b":" if is_hit else b"-") + line.encode("utf-8", "surrogateescape"))


def _with_context(hits: list[int], context: int, count: int) -> Iterator[tuple[int, bool]]:
    found = set(hits)
    shown = {near for at in hits for near in range(max(0, at - context), min(count, at + context + 1))}
    return ((at, at in found) for at in sorted(shown))


def _text(root: Root, path: str) -> str | None:
    try:
        fd = root.open(path).fd
    except ToolError as error:
        if error.info.code in _UNREADABLE:
            _write(os.fsencode(f"rg: ./{path}: {error.info.code}"))
        return None
    with open(fd, "rb") as file:
        try:
            data = file.read(FILE_BYTES_MAX + 1)
        except OSError as error:
            _write(os.fsencode(f"rg: ./{path}: {error.strerror}"))
            return None
    if b"\0" in data[:SNIFFED_BYTES]:
        return None
    if len(data) > FILE_BYTES_MAX:
        _write_note(f"Only the first {FILE_BYTES_MAX} bytes were searched of {printable(path)}.")
    return data[:FILE_BYTES_MAX].decode("utf-8", "surrogateescape")


def _write_note(words: str) -> None:
    """Report what was not searched, under an empty file name, which no file has."""
    _write(b"\0" + words.encode())


def _write(line: bytes) -> None:
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()
