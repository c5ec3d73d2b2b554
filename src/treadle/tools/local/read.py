"""`file_read`: text of a file by lines, a listing of a directory, or what kind of bytes a binary file holds.

Everything is bounded: lines, bytes, characters of a line, time. A file is read in pieces and never whole.
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

from treadle.canon.errors import ToolError
from treadle.canon.json import cut_text, write_json
from treadle.canon.tools import Envelope, Fault
from treadle.tools.context import ToolContext
from treadle.tools.envelope import Answer
from treadle.tools.local.opener import Root, refusal
from treadle.tools.local.walk import printable
from treadle.tools.local.write import Seen

LINES_MAX = 2_000
OUTPUT_BYTES_MAX = 51_200
LINE_CHARS_MAX = 2_000
DEADLINE_S = 10.0
PIECE_BYTES = 65_536
SNIFFED_BYTES = 8_192
LISTED_MAX = 10_000
ENVELOPE_BYTES = 200
"""What the JSON around the text takes at most."""

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


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One line with its ending, cut when it is very long; `chars` is how long it really is."""

    text: str
    chars: int


class Lines:
    """Splits pieces of text into lines and keeps no more of a line than is ever shown."""

    def __init__(self) -> None:
        self._kept = ""
        self._chars = 0

    def feed(self, piece: str) -> list[Line]:
        """Take a piece and return the lines it completes."""
        *whole, rest = piece.split("\n")
        done = [self._close(each, "\n") for each in whole]
        self._add(rest)
        return done

    def finish(self) -> list[Line]:
        """Return the last line, if it has no ending of its own."""
        return [self._close("", "")] if self._chars else []

    def _add(self, text: str) -> None:
        self._kept += text[: LINE_CHARS_MAX - len(self._kept)]
        self._chars += len(text)

    def _close(self, text: str, ending: str) -> Line:
        self._add(text)
        line = Line(text=self._kept + ending, chars=self._chars)
        self._kept, self._chars = "", 0
        return line


