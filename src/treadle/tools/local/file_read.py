"""The `file_read` tool: a text file by lines, a directory listing, or the type and digest of a binary file.

Everything is limited: lines, bytes, characters of a line, time. Files are read in pieces, never as a whole.
"""

import codecs
import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from typing import Annotated, Any

import msgspec

from treadle.core.errors import ToolError
from treadle.core.json import cut_json_text, write_json
from treadle.core.tool_definitions import Fault
from treadle.tools.local.directory_walk import printable
from treadle.tools.local.file_write import SeenFiles
from treadle.tools.local.result_limits import (
    DEFAULT_CAPS,
    LocalCaps,
    answer,
    decoder,
    odd_names_words,
    readable,
    replaced_words,
)
from treadle.tools.local.safe_open import Root, refusal
from treadle.tools.result_rendering import ToolAnswer
from treadle.tools.tool_context import ToolContext

DEADLINE_S = 10.0
PIECE_BYTES = 65_536
SNIFFED_BYTES = 8_192
NEAR_MAX, SUGGESTED_MAX = 12, 3
ENVELOPE_BYTES = 400
"""The most bytes of JSON around the text."""

_ENCODINGS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_KINDS = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"%PDF-", "application/pdf"),
    (b"PK\x03\x04", "application/zip"),
    (b"\x1f\x8b", "application/gzip"),
    (b"\x7fELF", "application/x-elf"),
    (b"SQLite format 3\0", "application/vnd.sqlite3"),
    (b"\0asm", "application/wasm"),
)


