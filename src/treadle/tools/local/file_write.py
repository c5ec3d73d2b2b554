"""The `file_write` and `file_edit` tools: replace whole files atomically, never through a link.

`SeenFiles` records by hash what each session has read, so that changes made since are not overwritten. A new file is
written beside the old one, synced and renamed over it, so that readers see either the old or the new one.
"""

import contextlib
import errno
import hashlib
import itertools
import os
import re
import secrets
import stat
from collections import OrderedDict
from collections.abc import Callable, Generator, Mapping
from difflib import unified_diff
from typing import Annotated, Any

import msgspec

from treadle.core.errors import ToolError
from treadle.core.json import cut_json_text, write_json
from treadle.tools.local.result_limits import DEFAULT_CAPS, LocalCaps, answer, decoded, readable, replaced_words
from treadle.tools.local.safe_open import LOOK, Opened, Root, refusal, reopen
from treadle.tools.result_rendering import ToolAnswer
from treadle.tools.tool_context import ToolContext

HASHED_BYTES_MAX = 1_048_576
"""The largest file that can be written; larger files need no hash."""
HASHES_MAX = 4_096
DIFF_BYTES_MAX = 8_192
DIFFED_BYTES_MAX = 262_144
"""A diff of larger texts takes too long."""
ENVELOPE_BYTES = 250
"""The most bytes of JSON added after the diff is cut: the truncation mark and a warning."""
MODE_NEW = 0o644
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OLD = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class SeenFiles:
    """The hashes of files as each session last saw them; the least recent are dropped."""

    def __init__(self) -> None:
        self._hashes: OrderedDict[tuple[str, str], str] = OrderedDict()

    def note_read(self, context: ToolContext, opened: Opened) -> None:
        """Record the hash of an open file.

        Raises: OSError.
        """
        status = os.fstat(opened.fd)
        if stat.S_ISREG(status.st_mode) and status.st_size <= HASHED_BYTES_MAX:
            self.note(context, opened.name, read_whole(opened.fd))

    def note(self, context: ToolContext, name: str, content: bytes) -> None:
        """Record the hash of content that a session has read or written."""
        key = (session_of(context), name)
        self._hashes[key] = digest(content)
        self._hashes.move_to_end(key)
        while len(self._hashes) > HASHES_MAX:
            self._hashes.popitem(last=False)

    def get(self, context: ToolContext, name: str) -> str | None:
        """Return the hash that the session recorded, if any."""
        return self._hashes.get((session_of(context), name))


def session_of(context: ToolContext) -> str:
    """Return the id under which calls share state: the session's, or else the run's."""
    return context.session_id or context.run_id


def digest(content: bytes) -> str:
    """Return the SHA-256 of the content in hex."""
    return hashlib.sha256(content).hexdigest()


def read_whole(fd: int) -> bytes:
    """Read a file from its start, up to one byte over the limit, without moving the file position.

    Raises: OSError.
    """
    pieces: list[bytes] = []
    at = 0
    while at <= HASHED_BYTES_MAX and (piece := os.pread(fd, HASHED_BYTES_MAX + 1 - at, at)):
        pieces.append(piece)
        at += len(piece)
    return b"".join(pieces)