class Page:
    """Collects the lines that are shown, within the line and byte limits; `next_line` is where it had to stop."""

    def __init__(self, offset: int, limit: int, bytes_max: int, *, numbered: bool) -> None:
        self.next_line: int | None = None
        self.is_cut = False
        self.count = 0
        self.seen = 0
        self._offset, self._limit, self._numbered = offset, limit, numbered
        self._room = bytes_max
        self._texts: list[str] = []

    @property
    def text(self) -> str:
        """Return what is shown."""
        return "".join(self._texts)

    def add(self, line: Line) -> bool:
        """Take a line and tell whether more are wanted."""
        self.seen += 1
        if self.seen < self._offset:
            return True
        text = self._shown(line)
        size = len(write_json(text)) - 2
        if self.count == self._limit or (size > self._room and self.count):
            self.next_line = self.seen
            return False
        if size > self._room:
            # Even the first line is too much: show what fits, so that the next page is another one.
            text, self.is_cut = cut_text(text, self._room // 6), True
        self._texts.append(text)
        self._room -= size
        self.count += 1
        return True

    def _shown(self, line: Line) -> str:
        text = line.text
        if line.chars > LINE_CHARS_MAX:
            self.is_cut = True
            ending = "\n" if text.endswith("\n") else ""
            text = f"{text.removesuffix(ending)}… [{line.chars - LINE_CHARS_MAX} more characters]{ending}"
        return f"{self.seen:6d}\t{text}" if self._numbered else text


def make_file_read(root: Root, seen: Seen | None = None) -> Callable[..., Answer]:
    """Return the function behind the tool, for one root; `seen` is told what was read."""

    def file_read(
        context: ToolContext,
        path: Annotated[str, msgspec.Meta(min_length=1)],
        offset: Annotated[int, msgspec.Meta(ge=1)] = 1,
        limit: Annotated[int, msgspec.Meta(ge=1, le=LINES_MAX)] = LINES_MAX,
        numbered: bool = False,
    ) -> Answer:
        """Read a text file by lines, or list a directory. Long results end early and say how to go on.

        Args:
            path: The file, relative to the root.
            offset: The first line to show, counted from 1.
            limit: How many lines to show at most.
            numbered: Put line numbers before the lines.
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
            return _not_found(root, path, error)
        bytes_max = max(0, min(OUTPUT_BYTES_MAX, context.output_bytes_max - ENVELOPE_BYTES))
        page = Page(offset, limit, bytes_max, numbered=numbered)
        try:
            if seen is not None:
                seen.note_read(context, opened)
            return _read(opened.fd, page, check)
        except OSError as error:
            raise refusal(error, path) from None
        finally:
            os.close(opened.fd)

    return file_read


def _read(fd: int, page: Page, check: Callable[[], None]) -> Answer:
    status = os.fstat(fd)
    if stat.S_ISDIR(status.st_mode):
        return _paged(page, _listing(fd, check), "entr", ("y", "ies"))
    head = os.read(fd, SNIFFED_BYTES)
    encoding = next((name for mark, name in _ENCODINGS if head.startswith(mark)), None)
    if encoding is None and b"\0" in head:
        return _binary(fd, head, status.st_size, check)
    return _paged(page, _lines(fd, head, encoding or "utf-8", check), "line", ("", "s"))


def _paged(page: Page, lines: Iterator[Line], noun: str, endings: tuple[str, str]) -> Answer:
    for line in lines:
        if not page.add(line):
            break
    if page.count == 0 and page.seen:
        raise ToolError(f"The offset is past the end: there are {page.seen} lines.", code="past_end")
    body: dict[str, Any] = {"output": page.text}
    if page.is_cut or page.next_line is not None:
        body["truncated"] = True
    if page.next_line is not None:
        body["next"] = {"offset": page.next_line}
    return _answer(body, f"{page.count} {noun}{endings[page.count != 1]} read")


def _lines(fd: int, head: bytes, encoding: str, check: Callable[[], None]) -> Iterator[Line]:
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    lines = Lines()
    piece = head
    while piece:
        check()
        yield from lines.feed(decoder.decode(piece))
        piece = os.read(fd, PIECE_BYTES)
    yield from lines.feed(decoder.decode(b"", final=True))
    yield from lines.finish()


def _listing(fd: int, check: Callable[[], None]) -> Iterator[Line]:
    names: list[str] = []
    with os.scandir(fd) as entries:
        for entry in entries:
            names.append(printable(entry.name) + ("/" if entry.is_dir(follow_symlinks=False) else ""))
            if len(names) % 256 == 0:
                check()
            if len(names) == LISTED_MAX:
                break
    return (Line(text=f"{name}\n", chars=len(name)) for name in sorted(names))


def _binary(fd: int, head: bytes, size: int, check: Callable[[], None]) -> Answer:
    """Describe bytes that are not text. A file that grows meanwhile is hashed up to the size it had."""
    digest, left, piece = hashlib.sha256(), size, head
    while piece and left > 0:
        check()
        digest.update(piece[:left])
        left -= len(piece)
        piece = os.read(fd, PIECE_BYTES)
    kind = next((name for mark, name in _KINDS if head.startswith(mark)), "application/octet-stream")
    words = f"Binary file: {kind}, {size} bytes, sha256 {digest.hexdigest()}"
    return _answer({"output": words, "type": kind, "bytes": size, "sha256": digest.hexdigest()}, words)


def _not_found(root: Root, path: str, error: ToolError) -> Answer:
    near = _nearest(root, path)
    return Answer(
        envelope=Envelope(
            ok=False,
            data=msgspec.Raw(write_json({"did_you_mean": near} if near else {})),
            errors=(Fault(code="not_found", message=error.message),),
        ),
        summary=error.message,
    )


def _nearest(root: Root, path: str) -> list[str]:
    """Return up to three paths in the same directory whose names are close."""
    folder, _, name = path.rstrip("/").rpartition("/")
    try:
        fd = root.open(folder or ("/" if path.startswith("/") else "."), os.O_RDONLY | os.O_DIRECTORY).fd
    except ToolError:
        return []
    try:
        names = [line.text.rstrip("\n").rstrip("/") for line in _listing(fd, lambda: None)]
    finally:
        os.close(fd)
    prefix = f"{folder}/" if folder else ""
    return [prefix + each for each in get_close_matches(name, names, 3, cutoff=0.5)]


def _answer(body: dict[str, Any], summary: str) -> Answer:
    return Answer(envelope=Envelope(ok=True, data=msgspec.Raw(write_json(body))), summary=summary)