class FileLine(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a line with its ending; `start` is the number of characters before it, `chars` the line's length."""

    text: str
    chars: int
    start: int = 0


class FileLines:
    """Splits pieces of text into lines, and stores no more of a line than can be shown.

    Of the line `first`, up to `first_chars_max` characters after `start` are stored; of others the first `chars_max`.
    """

    def __init__(self, chars_max: int, *, first: int = 1, start: int = 0, first_chars_max: int = 0) -> None:
        self._chars_max = chars_max
        self._first, self._start, self._first_chars_max = first, start, max(first_chars_max, chars_max)
        self._number = 1
        self._stored = ""
        self._chars = 0

    def feed(self, piece: str) -> list[FileLine]:
        """Add a piece of text and return the lines it completes."""
        *whole, rest = piece.split("\n")
        done = [self._close(each, "\n") for each in whole]
        self._add(rest)
        return done

    def finish(self) -> list[FileLine]:
        """Return the last line if it has no line ending."""
        return [self._close("", "")] if self._chars else []

    def _add(self, text: str) -> None:
        is_first = self._number == self._first
        skipped = max(0, self._start - self._chars) if is_first else 0
        room = (self._first_chars_max if is_first else self._chars_max) - len(self._stored)
        self._stored += text[skipped : skipped + room]
        self._chars += len(text)

    def _close(self, text: str, ending: str) -> FileLine:
        self._add(text)
        start = self._start if self._number == self._first else 0
        line = FileLine(text=self._stored + ending, chars=self._chars, start=start)
        self._stored, self._chars = "", 0
        self._number += 1
        return line


class FilePage:
    """Collects the lines to show, within the line and byte limits; `next` is where the next page starts."""

    def __init__(self, offset: int, limit: int, bytes_max: int, *, numbered: bool) -> None:
        self.next: dict[str, int] | None = None
        self.is_cut = False
        self.count = 0
        self.seen = 0
        self.replaced = 0
        self._offset, self._limit, self._numbered = offset, limit, numbered
        self._room = bytes_max
        self._texts: list[str] = []
        self._rest: dict[str, int] | None = None

    @property
    def text(self) -> str:
        """Return the text of the page."""
        return "".join(self._texts)

    def add(self, line: FileLine) -> bool:
        """Add a line; return whether to continue.

        Raises: ToolError, when the first line is shorter than the requested column.
        """
        self.seen += 1
        if self.seen < self._offset:
            return True
        if line.start and line.start >= line.chars:
            words = f"The column is past the end: line {self.seen} has {line.chars} characters."
            raise ToolError(words, code="past_end")
        number = f"{self.seen:6d}\t" if self._numbered else ""
        part, replaced = readable(line.text.removesuffix("\n"))
        ending = "\n" if line.text.endswith("\n") else ""
        column = line.start + len(part) + 1
        rest = line.chars - column + 1
        note = f"… [{rest} more characters: offset {self.seen} with column {column} shows them]" if rest else ""
        text = f"{number}{part}{note}{ending}"
        size = len(write_json(text)) - 2
        is_full = self.count == self._limit or (size > self._room and self.count > 0)
        if is_full:
            self.next = {"offset": self.seen}
            return False
        if line.start or size > self._room:
            return self._add_alone(line, number, part, ending, replaced)
        self._put(text, replaced)
        if rest:
            self.is_cut = True
            self._rest = self._rest or {"offset": self.seen, "column": column}
        return True

    def finish(self) -> None:
        """Without a next page, point to the rest of the first long line."""
        self.next = self.next or self._rest

    def _add_alone(self, line: FileLine, number: str, part: str, ending: str, replaced: int) -> bool:
        """Add as much as fits of a line that starts at a column or exceeds a whole page."""
        shown = cut_json_text(part, self._room - (len(write_json(number)) - 2)) or part[:1]
        end = line.start + len(shown)
        is_whole = end == line.chars
        self._put(f"{number}{shown}{ending if is_whole else ''}", min(replaced, shown.count("\ufffd")))
        if not is_whole:
            self.is_cut = True
            self.next = {"offset": self.seen, "column": end + 1}
        return is_whole

    def _put(self, text: str, replaced: int) -> None:
        self._texts.append(text)
        self._room -= len(write_json(text)) - 2
        self.count += 1
        self.replaced += replaced


def make_file_read(
    root: Root, seen: SeenFiles | None = None, caps: LocalCaps = DEFAULT_CAPS
) -> Callable[..., ToolAnswer]:
    """Return the tool's function for one root; `seen` records the hash of each file read."""

    def file_read(
        context: ToolContext,
        path: Annotated[str, msgspec.Meta(min_length=1)],
        offset: Annotated[int, msgspec.Meta(ge=1)] = 1,
        limit: Annotated[int, msgspec.Meta(ge=1, le=caps.file_read_lines_max)] = caps.file_read_lines_max,
        numbered: bool = False,
        column: Annotated[int, msgspec.Meta(ge=1)] = 1,
    ) -> ToolAnswer:
        """Read a text file by lines, or list a directory. Long results end early and say how to go on.

        Args:
            path: The file, relative to the root.
            offset: The first line to show, counted from 1.
            limit: How many lines to show at most.
            numbered: Put line numbers before the lines.
            column: The first character to show of the first line, counted from 1: reads on in a very long line.
        """
        deadline = time.monotonic() + DEADLINE_S

        def check() -> None:
            if context.cancelled or time.monotonic() > deadline:
                raise ToolError(f"Reading took longer than {DEADLINE_S:g} s: {path}", code="timeout")

        try:
            opened = root.open(path)
        except ToolError as error:
            if error.info.code != "not_found":
                raise
            return _not_found(root, path, error, caps.listed_max)
        around = min(ENVELOPE_BYTES, context.output_bytes_max // 2)
        bytes_max = min(caps.file_read_bytes_max, context.output_bytes_max - around)
        page = FilePage(offset, limit, bytes_max, numbered=numbered)
        lines = FileLines(
            caps.line_chars_max, first=offset, start=column - 1, first_chars_max=bytes_max if column > 1 else 0
        )
        try:
            if seen is not None:
                seen.note_read(context, opened)
            return _read(opened.fd, page, lines, caps, check)
        except OSError as error:
            raise refusal(error, path) from None
        finally:
            os.close(opened.fd)

    return file_read


def _read(fd: int, page: FilePage, lines: FileLines, caps: LocalCaps, check: Callable[[], None]) -> ToolAnswer:
    status = os.fstat(fd)
    if stat.S_ISDIR(status.st_mode):
        names, is_all = _names(fd, caps.listed_max, check)
        listed = (FileLine(text=f"{printable(name)}\n", chars=len(printable(name))) for name in names)
        return _paged(page, listed, ("entry", "entries"), is_all=is_all, warnings=odd_names_words(names))
    head = os.read(fd, SNIFFED_BYTES)
    encoding = next((name for mark, name in _ENCODINGS if head.startswith(mark)), None)
    if encoding is None and b"\0" in head:
        return _binary(fd, head, status.st_size, check)
    return _paged(page, _lines(fd, head, lines, encoding or "utf-8", check), ("line", "lines"), encoding=encoding)


def _paged(
    page: FilePage,
    lines: Iterator[FileLine],
    noun: tuple[str, str],
    *,
    encoding: str | None = None,
    is_all: bool = True,
    warnings: tuple[str, ...] = (),
) -> ToolAnswer:
    for line in lines:
        if not page.add(line):
            break
    page.finish()
    if page.count == 0 and page.seen:
        raise ToolError(f"The offset is past the end: there are {page.seen} lines.", code="past_end")
    body: dict[str, Any] = {"output": page.text}
    if encoding is not None:
        body["encoding"] = encoding
    if page.is_cut or page.next is not None or not is_all:
        body["truncated"] = True
    if page.next is not None:
        body["next"] = page.next
    if not is_all:
        warnings = (*warnings, "The folder has more entries than are listed.")
    words = replaced_words(page.replaced, (encoding or "utf-8").upper())
    return answer(body, f"{page.count} {noun[page.count != 1]} read", warnings=(*words, *warnings))


def _lines(fd: int, head: bytes, lines: FileLines, encoding: str, check: Callable[[], None]) -> Iterator[FileLine]:
    source = decoder(encoding)
    piece = head
    while piece:
        check()
        yield from lines.feed(source.decode(piece))
        piece = os.read(fd, PIECE_BYTES)
    yield from lines.feed(source.decode(b"", final=True))
    yield from lines.finish()


def _names(fd: int, most: int, check: Callable[[], None]) -> tuple[list[str], bool]:
    """Return a folder's sorted names, folders with a slash, and whether the list is complete."""
    names: list[str] = []
    with os.scandir(fd) as entries:
        for entry in entries:
            if len(names) == most:
                return sorted(names), False
            names.append(entry.name + ("/" if entry.is_dir(follow_symlinks=False) else ""))
            if len(names) % 256 == 0:
                check()
    return sorted(names), True


def _binary(fd: int, head: bytes, size: int, check: Callable[[], None]) -> ToolAnswer:
    """Describe a binary file. If it grows during the read, only the original size is hashed."""
    digest, left, piece = hashlib.sha256(), size, head
    while piece and left > 0:
        check()
        digest.update(piece[:left])
        left -= len(piece)
        piece = os.read(fd, PIECE_BYTES)
    kind = next((name for mark, name in _KINDS if head.startswith(mark)), "application/octet-stream")
    words = f"Binary file: {kind}, {size} bytes, sha256 {digest.hexdigest()}"
    return answer({"output": words, "type": kind, "bytes": size, "sha256": digest.hexdigest()}, words)


def _not_found(root: Root, path: str, error: ToolError, listed_max: int) -> ToolAnswer:
    near = _nearest(root, path, listed_max)
    fault = Fault(code="not_found", message=error.message)
    return answer({"did_you_mean": near} if near else {}, error.message, fault=fault)


def _nearest(root: Root, path: str, listed_max: int) -> list[str]:
    """Return up to three readable paths in the same directory with similar names."""
    folder, _, name = path.rstrip("/").rpartition("/")
    try:
        fd = root.open(folder or ("/" if path.startswith("/") else "."), os.O_RDONLY | os.O_DIRECTORY).fd
    except ToolError:
        return []
    try:
        names = [each.rstrip("/") for each in _names(fd, listed_max, lambda: None)[0]]
    finally:
        os.close(fd)
    prefix = f"{folder}/" if folder else ""
    close = (prefix + each for each in get_close_matches(name, names, NEAR_MAX, cutoff=0.5))
    return [printable(each) for each in close if _is_there(root, each)][:SUGGESTED_MAX]


def _is_there(root: Root, path: str) -> bool:
    """Return whether a path can be opened; a dangling link cannot."""
    try:
        os.close(root.open(path).fd)
    except ToolError:
        return False
    return True