class WriteTarget:
    """A file to be replaced: its open folder and its old content."""

    def __init__(self, folder: Opened, name: str, path: str) -> None:
        self.path = path
        self.name = name if folder.name == "." else f"{folder.name}/{name}"
        self._folder = folder
        self._leaf = name
        self._mode = MODE_NEW
        self.old = self._read_old()

    def replace(self, content: bytes) -> None:
        """Replace the file's content atomically and durably.

        Raises: ToolError.
        """
        temporary = f".{self._leaf[:64]}.{secrets.token_hex(6)}.tmp"
        fd = -1
        try:
            fd = os.open(temporary, _NEW, 0o600, dir_fd=self._folder.fd)
            with open(fd, "wb") as file:
                file.write(content)
                file.flush()
                os.fchmod(file.fileno(), self._mode)
                os.fsync(file.fileno())
            os.rename(temporary, self._leaf, src_dir_fd=self._folder.fd, dst_dir_fd=self._folder.fd)
            # Without syncing the folder too, the rename could be lost in a crash.
            os.fsync(self._folder.fd)
        except OSError as error:
            if fd >= 0:
                with contextlib.suppress(OSError):
                    os.unlink(temporary, dir_fd=self._folder.fd)
            raise refusal(error, self.path) from None

    def check(self, expected: str | None, known: str | None) -> None:
        """Refuse to overwrite content other than the expected or last seen one.

        Raises: ToolError.
        """
        now = None if self.old is None else digest(self.old)
        if expected is not None and expected.lower() != (now or ""):
            raise ToolError(f"The file does not have the expected sha256: {self.path}", code="changed")
        if expected is None and known is not None and known != now:
            what = "is gone" if now is None else "was changed"
            raise ToolError(f"The file {what} since it was read: {self.path}. Read it again first.", code="changed")

    def _read_old(self) -> bytes | None:
        try:
            fd = self._open_old()
        except FileNotFoundError:
            return None
        except OSError as error:
            if self._is_link():
                raise ToolError(f"Not written through a link: {self.path}", code="is_link") from None
            raise refusal(error, self.path) from None
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                raise ToolError(f"Not a regular file: {self.path}", code="not_a_file")
            self._mode = stat.S_IMODE(status.st_mode)
            return read_whole(fd)
        finally:
            os.close(fd)

    def _open_old(self) -> int:
        seen = os.open(self._leaf, _OLD | LOOK, dir_fd=self._folder.fd)
        try:
            if stat.S_ISLNK(os.fstat(seen).st_mode):
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), self._leaf)
            return reopen(seen, _OLD)
        finally:
            os.close(seen)

    def _is_link(self) -> bool:
        with contextlib.suppress(OSError):
            return stat.S_ISLNK(os.stat(self._leaf, dir_fd=self._folder.fd, follow_symlinks=False).st_mode)
        return False


def make_file_write(root: Root, seen: SeenFiles, caps: LocalCaps = DEFAULT_CAPS) -> Callable[..., ToolAnswer]:
    """Return the tool's function for one root."""

    def file_write(
        context: ToolContext,
        path: Annotated[str, msgspec.Meta(min_length=1)],
        content: str,
        expect_sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-fA-F]{64}$")] | None = None,
        protected: bool = False,
    ) -> ToolAnswer:
        """Write a whole file, which is made or replaced at once. Missing folders are made.

        Args:
            path: The file, relative to the root.
            content: All of its new text.
            expect_sha256: Write only if this is the sha256 of what the file holds now.
            protected: Ask a person to allow this protected path.
        """
        with _target(root, path, make=True, protected=protected) as target:
            target.check(expect_sha256, seen.get(context, target.name))
            new = _encoded(_with_line_ends(content, target.old), path)
            target.replace(new)
            seen.note(context, target.name, new)
            body = {"output": f"Wrote {len(new)} bytes to {path}", "bytes": len(new)}
            return _answer(body, target.old or b"", new, path, context, caps.diff_lines_max)

    return file_write


def make_file_edit(root: Root, seen: SeenFiles, caps: LocalCaps = DEFAULT_CAPS) -> Callable[..., ToolAnswer]:
    """Return the tool's function for one root."""

    def file_edit(
        context: ToolContext,
        path: Annotated[str, msgspec.Meta(min_length=1)],
        old: Annotated[str, msgspec.Meta(min_length=1)],
        new: str,
        replace_all: bool = False,
        protected: bool = False,
    ) -> ToolAnswer:
        """Replace a piece of text in a file. The old text must occur exactly once, or replace_all be set.

        Args:
            path: The file, relative to the root.
            old: The text to replace, as it stands in the file, with enough around it to be unique.
            new: The text to put there.
            replace_all: Replace every occurrence.
            protected: Ask a person to allow this protected path.
        """
        if old == new:
            raise ToolError("The old and the new text are the same.", code="no_change")
        with _target(root, path, protected=protected) as target:
            if target.old is None:
                raise ToolError(f"File not found: {path}", code="not_found")
            target.check(None, seen.get(context, target.name))
            text, count, note = _replaced(_decoded(target.old, path), old, new, replace_all=replace_all)
            content = _encoded(text, path)
            target.replace(content)
            seen.note(context, target.name, content)
            words = f"Replaced {count} occurrence{'' if count == 1 else 's'} in {path}{note}"
            body = {"output": words, "count": count, "bytes": len(content)}
            return _answer(body, target.old, content, path, context, caps.diff_lines_max)

    return file_edit


def write_refusal(root: Root, arguments: Mapping[str, Any]) -> str:
    """Return why a call of either tool would fail even if it were approved."""
    path = arguments.get("path")
    return root.write_refusal(path, protected=bool(arguments.get("protected"))) if isinstance(path, str) else ""


@contextlib.contextmanager
def _target(root: Root, path: str, *, make: bool = False, protected: bool) -> Generator[WriteTarget, None, None]:
    folder, name = root.open_folder_of(path, make=make, protected=protected)
    try:
        yield WriteTarget(folder, name, path)
    finally:
        os.close(folder.fd)


def _replaced(text: str, old: str, new: str, *, replace_all: bool) -> tuple[str, int, str]:
    """Replace the old text; a match that differs only in trailing spaces is accepted, with a note."""
    if "\r\n" in text and "\r" not in old:
        old, new = old.replace("\n", "\r\n"), new.replace("\r\n", "\n").replace("\n", "\r\n")
    spans = [found.span() for found in re.finditer(re.escape(old), text)]
    note = ""
    if not spans:
        spans, note = _loose_spans(text, old), " (spaces at line ends differed)"
    if not spans:
        raise ToolError("The old text is not in the file. Read it again and copy the text exactly.", code="no_match")
    if len(spans) > 1 and not replace_all:
        words = f"The old text is in the file {len(spans)} times. Give more of it, or set replace_all."
        raise ToolError(words, code="not_unique")
    pieces: list[str] = []
    at = 0
    for start, end in spans:
        pieces += [text[at:start], new]
        at = end
    return "".join([*pieces, text[at:]]), len(spans), note


def _loose_spans(text: str, old: str) -> list[tuple[int, int]]:
    """Find whole lines that are equal except for trailing spaces."""
    wanted = [line.rstrip() for line in old.splitlines()]
    lines = text.splitlines(keepends=True)
    stripped = [line.rstrip() for line in lines]
    starts = [0, *itertools.accumulate(len(line) for line in lines)]
    spans: list[tuple[int, int]] = []
    at = 0
    while any(wanted) and at + len(wanted) <= len(lines):
        if stripped[at] == wanted[0] and stripped[at : at + len(wanted)] == wanted:
            last = lines[at + len(wanted) - 1]
            ending = 0 if old.endswith("\n") else len(last) - len(last.rstrip("\r\n"))
            spans.append((starts[at], starts[at + len(wanted)] - ending))
            at += len(wanted)
        else:
            at += 1
    return spans


def _with_line_ends(content: str, old: bytes | None) -> str:
    """Use the old file's CRLF line ends if the new text has only LF."""
    if old and b"\r\n" in old and old.count(b"\n") == old.count(b"\r\n") and "\r" not in content:
        return content.replace("\n", "\r\n")
    return content


def _encoded(text: str, path: str) -> bytes:
    try:
        data = text.encode()
    except UnicodeEncodeError:
        raise ToolError("The text is not valid Unicode.", code="invalid_text") from None
    if len(data) > HASHED_BYTES_MAX:
        raise ToolError(f"Too large: {len(data)} bytes, {HASHED_BYTES_MAX} can be written: {path}", code="too_large")
    return data


def _decoded(data: bytes, path: str) -> str:
    if len(data) > HASHED_BYTES_MAX:
        raise ToolError(f"Too large to edit, {HASHED_BYTES_MAX} bytes at most: {path}", code="too_large")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ToolError(f"Not UTF-8 text: {path}", code="not_text") from None


def _answer(
    body: dict[str, Any], old: bytes, new: bytes, path: str, context: ToolContext, lines_max: int
) -> ToolAnswer:
    words: str = body["output"]
    if len(old) + len(new) > DIFFED_BYTES_MAX:
        note = f"No diff: both texts together are larger than {DIFFED_BYTES_MAX} bytes."
        return answer(body | {"truncated": True}, words, warnings=(note,))
    lines, replaced = _diff(old, new, path)
    added = sum(line.startswith("+") for line in lines[2:])
    removed = sum(line.startswith("-") for line in lines[2:])
    if lines:
        body |= {"added": added, "removed": removed, "diff": ""}
        shown = "\n".join(lines[:lines_max])
        room = context.output_bytes_max - len(write_json(body)) - ENVELOPE_BYTES
        body["diff"] = cut_json_text(shown, min(DIFF_BYTES_MAX, room))
        if len(lines) > lines_max or body["diff"] != shown:
            body["truncated"] = True
    return answer(body, f"{words} (+{added} -{removed})", warnings=replaced_words(replaced))


def _diff(old: bytes, new: bytes, path: str) -> tuple[list[str], int]:
    """Return the lines of a diff, and the number of replacements of undecodable bytes."""
    texts = [decoded(data).splitlines() for data in (old, new)]
    found = [readable(line) for line in unified_diff(texts[0], texts[1], f"a/{path}", f"b/{path}", lineterm="")]
    return [line for line, _ in found], sum(count for _, count in found)
